"""A whole model on the kernels, as their host build runs them, against stock MLX."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.engine.runner import Runner
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.quants import format_named
from ds4chat.model.binding import bind_target
from ds4chat.model.build import build_target
from ds4chat.model.metadata import read_target_config
from ds4chat.model.source import Storage, WeightSource
from ds4chat.model.target import Target
from ds4chat.ops import dispatch
from ds4chat.ops.blocks import Blocks
from tests.engines import WIDE
from tests.kernels import host_build
from tests.kernels.host_dispatch import HostDispatcher
from tests.make_pair import make_pair

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)
F32 = Storage(dtype=mx.float32, keeps_blocks=True)
BF16 = Storage(dtype=mx.bfloat16, keeps_blocks=True)
KINDS = {"qmatmul_q8_0", "qmatmul_f16", "moe_gate_up_iq2_xxs", "moe_down_q2_k"}

OTHERS = (
    *("hyper_post_24", "hyper_pre_24", "hyper_post_4", "hyper_pre_4"),
    *("attn_rows", "attn_row", "attn_window", "attn_decode"),
    *("index_row", "index_query", "index_scores", "route", "route_table"),
    *("keep_0", "keep_1", "keep_2", "pool", "choose", "complete", "complete_both"),
    *("embed", "capture"),
)
GIVEN_UP = (
    *OTHERS,
    *("qmatmul_q8_0", "qmatmul_f16", "moe_gate_up_iq2_xxs", "moe_shared_q8_0"),
)


@contextmanager
def host_kernels() -> Iterator[HostDispatcher]:
    """Make the host build the kernels of all operations."""
    before = dispatch.current()
    host = HostDispatcher()
    dispatch.use(host)
    try:
        yield host
    finally:
        dispatch.use(before)


def opened(path: Path, storage: Storage) -> Runner:
    with GgufFile.open(path) as gguf:
        config = read_target_config(gguf)
        entries = bind_target(gguf, config)
        with WeightSource(gguf, entries, storage, lambda _: None) as source:
            weights = build_target(source, config)
    target = Target(config, weights, dtype=storage.dtype, kv_fp8=True)
    return Runner(target, None, is_row_exact=True)


def rows_of(runner: Runner, splits: tuple[int, ...]) -> NDArray[np.float32]:
    """Logits of tokens in passes of given sizes."""
    timeline, found = runner.new_timeline(), []
    ids = [int(i) for i in np.random.default_rng(0).integers(2, 512, sum(splits))]
    for size in splits:
        at = timeline.log.n
        found.append(runner.evaluate_rows(timeline, ids[at : at + size]))
        timeline.log.n = at + size
    return np.concatenate(found)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("q2")
    return make_pair(folder, **{**WIDE, "seed": 6, "quant": "q2", "ratios": (0, 4)}).base


def nmse(found: NDArray[np.float32], wanted: NDArray[np.float32]) -> float:
    return float(((found - wanted) ** 2).sum() / (wanted**2).sum())


@pytest.mark.parametrize(
    ("storage", "bound"),
    [(F32, 1e-9), pytest.param(BF16, 1e-3, marks=pytest.mark.slow)],
)
def test_logits_are_those_of_stock_operations(
    storage: Storage, bound: float, path: Path
) -> None:
    wanted = rows_of(opened(path, F32), (1, 3))
    with host_kernels() as host:
        host.fallbacks = dict.fromkeys(OTHERS, "tried in test_passes.py")
        runner = opened(path, storage)
        found = rows_of(runner, (1, 3))
    assert set(host.launched) >= KINDS
    assert nmse(found, wanted) < bound


def test_rows_keep_their_bits_whatever_stands_beside_them(path: Path) -> None:
    with host_kernels():
        runner = opened(path, BF16)
        assert isinstance(runner.target.weights.output, Blocks)
        x = mx.random.normal((6, 256)).astype(mx.bfloat16)
        w = runner.target.weights.blocks[0]
        for product in (w.attn.q_b, w.attn.out_b):
            many = product(x)
            alone = mx.concatenate([product(x[i : i + 1]) for i in range(6)])
            assert np.array_equal(
                np.array(many.view(mx.uint16)), np.array(alone.view(mx.uint16))
            )


def test_what_a_device_cannot_build_runs_on_stock_operations(path: Path) -> None:
    wanted = rows_of(opened(path, F32), (2,))
    with host_kernels() as host:
        runner = opened(path, F32)
        host.fallbacks = dict.fromkeys(GIVEN_UP, "for this test")
        found = rows_of(runner, (2,))
    assert not host.launched
    assert nmse(found, wanted) < 1e-9


def test_islands_give_float32_for_half_inputs() -> None:
    weight = mx.random.normal((8, 256)).astype(mx.float16)
    island = Blocks(raw=weight.view(mx.uint8), quant=format_named("F16"), out_dtype=mx.float32)
    x = mx.random.normal((2, 256)).astype(mx.bfloat16)
    wanted = np.array(x.astype(mx.float32)) @ np.array(weight.astype(mx.float32)).T
    for kernels in (nullcontext(), host_kernels()):
        with kernels:
            found = island(x)
        assert found.dtype == mx.float32
        np.testing.assert_allclose(np.array(found), wanted, rtol=1e-4, atol=1e-4)
