"""Settings screen, themes and the editor on a running screen."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ds4chat import paths, settings
from ds4chat.cli.start import make
from ds4chat.demo import Reply
from ds4chat.protocol.commands import SetSpeculation, Submit
from ds4chat.protocol.types import Policy, Source, ThinkMode
from ds4chat.tui.app import Ds4ChatApp
from ds4chat.tui.keymap import remap
from ds4chat.tui.keys import SCREEN_KEYS
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.screens.help import HelpScreen
from ds4chat.tui.screens.settings import SettingsScreen
from ds4chat.tui.themes import load_themes
from tests.pilot.conftest import OpenChat
from tests.pilot.driver import Chat

LONG = "Some words that fill a few rounds, and then some more of them. " * 4


async def choose(chat: Chat, name: str) -> None:
    """Put the cursor of the settings screen on a setting."""
    names = [row.name for row in settings.rows()]
    await chat.press("home", *["down"] * names.index(name))


def line_of(chat: Chat, name: str) -> str:
    return next(line for line in chat.picture().splitlines() if f"│ {name} " in line)


async def test_settings_show_value_source_and_meaning(open_chat: OpenChat) -> None:
    start = settings.load({"temp": 0.7}, environ={"DS4CHAT_TOP_K": "40"})
    options = ChatOptions(is_animated=False, settings=start, config_file=Path("/c/config.toml"))
    async with open_chat(options=options, size=(120, 60)) as chat:
        chat.chat.sampling = make(start, None).sampling
        await chat.press("f2")
        assert isinstance(chat.app.screen, SettingsScreen)
        for row in settings.rows():
            assert row.name in chat.picture()
        assert line_of(chat, "temp").split()[2:5] == ["0.7", "command", "line"]
        assert line_of(chat, "top_k").split()[2:4] == ["40", "environment"]
        assert line_of(chat, "seed").split()[2:4] == ["0", "default"]
        await choose(chat, "seed")
        assert "Seed of the sampling noise." in chat.picture()
        assert "--seed" in chat.picture()
        assert "kept in /c/config.toml" in chat.picture()
        await chat.press("f2")
        assert chat.app.screen_stack[-1] is chat.screen


async def test_settings_in_a_small_window(open_chat: OpenChat) -> None:
    async with open_chat(size=(40, 10)) as chat:
        await chat.press("f2")
        rows = chat.picture().splitlines()
        assert rows[0].strip() == "Settings · Enter changes · Esc closes"
        assert [row.split()[0] for row in rows[1:6]] == [row.name for row in settings.rows()][
            :5
        ]
        assert "Main GGUF file" in rows[-2]
        await choose(chat, "spec")
        await chat.press("enter")
        shown = chat.picture()
        assert "spec            false" in shown
        assert "spec: false" in shown


async def test_settings_change_by_key_and_by_typing(open_chat: OpenChat) -> None:
    async with open_chat(size=(120, 60)) as chat:
        await chat.send("/settings")
        await choose(chat, "policy")
        await chat.press("enter")
        assert chat.chat.spec.policy is Policy.WINDOW
        assert "changed here" in line_of(chat, "policy")
        await choose(chat, "temp")
        await chat.press("enter", "backspace", *"0.8x", "enter")
        assert any("'00.8x'" in hint or "'0.8x'" in hint for hint in chat.hints())
        assert chat.chat.sampling.temperature == 0
        await chat.press("backspace", "enter")
        assert chat.chat.sampling.temperature == 0.8
        assert "temp: 0.8" in chat.hints()
        await choose(chat, "ctx")
        await chat.press("enter")
        assert "ctx takes effect at the next start" in chat.hints()
        await choose(chat, "spec")
        await chat.press("enter")
        assert chat.chat.spec.enabled is False
        await choose(chat, "think")
        await chat.press("enter")
        assert chat.chat.think is ThinkMode.LOW
        await choose(chat, "max_tokens")
        await chat.press("enter", *["backspace"] * 4, "9", "enter")
        assert chat.chat.max_tokens == 9
        await choose(chat, "theme")
        await chat.press("enter", *["backspace"] * 9, *"light", "enter")
        assert chat.app.theme == "ds4-light"
        await choose(chat, "seed")
        await chat.press("enter", "5", "escape")
        assert isinstance(chat.app.screen, SettingsScreen)
        assert chat.chat.sampling.seed == 0
        await chat.press("escape")
        await chat.ask("go")
        assert chat.engine.sent(Submit)[0].sampling.temperature == 0.8


async def test_a_change_during_a_reply_says_from_when(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, holds=(1,)), size=(120, 60)) as chat:
        await chat.send("go")
        await chat.steps(1)
        await chat.press("alt+2")
        await choose(chat, "top_k")
        await chat.press("enter", "backspace", "7", "enter")
        assert "top_k: 7, from the next reply on" in chat.hints()
        assert "changed here · next reply" in line_of(chat, "top_k")
        await choose(chat, "policy")
        await chat.press("enter")
        assert "policy: window, from the next block on" in chat.hints()
        assert "next" not in line_of(chat, "policy")
        assert chat.engine.sent(SetSpeculation)[0].spec.policy is Policy.WINDOW
        chat.chat.stop()
        await chat.until(lambda: not chat.chat.is_busy)
        await chat.until(lambda: "next" not in line_of(chat, "top_k"))


async def test_changes_are_kept_in_the_settings_file(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("# mine\ntop_k = 40  # forty\nsystem_file = 'a'\n[keys]\nfold = 'f9'\n")
    start = settings.load({}, config_file=file, environ={"DS4CHAT_SEED": "3"})
    options = ChatOptions(is_animated=False, settings=start, config_file=file)
    async with open_chat(options=options, size=(120, 60)) as chat:
        await chat.press("f2")
        for name, typed in (("top_k", "7"), ("system", "Be brief."), ("ctx", "4096")):
            await choose(chat, name)
            await chat.press("enter", *["backspace"] * 4, *typed, "enter")
        assert line_of(chat, "top_k").split()[2:5] == ["7", "settings", "file"]
        assert "next start" in line_of(chat, "ctx")
        await choose(chat, "seed")
        await chat.press("enter", *["backspace"] * 4, "5", "enter")
        assert "seed: 5; DS4CHAT_SEED overrides the settings file at the next start" in (
            chat.hints()
        )
        assert file.read_text() == (
            '# mine\ntop_k = 7  # forty\nsystem_file = ""\nsystem = "Be brief."\n'
            "ctx = 4096\nseed = 5\n[keys]\nfold = 'f9'\n"
        )
        again = settings.load({}, config_file=file, environ={})
        assert (again.top_k, again.system, again.ctx, again.seed) == (7, "Be brief.", 4096, 5)
        file.write_text("broken = = 1")
        await choose(chat, "top_k")
        await chat.press("enter", *["backspace"] * 4, "8", "enter")
        assert chat.chat.sampling.top_k == 8
        assert any("top_k was not kept" in hint for hint in chat.hints())
        assert "changed here" in line_of(chat, "top_k")
        assert file.read_text() == "broken = = 1"


async def test_theme_command_changes_the_colours_at_once(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG), size=(120, 40)) as chat:
        await chat.ask("go")
        themes = load_themes([paths.themes_dir()])
        for name in sorted(themes):
            await chat.send(f"/theme {name}")
            strips = chat.app.screen._compositor.render_strips(chat.app.size)
            names = {
                s.style.color.name
                for strip in strips
                for s in strip
                if s.style and s.style.color
            }
            assert themes[name].palette.sources[Source.ACCEPTED] in names
        await chat.send("/theme ligth")
        assert "Did you mean 'light'?" in " ".join(chat.transcript().split())
        await chat.send("/theme")
        assert "Themes: " in chat.transcript()


@pytest.fixture
def lends_terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a headless app lend its terminal, as a real one does: no `finally` takes it back."""
    log: list[str] = []

    @contextlib.contextmanager
    def suspend(self: Ds4ChatApp) -> Iterator[None]:
        log.append("lent")
        yield
        log.append("taken back")

    monkeypatch.setattr(Ds4ChatApp, "suspend", suspend)
    return log


