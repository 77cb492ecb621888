"""From tensor names to entries that have been checked: presence, shape and type of every one.

The tables below are the layout of a V4 block; draft stages use the same one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile, TensorEntry
from ds4chat.formats.quants import FORMATS
from ds4chat.formats.show import printable, problem_text
from ds4chat.model.config import BlockConfig, TargetConfig

_MAX_GUESSES = 5  # near names are looked up for that many missing tensors
_NUMBERED = re.compile(r"\A(?P<head>[a-z]+\.)(?P<number>[0-9]+)(?P<tail>\..*)\Z", re.DOTALL)


class Kind(Enum):
    """What a tensor is for, which decides the types that it may have."""

    MATRIX = frozenset(quant.name for quant in FORMATS.values() if not quant.is_integer)
    VECTOR = frozenset({"F32", "F16", "BF16"})
    IDS = frozenset({"I32"})


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor that must be there. `shape` in NumPy order, as symbols of `block_symbols`."""

    suffix: str
    shape: tuple[str, ...]
    kind: Kind


def _slots(kind: Kind, rows: dict[str, tuple[str, ...]]) -> tuple[Slot, ...]:
    return tuple(Slot(suffix, shape, kind) for suffix, shape in rows.items())


BLOCK_SLOTS: tuple[Slot, ...] = (
    *_slots(
        Kind.MATRIX,
        {
            "hc_attn_fn.weight": ("mix", "m*D"),
            "hc_ffn_fn.weight": ("mix", "m*D"),
            "attn_q_a.weight": ("q_lora", "D"),
            "attn_q_b.weight": ("H*d", "q_lora"),
            "attn_kv.weight": ("d", "D"),
            "attn_output_a.weight": ("G*R", "H*d/G"),
            "attn_output_b.weight": ("D", "G*R"),
            "ffn_gate_inp.weight": ("E", "D"),
            "ffn_gate_exps.weight": ("E", "F", "D"),
            "ffn_up_exps.weight": ("E", "F", "D"),
            "ffn_down_exps.weight": ("E", "D", "F"),
            "ffn_gate_shexp.weight": ("shared*F", "D"),
            "ffn_up_shexp.weight": ("shared*F", "D"),
            "ffn_down_shexp.weight": ("D", "shared*F"),
        },
    ),
    *_slots(
        Kind.VECTOR,
        {
            "hc_attn_scale.weight": ("3",),
            "hc_attn_base.weight": ("mix",),
            "hc_ffn_scale.weight": ("3",),
            "hc_ffn_base.weight": ("mix",),
            "attn_norm.weight": ("D",),
            "attn_q_a_norm.weight": ("q_lora",),
            "attn_kv_a_norm.weight": ("d",),
            "attn_sinks.weight": ("H",),
            "ffn_norm.weight": ("D",),
        },
    ),
)
ROUTER_BIAS = Slot("exp_probs_b.bias", ("E",), Kind.VECTOR)
_HASH_TABLE = Slot("ffn_gate_tid2eid.weight", ("V", "used"), Kind.IDS)

_COMPRESSOR_SLOTS = (
    Slot("attn_compressor_ape.weight", ("r", "width"), Kind.MATRIX),
    Slot("attn_compressor_kv.weight", ("width", "D"), Kind.MATRIX),
    Slot("attn_compressor_gate.weight", ("width", "D"), Kind.MATRIX),
    Slot("attn_compressor_norm.weight", ("d",), Kind.VECTOR),
)
_INDEXER_SLOTS = (
    Slot("indexer.attn_q_b.weight", ("iH*id", "q_lora"), Kind.MATRIX),
    Slot("indexer.proj.weight", ("iH", "D"), Kind.MATRIX),
    Slot("indexer_compressor_ape.weight", ("r", "2*id"), Kind.MATRIX),
    Slot("indexer_compressor_kv.weight", ("2*id", "D"), Kind.MATRIX),
    Slot("indexer_compressor_gate.weight", ("2*id", "D"), Kind.MATRIX),
    Slot("indexer_compressor_norm.weight", ("id",), Kind.VECTOR),
)
_GLOBAL_SLOTS = (
    Slot("token_embd.weight", ("V", "D"), Kind.MATRIX),
    Slot("output.weight", ("V", "D"), Kind.MATRIX),
    Slot("output_norm.weight", ("D",), Kind.VECTOR),
    Slot("output_hc_fn.weight", ("m", "m*D"), Kind.MATRIX),
    Slot("output_hc_base.weight", ("m",), Kind.VECTOR),
    Slot("output_hc_scale.weight", ("1",), Kind.VECTOR),
)


