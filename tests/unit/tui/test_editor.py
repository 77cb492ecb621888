from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ds4chat.errors import SettingsError
from ds4chat.tui.editor import edit


def editor(tmp_path: Path, body: str) -> str:
    script = tmp_path / "my editor.py"
    script.write_text(f"import sys, pathlib\np = pathlib.Path(sys.argv[-1])\n{body}\n")
    return f"{sys.executable} '{script}' --flag"


def test_what_was_saved_comes_back_and_the_file_goes(tmp_path: Path) -> None:
    note = tmp_path / "note"
    body = (
        f"pathlib.Path({str(note)!r}).write_text(str(p))\n"
        "p.write_text(p.read_text().upper() + '\\n')"
    )
    assert edit("é and\nmore", editor(tmp_path, body)) == "É AND\nMORE"
    assert not Path(note.read_text()).exists()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("sys.exit(3)", "status 3"),
        ("p.write_bytes(b'\\xff')", "not UTF-8"),
        ("p.unlink()", "cannot be read"),
        ("p.write_bytes(b'x' * 2_000_000)", "the limit is"),
    ],
)
def test_what_an_editor_may_do_wrong(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        edit("x", editor(tmp_path, body))


@pytest.mark.parametrize(
    ("command", "words"),
    [("", "no editor"), ("'", "quotation"), ("/no/such", "cannot be started")],
)
def test_unusable_editors(command: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        edit("x", command)
