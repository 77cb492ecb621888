"""`ds4chat bench prefill | decode | verify | spec`: what they print. No time is judged."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ds4chat.cli import bench, bench_decode, bench_engine, bench_verify
from ds4chat.cli.main import main
from ds4chat.engine import bench_runs, launch_runs
from ds4chat.engine.bench_runs import Sample
from tests.make_pair import PairPaths, make_pair

TINY = ("--repeat", "1", "--backend", "cpu", "-c", "256")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    return make_pair(tmp_path_factory.mktemp("pair"), seed=31)


def run(
    pair: PairPaths, capsys: pytest.CaptureFixture[str], *argv: str
) -> tuple[int, str, str]:
    status = bench.run([*argv, "-m", str(pair.base), "--support", str(pair.support), *TINY])
    said = capsys.readouterr()
    return status, said.out, said.err


def as_json(pair: PairPaths, capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    status, out, _ = run(pair, capsys, *argv, "--json")
    found: dict[str, Any] = json.loads(out)
    is_missed = any(row["is_missed"] for row in found["rows"])  # as fast as the machine is now
    assert status == (1 if is_missed else 0)
    return found


def test_prefill(pair: PairPaths, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(pair, capsys, "prefill", "--tokens", "5", "9")
    assert [row["case"] for row in found["rows"]] == ["prefill 5", "prefill 9"]
    for row in found["rows"]:
        assert row["unit"] == "tok/s"
        assert row["n"] == 1  # the warm-up is no sample
        assert 0 < row["low"] <= row["median"] <= row["high"]
    assert [sample["run"] for sample in found["samples"]] == [0, 0, 1, 1]
    assert found["model"]["fingerprint"]
    assert found["machine"]["mlx"]
    assert not found["interrupted"]


def test_decode_compares_plain_as_shipped_with_every_plain_path(
    pair: PairPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    found = as_json(pair, capsys, "decode", "-n", "2", "--context", "8")
    ratios = [row for row in found["rows"] if row["unit"] == "x"]
    assert [row["case"] for row in ratios] == [
        f"plain / {case}"
        for case in ("the fastest plain path", bench_runs.BARE, bench_runs.LOOSE)
    ]
    assert ["bar 0.9" in row["note"] for row in ratios] == [True, False, False]
    assert 0 < ratios[0]["median"] <= 1
    counts = {row["unit"]: row["median"] for row in found["rows"]}
    assert 100 < counts["launches"] < counts["nodes"]


def test_the_fastest_path_of_each_run_counts() -> None:
    seconds = {bench_runs.SHIPPED: (1.0, 4.0), bench_runs.BARE: (0.5, 5.0)}
    samples = [
        Sample(case=case, run=run, n_units=1, seconds=s, facts={"nodes": 3, "launches": 2})
        for case, times in seconds.items()
        for run, s in enumerate(times, start=1)
    ]
    rows = {row.case: row for row in bench_decode.BENCH.rows(samples)}
    fastest = rows["plain / the fastest plain path"]
    assert (fastest.low, fastest.high) == (0.5, 1.0)
    assert (fastest.is_missed, fastest.note) == (True, "MISSES the bar 0.9")


@pytest.mark.parametrize(("is_missed", "status"), [(True, 1), (False, 0)])
def test_a_missed_bar_is_the_status(
    pair: PairPaths, monkeypatch: pytest.MonkeyPatch, is_missed: bool, status: int
) -> None:
    row = bench_engine.judged(bench_engine.spread("c", "x", [1.0]), "bar", is_missed=is_missed)
    whole = replace(bench_decode.BENCH, rows=lambda _: row)
    monkeypatch.setattr(bench_decode, "BENCH", whole)
    argv = ["decode", "-m", str(pair.base), "--repeat", "1", "-n", "2", "--context", "8"]
    assert bench.run(argv) == status


def test_copies_of_memory_progress_in_bytes() -> None:
    copied = Sample(case=bench_runs.COPY, run=1, n_units=2_000_000, seconds=0.001)
    assert bench_engine._progress(copied).endswith("2.000 GB/s")


def test_what_six_rows_cost_is_held_against_their_experts() -> None:
    samples = [Sample(case=bench_runs.COPY, run=1, n_units=2_000_000, seconds=0.001)]
    for k, seconds, n_bytes in ((1, 0.010, 1e6), (6, 0.013, 5e6)):
        samples.append(
            Sample(
                case=f"T({k})",
                run=1,
                n_units=1,
                seconds=seconds,
                is_identical=True,
                facts={"expert_bytes": n_bytes},
            )
        )
    rows = {row.case: row for row in bench_verify.BENCH.rows(samples)}
    assert rows["copies of memory"].median == pytest.approx(2.0)
    assert rows["T(6) - T(1)"].median == pytest.approx(3.0)
    # 4 MB at 2 GB/s are 2 ms
    ratio = rows["(T(6) - T(1)) / reading those at that speed"]
    assert ratio.median == pytest.approx(1.5)
    assert (ratio.is_missed, ratio.note) == (
        False, "no bar here: 1.3 is for Flash's sizes on a GPU",
    )  # fmt: skip
    large = [replace(s, facts={k: 1000 * v for k, v in s.facts.items()}) for s in samples[1:]]
    slow = replace(samples[0], seconds=samples[0].seconds / 2000)
    *_, ratio = bench_verify.BENCH.rows([slow, *large])
    assert (ratio.is_missed, ratio.note) == (True, "MISSES the bar 1.3")


def test_launches_by_part(pair: PairPaths, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(pair, capsys, "launches", "--context", "8")
    counts = {row["case"]: row["median"] for row in found["rows"] if row["unit"] == "launches"}
    parts = (launch_runs.ATTENTION, launch_runs.EXPERTS, launch_runs.OUTPUT, launch_runs.REST)
    assert counts[launch_runs.WHOLE] == sum(counts[part] for part in parts)
    assert all(counts[part] > 0 for part in parts)
    assert counts[launch_runs.DRAFT] > 0


def test_verify_prints_all_passes_their_ratios_and_their_bits(
    pair: PairPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(pair, capsys, "verify", "--context", "8")
    assert status == 0
    for k in range(1, 9):
        assert f"T({k}) " in out
    assert "T(6) / T(1)" in out
    assert out.count("bits of single rows") == 8
    assert "NOT" not in out
    assert "warm-up" in err
    assert "run 1" in err


def test_spec_as_csv(pair: PairPaths, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(pair, capsys, "spec", "-n", "4", "--accept", "1", "3", "--csv")
    rows = {row["case"]: row for row in csv.DictReader(io.StringIO(out))}
    assert {"plain", "speculative", "forced 1", "forced 3", "forced 3 / plain"} <= set(rows)
    assert {
        "plain, in a race / plain, no draft rows",
        "speculative, in a race / speculative",
    } <= set(rows)
    assert "identical" in rows["forced 3"]["note"]
    assert float(rows["forced 3 / plain"]["median"]) > 0


def test_a_length_that_no_block_reaches_is_refused(
    pair: PairPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["spec", "-m", str(pair.base), "--support", str(pair.support), "--accept", "8"]
    assert main(["bench", *argv, *TINY]) == 2
    assert "blocks of 5 reach at most 6" in capsys.readouterr().err


def test_spec_without_a_support_file_is_refused(
    pair: PairPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["spec", "-m", str(pair.base), "--support", "none", *TINY]
    assert main(["bench", *argv]) == 2
    assert "no support file" in capsys.readouterr().err


def test_ctrl_c_keeps_what_was_measured(
    pair: PairPaths, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def some(*_: object) -> Iterator[Sample]:
        for number in range(3):
            yield Sample(case="T(1)", run=number, n_units=1, seconds=0.5, is_identical=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_runs, "verify", some)
    status, out, _ = run(pair, capsys, "verify")
    assert status == 130
    assert "500.000" in out
    assert "interrupted" in out


def test_a_row_with_other_bits_fails(
    pair: PairPaths, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def some(*_: object) -> Iterator[Sample]:
        for number in range(2):
            yield Sample(case="T(2)", run=number, n_units=1, seconds=0.5, is_identical=False)

    monkeypatch.setattr(bench_runs, "verify", some)
    status, out, _ = run(pair, capsys, "verify")
    assert status == 1
    assert "NOT the bits" in out


def test_ratios_are_taken_within_a_run() -> None:
    def sample(case: str, number: int, seconds: float) -> Sample:
        return Sample(case=case, run=number, n_units=1, seconds=seconds, is_identical=True)

    samples = [sample("T(1)", 1, 1.0), sample("T(6)", 1, 1.3)]
    samples += [sample("T(1)", 2, 10.0), sample("T(6)", 2, 15.0), sample("T(6)", 3, 99.0)]
    rows = {row.case: row for row in bench_verify._rows(samples)}
    ratio = rows["T(6) / T(1)"]
    assert (ratio.low, ratio.high, ratio.n) == (1.3, 1.5, 2)
    assert rows["T(6)"].n == 3


def test_the_median_and_the_spread() -> None:
    (row,) = bench_engine.spread("c", "ms", [3.0, 1.0, 9.0], "note")
    assert (row.median, row.low, row.high, row.n) == (3.0, 1.0, 9.0, 3)
    assert bench_engine.spread("c", "ms", []) == []


@pytest.mark.parametrize(
    "argv",
    [["spec", "--accept", "0.5"], ["verify", "--repeat", "0"], ["decode", "--backend", "tpu"]],
)
def test_wrong_arguments_end_with_2(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        bench.run(argv)
    assert caught.value.code == 2
    assert capsys.readouterr().err


def test_no_model_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "verify", "-m", str(tmp_path / "none.gguf")]) == 2
    assert "no such file" in capsys.readouterr().err
