"""Hyper-connections in two launches a branch, where `hyper.py` needs about eighty.

`write` lets a branch write back to the streams and begins the next reader's projection in the
same pass over them; `read` finishes that projection, balances the gates, mixes and norms. What
lies between is a `Flow`. Without kernels both run `hyper.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import mlx.core as mx
import numpy as np

from ds4chat.ops.dispatch import Dispatcher, Output, current
from ds4chat.ops.hyper import (
    HyperWeights,
    Mix,
    collapse_streams,
    read_streams,
    write_streams,
)
from ds4chat.ops.norms import rms_norm
from ds4chat.ops.spec import KernelSpec, Tolerance

MAX_ROWS = 1 << 14
_ROWS = 8  # of a block of `post_spec`
_MANY = 2  # blocks a row of `pre_spec` where rows alone fill a device
N_STREAMS = 4
CHUNK = 32
THREADS = 256
N_PAIRS = N_STREAMS * (N_STREAMS + 1) // 2

_SUMS = Tolerance(nmse=1e-7, reason="float32 sums of M D products")
_ROUNDED = Tolerance(nmse=4e-6, reason="x is rounded to bf16: 2^-9 relative, squared")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Streams `(L, m, D)` and, from kernels, the begun projection of whoever reads next."""

    streams: mx.array
    partials: mx.array | None = None

    def last(self) -> Flow:
        """The last row alone."""
        partials = None if self.partials is None else self.partials[:, -1:]
        return Flow(streams=self.streams[-1:], partials=partials)

    def arrays(self) -> list[mx.array]:
        """Both arrays, or the streams alone."""
        return [self.streams] if self.partials is None else [self.streams, self.partials]

    @classmethod
    def of(cls, arrays: list[mx.array]) -> Flow:
        """The flow of which these are the `arrays`."""
        return cls(streams=arrays[0], partials=arrays[1] if len(arrays) > 1 else None)


@cache
def post_spec(n_out: int) -> KernelSpec:
    """The kernel behind `write`, for a reader with `n_out` gates."""
    return KernelSpec(
        name=f"hyper_post_{n_out}",
        source="hyper_post.kernel",
        inputs=("streams", "y", "post", "carry", "fn"),
        outputs=("written", "partials"),
        threads=THREADS,
        constants={"M": N_STREAMS, "N_OUT": n_out, "N_PAIRS": N_PAIRS},
        tolerance=_SUMS,
    )


@cache
def pre_spec(
    n_out: int, rounds: int, hc_eps: float, rms_eps: float, *, is_normed: bool, is_bf16: bool
) -> KernelSpec:
    """The kernel behind `read` and `collapse`."""
    is_head = n_out == N_STREAMS
    return KernelSpec(
        name=f"hyper_pre_{n_out}",
        source="hyper_pre.kernel",
        inputs=("streams", "partials", "scale", "base", "norm"),
        outputs=("x",) if is_head else ("x", "post", "carry"),
        threads=THREADS,
        constants={
            "M": N_STREAMS,
            "N_OUT": n_out,
            "N_PAIRS": N_PAIRS,
            "ROUNDS": rounds,
            "HC_EPS": f"{hc_eps!r}f",
            "RMS_EPS": f"{rms_eps!r}f",
            "IS_NORMED": int(is_normed),
            "MANY": _MANY,
        },
        tolerance=_ROUNDED if is_bf16 else _SUMS,
    )


