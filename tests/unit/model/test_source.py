"""Weights as a GPU keeps them: in blocks, never larger than the file says they may become."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.engine.runner import Runner
from ds4chat.formats.gguf import GgufFile
from ds4chat.model.binding import bind_target
from ds4chat.model.build import build_target
from ds4chat.model.metadata import read_target_config
from ds4chat.model.source import Storage, WeightSource
from ds4chat.model.target import Target
from ds4chat.ops.blocks import Blocks
from ds4chat.ops.linear import Dense, Packed
from tests.engines import WIDE
from tests.make_pair import make_pair
from tests.spoil import spoil

GPU = Storage(dtype=mx.bfloat16, keeps_blocks=True)
CPU = Storage(dtype=mx.float32, keeps_blocks=False)
OTHERS = ("f16", "bf16", "q8_0", "q4_k", "mxfp4")
EXPERTS = "blk.1.ffn_gate_exps.weight"


@pytest.fixture(scope="module")
def q2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pair(tmp_path_factory.mktemp("q2"), seed=4, quant="q2", **WIDE).base


@pytest.fixture
def source(q2: Path) -> Iterator[WeightSource]:
    with GgufFile.open(q2) as gguf:
        entries = bind_target(gguf, read_target_config(gguf))
        with WeightSource(gguf, entries, GPU, lambda _: None) as opened:
            yield opened


def test_experts_stay_in_their_blocks(source: WeightSource, q2: Path) -> None:
    weight = source.linear(EXPERTS)
    assert isinstance(weight, Blocks)
    with GgufFile.open(q2) as gguf:
        entry = gguf.tensors[EXPERTS]
        assert weight.quant.name == entry.type_name == "IQ2_XXS"
        assert np.array(weight.raw).tobytes() == gguf.raw(entry).tobytes()
        assert weight.raw.nbytes == entry.n_bytes == GPU.resident_bytes(entry)
        np.testing.assert_array_equal(np.array(weight.values()), gguf.floats(entry))


def test_islands_and_matrices_are_the_files_values(source: WeightSource, q2: Path) -> None:
    name = "blk.1.attn_compressor_kv.weight"
    island = source.linear(name, is_island=True)
    with GgufFile.open(q2) as gguf:
        wanted = gguf.floats(gguf.tensors[name])
        embedding = gguf.floats(gguf.tensors["token_embd.weight"])
    assert isinstance(island, Dense)
    assert island.weight.dtype == mx.float32
    np.testing.assert_array_equal(np.array(island.weight), wanted.T)
    np.testing.assert_array_equal(np.array(source.matrix(name)), wanted)
    assert source.embedding().dtype == mx.float16
    np.testing.assert_array_equal(np.array(source.embedding().astype(mx.float32)), embedding)


def test_groups_of_any_storage_give_one_product(source: WeightSource, q2: Path) -> None:
    name = "blk.1.attn_output_a.weight"
    with GgufFile.open(q2) as gguf:
        entries = bind_target(gguf, read_target_config(gguf))
        with WeightSource(gguf, entries, CPU, lambda _: None) as unpacked:
            plain = unpacked.grouped(name, 2)
    packed = source.grouped(name, 2)
    assert isinstance(plain, Dense)
    assert isinstance(packed, Packed)
    x = mx.array(np.random.default_rng(3).standard_normal((3, 2, 256)).astype(np.float32))
    np.testing.assert_allclose(
        np.array(packed.grouped(x)), np.array(plain.grouped(x)), rtol=1e-4, atol=1e-4
    )


def test_a_whole_model_takes_no_more_than_was_said(q2: Path) -> None:
    with GgufFile.open(q2) as gguf:
        config = read_target_config(gguf)
        entries = bind_target(gguf, config)
        seen: list[int] = []
        with WeightSource(gguf, entries, GPU, seen.append) as source:
            mx.clear_cache()
            before = mx.get_active_memory()
            weights = build_target(source, config)
            mx.eval([weights.embed])
            held = mx.get_active_memory() - before
    said = sum(GPU.resident_bytes(entry) for entry in entries.values())
    assert sum(seen) == sum(entry.n_bytes for entry in entries.values())
    assert 0.8 * said < held < 1.05 * said + (1 << 20)
    assert said < 0.3 * sum(CPU.resident_bytes(entry) for entry in entries.values())


@pytest.mark.parametrize(
    "quant", ["q2", "mixed", *(pytest.param(q, marks=pytest.mark.slow) for q in OTHERS)]
)
def test_every_format_runs_from_its_blocks(quant: str, tmp_path: Path) -> None:
    paths = make_pair(tmp_path, **{**WIDE, "seed": 6, "quant": quant, "ratios": (0, 4)})
    ids = [int(i) for i in np.random.default_rng(0).integers(2, 512, 20)]

    def logits(storage: Storage) -> NDArray[np.float32]:
        with GgufFile.open(paths.base) as gguf:
            config = read_target_config(gguf)
            entries = bind_target(gguf, config)
            with WeightSource(gguf, entries, storage, lambda _: None) as source:
                weights = build_target(source, config)
        target = Target(config, weights, dtype=storage.dtype, kv_fp8=True)
        runner = Runner(target, None, is_row_exact=True)
        timeline = runner.new_timeline()
        rows = [row for _, row in runner.prefill(timeline, ids)]
        rows += list(runner.evaluate_rows(timeline, ids[:3]))
        return np.stack(rows)

    wanted = logits(CPU)
    assert_near(logits(Storage(dtype=mx.float32, keeps_blocks=True)), wanted, 1e-10)
    assert_near(logits(GPU), wanted, 1e-3)  # bfloat16 activations


def assert_near(found: NDArray[np.float32], wanted: NDArray[np.float32], nmse: float) -> None:
    assert ((found - wanted) ** 2).sum() / (wanted**2).sum() < nmse


@pytest.mark.parametrize("tensor", [EXPERTS, "blk.1.ffn_down_exps.weight", "token_embd.weight"])
def test_infinite_scales_are_told_and_become_nan(tensor: str, tmp_path: Path) -> None:
    path = make_pair(tmp_path, seed=4, quant="q2", **WIDE).base
    spoil(path, tensor, np.inf)
    with GgufFile.open(path) as gguf:
        entries = bind_target(gguf, read_target_config(gguf))
        with WeightSource(gguf, entries, GPU, lambda _: None) as source:
            weight = source.linear(tensor)
            assert isinstance(weight, Blocks)
            assert source.spoiled == [tensor]
            assert np.isnan(np.array(weight.values())).any()
            assert not np.isinf(np.array(weight.values())).any()
