"""IQ2_XXS: 256 values in 8 groups of 32; each group is four grid rows of 8 magnitudes.

half d, then for each group 4 grid indices and a little-endian u32: four 7-bit sign codes
(lowest bits first; the eighth sign makes the number of minus signs even) and a 4-bit scale s in
the top bits; value = d (0.5 + s) / 4 x magnitude x sign.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ds4chat.formats.quants.base import Blocks, Floats, QuantFormat, field, half, register

# ggml's grid (format data): 256 rows of 16 bits, two bits a magnitude, lowest first.
_PACKED_GRID = bytes.fromhex(
    "00000200050008000a00110014002000220028002a00410044005000580061006400800082008a00"
    "a2000101040110011501400184019801000202022202820201040404100421042404400442044804"
    "6004810484049004a404000502050805200546056905800591050906100640068406a40600080508"
    "0808140828084108440850085208880804094009020a140a01100410101021104010601084109010"
    "951000110811201150115a1180112412451200140814201425144914801418156215001616160118"
    "041810184018811800190519a019511a002002200a20442061208020822029214821002202220124"
    "04241024402456240025412564259026082820289428442a01400440104018402140244040404840"
    "56406040814084409040004120416141804185410142104248425642684200440844204480449944"
    "124524450046014804481048404845480049584961498249454a904a005008501150195020508050"
    "885004514251a4519152905492540a550156545600581158195864584059085a0460106040606860"
    "0061556118626062006405641065126584654268008002800a804180828004811881408111820184"
    "0484108415844084608400854685948509864086608602880489118a0490109024904090a1901691"
    "8091459200942294449451958198209902a050a085a009a100a218a450a804a9"
)


def _unpack_grid() -> NDArray[np.uint8]:
    rows = np.frombuffer(_PACKED_GRID, dtype=np.uint8).reshape(256, 2, 1)
    codes = rows >> np.array([0, 2, 4, 6], dtype=np.uint8) & 3
    grid: NDArray[np.uint8] = np.array([0x08, 0x19, 0x2B], np.uint8)[codes.reshape(256, 8)]
    return grid


def _sign_table() -> NDArray[np.int8]:
    codes = np.arange(128, dtype=np.uint8)
    bits = np.unpackbits(codes[:, None], axis=1, bitorder="little")
    bits[:, 7] = bits[:, :7].sum(axis=1) & 1
    return 1 - 2 * bits.astype(np.int8)


GRID = _unpack_grid()
"""`(256, 8)` uint8 magnitudes: 8, 25 or 43."""

SIGNS = _sign_table()
"""`(128, 8)` int8: +1 or -1 for each 7-bit code."""

_SIGN_SHIFT = np.array([0, 7, 14, 21], dtype=np.uint32)


def dequantize(blocks: Blocks) -> Floats:
    """`(n, 66)` bytes to `(n, 256)` values."""
    groups = blocks[:, 2:].reshape(-1, 8)
    words = field(groups, 4, 4, "<u4")
    scales = (words >> np.uint32(28)).astype(np.float32).reshape(-1, 8)
    scales = half(blocks, 0) * (np.float32(0.5) + scales) * np.float32(0.25)
    signs = SIGNS[words >> _SIGN_SHIFT & np.uint32(127)].astype(np.float32)
    values = GRID[groups[:, :4]].astype(np.float32) * signs
    out: Floats = scales[:, :, None] * values.reshape(-1, 8, 32)
    return out.reshape(-1, 256)


IQ2_XXS = register(
    QuantFormat(
        name="IQ2_XXS", ggml_type=16, block_values=256, block_bytes=66, dequantize=dequantize
    )
)
