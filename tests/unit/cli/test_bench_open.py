from __future__ import annotations

import json
from pathlib import Path

import pytest

from ds4chat.cli import bench, bench_open
from ds4chat.cli.bench_open import FLASH, write_flash_sized
from ds4chat.cli.flash_vocab import N_MERGES
from ds4chat.errors import EngineError
from ds4chat.formats.gguf import GgufFile
from ds4chat.model.metadata import read_target_config

RUN = {"directory": 0.1, "config": 0.0, "tokenizer": 0.3, "binding": 9.0, "total": 0.4}


def test_the_made_up_file_is_flash_sized(tmp_path: Path) -> None:
    path = tmp_path / "f.gguf"
    write_flash_sized(path)
    with GgufFile.open(path) as gguf:
        assert len(gguf.tensors) == 1328
        assert gguf.metadata.count("tokenizer.ggml.tokens") == 129_280
        assert gguf.metadata.count("tokenizer.ggml.merges") == N_MERGES == 127_741
        assert 80 < gguf.file_bytes / (1 << 30) < 82  # the published 2-bit file: 80.77 GiB
        config = read_target_config(gguf)
    assert config.compress_ratios == FLASH.compress_ratios
    assert config.compress_ratios.count(4) == 21
    assert config.compress_ratios.count(128) == 20
    assert config.block.head_dim == 512
    assert path.stat().st_blocks * 512 < 64 << 20  # the data takes no room


def run_with(monkeypatch: pytest.MonkeyPatch, totals: list[float], rss: int, *argv: str) -> int:
    runs = iter(totals)

    def child(path: Path) -> dict[str, float]:
        assert path.exists()
        return RUN | {"total": next(runs), "rss_bytes": rss}

    monkeypatch.setattr(bench_open, "_run_child", child)
    monkeypatch.setattr(bench_open, "write_flash_sized", lambda path: path.touch())
    return bench.run(["open", "--repeat", str(len(totals)), *argv])


def test_the_median_decides(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(monkeypatch, [0.2, 0.6, 5.0], 10**8) == 0
    text = capsys.readouterr().out
    assert "0.600 s  median of 3, 0.200 to 5.000" in text
    assert "within the bar" in text
    assert run_with(monkeypatch, [0.2, 0.8, 0.9], 10**8) == 1
    assert "OVER THE BAR" in capsys.readouterr().out


def test_memory_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_with(monkeypatch, [0.1], 4 * 10**8) == 1


def test_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run_with(monkeypatch, [0.2, 0.4], 10**8, "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["median_s"] == pytest.approx(0.3)
    assert (found["holds"], len(found["runs"])) == (True, 2)


def test_a_child_that_fails_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    with pytest.raises(EngineError, match="status 1"):
        bench_open._run_child(tmp_path / "bad.gguf")


def test_a_real_run_reports_every_stage(tmp_path: Path) -> None:
    path = tmp_path / "f.gguf"
    write_flash_sized(path)
    measured = bench_open._run_child(path)
    counted = measured["directory"] + measured["config"] + measured["tokenizer"]
    assert measured["total"] == pytest.approx(counted)
    assert measured["rss_bytes"] > 0


@pytest.mark.parametrize("argv", [[], ["open", "--repeat", "0"], ["close"]])
def test_wrong_arguments_end_with_2(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        bench.run(argv)
    assert caught.value.code == 2
    assert capsys.readouterr().err
