"""The ops as the model calls them: kernels and references agree, and fallbacks are told."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.errors import KernelError
from ds4chat.formats.quants.base import format_named
from ds4chat.ops import dispatch, moe_kernels
from ds4chat.ops.attention import project_groups
from ds4chat.ops.blocks import Blocks
from ds4chat.ops.dispatch import Dispatcher, Output
from ds4chat.ops.hyper import HyperWeights, Mix
from ds4chat.ops.hyper_kernels import begin, collapse, read, write
from ds4chat.ops.moe_kernels import pack_experts
from ds4chat.ops.qmatmul import make_spec, pack_blocks, qmatmul
from ds4chat.ops.spec import KernelSpec, read_text
from ds4chat.paths import kernels_dir
from tests.kernels import host_build
from tests.kernels.blocks import random_blocks
from tests.kernels.host_dispatch import HostDispatcher

needs_compiler = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)


@pytest.fixture
def host() -> Iterator[HostDispatcher]:
    made = HostDispatcher()
    dispatch.use(made)
    yield made
    dispatch.use(Dispatcher(backend="reference"))


def close(a: mx.array, b: mx.array, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(np.array(a), np.array(b), rtol=tolerance, atol=tolerance)


def both(
    host: HostDispatcher, compute: dispatch.Built
) -> tuple[list[mx.array], list[mx.array]]:
    """What `compute` returns with kernels, and with references."""
    ours = compute()
    mx.eval(ours)
    dispatch.use(Dispatcher(backend="reference"))
    theirs = compute()
    mx.eval(theirs)
    dispatch.use(host)
    return ours, theirs


@needs_compiler
def test_product(host: HostDispatcher) -> None:
    rng = np.random.default_rng(0)
    weight = pack_blocks(random_blocks(rng, "Q8_0", 24, 256), format_named("Q8_0"), 256)
    x = mx.array(rng.standard_normal((3, 256)).astype(np.float32)) * 0.1
    ours, theirs = both(host, lambda: [qmatmul(x, weight)])
    close(ours[0], theirs[0])
    assert Counter(host.launched) == {"qmatmul_q8_0": 1}
    assert weight(x).dtype == mx.float32
    assert qmatmul(x.astype(mx.bfloat16), weight).dtype == mx.bfloat16


@needs_compiler
@pytest.mark.parametrize("rank", [32, 24])  # 24: a tile of 16 would hold two groups
def test_grouped_product(host: HostDispatcher, rank: int) -> None:
    rng = np.random.default_rng(0)
    raw = mx.array(random_blocks(rng, "Q8_0", 3 * rank, 64))
    weight = Blocks(raw=raw, quant=format_named("Q8_0"))
    x = mx.array(rng.standard_normal((5, 3, 64)).astype(np.float32))
    ours, theirs = both(host, lambda: [weight.grouped(x)])
    close(ours[0], theirs[0])
    assert host.launched.get("qmatmul_q8_0", 0) == (rank == 32)


@needs_compiler
def test_heads_are_projected_in_groups_without_copies(host: HostDispatcher) -> None:
    raw = mx.array(random_blocks(np.random.default_rng(5), "Q8_0", 64, 64))
    weight = Blocks(raw=raw, quant=format_named("Q8_0"))
    out = mx.random.normal((3, 8, 32), key=mx.random.key(5))
    ours, theirs = both(host, lambda: [project_groups(out, weight, 4)])
    assert ours[0].shape == theirs[0].shape == (3, 64)
    close(ours[0], theirs[0])
    wanted = weight.grouped(out.reshape(3, 4, 64)).reshape(3, -1)
    assert host.launched == {"qmatmul_q8_0": 2}
    np.testing.assert_array_equal(np.array(ours[0]), np.array(wanted))


@needs_compiler
def test_prefill_and_other_formats_take_the_reference(host: HostDispatcher) -> None:
    rng = np.random.default_rng(0)
    blocks = random_blocks(rng, "Q8_0", 8, 64)
    weight = pack_blocks(blocks, format_named("Q8_0"), 64)
    assert weight(mx.zeros((9, 64))).shape == (9, 8)
    odd = pack_blocks(np.zeros((8, 18), np.uint8), format_named("Q4_0"), 32)
    assert odd(mx.zeros((1, 32))).shape == (1, 8)
    assert not host.launched


@pytest.mark.slow
@needs_compiler
def test_experts(host: HostDispatcher) -> None:
    rng = np.random.default_rng(0)
    q2, quant = format_named("Q2_K"), format_named("Q8_0")
    gate, up = (
        pack_experts(random_blocks(rng, "Q8_0", 5 * 256, 64), quant, (5, 256, 64))
        for _ in range(2)
    )
    down = pack_experts(random_blocks(rng, "Q2_K", 5 * 16, 256), q2, (5, 16, 256))
    picks = mx.array([[0, 3], [3, 4], [2, 0]], dtype=mx.int32)
    weights = mx.array(rng.uniform(0, 1, (3, 2)).astype(np.float32))
    x = mx.array(rng.standard_normal((3, 64)).astype(np.float32)) * 0.2

    def compute() -> list[mx.array]:
        hidden = moe_kernels.gate_up(x, picks, gate, up, 10.0)
        return [hidden, moe_kernels.down(hidden, picks, weights, down)]

    ours, theirs = both(host, compute)
    close(ours[0], theirs[0], 1e-4)
    close(ours[1], theirs[1], 1e-3)
    assert Counter(host.launched) == {"moe_gate_up_q8_0": 1, "moe_down_q2_k": 1}


def reader(rng: np.random.Generator, dim: int, n_out: int) -> HyperWeights:
    fn = rng.standard_normal((4 * dim, n_out)).astype(np.float32) / np.float32(dim**0.5)
    return HyperWeights(
        fn=mx.array(fn),
        scale=mx.array(rng.uniform(0.5, 1.5, 1 if n_out == 4 else n_out).astype(np.float32)),
        base=mx.array(rng.standard_normal(n_out).astype(np.float32)),
        n_streams=4,
        rounds=20,
        hc_eps=1e-6,
        rms_eps=1e-6,
    )


@needs_compiler
def test_streams(host: HostDispatcher) -> None:
    rng = np.random.default_rng(0)
    dim = 64
    first, second, head = reader(rng, dim, 24), reader(rng, dim, 24), reader(rng, dim, 4)
    streams = mx.array(rng.standard_normal((3, 4, dim)).astype(np.float32))
    norm = mx.array(rng.uniform(0.5, 1.5, dim).astype(np.float32))

    def compute() -> list[mx.array]:
        flow, made = begin(streams, first), []
        mix: Mix
        for now, after in ((first, second), (second, head)):
            x, mix = read(flow, now, norm, mx.float32)
            flow = write(flow, mix, mx.tanh(x), after)
            made += [x, mix.post, mix.carry, flow.streams]
        return [*made, collapse(flow, head, norm), collapse(flow, head, None)]

    ours, theirs = both(host, compute)
    for a, b in zip(ours, theirs, strict=True):
        close(a, b, 1e-4)
    assert Counter(host.launched) == {
        "hyper_post_24": 2, "hyper_pre_24": 2, "hyper_post_4": 1, "hyper_pre_4": 2,
    }  # fmt: skip


def a_spec() -> KernelSpec:
    return make_spec("Q8_0", 64, "float32", backend="host", is_bf16_out=False)


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"prelude_cuda\.h"):
        read_text(a_spec(), "cuda", tmp_path)


def test_a_kernel_that_cannot_be_built_is_given_up_with_its_reason(tmp_path: Path) -> None:
    dispatcher = Dispatcher(backend="cuda", folder=tmp_path)
    output = Output(shape=(1, 8), dtype=mx.float32)
    for _ in range(2):
        assert dispatcher.run(a_spec(), [mx.zeros((1, 64))], 1, [output]) is None
    assert list(dispatcher.fallbacks) == ["qmatmul_q8_0"]
    assert "prelude_cuda.h" in dispatcher.fallbacks["qmatmul_q8_0"]


@pytest.mark.parametrize(
    ("backend", "is_wanted", "chosen"),
    [
        ("cpu", True, "reference"),
        ("cuda", True, "cuda"),
        ("metal", True, "metal"),
        ("cuda", False, "reference"),
    ],
)
def test_one_decision(backend: str, is_wanted: bool, chosen: str) -> None:
    assert dispatch.choose(backend, is_wanted=is_wanted).backend == chosen


def test_another_text_has_another_name() -> None:
    specs = [
        make_spec(name, 4096, kind, backend="cuda", is_bf16_out=False)
        for name in ("Q8_0", "Q4_K")
        for kind in ("float32", "bfloat16")
    ]
    assert len({read_text(spec, "cuda", kernels_dir()).name for spec in specs}) == 4


METAL_WORDS = (
    *("half", "bfloat", "uchar", "ushort", "uint", "ulong", "kernel", "vertex", "fragment"),
    *("device", "constant", "threadgroup", "thread", "sampler", "texture", "ray_data"),
)


def test_no_name_is_a_word_of_metal() -> None:
    folder = kernels_dir()
    files = [*folder.glob("*.kernel"), *folder.glob("formats/*.h"), *folder.glob("*.h")]
    shared = [f for f in files if not f.name.startswith(("prelude_", "cpu_"))]
    assert len(shared) > 15
    for file in shared:
        code = re.sub(r"//.*", "", file.read_text())
        assert not re.findall(rf"\b(?:{'|'.join(METAL_WORDS)})\b", code), file.name