class Binder:
    """Collects checked entries of one file, and every complaint about it.

    `bound` maps the canonical name (which may differ from the file's) to the entry.
    """

    def __init__(self, gguf: GgufFile) -> None:
        self.gguf = gguf
        self.bound: dict[str, TensorEntry] = {}
        self.problems: list[str] = []
        self._missing: list[str] = []
        self._wanted: set[str] = set()

    def bind(
        self,
        name: str,
        shape: tuple[int, ...],
        kind: Kind,
        *,
        stored_as: str = "",
        is_optional: bool = False,
    ) -> TensorEntry | None:
        """Bind one tensor, which the file calls `stored_as` if that is not `name`."""
        stored = stored_as or name
        self._wanted.add(stored)
        entry = self.gguf.tensors.get(stored)
        if entry is None:
            if not is_optional:
                self._missing.append(stored)
            return None
        wrong = []
        if entry.shape != shape:
            wrong.append(f"shape {list(entry.shape)}, {list(shape)} wanted")
        if entry.type_name not in kind.value:
            wrong.append(
                f"type {entry.type_name}, one of {', '.join(sorted(kind.value))} wanted"
            )
        self.problems += [f"tensor {stored}: {what}" for what in wrong]
        self.bound[name] = entry
        return entry

    def expect(self, stored: str) -> None:
        """Note a tensor whose shape cannot be told: it must at least be there."""
        self._wanted.add(stored)
        if stored not in self.gguf.tensors:
            self._missing.append(stored)

    def finish(self, hint: str) -> dict[str, TensorEntry]:
        """The bound entries.

        Raises:
            ModelFileError: anything was missing or wrong; the message lists all of it.
        """
        problems = [*self.missing_lines(), *_fold(self.problems)]
        if problems:
            raise ModelFileError(problem_text(self.gguf.path, problems), hint)
        return self.bound

    def missing_lines(self) -> list[str]:
        """A line for each tensor that is not there, with the name it may have instead."""
        unused = [name for name in self.gguf.tensors if name not in self._wanted][:2000]
        if len(self._missing) > _MAX_GUESSES or not unused:
            return [
                f"{line} is missing" for line in _fold(f"tensor {n}" for n in self._missing)
            ]
        lines = []
        for name in self._missing:
            near = difflib.get_close_matches(name, unused, n=1, cutoff=0.8)
            guess = f" (the file has {printable(near[0])})" if near else ""
            lines.append(f"tensor {name} is missing{guess}")
        return lines


def _fold(lines: Iterable[str]) -> list[str]:
    """Join lines that differ in the layer only: `tensor blk.{0-42}.attn_kv.weight ...`."""
    groups: dict[tuple[str, str], list[int]] = {}
    for line in lines:
        word, _, rest = line.partition(" ")
        found = _NUMBERED.match(rest)
        if found is None:
            groups[line, ""] = []
        else:
            key = (f"{word} {found['head']}", found["tail"])
            groups.setdefault(key, []).append(int(found["number"]))
    return [head + _ranges(numbers) + tail for (head, tail), numbers in groups.items()]


