from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from ds4chat.formats.quants import FORMATS, QuantFormat
from ds4chat.formats.quants.base import decode
from ds4chat.ops import blocks as blocks_module
from ds4chat.ops.blocks import Blocks
from tests.pair_blocks import encode, is_random, random_blocks, rng_for

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
