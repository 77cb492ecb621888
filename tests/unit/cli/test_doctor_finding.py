"""Findings: how they are shown, counted and passed between processes."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from ds4chat.cli.doctor_finding import (
    Finding,
    as_json,
    fail,
    from_json,
    grouped,
    has_failed,
    ok,
    render,
    summary,
    warn,
)

ALL = [
    ok("disk", "logs", "/home/x"),
    warn("disk", "build", "small", "free it\nsoon"),
    fail("model", "file", "gone", "fetch it"),
]


def test_marks_are_words_that_need_no_colour() -> None:
    lines = render(ALL).splitlines()
    assert lines == [
        "disk",
        "  ok   logs   /home/x",
        "  warn build  small",
        "              -> free it",
        "              -> soon",
        "",
        "model",
        "  fail file   gone",
        "              -> fetch it",
        "",
        "1 failure to mend; 1 warning (it works all the same); 1 fine.",
    ]


def test_the_last_line_says_whether_anything_must_be_mended() -> None:
    fine, small, gone = ALL
    assert summary([fine]) == "All 1 checks are fine."
    assert summary([fine, small, small]) == (
        "Nothing fails; 2 warnings (it works all the same); 1 fine."
    )
    assert summary([fine, gone]) == "1 failure to mend; 1 fine."


def test_colour_adds_no_word() -> None:
    plain, coloured = render(ALL), render(ALL, is_coloured=True)
    assert coloured != plain
    for code in ("31", "32", "33"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert coloured.replace("\x1b[0m", "") == plain


def test_what_a_file_says_cannot_steer_the_terminal() -> None:
    shown = render([ok("model", "file", "a\x1b[2Jb\nc", "d\x1b]0;e\x07")])
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_only_a_failure_fails() -> None:
    assert has_failed(ALL)
    assert not has_failed(ALL[:2])
    assert render(ALL[:2]).endswith("Nothing fails; 1 warning (it works all the same); 1 fine.")


def test_json() -> None:
    made = as_json(ALL, {"ds4chat": "1"})
    assert json.loads(json.dumps(made)) == {
        "version": 1,
        "ds4chat": "1",
        "ok": False,
        "counts": {"ok": 1, "warn": 1, "fail": 1},
        "findings": [asdict(finding) for finding in ALL],
    }


def test_a_finding_survives_the_pipe() -> None:
    for finding in ALL:
        assert from_json(json.loads(json.dumps(asdict(finding)))) == finding


@pytest.mark.parametrize(
    "row", [{}, {"section": "x"}, asdict(ALL[0]) | {"mark": "odd"}, asdict(ALL[0]) | {"fix": 1}]
)
def test_what_is_no_finding_is_refused(row: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"finding|Mark"):
        from_json(row)


def test_sections_come_together_in_their_first_order() -> None:
    b1, a1, b2 = (ok(section, section, "") for section in "bab")
    assert grouped([b1, a1, b2]) == [b1, b2, a1]
    assert isinstance(b1, Finding)
