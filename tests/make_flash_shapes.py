"""A model of Flash's published shapes with random weights, as large as the real one.

`python -m tests.make_flash_shapes OUT --layers 6 --support OUT2`. All 43 layers are 86.7 GB:
`--dry-run` prints what would be written. Needs numpy and gguf, nothing else. The values are
random but sane: activations stay in range, logits are finite and differ.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import shutil
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter
from numpy.typing import NDArray

from ds4chat.cli.flash_vocab import N_MERGES, random_merges
from ds4chat.sizes import fine_size, size
from ds4chat.text.bytemap import BYTE_SYMBOLS
from tests.make_flash_shapes_data import Span, fill_all, spans, write_at
from tests.make_pair import TYPES, add_ds4_keys, add_geometry, add_target_keys, add_vocab, draw
from tests.pair_blocks import fitting, rng_for
from tests.pair_layout import PairSpec, Part, base_parts, support_parts
from tests.pair_vocab import BOS, CONTROL, EOS, NORMAL, Vocab, make_vocab

N_LAYERS, N_VOCAB = 43, 129_280
QUANTS = ("q2", "q4_k", "mxfp4")
# Where the published vocabulary has its markers; the other places behind 128,000 are holders.
_MARKERS = {
    128_803: "<｜User｜>",
    128_804: "<｜Assistant｜>",
    128_821: "<think>",
    128_822: "</think>",
    128_825: "｜DSML｜",
}

FLASH = PairSpec(
    quant="q2",
    ratios=(0, 0, *((4, 128) * 21)[: N_LAYERS - 2]),
    ctx=1_048_576,
    dim=4096,
    heads=64,
    head_dim=512,
    q_lora=1024,
    n_groups=8,
    o_lora=1024,
    n_experts=256,
    topk=6,
    expert_dim=2048,
    swiglu_limit=10.0,
    index_heads=64,
    index_topk=512,
    rope_original_ctx=65_536,
    vocab=N_VOCAB,
    markov_rank=256,
    noise_id=128_799,
    name="DeepSeek V4 Flash shapes, random weights",
)
"""The published sizes."""

TINY = dataclasses.replace(
    FLASH,
    dim=256,
    heads=4,
    head_dim=128,
    q_lora=256,
    n_groups=2,
    o_lora=128,
    n_experts=8,
    topk=3,
    expert_dim=256,
    index_heads=16,
    index_topk=16,
    rope_original_ctx=4096,
    vocab=512,
    noise_id=511,
    name="tiny Flash shapes, random weights",
)
"""Sizes with which a CPU can run it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One tensor of a file: its format, and where its data stands behind the directory."""

    part: Part
    kind: Type
    offset: int
    n_bytes: int


def with_layers(spec: PairSpec, n: int) -> PairSpec:
    """The model cut to `n` layers, its kinds of layers in about the same proportions."""
    if n == N_LAYERS:
        return spec
    n_plain = max(1, round(2 * n / N_LAYERS))
    return dataclasses.replace(spec, ratios=((0,) * n_plain + (4, 128) * n)[:n])


def base_items(spec: PairSpec) -> list[Item]:
    """Every tensor of the target with its place."""
    types = TYPES[spec.quant][0]
    parts = [(part, fitting(types.of(part), part.shape[-1])) for part, _ in base_parts(spec)]
    for layer in range(min(spec.n_hash, len(spec.ratios))):
        name = f"blk.{layer}.ffn_gate_tid2eid.weight"
        parts.append((Part(name, name, (spec.vocab, spec.topk), "ids"), Type.I32))
    return list(_placed(parts))


def support_items(spec: PairSpec) -> list[Item]:
    """Every tensor of the draft module with its place. There the router is Q8_0."""
    types = TYPES[spec.quant][0]
    parts = []
    for part, _ in support_parts(spec):
        wanted = types.dense if "ffn_gate_inp" in part.stored else types.of(part)
        parts.append((part, fitting(wanted, part.shape[-1])))
    return list(_placed(parts))


def _placed(parts: Sequence[tuple[Part, Type]]) -> Iterator[Item]:
    offset = 0
    for part, kind in parts:
        values, block = gguf.GGML_QUANT_SIZES[kind]
        n_bytes = math.prod(part.shape) // values * block
        yield Item(part=part, kind=kind, offset=offset, n_bytes=n_bytes)
        offset += GGUFWriter.ggml_pad(n_bytes, gguf.GGUF_DEFAULT_ALIGNMENT)


def data_bytes(items: Sequence[Item]) -> int:
    """Size of the data section."""
    last = items[-1]
    return last.offset + GGUFWriter.ggml_pad(last.n_bytes, gguf.GGUF_DEFAULT_ALIGNMENT)


def flash_vocab() -> Vocab:
    """The published numbers of tokens and merges, every marker at its published id."""
    pairs = random_merges(N_MERGES)
    tokens = [BOS, EOS, "<｜▁pad▁｜>", *BYTE_SYMBOLS, *(a + b for a, b in pairs)]
    n_words = len(tokens)
    tokens += [
        _MARKERS.get(i, f"<｜place▁holder▁no▁{i - n_words}｜>") for i in range(n_words, N_VOCAB)
    ]
    types = [CONTROL] * 3 + [NORMAL] * (n_words - 3) + [CONTROL] * (N_VOCAB - n_words)
    return Vocab(tokens=tokens, types=types, merges=[f"{a} {b}" for a, b in pairs])


def start_base(path: Path, spec: PairSpec, items: Sequence[Item]) -> int:
    """Write keys and directory and give the file its size; returns where the data begins."""
    writer = GGUFWriter(path, "deepseek4")
    writer.add_string("general.name", spec.name)
    add_geometry(writer, "deepseek4", spec, len(spec.ratios))
    add_target_keys(writer, spec)
    add_vocab(writer, flash_vocab() if spec.vocab == N_VOCAB else make_vocab(spec.vocab))
    return _start(path, writer, items)


def start_support(path: Path, spec: PairSpec, items: Sequence[Item]) -> int:
    """The same for the draft module's file."""
    writer = GGUFWriter(path, "deepseek4-dspark")
    writer.add_string("general.name", f"{spec.name}, DSpark support")
    add_ds4_keys(writer, spec)
    return _start(path, writer, items)


