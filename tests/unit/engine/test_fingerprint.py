"""Fingerprints: the formula, and that a change anywhere that is read changes them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from ds4chat.engine.fingerprint import SAMPLE_BYTES, fingerprint, sample_spans
from ds4chat.formats.gguf import GgufFile
from tests.engines import SMALL, open_pair
from tests.make_pair import make_pair


def print_of(path: Path) -> str:
    with GgufFile.open(path) as gguf:
        return fingerprint(gguf)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pair(tmp_path_factory.mktemp("pair"), seed=5, vocab=4096, **SMALL).base


def test_formula(base: Path) -> None:
    raw = base.read_bytes()
    with GgufFile.open(base) as gguf:
        entries = sorted(gguf.tensors.values(), key=lambda e: e.offset)
        sizes = {e.n_bytes for e in entries}
        start = min(e.offset for e in entries)
        wanted = hashlib.sha256(len(raw).to_bytes(8, "little") + raw[:start])
        for e in entries:
            data = raw[e.offset : e.offset + e.n_bytes]
            if len(data) > 12288:
                middle = (len(data) - 4096) // 2
                data = data[:4096] + data[middle : middle + 4096] + data[-4096:]
            wanted.update(data)
        assert fingerprint(gguf) == wanted.hexdigest()
    assert min(sizes) < 3 * SAMPLE_BYTES < max(sizes)


@pytest.mark.parametrize("n_bytes", [1, 4096, 12288, 12289, 12290, 10**9])
def test_spans_lie_inside_and_apart(n_bytes: int) -> None:
    spans = list(sample_spans(n_bytes))
    assert spans[0][0] == 0
    assert spans[-1][1] == n_bytes
    flat = [at for span in spans for at in span]
    assert flat == sorted(flat)
    assert sum(stop - start for start, stop in spans) == min(n_bytes, 12288)


def test_every_part_of_the_file_counts(base: Path, tmp_path: Path) -> None:
    original = print_of(base)
    raw = base.read_bytes()
    with GgufFile.open(base) as gguf:
        big = max(gguf.tensors.values(), key=lambda e: e.n_bytes)
    first, last = big.offset, big.offset + big.n_bytes - 1
    name_at = raw.index(b"tiny V4")
    copy = tmp_path / "copy.gguf"
    for at in (name_at, first, (first + last) // 2, last, len(raw) - 1):
        changed = bytearray(raw)
        changed[at] ^= 1
        copy.write_bytes(changed)
        assert print_of(copy) != original
    copy.write_bytes(raw + bytes(64))
    assert print_of(copy) != original
    copy.write_bytes(raw)
    assert print_of(copy) == original


def test_engines_know_their_files(tmp_path: Path) -> None:
    with open_pair(tmp_path, seed=5, **SMALL) as engine:
        model, support = engine.fingerprints
    assert model == print_of(tmp_path / "base.gguf")
    assert support == print_of(tmp_path / "support.gguf")
    assert np.unique([model, support, ""]).size == 3
