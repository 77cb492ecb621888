"""Row i of every op has the same bits whatever is evaluated beside it, for 1..8 rows.

Products of stock kernels have this at the sizes tried here; at the sizes of a loaded model the
engine itself probes it, and verifies row by row where it does not hold.
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.ops.attention import attend, project_groups
from ds4chat.ops.compressor import pool
from ds4chat.ops.hyper import HyperWeights, Mix, collapse_streams, read_streams, write_streams
from ds4chat.ops.indexer import choose_rows, score_rows
from ds4chat.ops.linear import Dense, dense, fuse, pack_mxfp4, pack_q8_0
from ds4chat.ops.moe import (
    ExpertWeights,
    route_scores,
    route_weights,
    run_experts,
    top_experts,
)
from ds4chat.ops.norms import rms_norm
from ds4chat.ops.quantsim import index_round_trip, kv_round_trip
from ds4chat.ops.rope import Rope, RopeSpec, RopeTable, rotate
from tests.unit.ops.exact import normal, same_bits, single
from tests.unit.ops.test_linear import mxfp4_blocks, q8_0_blocks

ROWS, DIM, HEADS, STREAMS = 8, 64, 4, 4
Op = Callable[[slice], mx.array]


def rows(seed: int, *shape: int) -> mx.array:
    return single(normal(seed, ROWS, *shape))


def _hyper() -> HyperWeights:
    width = STREAMS * (STREAMS + 2)
    return HyperWeights(
        fn=single(normal(1, STREAMS * DIM, width) * 0.1),
        scale=single(normal(2, width)),
        base=single(normal(3, width)),
        n_streams=STREAMS,
        rounds=20,
        hc_eps=1e-6,
        rms_eps=1e-6,
    )


def _head() -> HyperWeights:
    return HyperWeights(
        fn=single(normal(4, STREAMS * DIM, STREAMS) * 0.1),
        scale=single(normal(5, 1)),
        base=single(normal(6, STREAMS)),
        n_streams=STREAMS,
        rounds=1,
        hc_eps=1e-6,
        rms_eps=1e-6,
    )


def _streams_ops() -> dict[str, Op]:
    streams, out, hyper, head = rows(10, STREAMS, DIM), rows(11, DIM), _hyper(), _head()
    mix = Mix(post=rows(12, STREAMS), carry=rows(13, STREAMS, STREAMS))

    def write(s: slice) -> mx.array:
        return write_streams(streams[s], Mix(post=mix.post[s], carry=mix.carry[s]), out[s])

    return {
        "stream read": lambda s: read_streams(streams[s], hyper)[0],
        "stream post": lambda s: read_streams(streams[s], hyper)[1].post,
        "stream carry": lambda s: read_streams(streams[s], hyper)[1].carry,
        "stream write": write,
        "stream collapse": lambda s: collapse_streams(streams[s], head),
    }


def _attention_ops() -> dict[str, Op]:
    q, keys, sink = (
        rows(20, HEADS, 128),
        single(normal(21, 200, 128)),
        single(normal(22, HEADS)),
    )
    shown = np.random.default_rng(23).random((ROWS, 200)) < 0.5
    mask = single(np.where(shown, 0.0, -np.inf))
    grouped = single(normal(24, 2, 256, 16))
    x, table = rows(25, HEADS, 128), Rope(RopeSpec(dim=64, base=1e4)).table(np.arange(ROWS))

    def turn(s: slice) -> mx.array:
        return rotate(x[s], RopeTable(cos=table.cos[s], sin=table.sin[s]))

    return {
        "attention": lambda s: attend(q[s], keys, mask[s], sink),
        "grouped projection": lambda s: project_groups(q[s], Dense(weight=grouped), 2),
        "rotation": turn,
        "kv round trip": lambda s: kv_round_trip(x[s], 64),
        "index round trip": lambda s: index_round_trip(x[s]),
    }


def _index_ops() -> dict[str, Op]:
    q, weights, keys = rows(30, 16, 128), rows(31, 16), single(normal(32, 128, 128))
    visible = np.arange(128) < np.arange(100, 100 + ROWS)[:, None]
    mask = single(np.where(visible, 0.0, -np.inf))
    scores = rows(33, 128)
    kv, gate = rows(34, 8, 128), rows(35, 8, 128)
    return {
        "index scores": lambda s: score_rows(q[s], weights[s], keys),
        "index choice": lambda s: choose_rows(scores[s], mask[s], 16),
        "pooling": lambda s: pool(kv[s], gate[s]),
        "norm": lambda s: rms_norm(rows(36, DIM)[s], single(normal(37, DIM)), 1e-6),
    }


def _linear_ops() -> dict[str, Op]:
    x, wide = rows(40, DIM), rows(41, 256)
    square, tall = (
        dense(normal(42, DIM, DIM), mx.float32),
        dense(normal(43, 512, DIM), mx.float32),
    )
    fused = fuse(
        [dense(normal(44 + i, n, DIM), mx.float32) for i, n in enumerate((32, 128, 16))]
    )
    q8, fp4 = pack_q8_0(q8_0_blocks(50, 24 * 8), (24, 256)), pack_mxfp4(_mild(), (24, 256))
    return {
        "product": lambda s: square(x[s]),
        "output product": lambda s: tall(x[s]),
        "fused product": lambda s: mx.concatenate(fused(x[s]), axis=-1),
        "q8_0 product": lambda s: q8(wide[s]),
        "mxfp4 product": lambda s: fp4(wide[s]),
    }


def _mild() -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    blocks = mxfp4_blocks(51, 24 * 8)
    blocks[:, 0] = 120 + blocks[:, 0] % 10
    return blocks


def _expert_ops() -> dict[str, Op]:
    n, inner = 8, 32
    x, bias = rows(60, DIM), single(normal(61, n) * 0.1)
    router = dense(normal(62, n, DIM) * 0.2, mx.float32)
    apart = ExpertWeights(
        gate_up=tuple(dense(normal(63 + i, n, inner, DIM), mx.float32) for i in range(2)),
        down=dense(normal(65, n, DIM, inner), mx.float32),
        shared_gate_up=fuse([dense(normal(66 + i, inner, DIM), mx.float32) for i in range(2)]),
        shared_down=dense(normal(68, DIM, inner), mx.float32),
        n_routed=n,
        limit=2.0,
    )
    stacked = ExpertWeights(
        gate_up=(dense(normal(69, n + 1, 2 * inner, DIM), mx.float32),),
        down=dense(normal(70, n + 1, DIM, inner), mx.float32),
        shared_gate_up=None,
        shared_down=None,
        n_routed=n,
        limit=2.0,
    )

    def through(weights: ExpertWeights) -> Op:
        def run(s: slice) -> mx.array:
            scores = route_scores(router(x[s]))
            chosen = top_experts(scores, bias, 3)
            return run_experts(x[s], chosen, route_weights(scores, chosen, 1.5), weights)

        return run

    return {"experts apart": through(apart), "experts stacked": through(stacked)}


OPS = {
    **_streams_ops(),
    **_attention_ops(),
    **_index_ops(),
    **_linear_ops(),
    **_expert_ops(),
}


@pytest.mark.parametrize("name", OPS)
def test_row_does_not_depend_on_its_neighbours(name: str) -> None:
    op = OPS[name]
    alone = [np.array(op(slice(i, i + 1)))[0] for i in range(ROWS)]
    for first in range(ROWS):
        for stop in range(first + 1, ROWS + 1):
            together = np.array(op(slice(first, stop)))
            for i in range(first, stop):
                assert same_bits(together[i - first], alone[i]), (name, first, stop, i)
