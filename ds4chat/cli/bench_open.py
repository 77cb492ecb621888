"""`ds4chat bench open`: how long it takes to open a model of Flash's size.

A made-up directory of that size (129,280 tokens, 127,741 merges, 1,328 tensors, data that
takes no room on disk) is opened in fresh processes; their start and imports do not count.
"""

from __future__ import annotations

import json
import math
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ds4chat.cli.flash_vocab import N_MERGES, random_merges
from ds4chat.errors import EngineError, ModelFileError
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.quants import QuantFormat, format_named
from ds4chat.formats.show import printable
from ds4chat.formats.vocab import read_tokenizer
from ds4chat.model.binding import Kind, Place, bind_target, target_layout
from ds4chat.model.config import BlockConfig, TargetConfig
from ds4chat.model.metadata import read_target_config
from ds4chat.text import tokenizer as words
from ds4chat.text.bytemap import BYTE_SYMBOLS

BAR_S = 0.7
BAR_BYTES = 300 * 10**6
_ALIGNMENT = 32
_STAGES = ("directory", "config", "tokenizer", "binding")
_COUNTED = _STAGES[:3]
_U32, _F32, _BOOL, _STRING, _ARRAY, _I32 = 4, 6, 7, 8, 9, 5

FLASH = TargetConfig(
    name="Flash-sized",
    block=BlockConfig(
        dim=4096,
        n_heads=64,
        head_dim=512,
        rope_dim=64,
        q_lora=1024,
        n_groups=8,
        o_lora=1024,
        window=128,
        n_experts=256,
        n_experts_used=6,
        expert_dim=2048,
        n_shared=1,
        expert_scale=1.5,
        swiglu_limit=10.0,
        n_streams=4,
        sinkhorn_rounds=20,
        hc_eps=1e-6,
        rms_eps=1e-6,
        rope_base=10000.0,
    ),
    n_layers=43,
    n_vocab=129_280,
    compress_ratios=(0, 0, *((4, 128) * 21)[:41]),
    n_hash_layers=3,
    index_heads=64,
    index_dim=128,
    index_topk=512,
    compress_rope_base=160_000.0,
    rope_factor=16.0,
    rope_original_ctx=65_536,
    rope_beta_fast=32.0,
    rope_beta_slow=1.0,
    ctx_trained=1_048_576,
)


def bench_open(repeat: int) -> dict[str, Any]:
    """Open the made-up file `repeat` times, each in a fresh process.

    Returns:
        `runs` (one mapping of stage to seconds each, `total` and `rss_bytes` among them),
        `median_s`, `min_s`, `max_s`, `rss_bytes` (the largest), the bars, and `holds`.
    """
    with tempfile.TemporaryDirectory(prefix="ds4chat-bench-") as folder:
        path = Path(folder) / "flash-sized.gguf"
        write_flash_sized(path)
        runs = [_run_child(path) for _ in range(repeat)]
    totals = [run["total"] for run in runs]
    rss = max(run["rss_bytes"] for run in runs)
    median = statistics.median(totals)
    return {
        "bench": "open",
        "runs": runs,
        "median_s": median,
        "min_s": min(totals),
        "max_s": max(totals),
        "rss_bytes": rss,
        "bar_s": BAR_S,
        "bar_bytes": BAR_BYTES,
        "holds": median < BAR_S and rss < BAR_BYTES,
    }


def render(result: dict[str, Any]) -> str:
    """The result as a small table."""
    lines = ["open a Flash-sized model file (129,280 tokens, 127,741 merges, 1,328 tensors)"]
    for stage in _STAGES:
        note = "" if stage in _COUNTED else "  (not counted)"
        median = statistics.median(run[stage] for run in result["runs"])
        lines.append(f"  {stage:<10} {median:7.3f} s{note}")
    lines.append(
        f"  {'total':<10} {result['median_s']:7.3f} s  median of {len(result['runs'])}, "
        f"{result['min_s']:.3f} to {result['max_s']:.3f}; bar {result['bar_s']} s"
    )
    lines.append(
        f"  {'memory':<10} {result['rss_bytes'] / 1e6:5.0f} MB  largest growth; "
        f"bar {result['bar_bytes'] / 1e6:.0f} MB"
    )
    return "\n".join([*lines, "within the bar" if result["holds"] else "OVER THE BAR"])


