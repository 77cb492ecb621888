"""Blocks to bf16 values in one launch: what many rows are multiplied with.

The values are those of `formats/quants`, rounded once.
"""

from __future__ import annotations

from functools import cache

import mlx.core as mx
import numpy as np

from ds4chat.formats.quants import iq2_xxs
from ds4chat.formats.quants.base import QuantFormat, format_named
from ds4chat.ops.dispatch import Output, current
from ds4chat.ops.spec import LANES, KernelSpec, Tolerance

STAGE_VALUES = {"Q8_0": 128, "Q4_K": 256, "Q2_K": 256, "IQ2_XXS": 512, "MXFP4": 256}
"""Formats with a header in `kernels/values`, and the values of a row in one of its stages."""
TILE = 16
_SIMDGROUPS = 8
_ROUNDED = Tolerance(nmse=4e-6, reason="values are rounded to bf16: 2^-9 relative, squared")


def headers(format_name: str) -> tuple[str, ...]:
    """The headers that give a kernel the values of a format."""
    return ("values/common.h", f"values/{format_name.lower()}.h", "values/panel.h")


def constants(format_name: str, n_in: int) -> dict[str, int | float | str]:
    """The constants that these headers want, for rows of `n_in` values."""
    is_aligned = format_named(format_name).row_bytes(n_in) % 16 == 0
    made: dict[str, int | float | str] = {"ROWS_ALIGNED": int(is_aligned)}
    return {**made, "IQ2_GRID": _grid_words()} if format_name == "IQ2_XXS" else made


@cache
def _grid_words() -> str:
    """IQ2_XXS's grid as 128 words: two rows of eight 2-bit magnitudes each, lowest first."""
    codes = np.searchsorted(np.unique(iq2_xxs.GRID), iq2_xxs.GRID).astype(np.uint32)
    rows = (codes << (2 * np.arange(8, dtype=np.uint32))).sum(axis=1, dtype=np.uint32)
    return ", ".join(f"{low | high << 16:#010x}u" for low, high in rows.reshape(-1, 2).tolist())


@cache
def unpack_spec(format_name: str, n_in: int) -> KernelSpec:
    """The variant for a format and row length."""
    return KernelSpec(
        name=f"unpack_{format_name.lower()}",
        source="unpack.kernel",
        headers=headers(format_name),
        inputs=("w",),
        outputs=("values",),
        threads=LANES * _SIMDGROUPS,
        constants={"SIMDGROUPS": _SIMDGROUPS, **constants(format_name, n_in)},
        tolerance=_ROUNDED,
    )


def unpack_blocks(format_name: str, n_rows: int, n_in: int) -> int:
    """Blocks of a launch of `unpack_spec`."""
    jobs = -(-n_rows // TILE) * -(-n_in // STAGE_VALUES[format_name])
    return -(-jobs // _SIMDGROUPS)


def unpack_bf16(raw: mx.array, quant: QuantFormat) -> mx.array | None:
    """`(N, row_bytes)` uint8 to `(N, K)` bf16, or None where no kernel does that."""
    if current().is_reference or quant.name not in STAGE_VALUES:
        return None
    n_rows, row_bytes = raw.shape
    n_in = row_bytes // quant.block_bytes * quant.block_values
    output = Output(shape=(n_rows, n_in), dtype=mx.bfloat16)
    n_blocks = unpack_blocks(quant.name, n_rows, n_in)
    made = current().run(unpack_spec(quant.name, n_in), [raw], n_blocks, [output])
    return None if made is None else made[0]