def _ranges(numbers: Sequence[int]) -> str:
    """`7` for one number, `{0-3,7}` for several, empty for none."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    text = ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
    return text if len(numbers) < 2 else f"{{{text}}}"


def block_symbols(block: BlockConfig, n_vocab: int) -> dict[str, int]:
    """Sizes by the symbols that slots use (those of the papers, see BlockConfig)."""
    m = block.n_streams
    return {
        "1": 1,
        "3": 3,
        "D": block.dim,
        "H": block.n_heads,
        "d": block.head_dim,
        "H*d": block.n_heads * block.head_dim,
        "H*d/G": block.n_heads * block.head_dim // block.n_groups,
        "G*R": block.n_groups * block.o_lora,
        "q_lora": block.q_lora,
        "E": block.n_experts,
        "used": block.n_experts_used,
        "F": block.expert_dim,
        "shared*F": block.n_shared * block.expert_dim,
        "m": m,
        "m*D": m * block.dim,
        "mix": m * (m + 2),
        "V": n_vocab,
    }


@dataclass(frozen=True, slots=True)
class Place:
    """One tensor that a target has: name in the file, NumPy shape, purpose."""

    name: str
    shape: tuple[int, ...]
    kind: Kind
    is_optional: bool = False


def target_layout(config: TargetConfig) -> Iterator[Place]:
    """Every tensor of a target of these sizes."""
    symbols = block_symbols(config.block, config.n_vocab)
    yield from _places(_GLOBAL_SLOTS, "", symbols)
    for layer in range(config.n_layers):
        prefix = f"blk.{layer}."
        is_hash, ratio = layer < config.n_hash_layers, config.compress_ratios[layer]
        widths = symbols | (_compressor_symbols(config, ratio) if ratio else {})
        yield from _places(_layer_slots(is_hash=is_hash, ratio=ratio), prefix, widths)
        bias = prefix + ROUTER_BIAS.suffix
        yield Place(bias, (symbols["E"],), ROUTER_BIAS.kind, is_optional=is_hash)


def _layer_slots(*, is_hash: bool, ratio: int) -> tuple[Slot, ...]:
    """What a layer must have; the router's bias is optional in a hash layer and not here."""
    return (
        *BLOCK_SLOTS,
        *((_HASH_TABLE,) if is_hash else ()),
        *(_COMPRESSOR_SLOTS if ratio else ()),
        *(_INDEXER_SLOTS if ratio == 4 else ()),
    )


def _places(slots: Iterable[Slot], prefix: str, symbols: dict[str, int]) -> Iterator[Place]:
    for slot in slots:
        shape = tuple(symbols[symbol] for symbol in slot.shape)
        yield Place(prefix + slot.suffix, shape, slot.kind)


def bind_target(gguf: GgufFile, config: TargetConfig) -> dict[str, TensorEntry]:
    """Every tensor of the target by its GGUF name.

    Raises:
        ModelFileError: tensors are missing or have another shape or type; all are listed.
    """
    binder = Binder(gguf)
    for place in target_layout(config):
        binder.bind(place.name, place.shape, place.kind, is_optional=place.is_optional)
        if place.kind is Kind.IDS:
            _check_expert_ids(binder, place.name, config.block.n_experts)
    return binder.finish("The file does not hold the model that its keys describe.")


def missing_tensors(gguf: GgufFile, n_hash_layers: int, ratios: Sequence[int]) -> list[str]:
    """A line for each tensor that is missing, for a file whose sizes cannot be read.

    Args:
        gguf: the file.
        n_hash_layers: layers with a table of experts, from the first on.
        ratios: compress ratio of each layer.
    """
    binder = Binder(gguf)
    for slot in _GLOBAL_SLOTS:
        binder.expect(slot.suffix)
    for layer, ratio in enumerate(ratios):
        is_hash = layer < n_hash_layers
        for slot in _layer_slots(is_hash=is_hash, ratio=ratio):
            binder.expect(f"blk.{layer}.{slot.suffix}")
        if not is_hash:
            binder.expect(f"blk.{layer}.{ROUTER_BIAS.suffix}")
    return binder.missing_lines()


def _compressor_symbols(config: TargetConfig, ratio: int) -> dict[str, int]:
    """Sizes of a compressed layer; at ratio 4 a row is made from two groups."""
    overlap = 2 if ratio == 4 else 1
    return {
        "r": ratio,
        "width": overlap * config.block.head_dim,
        "iH": config.index_heads,
        "id": config.index_dim,
        "2*id": 2 * config.index_dim,
        "iH*id": config.index_heads * config.index_dim,
    }


def _check_expert_ids(binder: Binder, name: str, n_experts: int) -> None:
    """An id out of range would gather some other expert's weights, or crash the device."""
    entry = binder.bound.get(name)
    if entry is None or entry.type_name not in Kind.IDS.value:
        return
    ids = binder.gguf.integers(entry)
    low, high = int(np.min(ids)), int(np.max(ids))
    if low < 0 or high >= n_experts:
        binder.problems.append(
            f"tensor {name}: expert ids from {low} to {high}, 0 to {n_experts - 1} wanted"
        )
