"""Keys, editor, clipboard and colour depth as a terminal really has them."""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.terminal import Terminal

PROGRAM = "tests.scripted_chat"
ANSWER = "café"  # stands in the reply, not in the question
F2, ALT_2, ALT_UP, CTRL_F, CTRL_G, CTRL_Z = (
    "\x1bOQ", "\x1b2", "\x1b[1;3A", "\x06", "\x07", "\x1a",
)  # fmt: skip

COPIED = re.compile("\x1b\\]52;c;([A-Za-z0-9+/=]+)\x07")  # to the terminal's clipboard

Open = Callable[..., Terminal]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Open]:
    """Start the chat with a home of its own, and wait until it is ready."""
    model = tmp_path / "scripted.gguf"
    model.touch()
    found: list[Terminal] = []

    def start(*shell: str, **environ: str) -> Terminal:
        home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""}
        terminal = Terminal(*shell, PROGRAM, str(model), environ=home | environ)
        found.append(terminal)
        terminal.until_shown("scripted")
        return terminal

    yield start
    for terminal in found:
        terminal.kill()


def ask(terminal: Terminal) -> None:
    terminal.write("tell me\r")
    terminal.until_shown(ANSWER)
    terminal.until_shown("tok/s ·")


@pytest.mark.parametrize("key", [F2, ALT_2])
def test_settings_by_f_key_and_its_twin(start: Open, key: str) -> None:
    terminal = start()
    terminal.write(key)
    terminal.until_shown("Settings · Enter changes")


def test_marking_a_turn_and_copying_it(start: Open, tmp_path: Path) -> None:
    terminal = start()
    ask(terminal)
    terminal.write(ALT_UP)
    terminal.until_shown("r retry")
    terminal.write("c")
    terminal.until(COPIED.search)
    sent = COPIED.findall(terminal.raw)
    assert ANSWER in base64.b64decode(sent[-1]).decode()
    terminal.until(lambda _: ANSWER in copied(tmp_path))


def copied(home: Path) -> str:
    """What is in the file of copied text by now."""
    return "".join(path.read_text(encoding="utf-8") for path in home.rglob("copied.txt"))


def test_searching(start: Open) -> None:
    terminal = start()
    ask(terminal)
    terminal.write(CTRL_F)
    terminal.until_shown("find:")
    terminal.write(ANSWER)
    terminal.until_shown("of 1 · Enter next")


def test_the_editor_has_the_terminal_and_gives_it_back(start: Open, tmp_path: Path) -> None:
    script = tmp_path / "editor.py"
    script.write_text(
        "import sys\n"
        "print('editor', sys.stdin.isatty(), input('name: '))\n"
        "open(sys.argv[1], 'a').write('from the editor')\n"
    )
    terminal = start(VISUAL=f"{sys.executable} {script}")
    terminal.write(f"draft {CTRL_G}")
    terminal.until_shown("name: ")
    terminal.write("me\r")
    terminal.until_shown("editor True me")
    terminal.until_shown("from the editor")
    terminal.write("\x11")
    assert terminal.end() == 0


def test_sixteen_colours_keep_sources_apart_and_their_attributes(start: Open) -> None:
    terminal = start(TEXTUAL_COLOR_SYSTEM="standard")
    ask(terminal)
    terminal.write("\x11")
    assert terminal.end() == 0
    styles = {tuple(style.split(";")) for style, _ in terminal.styled()}
    assert not any("38" in style for style in styles)
    accepted = [style for style in styles if "92" in style]
    fallback = [style for style in styles if "91" in style and "4" in style]
    plain = [style for style in styles if "3" in style and not {"91", "92", "96"} & set(style)]
    assert accepted
    assert fallback
    assert plain


@pytest.mark.parametrize("screen", ["", F2], ids=["chat", "settings"])
def test_ctrl_z_goes_to_the_shell_and_back(start: Open, screen: str) -> None:
    terminal = start("tests.job_shell")
    terminal.write("typed" + screen)
    terminal.until_shown("Settings · Enter changes" if screen else "typed")
    terminal.write(CTRL_Z)
    terminal.until_shown("stopped, cooked")
    assert terminal.raw.rindex("\x1b[?1049l") < terminal.raw.rindex("stopped,")
    n_before = len(terminal.raw)
    terminal.write("fg\n")
    terminal.until_shown("typed", since=n_before)
    assert "\x1b[?1049h" in terminal.raw[n_before:]
    terminal.write("\x11")
    assert terminal.end() == 0


def test_a_reply_goes_on_behind_the_shell(start: Open) -> None:
    terminal = start("tests.job_shell")
    terminal.write("tell me\r" + CTRL_Z)
    terminal.until_shown("stopped, cooked")
    n_before = len(terminal.raw)
    terminal.write("fg\n")
    terminal.until_shown("tok/s ·", since=n_before)
    terminal.write("\x11")
    assert terminal.end() == 0


def test_ctrl_z_without_a_shell_says_so(start: Open) -> None:
    terminal = start()
    terminal.write(CTRL_Z)
    terminal.until_shown("no shell is here that could bring the chat back")
    terminal.write("\x11")
    assert terminal.end() == 0


def test_undo_has_the_shells_key(start: Open) -> None:
    terminal = start()
    terminal.write("some words")
    terminal.until_shown("some words")
    n_before = len(terminal.raw)
    terminal.write("\x1f")
    terminal.until_shown("Ask something", since=n_before)
