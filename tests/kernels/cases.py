"""Inputs and float64 references of launches, shared by host tests and `gpu_check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ds4chat.ops import qmatmul
from ds4chat.ops.spec import KernelSpec
from tests.kernels.blocks import nmse, random_blocks

Array = NDArray[Any]
Rows = tuple[int, ...]
MAX_ROWS = 8
ALL_ROWS: Rows = tuple(range(MAX_ROWS))
_SHORT = {"float32": "f32", "bfloat16": "bf16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One launch: inputs and outputs with the names of their types (bf16 as its bits)."""

    spec: KernelSpec
    inputs: tuple[tuple[Array, str], ...]
    n_blocks: int
    outputs: tuple[tuple[tuple[int, ...], str], ...]
    exact: tuple[NDArray[np.float64], ...]
    row_axes: tuple[int, ...] = (0,)  # which axis of each output counts rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Launches that differ in their rows alone: `make(rows)` takes some of eight rows."""

    kernel: str
    format: str
    shape: str
    make: Callable[[Rows], Case]

    @property
    def label(self) -> str:
        """Kernel, format and shape in one line."""
        return f"{self.kernel:14} {self.format:17} {self.shape:16}"


Runner = Callable[[Case], Sequence[Array]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check of one family found."""

    nmse: float
    is_close: bool
    is_invariant: bool


def check(family: Family, run: Runner, subsets: Sequence[Rows]) -> Finding:
    """Compare all rows with the reference, and subsets of rows with all rows bit for bit."""
    case = family.make(ALL_ROWS)
    whole = run(case)
    worst = max(nmse(out, exact) for out, exact in zip(whole, case.exact, strict=True))
    is_invariant = True
    for rows in subsets:
        parts = run(family.make(rows))
        for part, out, axis in zip(parts, whole, case.row_axes, strict=True):
            is_invariant &= np.array_equal(part, np.take(out, rows, axis))
    is_close = worst <= case.spec.tolerance.nmse
    return Finding(nmse=worst, is_close=is_close, is_invariant=is_invariant)


def to_bf16(values: Array) -> NDArray[np.uint16]:
    """Float32 to the bits of bf16, to nearest even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    out = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, out).astype(np.uint16)


def from_bf16(bits: Array) -> NDArray[np.float32]:
    """Bits of bf16 to float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def activations(values: Array, kind: str) -> tuple[Array, NDArray[np.float32]]:
    """Values as an input of type `kind`, and what that input holds."""
    if kind == "float32":
        return values, values
    bits = to_bf16(values)
    return bits, from_bf16(bits)


def product(
    backend: str, name: str, n_in: int, n_out: int, kind: str, out_kind: str = "float32",
    n_groups: int = 1, walk: qmatmul.Walk | None = None,
) -> Family:  # fmt: skip
    """`qmatmul` of one format; `kind` is the type of x, `out_kind` that of y."""
    rng = np.random.default_rng((n_in, n_out))
    weight = random_blocks(rng, name, n_out, n_in)
    values = rng.standard_normal((MAX_ROWS, n_groups * n_in)).astype(np.float32)
    sent, held = activations(values, kind)
    parts = zip(np.split(held, n_groups, axis=1), np.split(weight, n_groups), strict=True)
    exact = np.concatenate(
        [qmatmul.reference_float64(x, w, name, n_in) for x, w in parts], axis=1
    )
    spec = qmatmul.make_spec(
        name,
        n_in,
        kind,
        backend=backend,
        is_bf16_out=out_kind == "bfloat16",
        n_groups=n_groups,
        n_out=n_out,
        walk=walk,
    )

    def make(rows: Rows) -> Case:
        return Case(
            spec=spec,
            inputs=((sent[list(rows)], kind), (weight, "uint8")),
            n_blocks=qmatmul.n_blocks_of(spec, n_out),
            outputs=(((len(rows), n_out), out_kind),),
            exact=(exact[list(rows)],),
        )

    shape = f"K{n_in} N{n_out}" + (f" G{n_groups}" if n_groups > 1 else "")
    short = f"{name} {_SHORT[kind]}>{_SHORT[out_kind]}"
    return Family(kernel="qmatmul", format=short, shape=shape, make=make)