def pre_blocks(n_rows: int, dim: int) -> int:
    """Blocks of a launch of `pre_spec`."""
    per_row = -(-dim // THREADS)
    return n_rows * (min(per_row, _MANY) if n_rows > _ROWS else per_row)


def post_blocks(n_rows: int, dim: int) -> int:
    """Blocks of a launch of `post_spec`."""
    return -(-n_rows // _ROWS) * (dim // CHUNK)


def begin(streams: mx.array, reader: HyperWeights) -> Flow:
    """Begin with streams `(L, m, D)` float32 that no branch has written to."""
    length, m, dim = streams.shape
    if not _fits(streams, current()):
        return Flow(streams=streams)
    made = unwritten(length, m, dim)
    return write(Flow(streams=streams), made.mix, made.out, reader)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwritten:
    """A branch's output `(L, D)` that changes nothing, and how it is written back."""

    out: mx.array
    mix: Mix

    def arrays(self) -> list[mx.array]:
        """All arrays."""
        return [self.out, self.mix.post, self.mix.carry]


@cache
def unwritten(length: int, m: int, dim: int) -> Unwritten:
    """What streams begin with; on the device for good."""
    nothing = mx.zeros((length, dim), dtype=mx.float32)
    eye = mx.array(np.broadcast_to(np.eye(m, dtype=np.float32), (length, m, m)).copy())
    mix = Mix(post=mx.zeros((length, m), dtype=mx.float32), carry=eye + 0.0)
    mx.eval(nothing, mix.post, mix.carry)  # sync: once for each number of rows
    return Unwritten(out=nothing, mix=mix)


def write(flow: Flow, mix: Mix, out: mx.array, reader: HyperWeights | None) -> Flow:
    """Write a branch's output `(L, D)` back; `reader` is who reads the streams next."""
    streams, dispatcher = flow.streams, current()
    if reader is not None and _fits(streams, dispatcher):
        length, m, dim = streams.shape
        n_out = int(reader.fn.shape[1])
        outputs = [
            Output(shape=(length, m, dim), dtype=mx.float32),
            Output(shape=(dim // CHUNK, length, n_out + N_PAIRS), dtype=mx.float32),
        ]
        inputs = [streams, out, mix.post, mix.carry, reader.fn]
        made = dispatcher.run(post_spec(n_out), inputs, post_blocks(length, dim), outputs)
        if made is not None:
            return Flow(streams=made[0], partials=made[1])
    return Flow(streams=write_streams(streams, mix, out))


def read(flow: Flow, w: HyperWeights, norm: mx.array, dtype: mx.Dtype) -> tuple[mx.array, Mix]:
    """The branch's normed input `(L, D)` in `dtype`, and how to write back.

    `w` is the reader that `flow` was begun or written for.
    """
    if flow.partials is not None:
        length, m = flow.streams.shape[:2]
        gates = [
            Output(shape=(length, m), dtype=mx.float32),
            Output(shape=(length, m, m), dtype=mx.float32),
        ]
        made = _read(flow, w, norm, dtype, gates)
        if made is not None:
            return made[0], Mix(post=made[1], carry=made[2])
    mixed, mix = read_streams(flow.streams, w)
    return rms_norm(mixed, norm, w.rms_eps).astype(dtype), mix


def collapse(flow: Flow, w: HyperWeights, norm: mx.array | None) -> mx.array:
    """An output head's sum of the streams `(L, D)` float32, normed if `norm` is given."""
    if flow.partials is not None:
        made = _read(flow, w, norm, mx.float32, [])
        if made is not None:
            return made[0]
    mixed = collapse_streams(flow.streams, w)
    return mixed if norm is None else rms_norm(mixed, norm, w.rms_eps)


def _read(
    flow: Flow, w: HyperWeights, norm: mx.array | None, dtype: mx.Dtype, gates: list[Output]
) -> list[mx.array] | None:
    assert flow.partials is not None
    length, _, dim = flow.streams.shape
    spec = pre_spec(
        int(w.fn.shape[1]),
        w.rounds,
        w.hc_eps,
        w.rms_eps,
        is_normed=norm is not None,
        is_bf16=dtype == mx.bfloat16,
    )
    unused = w.base if norm is None else norm
    inputs = [flow.streams, flow.partials, w.scale, w.base, unused]
    outputs = [Output(shape=(length, dim), dtype=dtype), *gates]
    return current().run(spec, inputs, pre_blocks(length, dim), outputs)


def _fits(streams: mx.array, dispatcher: Dispatcher) -> bool:
    length, m, dim = streams.shape
    return (
        not dispatcher.is_reference
        and length <= MAX_ROWS
        and m == N_STREAMS
        and dim % CHUNK == 0
        and streams.dtype == mx.float32
    )
