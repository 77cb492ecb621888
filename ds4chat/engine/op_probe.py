"""The stock operations that a model is built of, tried one by one on this device.

Each runs on eight rows at once, on every smaller number of them, and on single rows. Two things
are told: whether a row has the same bits whatever stands beside it (the claim behind exact
speculation; `engine/probe.py` tries it on the whole model), and how far the values are from
NumPy's in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.model.kv import MAX_ROWS
from ds4chat.ops.linear import Linear, dense, pack_mxfp4, pack_q8_0
from ds4chat.ops.norms import rms_norm
from ds4chat.ops.quantsim import hadamard

Floats = NDArray[np.float64]
Run = Callable[[mx.array], mx.array]
Reference = Callable[[Floats], Floats]

SMALL, LARGE = ((256, 512), (1024, 24)), ((256, 512), (1024, 24), (4096, 512), (7168, 130))
"""(in, out) of the products: for a quick look, and for a thorough one."""
_EXPERTS_OUT = 8
"""Experts have a multiple of so many outputs: MLX 0.32.4 ends on CUDA with a misaligned address
at 7168 x 130 in float32, not at 24 or 512 outputs. No model has such experts."""
TOLERANCE = 1e-7
"""Largest normalised mean square error in float32."""

_SEED = 4
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StockOp:
    """An operation on `(rows, width)` float32, and the same in float64."""

    name: str
    width: int
    run: Run
    reference: Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class OpResult:
    """How an operation did. `nmse`: squared error over squared value; infinite: not finite."""

    name: str
    is_row_exact: bool
    nmse: float

    @property
    def is_right(self) -> bool:
        """Whether its values are those of the reference, up to rounding."""
        return self.nmse <= TOLERANCE


def stock_ops(shapes: tuple[tuple[int, int], ...]) -> Iterator[StockOp]:
    """Every operation, the products in each of the shapes. Weights are made when asked for."""
    for shape in shapes:
        yield from _products(*shape)
    yield from _row_ops()


def probe(op: StockOp) -> OpResult:
    """Try one operation."""
    rng = np.random.default_rng(_SEED)
    rows = rng.standard_normal((MAX_ROWS, op.width)).astype(np.float32)
    alone = np.stack([_values(op.run, rows[i : i + 1])[0] for i in range(MAX_ROWS)])
    is_row_exact = all(
        np.array_equal(_values(op.run, rows[:n]), alone[:n], equal_nan=True)
        for n in range(2, MAX_ROWS + 1)
    )
    return OpResult(
        name=op.name,
        is_row_exact=is_row_exact,
        nmse=error(alone, op.reference(rows.astype(np.float64))),
    )


def error(values: NDArray[np.float32], right: Floats) -> float:
    """Normalised mean square error; infinite where a value is not finite."""
    if not np.isfinite(values).all():
        return float("inf")
    wrong = float(np.square(values.astype(np.float64) - right).sum())
    return wrong / max(float(np.square(right).sum()), 1e-300)


def _values(run: Run, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    made = run(mx.array(rows)).astype(mx.float32)
    mx.eval(made)
    return np.array(made).reshape(len(rows), -1)


# Products with weights.


def _products(k: int, n: int) -> Iterator[StockOp]:
    rng = np.random.default_rng(_SEED + 1)
    size = f"{k} x {n}"
    values = rng.standard_normal((n, k)).astype(np.float32)
    yield _product(f"product, float32, {size}", dense(values, mx.float32), values)
    blocks, codes = _q8_0(rng, n, k)
    yield _product(f"product, Q8_0, {size}", pack_q8_0(blocks, (n, k)), codes)
    four, e2m1 = _mxfp4(rng, n, k)
    yield _product(f"product, MXFP4, {size}", pack_mxfp4(four, (n, k)), e2m1)
    n = -(-n // _EXPERTS_OUT) * _EXPERTS_OUT
    size = f"{k} x {n}"
    experts = rng.standard_normal((MAX_ROWS, n, k)).astype(np.float32)
    yield _expert(f"experts, float32, {size}", dense(experts, mx.float32), experts)
    blocks, codes = _q8_0(rng, MAX_ROWS * n, k)
    shape = (MAX_ROWS, n, k)
    yield _expert(f"experts, Q8_0, {size}", pack_q8_0(blocks, shape), codes.reshape(shape))


def _product(name: str, weight: Run, values: NDArray[np.float32]) -> StockOp:
    right = values.astype(np.float64).T
    return StockOp(name=name, width=values.shape[-1], run=weight, reference=lambda x: x @ right)


def _expert(name: str, weight: Linear, values: NDArray[np.float32]) -> StockOp:
    """Each row goes through two experts; which ones, its own values say."""
    exact = values.astype(np.float64)
    count, _, width = values.shape

    def run(x: mx.array) -> mx.array:
        first = mx.argmax(x, axis=-1).astype(mx.int32) % count
        chosen = mx.stack([first, (first + 1) % count], axis=1)
        return weight.expert(x[:, None, None, :], chosen)

    def reference(x: Floats) -> Floats:
        pairs = []
        for row in x:
            first = int(row.argmax()) % count
            second = (first + 1) % count
            pairs.append(np.concatenate([exact[first] @ row, exact[second] @ row]))
        return np.stack(pairs)

    return StockOp(name=name, width=width, run=run, reference=reference)


def _q8_0(
    rng: np.random.Generator, n: int, k: int
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Random blocks, and the `(n, k)` values that they stand for."""
    count = n * k // 32
    scales = rng.uniform(0.001, 0.02, (count, 1)).astype(np.float16)
    codes = rng.integers(-127, 128, (count, 32), np.int8)
    blocks = np.concatenate([scales.view(np.uint8), codes.view(np.uint8)], axis=1)
    return blocks, (scales.astype(np.float32) * codes).reshape(n, k)