async def test_the_prompt_in_an_editor(
    open_chat: OpenChat,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    lends_terminal: list[str],
) -> None:
    script = tmp_path / "editor.py"
    script.write_text("import sys\nopen(sys.argv[1], 'a').write(' and more\\x1b\\n')\n")
    monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")
    async with open_chat() as chat:
        await chat.paste("a draft")
        await chat.press("ctrl+g")
        await chat.until(lambda: chat.prompt.text == "a draft and more␛")
        assert chat.prompt.has_focus
        monkeypatch.setenv("VISUAL", "false")
        await chat.press("ctrl+g")
        await chat.until(lambda: "ended with status 1" in " ".join(chat.transcript().split()))
        assert chat.prompt.text == "a draft and more␛"
        chat.prompt.load("")
        monkeypatch.setenv("VISUAL", "")
        monkeypatch.setenv("EDITOR", "")
        await chat.send("/edit")
        await chat.until(lambda: "o editor is set" in " ".join(chat.transcript().split()))
    assert lends_terminal == ["lent", "taken back"] * 3


async def test_a_terminal_that_cannot_be_lent(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press("ctrl+g")
        await chat.until(lambda: "cannot be lent" in chat.transcript())


async def test_own_keys_work_and_are_shown(open_chat: OpenChat) -> None:
    rows = remap(SCREEN_KEYS, {"toggle-spec": "f9", "help": "ctrl+k"})
    options = ChatOptions(is_animated=False, key_rows=rows)
    async with open_chat(options=options, size=(120, 60)) as chat:
        assert "^K help" in chat.picture()
        assert "F9 spec" in chat.picture()
        seen = []
        for key in ("f3", "f9", "alt+9"):
            await chat.press(key)
            seen.append(chat.chat.spec.enabled)
        assert seen == [True, False, True]
        await chat.press("ctrl+k")
        assert isinstance(chat.app.screen, HelpScreen)
        await chat.until(lambda: "accept length" in chat.picture())