def _run_child(path: Path) -> dict[str, float]:
    code = "import sys; from ds4chat.cli.bench_open import child; child(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise EngineError(
            f"the measuring process ended with status {done.returncode}: "
            f"{printable(done.stderr[-300:], 300)}"
        )
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def child(path: str) -> None:
    """Measure one opening in this process and print the figures as JSON."""
    before = _peak_rss()
    timed: dict[str, float] = {}

    def time_stage(stage: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = work()
        timed[stage] = time.perf_counter() - start
        return result

    gguf = time_stage("directory", lambda: GgufFile.open(path))
    config = time_stage("config", lambda: read_target_config(gguf))
    tokenizer = time_stage("tokenizer", lambda: read_tokenizer(gguf))
    timed["total"] = sum(timed.values())
    timed["rss_bytes"] = _peak_rss() - before
    bound = time_stage("binding", lambda: bind_target(gguf, config))
    if tokenizer.n_vocab != FLASH.n_vocab or len(bound) != len(gguf.tensors):
        raise ModelFileError(f"{path}: the made-up file was not read back as it was written")
    sys.stdout.write(json.dumps(timed))


def _peak_rss() -> int:
    """Largest resident size of this process so far, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux hands the parent's peak to getrusage across exec
        line = next(line for line in status.read_text().splitlines() if "VmHWM" in line)
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def write_flash_sized(path: Path) -> None:
    """Write keys and directory of `FLASH`, then make the file as long as its data would be."""
    tensors = [place for place in target_layout(FLASH) if not place.is_optional]
    keys = list(_keys())
    table, offset = [], 0
    for place in tensors:
        type_id, n_bytes = _stored_as(place)
        table.append(
            _string(place.name)
            + struct.pack("<I", len(place.shape))
            + b"".join(struct.pack("<Q", size) for size in reversed(place.shape))
            + struct.pack("<IQ", type_id, offset)
        )
        offset += -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(table), len(keys))
    directory = header + b"".join(keys) + b"".join(table)
    start = -(-len(directory) // _ALIGNMENT) * _ALIGNMENT
    with path.open("wb") as file:
        file.write(directory)
        file.truncate(start + offset)


def _stored_as(place: Place) -> tuple[int, int]:
    """Type id and bytes of a tensor in the published 2-bit layout."""
    quant = published_format(place)
    return quant.ggml_type, math.prod(place.shape[:-1]) * quant.row_bytes(place.shape[-1])


def published_format(place: Place) -> QuantFormat:
    """The format of a tensor in the published 2-bit file."""
    suffix = place.name.rsplit(".", 2)[-2]
    if place.kind is Kind.IDS:
        return format_named("I32")
    if place.kind is Kind.VECTOR:
        return format_named("F32")
    if "_exps" in suffix:
        return format_named("Q2_K" if "down" in suffix else "IQ2_XXS")
    light = ("hc_", "compressor", "token_embd", "gate_inp", "indexer", "proj")
    return format_named("F16" if any(word in place.name for word in light) else "Q8_0")


def _string(text: str) -> bytes:
    raw = text.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw


def _key(name: str, kind: int, payload: bytes) -> bytes:
    return _string(name) + struct.pack("<I", kind) + payload


def _array(name: str, kind: int, values: list[bytes]) -> bytes:
    return _key(name, _ARRAY, struct.pack("<IQ", kind, len(values)) + b"".join(values))


def _keys() -> Iterator[bytes]:
    yield _key("general.architecture", _STRING, _string("deepseek4"))
    yield _key("general.name", _STRING, _string(FLASH.name))
    for name, integer in _integer_keys().items():
        yield _key(f"deepseek4.{name}", _U32, struct.pack("<I", integer))
    for name, number in _number_keys().items():
        yield _key(f"deepseek4.{name}", _F32, struct.pack("<f", number))
    yield _key("deepseek4.expert_weights_norm", _BOOL, b"\1")
    ratios = [struct.pack("<i", ratio) for ratio in FLASH.compress_ratios]
    yield _array("deepseek4.attention.compress_ratios", _I32, ratios)
    limits = [struct.pack("<f", FLASH.block.swiglu_limit)] * FLASH.n_layers
    yield _array("deepseek4.swiglu_clamp_exp", _F32, limits)
    tokens, merges = flash_vocab()
    yield _key("tokenizer.ggml.model", _STRING, _string("gpt2"))
    yield _key("tokenizer.ggml.pre", _STRING, _string("joyai-llm"))
    yield _array("tokenizer.ggml.tokens", _STRING, [_string(token) for token in tokens])
    types = [struct.pack("<i", 3 if "｜" in token else 1) for token in tokens]
    yield _array("tokenizer.ggml.token_type", _I32, types)
    yield _array("tokenizer.ggml.merges", _STRING, [_string(merge) for merge in merges])


def _integer_keys() -> dict[str, int]:
    block = FLASH.block
    return {
        "block_count": FLASH.n_layers,
        "embedding_length": block.dim,
        "vocab_size": FLASH.n_vocab,
        "context_length": FLASH.ctx_trained,
        "attention.head_count": block.n_heads,
        "attention.head_count_kv": 1,
        "attention.key_length": block.head_dim,
        "attention.value_length": block.head_dim,
        "rope.dimension_count": block.rope_dim,
        "attention.q_lora_rank": block.q_lora,
        "attention.output_lora_rank": block.o_lora,
        "attention.output_group_count": block.n_groups,
        "expert_count": block.n_experts,
        "expert_used_count": block.n_experts_used,
        "expert_feed_forward_length": block.expert_dim,
        "expert_shared_count": block.n_shared,
        "hash_layer_count": FLASH.n_hash_layers,
        "attention.sliding_window": block.window,
        "attention.indexer.head_count": FLASH.index_heads,
        "attention.indexer.key_length": FLASH.index_dim,
        "attention.indexer.top_k": FLASH.index_topk,
        "hyper_connection.count": block.n_streams,
        "hyper_connection.sinkhorn_iterations": block.sinkhorn_rounds,
        "rope.scaling.original_context_length": FLASH.rope_original_ctx,
    }


def _number_keys() -> dict[str, float]:
    return {
        "hyper_connection.epsilon": FLASH.block.hc_eps,
        "rope.freq_base": FLASH.block.rope_base,
        "rope.scaling.factor": FLASH.rope_factor,
        "rope.scaling.yarn_beta_fast": FLASH.rope_beta_fast,
        "rope.scaling.yarn_beta_slow": FLASH.rope_beta_slow,
        "attention.compress_rope_freq_base": FLASH.compress_rope_base,
        "expert_weights_scale": FLASH.block.expert_scale,
        "attention.layer_norm_rms_epsilon": FLASH.block.rms_eps,
    }


def flash_vocab() -> tuple[list[str], list[str]]:
    """Tokens and merges in Flash's numbers: random pairs of earlier tokens, kept short."""
    pairs = random_merges(N_MERGES)
    made = [*BYTE_SYMBOLS, *(left + right for left, right in pairs)]
    head = [words.BOS, words.EOS]
    tail = [words.USER, words.ASSISTANT, words.THINK_OPEN, words.THINK_CLOSE, words.DSML]
    n_holders = FLASH.n_vocab - len(head) - len(made) - len(tail)
    holders = [f"<｜place▁holder▁no▁{i}｜>" for i in range(n_holders)]
    merges = [f"{left} {right}" for left, right in pairs]
    return [*head, *made, *holders, *tail], merges
