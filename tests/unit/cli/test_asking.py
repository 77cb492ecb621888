"""A line behind a question: whatever ends the waiting, the next words get their own line."""

from __future__ import annotations

import io

import pytest

from ds4chat.cli import asking
from ds4chat.cli.talk import StoppedError


class Hasty(io.StringIO):
    """A terminal at which a person interrupts in the moment the question is shown."""

    def flush(self) -> None:
        if self.getvalue() == "> ":
            raise StoppedError(2)


@pytest.mark.parametrize(
    ("given", "line", "told"),
    [("yes\r\n", "yes", "> "), ("\n", "", "> "), ("half", "half", "> \n"), ("", None, "> \n")],
)
def test_a_line_comes_without_its_end(
    given: str, line: str | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr("sys.stdin", io.StringIO(given, newline=""))
    monkeypatch.setattr("sys.stderr", shown)
    assert asking.read_line("> ") == line
    assert shown.getvalue() == told


def test_an_interrupt_as_soon_as_the_question_stands_ends_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = Hasty()
    monkeypatch.setattr("sys.stderr", shown)
    with pytest.raises(StoppedError):
        asking.read_line("> ")
    assert shown.getvalue() == "> \n"
