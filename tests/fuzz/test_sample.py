"""A short sample of every target, always the same cases; `make fuzz` runs the long ones."""

from __future__ import annotations

from tests.fuzz.test_harness import fuzz

TARGETS = (
    "directory", "metadata", "tensors", "tokenizer", "pairing", "transcripts", "snapshots",
    "safetensors", "protocol", "settings", "themes",
)  # fmt: skip
N_CASES = 40


def test_a_sample_of_every_target_finds_nothing() -> None:
    done = fuzz("--cases", str(N_CASES), "--no-shrink")
    assert done.returncode == 0, done.stdout + done.stderr
    for target in TARGETS:
        assert f"{target}: {N_CASES} cases" in done.stdout, done.stdout
