"""The report of a defect."""

from __future__ import annotations

from pathlib import Path

import pytest

from ds4chat.cli import crash


def raised(text: str) -> Exception:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def test_a_report_has_versions_and_traceback(
    isolated_environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crash.tell(raised("odd"))
    (report,) = isolated_environment.rglob("crash-*.txt")
    text = report.read_text()
    assert text.startswith("ds4chat ")
    assert "Traceback" in text
    assert "ValueError: odd" in text
    said = capsys.readouterr().err
    assert "internal error: ValueError: odd" in said
    assert str(report) in said


def test_where_no_report_can_be_written_it_is_said(
    isolated_environment: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(crash, "_folder", lambda: isolated_environment / "nothing")
    crash.tell(raised("odd"))
    assert "could not be written" in capsys.readouterr().err


def test_it_says_what_to_attach(capsys: pytest.CaptureFixture[str]) -> None:
    crash.tell(raised("odd"))
    assert "`ds4chat doctor --report`" in capsys.readouterr().err
