"""The tokenizer that a model file carries in its keys."""

from __future__ import annotations

import numpy as np

from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.show import printable, problem_text
from ds4chat.formats.values import MAX_WALKED
from ds4chat.text.tokenizer import Tokenizer

_PREFIX = "tokenizer.ggml."
_MODEL = "gpt2"  # ggml's word for byte-level BPE


def read_tokenizer(gguf: GgufFile) -> Tokenizer:
    """Build the tokenizer of a model file.

    Raises:
        ModelFileError: keys are missing or of another type, or the vocabulary is unusable.
    """
    problems: list[str] = []
    tokens = _strings(gguf, "tokens", problems)
    merges = _strings(gguf, "merges", problems)
    types = _types(gguf, problems)
    pre = _word(gguf, "pre", problems)
    model = _word(gguf, "model", problems)
    if model not in ("", _MODEL):
        problems.append(f"key {_PREFIX}model is '{printable(model)}'; '{_MODEL}' wanted")
    if problems:
        raise ModelFileError(
            problem_text(gguf.path, problems),
            "Use a DeepSeek-V4-Flash file: it holds a byte-level BPE vocabulary.",
        )
    return Tokenizer.from_vocab(
        tokens, merges, pre=pre, token_types=types, where=printable(str(gguf.path), 400)
    )


def _strings(gguf: GgufFile, name: str, problems: list[str]) -> list[str]:
    value = gguf.metadata.get(_PREFIX + name)
    if isinstance(value, list):
        return value
    problems.append(f"key {_PREFIX}{name} {_found(gguf, name)}; an array of strings wanted")
    return []


def _types(gguf: GgufFile, problems: list[str]) -> list[int] | None:
    value = gguf.metadata.get(_PREFIX + "token_type")
    if value is None:
        return None
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
        if len(value) > MAX_WALKED:
            problems.append(f"key {_PREFIX}token_type has {len(value):,} entries")
            return None
        types: list[int] = value.tolist()
        return types
    problems.append(f"key {_PREFIX}token_type {_found(gguf, 'token_type')}; numbers wanted")
    return None


def _word(gguf: GgufFile, name: str, problems: list[str]) -> str:
    value = gguf.metadata.get(_PREFIX + name)
    if isinstance(value, str):
        return value
    problems.append(f"key {_PREFIX}{name} {_found(gguf, name)}; a string wanted")
    return ""


def _found(gguf: GgufFile, name: str) -> str:
    key = _PREFIX + name
    return (
        f"is stored as {gguf.metadata.describe(key)}" if key in gguf.metadata else "is missing"
    )
