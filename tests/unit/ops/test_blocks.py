from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter
from numpy.typing import NDArray

from ds4chat.engine.kernel_weights import random_rows
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.quants import FORMATS, QuantFormat
from ds4chat.formats.quants.base import decode
from ds4chat.ops import blocks as blocks_module
from ds4chat.ops.blocks import Blocks
from tests.pair_blocks import encode, is_random, random_blocks, rng_for
from tests.spoil import spoil

NAMES = ["F16", "BF16", "Q8_0", "Q2_K", "Q4_K", "IQ2_XXS", "MXFP4"]
N_IN = 512


def made(name: str, *shape: int) -> tuple[Blocks, NDArray[np.float32]]:
    """A weight, and its values as ggml's decoder gives them."""
    quant: QuantFormat = next(q for q in FORMATS.values() if q.name == name)
    kind, rng = Type(quant.ggml_type), rng_for(5, name)
    whole = (*shape, N_IN)
    if is_random(kind):
        raw: NDArray[Any] = random_blocks(kind, whole, N_IN**-0.5, rng)
    else:
        raw = encode((rng.standard_normal(whole) * N_IN**-0.5).astype(np.float32), kind)
    raw = raw.view(np.uint8).reshape(*shape, -1)
    return Blocks(raw=mx.array(raw), quant=quant), decode(quant, raw, whole)


def drawn(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def assert_near(found: mx.array, wanted: NDArray[np.float32]) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(np.array(found), wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_products(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weight, values = made(name, 72)
    x = drawn(3, N_IN)
    assert (weight.n_in, weight.n_out) == (N_IN, 72)
    assert_near(weight(mx.array(x)), x @ values.T)
    monkeypatch.setattr(blocks_module, "_TILE_VALUES", N_IN * 20)  # the last tile is short
    assert_near(weight(mx.array(x)), x @ values.T)


def test_the_type_of_the_input_is_kept() -> None:
    weight, _ = made("Q8_0", 8)
    assert weight(mx.array(drawn(1, N_IN)).astype(mx.bfloat16)).dtype == mx.bfloat16


@pytest.mark.parametrize("name", NAMES)
def test_groups(name: str) -> None:
    weight, values = made(name, 12)
    x = drawn(2, 3, N_IN)
    wanted = np.einsum("lgi,gri->lgr", x, values.reshape(3, 4, N_IN))
    assert_near(weight.grouped(mx.array(x)), wanted)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("many", [1, 10_000])
def test_experts(name: str, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "_MANY", many)
    monkeypatch.setattr(blocks_module, "_TILE_VALUES", N_IN * 16 * 2)  # two experts a tile
    weight, values = made(name, 7, 16)
    ids = np.array([[6, 0, 3], [3, 2, 6], [0, 3, 1], [2, 3, 0]])  # 4 and 5 are never chosen
    shared, own = drawn(4, 1, 1, N_IN), drawn(4, 3, 1, N_IN)
    for x in (shared, own):
        rows = np.broadcast_to(x[:, :, 0], (4, 3, N_IN))
        wanted = np.einsum("lki,lkoi->lko", rows, values[ids])[:, :, None]
        assert_near(weight.expert(mx.array(x), mx.array(ids.astype(np.int32))), wanted)


@pytest.mark.parametrize("name", [*NAMES, "F32", "Q4_0", "Q4_1", "Q5_K", "Q6_K"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_scale_that_is_no_number_is_found(name: str, value: float, tmp_path: Path) -> None:
    quant = next(q for q in FORMATS.values() if q.name == name)
    path = tmp_path / "f.gguf"
    writer = GGUFWriter(path, "test")
    raw = random_rows(quant, 6, 256)
    writer.add_tensor("w", raw, raw_dtype=Type(quant.ggml_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    def read() -> Blocks:
        with GgufFile.open(path) as gguf:
            return Blocks(raw=mx.array(np.array(gguf.raw(gguf.tensors["w"]))), quant=quant)

    assert read().is_finite()
    spoil(path, "w", value, row=3)
    spoiled = read()
    assert not spoiled.is_finite()
    if name != "MXFP4":  # its largest exponent is a number times infinity
        values = np.array(spoiled.with_nan().values())
        assert np.isnan(values).any()
        assert not np.isinf(values).any()
