"""What tells one model file from another without reading all of it.

Published checkpoints can have equal headers and sizes, so the data is sampled too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from ds4chat.formats.gguf import GgufFile

SAMPLE_BYTES = 4096
"""Bytes taken from the start, the middle and the end of a tensor's data."""


def fingerprint(gguf: GgufFile) -> str:
    """SHA-256 (hex) of size, everything before the data, and samples of every tensor.

    Hashed in order: the size of all files as 8 bytes little-endian; what stands before the data
    section, file by file; the samples of the tensors in the order of their data.
    """
    digest = hashlib.sha256(gguf.file_bytes.to_bytes(8, "little"))
    digest.update(gguf.header_bytes)
    entries = sorted(gguf.tensors.values(), key=lambda entry: (entry.part, entry.offset))
    for entry in entries:
        if entry.n_bytes:  # else a type of unknown size, which no model can use
            data = gguf.raw(entry).reshape(-1)
            for start, stop in sample_spans(len(data)):
                digest.update(data[start:stop].tobytes())
    return digest.hexdigest()


def sample_spans(n_bytes: int) -> Iterator[tuple[int, int]]:
    """Where the samples of a tensor of `n_bytes` lie; a small tensor is covered whole."""
    if n_bytes <= 3 * SAMPLE_BYTES:
        yield 0, n_bytes
        return
    middle = (n_bytes - SAMPLE_BYTES) // 2
    for start in (0, middle, n_bytes - SAMPLE_BYTES):
        yield start, start + SAMPLE_BYTES
