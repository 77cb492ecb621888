"""A short sample of every target, always the same cases; `make fuzz` runs the long ones."""

from __future__ import annotations

import pytest

from tests.fuzz.test_harness import fuzz

SAMPLES = {
    "directory": 60, "metadata": 100, "tensors": 40, "tokenizer": 60, "pairing": 40,
    "transcripts": 25, "snapshots": 40, "safetensors": 60, "protocol": 120, "settings": 100,
    "themes": 100,
}  # fmt: skip


@pytest.mark.parametrize("target", SAMPLES)
def test_a_sample_finds_nothing(target: str) -> None:
    done = fuzz("--target", target, "--cases", str(SAMPLES[target]), "--no-shrink")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{target}: {SAMPLES[target]} cases" in done.stdout
