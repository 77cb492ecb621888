"""What a file is when it is not a GGUF file, for a message that helps."""

from __future__ import annotations

MAGIC = b"GGUF"

_STARTS: tuple[tuple[bytes, str], ...] = (
    (b"FUGG", "a big-endian GGUF file"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself"),
    (b"PK\x03\x04", "a zip archive (a PyTorch checkpoint?)"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"lmgg", "a GGML file from before GGUF"),
    (b"tjgg", "a GGML file from before GGUF"),
    (b"fmgg", "a GGML file from before GGUF"),
    (b"\x7fELF", "a program"),
    (b"%PDF", "a PDF document"),
    (b"{", "a JSON file"),
    (b"\x00" * 24, "zeros (space reserved by a download that never ran?)"),
)


def describe(head: bytes) -> str:
    """Say what a file with these first bytes (at least 32, if it has them) seems to be."""
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 40:
        return "a safetensors file"
    if head.lstrip()[:14].lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        return "a web page (an error page saved by a download?)"
    for start, what in _STARTS:
        if head.startswith(start):
            return what
    return f"something that begins with {head[:4].hex(' ')}"
