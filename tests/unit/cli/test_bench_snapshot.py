"""The snapshot bench: measured for real on small sessions; bars and words on given figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ds4chat.cli import bench, bench_snapshot
from ds4chat.errors import ContextFullError
from tests.engines import SMALL
from tests.make_pair import make_pair

RUN = {
    "tokens": 10_000,
    "bytes": 2_000_000,
    "size_ratio": 1.01,
    "wait_s": 0.01,
    "save_s": 0.5,
    "restore_s": 0.5,
    "is_exact": True,
}


def test_measures_the_made_up_model(capsys: pytest.CaptureFixture[str]) -> None:
    status = bench.run(["snapshot", "--tokens", "300", "20", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert [run["tokens"] for run in result["runs"]] == [20, 300]
    assert all(run["is_exact"] for run in result["runs"])
    assert all(run["restore_s"] > 0 and run["save_s"] > 0 for run in result["runs"])
    few, many = (run["bytes"] for run in result["runs"])
    assert result["bytes_per_1000_tokens"] == pytest.approx((many - few) / 0.28)
    assert status == (0 if result["holds"] else 1)


def test_measures_a_given_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = make_pair(tmp_path, seed=3, **SMALL)
    given = ["--model", str(pair.base), "--support", str(pair.support)]
    bench.run(["snapshot", "--tokens", "140", *given])
    shown = capsys.readouterr().out
    assert "tiny V4 on " in shown
    assert "exactly" in shown
    assert "for each further" not in shown


def test_more_tokens_than_the_context(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, seed=3, ctx=64, **SMALL)
    with pytest.raises(ContextFullError):
        bench.run(["snapshot", "--tokens", "65", "--model", str(pair.base)])


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({"restore_s": 1.0}, False),
        ({"restore_s": 1.0, "tokens": 10_001}, True),
        ({"wait_s": 0.05}, False),
        ({"size_ratio": 1.05}, False),
        ({"is_exact": False}, False),
    ],
)
def test_bars(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    holds: bool,
) -> None:
    monkeypatch.setattr(bench_snapshot, "_measure", lambda *_: RUN | change)
    assert bench.run(["snapshot"]) == (0 if holds else 1)
    shown = capsys.readouterr().out
    assert ("within the bars" in shown) is holds
    assert ("NOT EXACTLY" in shown) is ("is_exact" in change)
