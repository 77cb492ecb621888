"""Products with weights that stay in their GGUF blocks: `y = x @ W^T` for up to 8 rows.

Row i of a launch has the bits of a launch with that row alone, so decode and verify agree.
More rows (prefill) or a format without a kernel take the reference: decode and multiply.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.formats.quants import iq2_xxs
from ds4chat.formats.quants.base import QuantFormat, decode, format_named
from ds4chat.ops.dispatch import Output, current
from ds4chat.ops.spec import LANES, KernelSpec, Tolerance

MAX_ROWS = 8
TILE = 16
STAGE_VALUES = {
    "F32": 32,
    "F16": 64,
    "BF16": 64,
    "Q8_0": 128,
    "Q4_K": 256,
    "Q2_K": 256,
    "IQ2_XXS": 512,
    "MXFP4": 256,
}
"""Formats with a kernel, and the values of a row that a simdgroup stages at once."""

_STAGE_WORDS = {"F32": 8, "F16": 8, "BF16": 8, "Q4_K": 9, "Q2_K": 6}

SHARED_BYTES = {"cuda": 48 * 1024, "metal": 32 * 1024, "host": 48 * 1024}
"""Shared memory that a block may use."""

ROW_MULTIPLE = 8
"""Values of x are read eight at a time: K must be a multiple (all block formats are)."""

_BF16_OUT = Tolerance(nmse=4e-6, reason="the output is rounded to bf16: 2^-9 relative, squared")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockWeight:
    """A weight `[out, in]` as `(out, row_bytes)` uint8, whole blocks of `quant`."""

    blocks: mx.array
    quant: QuantFormat
    n_in: int

    def __call__(self, x: mx.array) -> mx.array:
        """`(L, in)` to `(L, out)`, in the type of `x`."""
        return qmatmul(x, self)

    @property
    def n_out(self) -> int:
        """Width of the output."""
        return int(self.blocks.shape[0])

    def arrays(self) -> list[mx.array]:
        """The arrays that hold the weight."""
        return [self.blocks]


def pack_blocks(raw: NDArray[np.uint8], quant: QuantFormat, n_in: int) -> BlockWeight:
    """Keep a tensor's bytes as they are.

    Args:
        raw: any shape of whole rows.
        quant: their format.
        n_in: values in a row.
    """
    rows = np.ascontiguousarray(raw).reshape(-1, quant.row_bytes(n_in))
    return BlockWeight(blocks=mx.array(rows), quant=quant, n_in=n_in)


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """How simdgroups share a matrix: constants of a variant. Only `split` changes bits.

    `split` simdgroups of a block's `simdgroups` share a tile of `columns` outputs; each has
    `buffers` stages on their way or at work and unrolls `groups` of 32 values (0: what the
    format's header says).
    """

    simdgroups: int
    split: int
    columns: int = TILE
    buffers: int = 2
    groups: int = 0

    @property
    def constants(self) -> dict[str, int]:
        """As the kernels' headers want them."""
        unrolled = {"GROUPS_AT_ONCE": self.groups} if self.groups else {}
        return {
            "SIMDGROUPS": self.simdgroups,
            "SPLIT": self.split,
            "COLUMNS": self.columns,
            "BUFFERS": self.buffers,
            **unrolled,
        }

    def shared_bytes(self, format_name: str) -> int:
        """Shared memory of all stages."""
        return self.simdgroups * self.buffers * stage_bytes(format_name, self.columns)


def stage_bytes(format_name: str, columns: int = TILE) -> int:
    """Shared memory of a stage of `columns` rows: an odd number of vectors for each."""
    return columns * 16 * (_STAGE_WORDS.get(format_name, 10) | 1)


def rows_aligned(format_name: str, n_in: int) -> int:
    """1 if every row begins at a multiple of 16 bytes, where copies are cheaper; else 0."""
    return int(format_named(format_name).row_bytes(n_in) % 16 == 0)


def has_kernel(quant: QuantFormat, n_in: int) -> bool:
    """Whether a format and row length can be multiplied from blocks."""
    return quant.name in STAGE_VALUES and n_in % ROW_MULTIPLE == 0


def split_of(n_in: int, stage: int, simdgroups: int) -> int:
    """Simdgroups that share a tile: as many as have two stages each."""
    n_stages = -(-n_in // stage)
    split = simdgroups
    while split > 1 and n_stages < 2 * split:
        split //= 2
    return split


def walk_of(
    format_name: str, n_in: int, n_out: int, backend: str, *, is_float: bool = False
) -> Walk:
    """The walk for a format, shape and type of x.

    The number of rows does not matter: it changes no bit.
    """
    stage = STAGE_VALUES[format_name]
    if backend == "metal":
        return Walk(simdgroups=4, split=split_of(n_in, stage, 4))
    if 0 < n_out <= _NARROW_UP_TO.get(format_name, 0) and split_of(n_in, stage, 16) == 16:
        return Walk(simdgroups=16, split=16, columns=8)
    is_broad = is_float and not 0 < n_out < _BROAD_FROM
    split = split_of(n_in, stage, 4 if is_broad else 8)
    return Walk(simdgroups=max(split, 4), split=split)


_NARROW_UP_TO = {"Q8_0": 1024, "F16": 1024, "F32": 1024}
"""Outputs up to which tiles of 8 that 16 simdgroups share fill a GPU better than tiles of 16.

Q8_0 of K 4096, N 1024 on an H200: 5.4 us, else 5.8.
"""

_BROAD_FROM = 8192
"""Outputs from which four simdgroups share a tile if x is float, whose limbs take registers.

Three limbs on an H200: F16 of K 1024, N 8192 7.8 us, else 9.4; Q8_0 of K 4096, N 129280 239 us,
else 250.
"""


def walk_constants(format_name: str, n_in: int) -> dict[str, int]:
    """What the row length lets a kernel leave out."""
    return {
        "ROWS_ALIGNED": rows_aligned(format_name, n_in),
        "WHOLE_STAGES": int(n_in % STAGE_VALUES[format_name] == 0),
    }


def headers_of(format_name: str) -> tuple[str, ...]:
    """What a product of a format's blocks wants before it."""
    stages = ("folded.h",) if format_name == "Q2_K" else ()
    return ("formats/order.h", f"formats/{format_name.lower()}.h", "tile.h", *stages)


@cache
def tables(format_name: str) -> dict[str, str]:
    """The words that a format's header wants; IQ2_XXS: a nibble a value.

    256 rows of the grid (which of three magnitudes), then 128 rows of signs (4: negative).
    """
    if format_name != "IQ2_XXS":
        return {}
    at = 4 * np.arange(8, dtype=np.uint32)
    grid = np.searchsorted(np.unique(iq2_xxs.GRID), iq2_xxs.GRID).astype(np.uint32)
    codes = np.arange(128, dtype=np.uint32)
    bits = codes[:, None] >> np.arange(8, dtype=np.uint32) & 1
    bits[:, 7] = bits.sum(axis=1) & 1  # the eighth sign makes their number even
    words = np.concatenate([(grid << at).sum(axis=1), (4 * bits << at).sum(axis=1)])
    return {"IQ2_TABLE": ", ".join(f"{word:#010x}u" for word in words.tolist())}


@cache
def make_spec(  # noqa: PLR0913  (what a variant depends on)
    format_name: str,
    n_in: int,
    x_type: str,
    *,
    backend: str,
    is_bf16_out: bool,
    n_groups: int = 1,
    n_out: int = 0,
    walk: Walk | None = None,
) -> KernelSpec:
    """The variant for a format, row length, type of x (`float32` or `bfloat16`) and groups.

    `n_out` (0: many) and the rest choose the walk unless `walk` is given.
    """
    is_float = x_type == "float32"
    chosen = walk or walk_of(format_name, n_in, n_out, backend, is_float=is_float)
    return KernelSpec(
        name=f"qmatmul_{format_name.lower()}",
        source="qmatmul.kernel",
        headers=headers_of(format_name),
        inputs=("x", "w"),
        outputs=("y",),
        threads=LANES * chosen.simdgroups,
        constants={
            **chosen.constants,
            **walk_constants(format_name, n_in),
            **tables(format_name),
            "X_LIMBS": 3 if is_float else 1,
            "N_MATRICES": n_groups,
        },
        tolerance=_BF16_OUT if is_bf16_out else Tolerance(),
    )


def n_blocks_of(spec: KernelSpec, n_out: int) -> int:
    """Blocks of a launch that makes `n_out` outputs."""
    tiles = spec.threads // LANES // int(spec.constants["SPLIT"])
    return -(-n_out // (int(spec.constants["COLUMNS"]) * tiles))


def qmatmul(
    x: mx.array, w: BlockWeight, *, out_dtype: mx.Dtype | None = None, n_groups: int = 1
) -> mx.array:
    """`(L, in)` float32 or bfloat16 times `w` transposed: `(L, out)`.

    Sums are float32; the result has `out_dtype`, by default the type of `x`. With `n_groups`,
    `x` is `(L, G * in)` and `w` has the matrices of all groups, one above the other.
    """
    dtype = out_dtype or x.dtype
    dispatcher = current()
    is_one_tile = n_groups == 1 or w.n_out % (TILE * n_groups) == 0
    if (
        not dispatcher.is_reference
        and x.shape[0] <= MAX_ROWS
        and has_kernel(w.quant, w.n_in)
        and is_one_tile
    ):
        x_type = "float32" if x.dtype == mx.float32 else "bfloat16"
        spec = make_spec(
            w.quant.name,
            w.n_in,
            x_type,
            backend=dispatcher.backend,
            is_bf16_out=dtype == mx.bfloat16,
            n_groups=n_groups,
            n_out=w.n_out,
        )
        output = Output(shape=(x.shape[0], w.n_out), dtype=dtype)
        made = dispatcher.run(spec, [x, w.blocks], n_blocks_of(spec, w.n_out), [output])
        if made is not None:
            return made[0]
    return reference(x, w, n_groups).astype(dtype)


def reference(x: mx.array, w: BlockWeight, n_groups: int = 1) -> mx.array:
    """Decode every block on the host and multiply in float32: right, and slow."""
    values = mx.array(decode(w.quant, np.array(w.blocks), (w.n_out, w.n_in)))
    wide = x.astype(mx.float32)
    if n_groups == 1:
        return wide @ values.T
    rows = wide.reshape(x.shape[0], n_groups, 1, w.n_in)
    made = rows @ values.reshape(n_groups, -1, w.n_in).swapaxes(1, 2)
    return made.reshape(x.shape[0], -1)


def reference_float64(
    x: NDArray[np.float32], raw: NDArray[np.uint8], format_name: str, n_in: int
) -> NDArray[np.float64]:
    """The product in float64, for tests."""
    quant = format_named(format_name)
    weight = decode(quant, raw, (raw.shape[0], n_in)).astype(np.float64)
    out: NDArray[np.float64] = x.astype(np.float64) @ weight.T
    return out
