"""This program's own kernels, tried as `op_probe` tries stock operations.

Without kernels (on the CPU) the same operations run their stock counterparts, so that what is
listed here is tried everywhere. A kernel that a device cannot build counts as not used.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.engine.op_probe import Floats, StockOp
from ds4chat.formats.quants.base import QuantFormat, decode, format_named
from ds4chat.model.target import capture, embed
from ds4chat.ops import hyper_kernels, markov_kernels, qmatmul
from ds4chat.ops.dispatch import Dispatcher
from ds4chat.ops.hyper import HyperWeights
from ds4chat.ops.norms import norm_rows

GPU_BACKENDS = ("metal", "cuda")

_SEED = 4
_N_IN, _N_OUT = 2048, 96
_LARGEST = 4.0  # of a random weight, so that no sum loses its small terms
_M, _DIM, _ROUNDS = hyper_kernels.N_STREAMS, 512, 20
_EPS = 1e-6


def dispatcher_of(backend: str) -> Dispatcher:
    """Kernels of a backend, or none."""
    return Dispatcher(backend=backend if backend in GPU_BACKENDS else "reference")


def kernel_ops() -> Iterator[StockOp]:
    """Operations with a kernel of their own: products, streams, ends of a pass, a draft."""
    for name in qmatmul.STAGE_VALUES:
        yield _block_product(format_named(name))
    yield from _streams()
    yield from _ends()
    yield from _draft()


def random_blocks(quant: QuantFormat, n_blocks: int) -> NDArray[np.uint8]:
    """Random bytes that stand for finite values of a moderate size."""
    rng = np.random.default_rng(_SEED)
    good: list[NDArray[np.uint8]] = []
    n_good = 0
    while n_good < n_blocks:
        raw = rng.integers(0, 256, (4096, quant.block_bytes), np.uint8)
        values = decode(quant, raw, (len(raw), quant.block_values))
        with np.errstate(invalid="ignore"):
            is_good = (np.abs(values) <= _LARGEST).all(axis=1)  # False for NaN
        good.append(raw[is_good])
        n_good += int(is_good.sum())
    return np.concatenate(good)[:n_blocks]


def _block_product(quant: QuantFormat) -> StockOp:
    blocks = random_blocks(quant, _N_OUT * _N_IN // quant.block_values)
    weight = qmatmul.pack_blocks(blocks, quant, _N_IN)
    exact = decode(quant, blocks, (_N_OUT, _N_IN)).astype(np.float64).T
    return StockOp(
        name=f"kernel: product from {quant.name} blocks",
        width=_N_IN,
        run=weight,
        reference=lambda x: x @ exact,
    )


# The residual streams: x holds all of a row's.


def _streams() -> Iterator[StockOp]:
    weights = _weights((2 + _M) * _M)
    exact = {
        name: np.array(getattr(weights, name), np.float64) for name in ("fn", "scale", "base")
    }

    def read(x: mx.array) -> mx.array:
        flow = hyper_kernels.begin(x.reshape(-1, _M, _DIM), weights)
        made, mix = hyper_kernels.read(flow, weights, mx.ones(_DIM), mx.float32)
        rows = x.shape[0]
        return mx.concatenate([made, mix.post, mix.carry.reshape(rows, -1)], axis=1)

    def write(x: mx.array) -> mx.array:
        flow = hyper_kernels.begin(x.reshape(-1, _M, _DIM), weights)
        made, mix = hyper_kernels.read(flow, weights, mx.ones(_DIM), mx.float32)
        written = hyper_kernels.write(flow, mix, made, weights)
        return written.streams.reshape(x.shape[0], -1)

    yield StockOp(
        name="kernel: read the streams", width=_M * _DIM, run=read,
        reference=lambda x: np.concatenate(_read(x, exact), axis=1),
    )  # fmt: skip
    yield StockOp(
        name="kernel: write the streams", width=_M * _DIM, run=write,
        reference=lambda x: _write(x, exact),
    )  # fmt: skip


def _ends() -> Iterator[StockOp]:
    """Tokens to streams, where a row's token is its largest channel; streams to means."""
    rng = np.random.default_rng(_SEED)
    values = rng.standard_normal((_N_OUT, _DIM)).astype(np.float32)
    for dtype in (mx.bfloat16, mx.float16):
        table = mx.array(values).astype(dtype)
        yield _embedding(table, str(dtype).removeprefix("mlx.core."))
    width = _M * _DIM

    def means(x: mx.array) -> mx.array:
        return capture([part.reshape(-1, _M, _DIM) for part in (x[:, :width], x[:, width:])])

    yield StockOp(
        name="kernel: means for the draft", width=2 * width, run=means,
        reference=lambda x: x.reshape(-1, 2, _M, _DIM).mean(2).reshape(len(x), -1),
    )  # fmt: skip


