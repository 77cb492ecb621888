from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.formats.quants import FORMATS, QuantFormat
from ds4chat.ops.unpack import UNPACKERS, unpack

FLOATS = [quant for quant in FORMATS.values() if not quant.is_integer]


def test_every_format_has_one() -> None:
    assert set(UNPACKERS) == {quant.name for quant in FLOATS}


@pytest.mark.parametrize("quant", FLOATS, ids=lambda quant: quant.name)
def test_random_bytes_give_the_decoders_bits(quant: QuantFormat) -> None:
    rng = np.random.default_rng(7)
    raw = rng.integers(0, 256, (3, 5, 4 * quant.block_bytes), dtype=np.uint8)
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = quant.dequantize(raw.reshape(-1, quant.block_bytes)).reshape(3, 5, -1)
    found = np.array(unpack(mx.array(raw), quant.name, quant.block_bytes))
    assert found.shape == wanted.shape == (3, 5, 4 * quant.block_values)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    found, wanted = np.nan_to_num(found, nan=0.0), np.nan_to_num(wanted, nan=0.0)
    assert found.tobytes() == wanted.tobytes()


def test_every_exponent_of_mxfp4() -> None:
    quant = next(quant for quant in FLOATS if quant.name == "MXFP4")
    raw = np.full((256, quant.block_bytes), 0x21, dtype=np.uint8)
    raw[:, 0] = np.arange(256)
    found = np.array(unpack(mx.array(raw), "MXFP4", quant.block_bytes))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, quant.dequantize(raw))
