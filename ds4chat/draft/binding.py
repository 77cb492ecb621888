"""Checked entries of a support file under ds4's names, whichever spelling the file uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ds4chat.draft.config import DraftConfig
from ds4chat.draft.metadata import (
    DraftReading,
    Spelling,
    count_stages,
    detect_spelling,
    read_draft_config,
)
from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile, TensorEntry
from ds4chat.formats.keys import KeyReader
from ds4chat.formats.show import problem_text, problems_of
from ds4chat.model.binding import BLOCK_SLOTS, ROUTER_BIAS, Binder, Kind, Slot, block_symbols
from ds4chat.model.config import TargetConfig

_FIRST_SLOTS = (
    Slot("main_proj.weight", ("D", "captured"), Kind.MATRIX),
    Slot("main_norm.weight", ("D",), Kind.VECTOR),
)
_LAST_SLOTS = (
    Slot("norm.weight", ("D",), Kind.VECTOR),
    Slot("hc_head_fn.weight", ("m", "m*D"), Kind.MATRIX),
    Slot("hc_head_base.weight", ("m",), Kind.VECTOR),
    Slot("hc_head_scale.weight", ("1",), Kind.VECTOR),
    Slot("markov_head.markov_w1.weight", ("V", "rank"), Kind.MATRIX),
    Slot("markov_head.markov_w2.weight", ("V", "rank"), Kind.MATRIX),
)
_CONFIDENCE = "confidence_head.proj"

# Suffixes of the first and last stage that stand outside the stages in other spellings.
_LATE_NAMES = {
    "main_proj.weight": "dspark.main_proj.weight",
    "main_norm.weight": "dspark.main_norm.weight",
    "norm.weight": "dspark.norm.weight",
    "hc_head_fn.weight": "dspark.hc_head_fn.weight",
    "hc_head_base.weight": "dspark.hc_head_base.weight",
    "hc_head_scale.weight": "dspark.hc_head_scale.weight",
    "markov_head.markov_w1.weight": "dspark.markov_w1.weight",
    "markov_head.markov_w2.weight": "dspark.markov_w2.weight",
    "confidence_head.proj.weight": "dspark.conf_proj.weight",
    "confidence_head.proj.bias": "dspark.conf_proj.bias",
}
_LLAMA_NAMES = {
    "main_proj.weight": "fc.weight",
    "main_norm.weight": "enc.output_norm.weight",
    "norm.weight": "output_norm.weight",
    "hc_head_fn.weight": "output_hc_fn.weight",
    "hc_head_base.weight": "output_hc_base.weight",
    "hc_head_scale.weight": "output_hc_scale.weight",
    "markov_head.markov_w1.weight": "markov_w1.weight",
    "markov_head.markov_w2.weight": "markov_w2.weight",
    "confidence_head.proj.weight": "conf_proj.weight",
    "confidence_head.proj.bias": "conf_proj.bias",
}
_SPELLINGS: dict[Spelling, tuple[str, dict[str, str]]] = {
    Spelling.DS4: ("mtp.", {}),
    Spelling.LATE: ("dspark.", _LATE_NAMES),
    Spelling.LLAMA: ("blk.", _LLAMA_NAMES),
}


def stored_names(spelling: Spelling) -> Callable[[int, str], str]:
    """How a file of this spelling calls `mtp.STAGE.SUFFIX`."""
    prefix, outside = _SPELLINGS[spelling]
    return lambda stage, suffix: outside.get(suffix, f"{prefix}{stage}.{suffix}")


def read_draft(
    gguf: GgufFile, target: TargetConfig, base: GgufFile
) -> tuple[DraftReading, dict[str, TensorEntry]]:
    """The sizes of a support file and its tensors, for the model in `base`.

    Raises:
        ModelFileError: it is none, does not belong to that model, or anything is missing or
            cannot be used; the list names tensors that are missing even if sizes are too.
    """
    spelling = detect_spelling(gguf)
    try:
        reading = read_draft_config(gguf, target, base)
    except ModelFileError as error:
        problems = problems_of(gguf.path, error.message) + _missing_parts(gguf, spelling)
        raise ModelFileError(problem_text(gguf.path, problems), error.hint) from error
    return reading, bind_draft(gguf, reading.config, target)


def _missing_parts(gguf: GgufFile, spelling: Spelling) -> list[str]:
    binder, stored = Binder(gguf), stored_names(spelling)
    for stage, slot in _placed(count_stages(gguf, spelling, KeyReader(gguf.metadata), [])):
        binder.expect(stored(stage, slot.suffix))
    return binder.missing_lines()


def _placed(n_stages: int) -> list[tuple[int, Slot]]:
    """Every stage with what it must have, but for the confidence head."""
    last = n_stages - 1
    placed = [
        (stage, slot) for stage in range(n_stages) for slot in (*BLOCK_SLOTS, ROUTER_BIAS)
    ]
    return (
        placed + [(0, slot) for slot in _FIRST_SLOTS] + [(last, slot) for slot in _LAST_SLOTS]
    )


def bind_draft(
    gguf: GgufFile, config: DraftConfig, target: TargetConfig
) -> dict[str, TensorEntry]:
    """Every tensor of the draft module under `mtp.STAGE.SUFFIX`.

    `mtp.LAST.confidence_head.proj.weight` always has shape [1, dim + rank];
    `mtp.LAST.confidence_head.proj.bias` is there only if the file has it.

    Raises:
        ModelFileError: tensors are missing or have another shape or type; all are listed.
    """
    binder = Binder(gguf)
    stored = stored_names(detect_spelling(gguf))
    symbols = block_symbols(config.block, target.n_vocab) | {
        "captured": len(config.target_layers) * target.block.dim,
        "rank": config.markov_rank,
    }
    last = config.n_stages - 1
    for stage, slot in _placed(config.n_stages):
        binder.bind(
            f"mtp.{stage}.{slot.suffix}",
            tuple(symbols[symbol] for symbol in slot.shape),
            slot.kind,
            stored_as=stored(stage, slot.suffix),
        )
    _bind_confidence(binder, stored, last, config.block.dim + config.markov_rank)
    return binder.finish(
        "Use the support file that was published with this model, or chat without one."
    )


def _bind_confidence(
    binder: Binder, stored: Callable[[int, str], str], last: int, width: int
) -> None:
    """Some converters drop the matrix's one-row dimension: give it back."""
    suffix = f"{_CONFIDENCE}.weight"
    found = binder.gguf.tensors.get(stored(last, suffix))
    shape = (width,) if found and len(found.shape) == 1 else (1, width)
    name = f"mtp.{last}.{suffix}"
    entry = binder.bind(name, shape, Kind.MATRIX, stored_as=stored(last, suffix))
    if entry is not None:
        binder.bound[name] = replace(entry, shape=(1, entry.shape[-1]))
    suffix = f"{_CONFIDENCE}.bias"
    binder.bind(
        f"mtp.{last}.{suffix}",
        (1,),
        Kind.VECTOR,
        stored_as=stored(last, suffix),
        is_optional=True,
    )