def _mxfp4(
    rng: np.random.Generator, n: int, k: int
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Random blocks, and the `(n, k)` values that they stand for."""
    count = n * k // 32
    exponents = rng.integers(120, 125, (count, 1), np.uint8)
    codes = rng.integers(0, 16, (count, 32), np.uint8)
    blocks = np.concatenate([exponents, codes[:, :16] | codes[:, 16:] << 4], axis=1)
    table = np.array([*_E2M1, *(-value for value in _E2M1)], np.float32)
    scales = np.exp2(exponents.astype(np.float32) - 127)
    return blocks.astype(np.uint8), (scales * table[codes]).reshape(n, k)


# Operations on rows.


def _row_ops() -> Iterator[StockOp]:
    yield _row_op("root mean square norm", 512, lambda x: rms_norm(x, None, 1e-6), _rms)
    yield _row_op("softmax", 640, _softmax_run, _softmax)
    yield _row_op("Hadamard transform", 128, hadamard, _hadamard)
    yield _row_op("scores with a mask (addmm)", 128, _scores_run, _scores)
    yield _row_op("softplus and root", 256, _softplus_run, _softplus)
    yield _row_op("sort", 640, lambda x: mx.sort(x, axis=-1), lambda x: np.sort(x, axis=-1))
    yield _row_op(
        "argsort", 640, lambda x: mx.argsort(x, axis=-1),
        lambda x: np.argsort(x, axis=-1, kind="stable").astype(np.float64),
    )  # fmt: skip
    yield _row_op(
        "cumulative sum of flags", 640, lambda x: mx.cumsum((x > 0).astype(mx.int32), axis=-1),
        lambda x: np.cumsum(x > 0, axis=-1).astype(np.float64),
    )  # fmt: skip
    yield _row_op(
        "largest and where", 640, lambda x: mx.stack([mx.max(x, -1), mx.argmax(x, -1)], axis=1),
        lambda x: np.stack([x.max(-1), x.argmax(-1).astype(np.float64)], axis=1),
    )  # fmt: skip


def _row_op(name: str, width: int, run: Run, reference: Reference) -> StockOp:
    return StockOp(name=name, width=width, run=run, reference=reference)


def _rms(x: Floats) -> Floats:
    made: Floats = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-6)
    return made


def _softmax_run(x: mx.array) -> mx.array:
    return mx.softmax(x, axis=-1, precise=True)


def _softmax(x: Floats) -> Floats:
    grown = np.exp(x - x.max(-1, keepdims=True))
    made: Floats = grown / grown.sum(-1, keepdims=True)
    return made


def _hadamard(x: Floats) -> Floats:
    matrix = np.ones((1, 1))
    while len(matrix) < x.shape[-1]:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    made: Floats = x @ matrix / np.sqrt(len(matrix))
    return made


def _keys(width: int) -> NDArray[np.float32]:
    return np.random.default_rng(_SEED + 2).standard_normal((136, width)).astype(np.float32)


def _scores_run(x: mx.array) -> mx.array:
    keys = mx.array(_keys(x.shape[-1]))
    bias = mx.zeros((x.shape[0], keys.shape[0]))
    return mx.addmm(bias, x, keys.T, alpha=x.shape[-1] ** -0.5)


def _scores(x: Floats) -> Floats:
    made: Floats = x @ _keys(x.shape[-1]).T.astype(np.float64) / np.sqrt(x.shape[-1])
    return made


def _softplus_run(x: mx.array) -> mx.array:
    return mx.sqrt(mx.logaddexp(x, 0.0))


def _softplus(x: Floats) -> Floats:
    made: Floats = np.sqrt(np.logaddexp(x, 0.0))
    return made
