"""ds4's own log lines, variables and spellings, without a screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contract.one_shot import run
from tests.scripted_engine import TALE

pytestmark = pytest.mark.usefixtures("no_input")


def test_blocks_are_logged_in_ds4s_own_lines(
    model: Path,
    isolated_environment: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DS4_DSPARK_SPEC_LOG", "1")
    assert run(model, "-p", "tell") == 0
    out, err = capsys.readouterr()
    assert out == TALE
    lines = err.splitlines()
    assert lines[0].startswith("ds4: DSpark spec enter accepted=0 max=")
    assert "ds4: DSpark spec direct-full drafted=5 accepted=6" in lines
    assert any("spec miss first" in line for line in lines)
    log = isolated_environment / "state" / "ds4chat" / "engine.log"
    assert "spec direct-full" in log.read_text()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("DS4_DSPARK_SCHEDULER_WINDOW", "0", "it must be 1 or more"),
        ("DS4_DSPARK_SCHEDULER", "on", "it must be 0 or 1"),
        ("DS4_DSPARK_SCHEDULER_WINDO", "4", "DS4_DSPARK_SCHEDULER_WINDOW"),
    ],
)
def test_ds4s_variables_are_checked_before_the_model_is_opened(
    name: str,
    value: str,
    words: str,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(name, value)
    assert run(model, "-p", "tell") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


def test_the_statistics_line_comes_at_the_end(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DS4_DSPARK_STATS", "1")
    assert run(model, "-p", "tell") == 0
    out, err = capsys.readouterr()
    assert out == TALE
    (line,) = err.splitlines()
    assert line.startswith("ds4: DSpark stats cycles=")
    assert " accepted_len_hist=" in line


def test_ds4s_own_way_of_decoding_with_the_target_alone(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["-m", model, "--mtp", model, "--dspark", "--dspark-strict", "--temp", 0]
    assert run(*line, "-n", 9, "-p", "tell", "--json", "--mtp-draft", 2) == 0
    out, err = capsys.readouterr()
    kinds = {json.loads(line)["event"] for line in out.splitlines()}
    assert "plain_step" in kinds
    assert "round" not in kinds
    assert err.startswith("ds4chat: --mtp-draft is ignored")
