from __future__ import annotations

import json

import pytest

from ds4chat.cli import bench
from ds4chat.cli.bench_ui import BAR_S, percentile, render
from ds4chat.cli.bench_ui_child import script, spans, text
from ds4chat.demo.script import split_text


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
    holds = result["runs"][1]["key_p99_s"] < BAR_S
    assert (result["holds"], status) == (holds, 0 if holds else 1)
    assert "older tokens" in render(result)
