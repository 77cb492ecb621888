"""From a support file's metadata to `DraftConfig`, whichever of three spellings it uses.

ds4's own (`mtp.S.*`, keys `dspark.*`), a later one (`dspark.S.*`, keys `deepseek4.dspark.*`)
and llama.cpp's (`blk.S.*`, architecture `dflash`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

from ds4chat.draft.config import DraftConfig
from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.keys import KeyReader
from ds4chat.formats.show import printable, problem_text, shown_path
from ds4chat.model.config import BlockConfig, TargetConfig
from ds4chat.model.metadata import BLOCK_CHECKS, model_name, read_block, run_checks

MAX_BLOCK = 16
MAX_STAGES = 8


class Spelling(Enum):
    """How a support file names its tensors; the value is the pattern of a stage's number."""

    DS4 = r"mtp\.([0-9]{1,9})\."
    LATE = r"dspark\.([0-9]{1,9})\."
    LLAMA = r"blk\.([0-9]{1,9})\."


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftReading:
    """A readable support file: its sizes, and what a person should know about the pair."""

    config: DraftConfig
    spelling: Spelling
    warnings: tuple[str, ...]


# Where each number may stand, first hit wins.
_KEYS: dict[Spelling, dict[str, tuple[str, ...]]] = {
    Spelling.DS4: {
        name: (f"deepseek4.dspark.{name}", f"deepseek4.dspark_{name}", f"dspark.{name}")
        for name in ("block_size", "markov_rank", "noise_token_id", "target_layer_ids")
    },
    Spelling.LATE: {
        "block_size": ("deepseek4.dspark.block_size", "dspark.block_size"),
        "markov_rank": ("deepseek4.dspark.markov_rank", "dspark.markov_rank"),
        "noise_token_id": ("deepseek4.dspark.noise_token_id", "dspark.noise_token_id"),
        "target_layer_ids": (
            "deepseek4.dspark.target_layers",
            "deepseek4.dspark.target_layer_ids",
            "dspark.target_layer_ids",
        ),
    },
    Spelling.LLAMA: {
        "block_size": ("dflash.block_size",),
        "markov_rank": ("dflash.markov_rank",),
        "noise_token_id": ("tokenizer.ggml.mask_token_id",),
        "target_layer_ids": ("dflash.target_layers",),
    },
}
_STAGE_COUNT_KEYS = (
    "deepseek4.dspark.stage_count",
    "deepseek4.dspark.layer_count",
    "dspark.stage_count",
    "dspark.n_layers",
    "dflash.block_count",
)
_MARKOV_NAMES = {
    Spelling.DS4: ".markov_head.markov_w1.weight",
    Spelling.LATE: "dspark.markov_w1.weight",
    Spelling.LLAMA: "markov_w1.weight",
}
_ONE_TOKEN = re.compile(r"mtp\.0\.(e_proj|h_proj)\.|.*nextn")


def detect_spelling(gguf: GgufFile) -> Spelling:
    """Which kind of support file this is.

    Raises:
        ModelFileError: it is none, and the message says what it is instead.
    """
    architecture = KeyReader(gguf.metadata).text("general.architecture")
    names = gguf.tensors
    if architecture == "dflash":
        _check_dflash_family(gguf)
        return Spelling.LLAMA
    if architecture.startswith("deepseek41"):
        raise _not_support(gguf, "a file for DeepSeek V4.1, another architecture")
    if any(name.startswith("dspark.") for name in names):
        return Spelling.LATE
    if any(_is_dspark_part(name) for name in names):
        return Spelling.DS4
    if any(_ONE_TOKEN.match(name) for name in names):
        raise _not_support(gguf, "the one-token MTP module (mtp.0.e_proj or nextn tensors)")
    if "token_embd.weight" in names:
        raise _not_support(gguf, f"a model ({printable(architecture) or 'unnamed'})")
    raise _not_support(gguf, f"without DSpark tensors ({printable(architecture) or 'unnamed'})")


def _is_dspark_part(name: str) -> bool:
    return name.startswith("mtp.") and (
        ".markov_head." in name or ".confidence_head." in name or ".main_proj." in name
    )


def _check_dflash_family(gguf: GgufFile) -> None:
    if "dflash.expert_count" in gguf.metadata:
        return
    family = (
        "the selector family" if "dflash.selector_rank" in gguf.metadata else "a dense family"
    )
    raise _not_support(gguf, f"a dflash drafter of {family}, made for other models")


def _not_support(gguf: GgufFile, what: str) -> ModelFileError:
    return ModelFileError(
        f"{shown_path(gguf.path)}: not a DSpark support file but {what}",
        "Use the DSpark support file that was published with the model.",
    )


def read_draft_config(
    gguf: GgufFile, target: TargetConfig, base: GgufFile | None = None
) -> DraftReading:
    """Read and check the sizes of a support file, and whether it belongs to the target.

    Args:
        gguf: the support file.
        target: sizes of the model that it will draft for.
        base: that model's file; without it provenance cannot be compared.

    Raises:
        ModelFileError: not a support file, not of this target, or keys are missing or wrong.
    """
    spelling = detect_spelling(gguf)
    keys = KeyReader(gguf.metadata)
    warnings: list[str] = []
    n_stages = count_stages(gguf, spelling, keys, warnings)
    values = read_numbers(gguf, spelling, keys, target.n_vocab)
    block = _read_block(spelling, keys, target.block, n_stages)
    _check_target_layers(values, target, keys.problems)
    if base is not None:
        _check_provenance(gguf, base, keys.problems)
        warnings += _name_warnings(gguf, base)
    if keys.problems or block is None:
        raise ModelFileError(
            problem_text(gguf.path, keys.problems),
            "Use the support file that was published with this model, or chat without one.",
        )
    config = DraftConfig(name=model_name(gguf), block=block, n_stages=n_stages, **values)
    return DraftReading(config=config, spelling=spelling, warnings=tuple(warnings))


