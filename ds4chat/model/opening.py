"""A model file checked whole: sizes, tensors, vocabulary. A refusal lists all that is wrong."""

from __future__ import annotations

import re

from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile, TensorEntry
from ds4chat.formats.keys import KeyReader
from ds4chat.formats.show import problem_text, problems_of
from ds4chat.formats.vocab import read_tokenizer
from ds4chat.model.binding import bind_target, missing_tensors
from ds4chat.model.config import TargetConfig
from ds4chat.model.metadata import ARCHITECTURE, MAX_LAYERS, RATIOS, read_target_config

_LAYER = re.compile(r"blk\.([0-9]{1,3})\.")


def read_target(gguf: GgufFile) -> tuple[TargetConfig, dict[str, TensorEntry]]:
    """The sizes of a model and its tensors by name.

    Raises:
        ModelFileError: another architecture, or anything is missing or cannot be used; what a
            person would learn only after the next attempt is in the list too.
    """
    config = None
    try:
        config = read_target_config(gguf)
        return config, bind_target(gguf, config)
    except ModelFileError as error:
        if KeyReader(gguf.metadata).text("general.architecture") != ARCHITECTURE:
            raise
        problems = problems_of(gguf.path, error.message)
        if config is None:
            problems += _missing_tensors(gguf)
        problems += [line for line in _vocab_problems(gguf) if line not in problems]
        raise ModelFileError(problem_text(gguf.path, problems), error.hint) from error


def _missing_tensors(gguf: GgufFile) -> list[str]:
    """As far as the keys that decide which tensors there are can be read."""
    keys = KeyReader(gguf.metadata)
    n_layers = keys.integer(f"{ARCHITECTURE}.block_count", default=_count_layers(gguf))
    n_hash = keys.integer(f"{ARCHITECTURE}.hash_layer_count", least=0)
    ratios = keys.integers(f"{ARCHITECTURE}.attention.compress_ratios", count=n_layers or 1)
    if n_hash is None or ratios is None or not set(ratios) <= set(RATIOS):
        return missing_tensors(gguf, 0, ())
    return missing_tensors(gguf, n_hash, ratios[:MAX_LAYERS])


def _count_layers(gguf: GgufFile) -> int:
    """Layers by the numbers in tensor names; at least one."""
    found = (_LAYER.match(name) for name in gguf.tensors)
    return max((int(match[1]) + 1 for match in found if match), default=1)


def _vocab_problems(gguf: GgufFile) -> list[str]:
    try:
        read_tokenizer(gguf)
    except ModelFileError as error:
        return problems_of(gguf.path, error.message)
    return []
