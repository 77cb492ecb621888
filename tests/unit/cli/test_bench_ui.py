from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ds4chat.cli import bench, bench_ui_json
from ds4chat.cli.bench_ui import BAR_S, percentile, render
from ds4chat.cli.bench_ui_child import script, spans, text
from ds4chat.demo.script import split_text
from tests.make_pair import make_pair


@pytest.mark.parametrize(
    ("values", "share", "wanted"),
    [([], 0.5, 0.0), ([3.0], 0.99, 3.0), ([4.0, 1.0, 3.0, 2.0], 0.5, 2.0), ([1, 2], 0.99, 2)],
)
def test_percentile(values: list[float], share: float, wanted: float) -> None:
    assert percentile(values, share) == wanted


def test_the_older_text_has_the_wanted_tokens() -> None:
    assert len(split_text(text(5_000))) >= 5_000
    made = spans("one two")
    assert "".join(span.text for span in made) == "one two"
    assert [span.token.position for span in made] == [0, 1]


def test_the_engine_has_the_wanted_speed() -> None:
    made = script(200.0)
    assert 5 / (made.draft_s + made.verify_s) == pytest.approx(200)


def test_a_small_bench_in_a_real_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    status = bench.run(
        ["ui", "--tokens", "0", "300", "--keys", "4", "--size", "80x24", "--json"]
    )
    result = json.loads(capsys.readouterr().out)
    assert [run["tokens"] for run in result["runs"]] == [0, 300]
    for run in result["runs"]:
        assert run["n_lost"] == 0
        assert 0 < run["key_p50_s"] <= run["key_p99_s"]
        assert run["n_frames"] > 4
        assert 0 < run["frame_p50_s"] <= run["frame_p99_s"]
        assert run["rss_bytes"] > 10_000_000
        assert 0 <= run["waited_p50_s"] <= run["waited_p99_s"] <= run["key_p99_s"]
        if sys.platform == "linux":
            assert 0 < run["own_p99_s"] <= run["key_p99_s"] * 1.5  # the kernel counts in ticks
    holds = all(run["key_p99_s"] < BAR_S for run in result["runs"])
    assert (result["holds"], status) == (holds, 0 if holds else 1)
    assert "older tokens" in render(result)


@pytest.mark.parametrize(
    ("key_s", "own_s", "words"),
    [(0.04, 0.01, "within"), (0.2, 0.01, "own work is within"), (0.2, 0.1, "so is the")],
)
def test_the_verdict_tells_our_work_from_the_machines(
    key_s: float, own_s: float, words: str
) -> None:
    values = {"key": key_s, "own": own_s, "waited": 0.001, "frame": 0.002}
    run = {f"{name}_{rank}_s": s for name, s in values.items() for rank in ("p50", "p99")}
    run |= {"tokens": 1_000, "cpu_share": 0.3, "rss_bytes": 60_000_000, "n_lost": 0}
    text = render(
        {
            "tps": 200.0, "size": "120x45", "load_average": 0.5, "bar_s": BAR_S, "runs": [run],
            "holds": key_s < BAR_S, "own_holds": own_s < BAR_S,
        }
    )  # fmt: skip
    assert words in text
    assert f"{key_s * 1e3:.1f}" in text


def against(ratios: list[float]) -> str:
    runs = [
        {"screen_tps": 50.0 * r, "json_tps": 50.0, "ratio": r, "screen_cpu_s": 1.5}
        for r in ratios
    ]
    middle = sorted(ratios)[len(ratios) // 2]
    return bench_ui_json.render(
        {
            "n_tokens": 400, "size": "120x45", "load_average": 0.5, "runs": runs,
            "median_ratio": middle, "bar": 0.98, "holds": middle >= 0.98,
        }
    )  # fmt: skip


def test_the_verdict_against_json() -> None:
    assert "ratio 0.990 (0.950 to 1.010): within the bar" in against([0.95, 1.01, 0.99])
    assert "ratio 0.900 (0.900 to 0.900): under the bar" in against([0.9])


@pytest.mark.slow
def test_a_reply_on_the_screen_against_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = make_pair(tmp_path, seed=5)
    argv = ["-m", str(pair.base), "--support", str(pair.support), "--runs", "1"]
    bench.run(["ui", "--against-json", *argv, "--length", "12", "--json"])
    result = json.loads(capsys.readouterr().out)
    (run,) = result["runs"]
    assert run["screen_tps"] > 0
    assert run["ratio"] == pytest.approx(run["screen_tps"] / run["json_tps"])
