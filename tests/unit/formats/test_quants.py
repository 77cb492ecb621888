from __future__ import annotations

import struct

import gguf
import numpy as np
import pytest

from ds4chat.formats.ggml_types import block_size, type_name
from ds4chat.formats.quants import FORMATS, QuantFormat, format_named
from ds4chat.formats.quants.base import decode, register
from ds4chat.formats.quants.iq2_xxs import GRID, SIGNS

FLOAT_FORMATS = [quant for quant in FORMATS.values() if not quant.is_integer]
WANTED = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K", "Q2_K"} | {
    "IQ2_XXS",
    "MXFP4",
    "I32",
}


def test_the_promised_formats_are_there() -> None:
    assert {quant.name for quant in FORMATS.values()} == WANTED


def test_names_and_block_sizes_are_ggmls() -> None:
    for kind, sizes in gguf.GGML_QUANT_SIZES.items():
        if block_size(int(kind)) is not None:
            assert block_size(int(kind)) == sizes, kind
            assert type_name(int(kind)) == kind.name


def test_every_format_is_a_ggml_type() -> None:
    for type_id, quant in FORMATS.items():
        kind = gguf.GGMLQuantizationType(type_id)
        assert kind.name == quant.name
        assert gguf.GGML_QUANT_SIZES[kind] == (quant.block_values, quant.block_bytes)


