"""The application: theme, the engine's mailbox, and the way out."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import ClassVar

from textual.app import App, SuspendNotSupported
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.driver import Driver

from ds4chat import paths
from ds4chat.errors import Ds4Error
from ds4chat.protocol.commands import Load
from ds4chat.protocol.engine import EngineLink
from ds4chat.protocol.events import EngineFailed, Event
from ds4chat.tui import job_control, memory, terminal_input, terminal_output, themes
from ds4chat.tui.bridge import EngineReported
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.screens.chat import ChatScreen
from ds4chat.tui.screens.race import RaceScreen
from ds4chat.tui.screens.sessions import SessionsScreen

MAX_WAITING = 200  # messages: less than a second of work for a slow machine
PAUSE_S, MAX_PAUSES = 0.01, 200  # no event waits longer, whatever the screen does

TOUR_BANNER = (
    "Recorded tour: a scripted engine answers, not a model. Text and speeds are made up. "
    "Send quicksort, poem or explain."
)


class Ds4ChatApp(App[None]):
    """A chat with the engine behind `link`.

    `TEXTUAL_FPS` must be in the environment before this module is imported
    (`settings.prepare_textual`).

    Args:
        link: the engine, not started yet.
        load: what to load; its request id is replaced.
        options: how the chat starts.

    Raises:
        SettingsError: a theme file or the theme's name cannot be used.
    """

    TITLE = ""
    ENABLE_COMMAND_PALETTE = True
    COMMANDS: ClassVar = set()
    CSS = """
    OptionList:nocolor > .option-list--option-highlighted { text-style: bold underline; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [  # on dialogs too; the chat's table has the key
        Binding("ctrl+z", "suspend_process", show=False, priority=True, id="suspend"),
    ]

    def __init__(self, link: EngineLink, load: Load, options: ChatOptions) -> None:
        found = themes.load_themes(options.themes_dirs or (paths.themes_dir(),))
        self._default_theme = themes.pick(found, "").screen
        chosen = themes.pick(found, options.theme)
        super().__init__(ansi_color=True if options.no_color else None)
        for theme in found.values():
            self.register_theme(theme.screen)
        self.theme = chosen.screen.name
        self._link = link
        self._key_rows = options.key_rows
        self.chat_screen = ChatScreen(link, load, options, found)

    def get_driver_class(self) -> type[Driver]:
        """The platform's driver, reading and writing through our own threads' code."""
        driver = super().get_driver_class()
        terminal_input.guard(driver)
        terminal_output.guard(driver)
        return terminal_output.steady(driver)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Source colours, for themes that have none."""
        return dict(self._default_theme.variables)

    def on_mount(self) -> None:
        """Show the chat and start the engine."""
        self.set_keymap({row.name: row.keys for row in self._key_rows})
        self.push_screen(self.chat_screen)
        self.call_after_refresh(self._start)

    def _start(self) -> None:
        try:
            self._link.start(self._emit)
        except Ds4Error as error:
            failed = EngineFailed(message=error.message, hint=error.hint)
            self.chat_screen.report(failed)
        memory.settle()

    def _emit(self, event: Event) -> None:
        """Take an event on the engine's thread; post_message is safe there.

        An engine that is faster than the screen is let wait for it: keys stand in the same
        queue, and what the engine says would not end before them.
        """
        try:
            self.post_message(EngineReported(event))
        except RuntimeError:
            return  # the loop is closed: the screen is gone
        if threading.current_thread() is not threading.main_thread():
            for _ in range(MAX_PAUSES):
                if self.message_queue_size <= MAX_WAITING or not self.is_running:
                    return
                time.sleep(PAUSE_S)

    def on_engine_reported(self, message: EngineReported) -> None:
        """Hand an event to the chat, whatever screen is on top."""
        self.chat_screen.report(message.event)

    async def action_quit(self) -> None:
        """Close the engine, then leave; what would be lost is told first, on the chat."""
        if not self.chat_screen.may_leave():
            while (top := self.screen) is not self.chat_screen:
                if isinstance(top, RaceScreen):
                    top.race.close()
                self.pop_screen()
            return
        await asyncio.to_thread(self._link.close)
        self.exit()

    def pop_screen(self) -> AwaitComplete:
        """Close the screen on top. The chat stays: keys in one burst may close one twice."""
        if self.screen is self.chat_screen:
            return AwaitComplete()
        return super().pop_screen()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The list of sessions has another use for Ctrl+Z."""
        is_theirs = action == "suspend_process" and isinstance(self.screen, SessionsScreen)
        return False if is_theirs else super().check_action(action, parameters)

    def action_suspend_process(self) -> None:
        """Back to the shell until `fg`; the engine works on until the pipe between is full."""
        if not job_control.has_shell():
            self.chat_screen.hint(job_control.NO_SHELL)
            return
        try:
            with self.suspend():
                job_control.stop_group()
        except SuspendNotSupported:
            self.chat_screen.hint("This terminal cannot be given back to the shell")