def count_stages(
    gguf: GgufFile, spelling: Spelling, keys: KeyReader, warnings: list[str]
) -> int:
    """Stages by tensor names, which win over the keys."""
    found = (re.match(spelling.value, name) for name in gguf.tensors)
    n_stages = 1 + max((int(match[1]) for match in found if match), default=-1)
    if not 1 <= n_stages <= MAX_STAGES:
        keys.problems.append(
            f"{n_stages} draft stages by tensor names; 1 to {MAX_STAGES} wanted"
        )
        return 1
    for key in _STAGE_COUNT_KEYS:
        told = gguf.metadata.get(key)
        if isinstance(told, int) and told != n_stages:
            warnings.append(
                f"{key} says {told} stages, the tensors make {n_stages}; using these"
            )
    return n_stages


def read_numbers(
    gguf: GgufFile, spelling: Spelling, keys: KeyReader, n_vocab: int
) -> dict[str, Any]:
    """`block_size`, `markov_rank`, `noise_id` and `target_layers` (0-based) as the file says.

    None stands for a value with a problem, which is in `keys.problems`.
    """

    def name_of(field: str) -> str:
        names = _KEYS[spelling][field]
        return next((name for name in names if name in gguf.metadata), names[-1])

    layers = keys.integers(name_of("target_layer_ids"))
    if layers is not None and spelling is Spelling.LLAMA:
        # That container counts the embedding as layer 0.
        layers = tuple(layer - 1 for layer in layers)
    return {
        "block_size": keys.integer(name_of("block_size"), most=MAX_BLOCK),
        "markov_rank": _read_rank(gguf, spelling, keys, name_of("markov_rank")),
        "noise_id": keys.integer(name_of("noise_token_id"), least=0, most=n_vocab - 1),
        "target_layers": layers,
    }


def _read_rank(gguf: GgufFile, spelling: Spelling, keys: KeyReader, key: str) -> int | None:
    """The key, or else the columns of the Markov embedding [vocabulary, rank]."""
    suffix = _MARKOV_NAMES[spelling]
    matrices = [entry for entry in gguf.tensors.values() if entry.name.endswith(suffix)]
    if key not in gguf.metadata and (not matrices or len(matrices[0].shape) != 2):
        keys.problems.append(f"no {key} and no matrix {suffix} that would tell it")
        return None
    default = matrices[0].shape[-1] if matrices else None
    return keys.integer(key, default=default, most=1 << 16)


def _read_block(
    spelling: Spelling, keys: KeyReader, target: BlockConfig, n_stages: int
) -> BlockConfig | None:
    """The stages' geometry: the target's, except where the file has its own keys."""
    prefix = "dflash" if spelling is Spelling.LLAMA else "deepseek4.dspark"
    n_problems = len(keys.problems)
    keys.integer(f"{prefix}.hash_layer_count", default=0, least=0, most=0)
    if f"{prefix}.attention.compress_ratios" in keys.metadata:
        ratios = keys.integers(f"{prefix}.attention.compress_ratios")
        if ratios is not None and any(ratios):
            keys.problems.append("draft stages with compressed rows; ratios of 0 wanted")
    values = read_block(keys, prefix, n_stages, target)
    run_checks(BLOCK_CHECKS, values, keys.problems)
    if len(keys.problems) > n_problems:
        return None
    block = BlockConfig(**values)
    for name, what in (("dim", "embedding_length"), ("n_streams", "hyper_connection.count")):
        found, wanted = getattr(block, name), getattr(target, name)
        if found != wanted:
            keys.problems.append(f"key {prefix}.{what} is {found}; the model has {wanted}")
    return block


def _check_target_layers(
    values: dict[str, Any], target: TargetConfig, problems: list[str]
) -> None:
    layers = values["target_layers"]
    if layers is None:
        return
    is_rising = all(low < high for low, high in pairwise(layers))
    if not is_rising or layers[0] < 0 or layers[-1] >= target.n_layers:
        problems.append(
            f"target layers {list(layers[:16])}: rising numbers from 0 to "
            f"{target.n_layers - 1} wanted"
        )


def _check_provenance(gguf: GgufFile, base: GgufFile, problems: list[str]) -> None:
    """Both files must name the same checkpoint, where they name one."""
    pair = (KeyReader(base.metadata), KeyReader(gguf.metadata))
    variants = [keys.text("deepseek4.checkpoint_variant") for keys in pair]
    revisions = [keys.text("general.source.revision") for keys in pair]
    if variants[0] != variants[1]:
        problems.append(_differ("deepseek4.checkpoint_variant", variants))
    is_needed = any(variants) or all(revisions)
    if is_needed and revisions[0] != revisions[1]:
        problems.append(_differ("general.source.revision", revisions))


def _differ(key: str, values: list[str]) -> str:
    base, support = (f"'{printable(value)}'" if value else "none" for value in values)
    return f"made from another checkpoint: {key} is {support}, the model has {base}"


def _name_warnings(gguf: GgufFile, base: GgufFile) -> list[str]:
    """No key tells the Preview from the 0731 release; only published file names do."""
    is_new = ["0731" in path.name for path in (base.path, gguf.path)]
    if is_new[0] == is_new[1]:
        return []
    which = "model" if is_new[0] else "support file"
    return [
        f"only the {which} is named 0731: if the two are of different releases, "
        "few drafts will be accepted"
    ]