@pytest.mark.parametrize("quant", FLOAT_FORMATS, ids=lambda quant: quant.name)
def test_random_blocks_decode_bit_for_bit(quant: QuantFormat) -> None:
    raw = np.random.default_rng(7).integers(0, 256, (5000, quant.block_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        want = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(quant.ggml_type))
    got = decode(quant, raw, (5000, quant.block_values))
    assert got.dtype == np.float32
    assert np.array_equal(got.view(np.uint32), want.view(np.uint32).reshape(got.shape))


@pytest.mark.parametrize("quant", FLOAT_FORMATS, ids=lambda quant: quant.name)
def test_chunks_do_not_show(quant: QuantFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = np.random.default_rng(1).integers(0, 120, (7, quant.block_bytes), dtype=np.uint8)
    shape = (7, quant.block_values)
    whole = decode(quant, raw, shape)
    monkeypatch.setattr("ds4chat.formats.quants.base._CHUNK_VALUES", 3 * quant.block_values)
    assert np.array_equal(whole, decode(quant, raw, shape), equal_nan=True)


def one(name: str, block: bytes) -> list[float]:
    quant = format_named(name)
    raw = np.frombuffer(block, dtype=np.uint8).reshape(1, -1)
    values: list[float] = decode(quant, raw, (quant.block_values,)).tolist()
    return values


def test_a_literal_q8_0_block() -> None:
    block = struct.pack("<e32b", 0.5, *range(-16, 16))
    assert one("Q8_0", block) == [0.5 * q for q in range(-16, 16)]


def test_a_literal_q4_0_block() -> None:
    block = struct.pack("<e", 2.0) + bytes(range(16))  # low nibble i, high nibble 0
    assert one("Q4_0", block) == [2.0 * (i - 8) for i in range(16)] + [-16.0] * 16


def test_a_literal_q4_1_block() -> None:
    block = struct.pack("<ee", 0.5, -1.0) + bytes(16 * i for i in range(16))
    assert one("Q4_1", block) == [-1.0] * 16 + [0.5 * i - 1.0 for i in range(16)]


def test_a_literal_q4_k_block() -> None:
    # Scales 1..8 would need upper bits only above 15: group j has scale j + 1, minimum 2 j + 1.
    scales, minima = range(1, 9), range(1, 17, 2)
    packed = bytes([*scales][:4]) + bytes([*minima][:4])
    packed += bytes((scales[4 + j] & 15) | (minima[4 + j] & 15) << 4 for j in range(4))
    block = struct.pack("<ee", 1.0, 0.5) + packed + bytes([0x21] * 128)
    want = [
        (j + 1) * (2 if j % 2 else 1) - 0.5 * (2 * j + 1) for j in range(8) for _ in range(32)
    ]
    assert one("Q4_K", block) == want


def test_upper_bits_of_q4_k_scales() -> None:
    # Group 4: scale 0b11_0101 = 53, minimum 0b10_1010 = 42; their tops sit in bytes 0 and 4.
    packed = bytes([0b11 << 6, 0, 0, 0, 0b10 << 6, 0, 0, 0, 0b1010_0101, 0, 0, 0])
    block = struct.pack("<ee", 1.0, 1.0) + packed + bytes([0x03] * 128)
    assert one("Q4_K", block)[128:160] == [53 * 3 - 42] * 32


def test_a_literal_q2_k_block() -> None:
    # All scales 3, minima 2; the codes of a byte are 0, 1, 2, 3 from the lowest bits up.
    block = bytes([0x23] * 16) + bytes([0b11_10_01_00] * 64) + struct.pack("<ee", 0.5, 0.25)
    planes = [0.5 * 3 * q - 0.25 * 2 for q in range(4) for _ in range(32)]
    assert one("Q2_K", block) == planes * 2


def test_a_literal_q5_k_block() -> None:
    packed = bytes([1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1])
    block = struct.pack("<ee", 1.0, 1.0) + packed + bytes([0b10] * 32) + bytes([0x43] * 128)
    want = [3.0] * 32 + [20.0] * 32 + ([3.0] * 32 + [4.0] * 32) * 3
    assert one("Q5_K", block) == want


def test_a_literal_q6_k_block() -> None:
    block = bytes([0x51] * 128) + bytes([0b11_10_01_00] * 64)
    block += struct.pack("<16b", *([2] * 15), -2) + struct.pack("<e", 0.5)
    plane = [1 - 32, 1 + 16 - 32, 5 + 32 - 32, 5 + 48 - 32]
    want = [float(q) for q in plane for _ in range(32)] * 2
    want[-16:] = [-q for q in want[-16:]]
    assert one("Q6_K", block) == want


def test_a_literal_iq2_xxs_block() -> None:
    # Every group: grid rows 0 and 1, signs of code 1 (first and last minus), scale 2.
    word = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 2 << 28
    block = struct.pack("<e", 2.0) + (bytes([0, 1, 0, 1]) + struct.pack("<I", word)) * 8
    rows = np.array([[8] * 8, [43, *[8] * 7]], dtype=float) * [-1, 1, 1, 1, 1, 1, 1, -1]
    want = 2.0 * 2.5 * 0.25 * np.tile(np.concatenate([rows[0], rows[1]]), 16)
    assert one("IQ2_XXS", block) == want.tolist()


def test_a_literal_mxfp4_block() -> None:
    block = bytes([128, *(i | (15 - i) << 4 for i in range(16))])
    half = [0, 1, 2, 3, 4, 6, 8, 12]
    codes = [float(x) for x in half] + [-float(x) for x in half]
    assert one("MXFP4", block) == codes + codes[::-1]


def test_grid_and_signs() -> None:
    assert GRID.shape == (256, 8)
    assert set(np.unique(GRID).tolist()) == {8, 25, 43}
    assert len(np.unique(GRID, axis=0)) == 256
    assert np.all(np.prod(SIGNS, axis=1) == 1)  # an even number of minus signs
    assert SIGNS[1].tolist() == [-1, 1, 1, 1, 1, 1, 1, -1]


def test_ids_have_no_float_value() -> None:
    with pytest.raises(TypeError, match="ids"):
        decode(format_named("I32"), np.zeros(8, np.uint8), (2,))


def test_names_are_unique_and_unknown_ones_are_errors() -> None:
    with pytest.raises(KeyError):
        format_named("Q9_9")
    with pytest.raises(AssertionError):
        register(format_named("F32"))


def test_row_bytes() -> None:
    assert format_named("Q2_K").row_bytes(512) == 168
    assert format_named("F16").row_bytes(3) == 6