def _start(path: Path, writer: GGUFWriter, items: Sequence[Item]) -> int:
    for item in items:
        dtype = np.dtype(np.float32)
        writer.add_tensor_info(
            item.part.stored, item.part.shape, dtype, item.n_bytes, raw_dtype=item.kind
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    size = path.stat().st_size
    start = GGUFWriter.ggml_pad(size, gguf.GGUF_DEFAULT_ALIGNMENT)
    os.truncate(path, start + data_bytes(items))
    return start


def write(path: Path, spec: PairSpec, *, is_support: bool = False, n_processes: int = 1) -> int:
    """Write one file; returns its size.

    Raises:
        SystemExit: there is too little room for it.
    """
    items = (support_items if is_support else base_items)(spec)
    free = shutil.disk_usage(path.parent).free
    if free < data_bytes(items) + (64 << 20):
        raise SystemExit(f"{path}: {size(data_bytes(items))} wanted, {size(free)} free")
    part_path = path.with_name(path.name + ".part")
    try:
        start = (start_support if is_support else start_base)(part_path, spec, items)
        write_at(
            part_path, [(start + i.offset, _small(i, spec)) for i in items if _is_small(i)]
        )
        todo = [_span(i, part_path, start, spec.seed) for i in items if not _is_small(i)]
        fill_all([span for whole in todo for span in spans(whole)], n_processes)
        part_path.rename(path)
    finally:
        part_path.unlink(missing_ok=True)
    return path.stat().st_size


def _is_small(item: Item) -> bool:
    return item.kind in (Type.F32, Type.I32)


def _small(item: Item, spec: PairSpec) -> bytes:
    if item.kind is Type.I32:
        return expert_ids(spec, item.part.drawn).astype("<i4").tobytes()
    return draw(item.part, spec.seed).astype("<f4").tobytes()


def expert_ids(spec: PairSpec, name: str) -> NDArray[np.int32]:
    """`(vocab, topk)` ids, different within a row: steps of a width prime to the count."""
    rng = rng_for(spec.seed, name)
    steps = [i for i in range(1, spec.n_experts) if math.gcd(i, spec.n_experts) == 1]
    first = rng.randint(0, spec.n_experts, (spec.vocab, 1))
    step = rng.choice(steps, (spec.vocab, 1))
    ids = (first + step * np.arange(spec.topk)) % spec.n_experts
    return ids.astype(np.int32)


def _span(item: Item, path: Path, start: int, seed: int) -> Span:
    part = item.part
    is_scaled = part.kind in ("routed", "dense", "light", "fn")
    return Span(
        path=str(path),
        offset=start + item.offset,
        n_bytes=item.n_bytes,
        kind=int(item.kind),
        std=part.gain / math.sqrt(part.shape[-1]) if is_scaled else part.gain,
        first=zlib.crc32(f"{seed}:{part.stored}".encode("ascii")),
        seed=seed,
    )


def table(items: Sequence[Item]) -> str:
    """Tensors and bytes of each format, and in all."""
    lines = []
    for kind in sorted({item.kind for item in items}, key=lambda kind: kind.name):
        sizes = [item.n_bytes for item in items if item.kind is kind]
        lines.append(f"  {kind.name:<8} {len(sizes):5d} tensors {fine_size(sum(sizes)):>12}")
    total = f"{fine_size(data_bytes(items))}, {data_bytes(items):,} bytes"
    return "\n".join([*lines, f"  {len(items):,} tensors, {total} of data"])


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make_flash_shapes", description=__doc__)
    add = parser.add_argument
    add("out", type=Path, nargs="?", help="the model")
    add("--support", type=Path, help="write a DSpark support file too")
    add("--layers", type=int, default=N_LAYERS, help="layers (default 43)")
    add("--quant", choices=QUANTS, default="q2", help="recipe (default q2, as published)")
    add("--seed", type=int, default=0)
    add("--context", type=int, default=FLASH.ctx, help="context that the model claims")
    add("--tiny", action="store_true", help="a test's sizes instead of Flash's")
    add("--processes", type=int, default=min(16, os.cpu_count() or 1))
    add("--dry-run", action="store_true", help="say what would be written")
    options = parser.parse_args(argv)
    if options.out is None and not options.dry_run:
        parser.error("the name of a file is wanted")
    if not 1 <= options.layers <= N_LAYERS:
        parser.error(f"1 to {N_LAYERS} layers wanted")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    """Write what was asked for."""
    options = _parse(argv)
    spec = dataclasses.replace(
        with_layers(TINY if options.tiny else FLASH, options.layers),
        quant=options.quant,
        seed=options.seed,
        ctx=options.context,
    )
    if options.dry_run:
        sys.stdout.write(f"model, {options.layers} layers\n{table(base_items(spec))}\n")
        sys.stdout.write(f"support\n{table(support_items(spec))}\n")
        return
    for path, is_support in ((options.out, False), (options.support, True)):
        if path is not None:
            size = write(path, spec, is_support=is_support, n_processes=options.processes)
            sys.stdout.write(f"{path}  {size:,} bytes\n")


if __name__ == "__main__":
    main()
