"""What `ds4chat doctor` says of a terminal, from variables and a size."""

from __future__ import annotations

import pytest

from ds4chat.cli.doctor_finding import Finding, Mark
from ds4chat.cli.doctor_terminal import TerminalFacts, check_terminal

GOOD = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


def check(
    variables: dict[str, str] | None = None,
    *,
    size: tuple[int, int] | None = (120, 40),
    encoding: str = "utf-8",
) -> dict[str, Finding]:
    facts = TerminalFacts(size=size, variables=GOOD | (variables or {}), encoding=encoding)
    found = {finding.name: finding for finding in check_terminal(facts)}
    for finding in found.values():
        assert finding.mark is Mark.OK or finding.fix, finding
    return found


def test_a_good_terminal_has_nothing_to_mend() -> None:
    found = check()
    assert {finding.mark for finding in found.values()} == {Mark.OK}
    assert found["size"].found == "120 x 40"
    assert found["colours"].found == "true colour"
    assert "within" not in found


@pytest.mark.parametrize(
    ("size", "mark", "words"),
    [
        ((80, 24), Mark.OK, "panel needs 100"),
        ((100, 24), Mark.OK, "100 x 24"),
        ((79, 24), Mark.WARN, "79 x 24"),
        ((80, 23), Mark.WARN, "80 x 23"),
        (None, Mark.WARN, "no terminal"),
    ],
)
def test_size(size: tuple[int, int] | None, mark: Mark, words: str) -> None:
    found = check(size=size)["size"]
    assert found.mark is mark
    assert words in found.found


@pytest.mark.parametrize(
    ("variables", "mark", "words"),
    [
        ({"COLORTERM": "24bit"}, Mark.OK, "true colour"),
        ({"COLORTERM": "", "TERM": "xterm-direct"}, Mark.OK, "true colour"),
        ({"COLORTERM": ""}, Mark.OK, "256"),
        ({"COLORTERM": "", "TERM": "xterm"}, Mark.WARN, "16 at the most"),
        ({"NO_COLOR": "1"}, Mark.OK, "NO_COLOR"),
    ],
)
def test_colours(variables: dict[str, str], mark: Mark, words: str) -> None:
    found = check(variables)["colours"]
    assert found.mark is mark
    assert words in found.found


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_dumb_terminal_has_no_screen(term: str) -> None:
    found = check({"TERM": term, "COLORTERM": ""})
    assert found["TERM"].mark is Mark.WARN
    assert "plain lines" in found["TERM"].found
    assert found["pasting"].mark is Mark.WARN
    assert "colours" not in found


def test_copying_knows_who_ignores_it() -> None:
    assert check({"TERM_PROGRAM": "Apple_Terminal"})["copying"].mark is Mark.WARN
    assert "set-clipboard" in check({"TMUX": "/tmp/t,1,0"})["copying"].fix
    assert "copied.txt" in check({"STY": "1.pts"})["copying"].fix


def test_what_the_terminal_is_within() -> None:
    found = check({"TMUX": "x", "SSH_CONNECTION": "1 2 3 4"})["within"]
    assert found.found == "tmux in ssh"
    assert "Alt+1" in found.fix
    assert "1 2 3 4" not in str(found)


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1", "no-such-thing", ""])
def test_characters_other_than_utf8_are_told(encoding: str) -> None:
    found = check(encoding=encoding)["characters"]
    assert found.mark is Mark.WARN
    assert "C.UTF-8" in found.fix


def test_utf8_by_any_name() -> None:
    assert check(encoding="UTF8")["characters"].mark is Mark.OK