def _embedding(table: mx.array, dtype: str) -> StockOp:
    exact = np.array(table.astype(mx.float32), np.float64)

    def run(x: mx.array) -> mx.array:
        ids = mx.argmax(x, axis=1).astype(mx.int32)
        return embed(table, ids, _M).reshape(x.shape[0], -1)

    return StockOp(
        name=f"kernel: embedding of {dtype}", width=_N_OUT, run=run,
        reference=lambda x: np.tile(exact[x.argmax(1)], _M),
    )  # fmt: skip


def _draft() -> Iterator[StockOp]:
    """A norm of rows; and of logits, whose parts are the halves of x, what a draft tells."""
    rng = np.random.default_rng(_SEED)
    shapes = (_DIM, (_DIM, _N_OUT), _DIM + _N_OUT)
    drawn = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    norm, table, weight = map(mx.array, drawn)
    wide = [array.astype(np.float64) for array in drawn]

    def tell(x: mx.array) -> mx.array:
        base, change = (mx.contiguous(half) for half in (x[:, :_DIM], x[:, _DIM:]))
        made = _told(base, change, table, weight)
        if made is not None:
            return made
        sums = base + change
        memory = table[mx.argmax(sums, axis=1)]
        confidence = (mx.concatenate([base, memory], axis=1) * weight).sum(axis=1)
        return mx.stack([mx.argmax(sums, axis=1), confidence, mx.max(sums, axis=1)], axis=1)

    def exact(x: Floats) -> Floats:
        base, sums = x[:, :_DIM], x[:, :_DIM] + x[:, _DIM:]
        feature = np.concatenate([base, wide[1][sums.argmax(1)]], axis=1)
        return np.stack([sums.argmax(1), feature @ wide[2], sums.max(1)], axis=1)

    yield StockOp(
        name="kernel: norm of rows", width=_DIM,
        run=lambda x: norm_rows(x, norm, _EPS, mx.float32),
        reference=lambda x: x / np.sqrt(np.square(x).mean(-1, keepdims=True) + _EPS) * wide[0],
    )  # fmt: skip
    yield StockOp(name="kernel: what a draft tells", width=2 * _DIM, run=tell, reference=exact)


def _told(
    base: mx.array, change: mx.array, table: mx.array, weight: mx.array
) -> mx.array | None:
    """Each row's place, confidence and largest logit by kernels, or None."""
    picked = markov_kernels.pick(base, change)
    memory = None if picked is None else markov_kernels.remember(picked.tops, table)
    if picked is None or memory is None:
        return None
    rows = range(len(base))
    tops, memories = ([a[i : i + 1] for i in rows] for a in (picked.tops, memory))
    made = markov_kernels.tell(tops, memories, base, weight, mx.array(0.0))
    return None if made is None else made.T


def _weights(n_out: int) -> HyperWeights:
    rng = np.random.default_rng(_SEED)
    fn = (
        rng.standard_normal((_M * _DIM, n_out)).astype(np.float32)
        / np.float32(_M * _DIM) ** 0.5
    )
    return HyperWeights(
        fn=mx.array(fn.astype(np.float32)),
        scale=mx.array(rng.uniform(0.5, 1.5, n_out).astype(np.float32)),
        base=mx.array(rng.standard_normal(n_out).astype(np.float32)),
        n_streams=_M,
        rounds=_ROUNDS,
        hc_eps=_EPS,
        rms_eps=_EPS,
    )


def _read(x: Floats, w: dict[str, Floats]) -> list[Floats]:
    """Normed input, post gates and carry of each row, as `hyper.read_streams` defines them."""
    flat = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + _EPS)
    z = (flat @ w["fn"]) * w["scale"] + w["base"]
    gates = 1 / (1 + np.exp(-z[:, : 2 * _M]))
    carry = np.exp(z[:, 2 * _M :].reshape(-1, _M, _M))
    carry = carry / carry.sum(-1, keepdims=True) + _EPS
    carry = carry / (carry.sum(1, keepdims=True) + _EPS)
    for _ in range(_ROUNDS - 1):
        carry = carry / (carry.sum(2, keepdims=True) + _EPS)
        carry = carry / (carry.sum(1, keepdims=True) + _EPS)
    mixed = np.einsum("lm,lmd->ld", gates[:, :_M] + _EPS, x.reshape(-1, _M, _DIM))
    normed = mixed / np.sqrt(np.square(mixed).mean(-1, keepdims=True) + _EPS)
    return [normed, 2.0 * gates[:, _M:], carry.reshape(len(x), -1)]


def _write(x: Floats, w: dict[str, Floats]) -> Floats:
    made, post, carry = _read(x, w)
    streams = x.reshape(-1, _M, _DIM)
    written = post[:, :, None] * made[:, None, :]
    written += np.einsum("ljk,ljd->lkd", carry.reshape(-1, _M, _M), streams)
    return written.reshape(len(x), -1)
