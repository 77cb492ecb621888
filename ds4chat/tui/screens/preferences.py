"""Looks and settings of the chat screen, and the prompt in the person's editor."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Mapping

from textual.app import SuspendNotSupported

from ds4chat import settings
from ds4chat.errors import SettingsError
from ds4chat.tui import editor, themes
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.palette import Palette
from ds4chat.tui.problems import sentence
from ds4chat.tui.screens.reading import ReadingScreen
from ds4chat.tui.screens.settings import SettingsScreen
from ds4chat.tui.settings_book import SettingsBook
from ds4chat.tui.themes import ChatTheme

MAX_PROGRAM_LINES = 200  # shown of what a subcommand prints


class PreferenceScreen(ReadingScreen):
    """The part of the chat screen that changes how it looks and what it starts from."""

    _options: ChatOptions
    _themes: Mapping[str, ChatTheme]
    _theme_name: str
    _palette: Palette
    _book: SettingsBook | None = None

    def theme_names(self) -> list[str]:
        """All themes."""
        return sorted(self._themes)

    def theme_name(self) -> str:
        """The theme in use."""
        return self._theme_name

    def set_theme(self, name: str) -> None:
        """Choose another theme, at once. Raises SettingsError."""
        theme = themes.pick(self._themes, name)
        self._theme_name = name or themes.DEFAULT
        self._palette = theme.palette
        self.app.theme = theme.screen.name
        self.transcript.set_theme_colours(theme.palette)
        self.hint(f"Theme: {self._theme_name}")

    def action_settings(self) -> None:
        """Show all settings."""
        if self._book is None:
            start = self._options.settings or settings.Settings()
            self._book = SettingsBook(start=start, config_file=self._options.config_file)
        self.app.push_screen(SettingsScreen(self, self._book))

    def run_program(self, words: tuple[str, ...]) -> None:
        """Run a subcommand of this program beside the chat and show what it prints."""
        self.chat.say(f"ds4chat {shlex.join(words)} runs beside the chat …")
        self.run_worker(self._run_program(words), group="program", exclusive=True)

    async def _run_program(self, words: tuple[str, ...]) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "ds4chat",
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            said, wrong = await process.communicate()
        finally:
            if process.returncode is None:  # the chat ends, or another one takes its turn
                process.kill()
        shown = said if process.returncode == 0 else said + wrong
        text = shown.decode("utf-8", "replace").strip()
        lines = text.splitlines()[:MAX_PROGRAM_LINES]
        if len(lines) < len(text.splitlines()):
            lines.append(f"… {len(text.splitlines()) - len(lines)} lines more in a shell")
        level = "info" if process.returncode == 0 else "warning"
        self.chat.say("\n".join(lines) or "It said nothing.", level)

    def action_edit_prompt(self) -> None:
        """Edit the prompt in the person's editor."""
        trouble: SettingsError | None = None
        try:
            with self.app.suspend():
                # Nothing may leave this block: the terminal would not be taken back.
                try:
                    self._prompt.load(editor.edit(self._prompt.text, settings.editor_command()))
                except SettingsError as error:
                    trouble = error
        except SuspendNotSupported:
            self.chat.say("This terminal cannot be lent to an editor.", "error")
        if trouble is not None:
            self.chat.say(sentence(trouble.message, trouble.hint), "error")
        self._prompt.focus()
