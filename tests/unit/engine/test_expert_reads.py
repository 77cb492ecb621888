from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.engine.expert_reads import choices, expert_bytes
from ds4chat.engine.graph_count import count, step_count
from tests.engines import SMALL, open_half, open_pair, random_ids


@pytest.mark.parametrize("opener", [open_pair, open_half])
def test_distinct_experts_of_the_first_rows_count(opener: object, tmp_path: Path) -> None:
    assert callable(opener)
    with opener(tmp_path, seed=5, quant="q8_0", **SMALL) as engine:
        runner = engine.runner
        timeline, ids = runner.new_timeline(), random_ids(engine, 14)
        for _ in runner.prefill(timeline, ids[:8]):
            pass
        rows = ids[8:]
        chosen = choices(runner.target, timeline, rows)
        read = expert_bytes(runner.target, timeline, rows)
        assert timeline.log.n == 8
        table = np.array(runner.target.weights.blocks[0].ffn.table)
    assert len(chosen) == 4
    assert np.array_equal(chosen[0], table[rows])  # a hash layer
    assert all(layer.shape == (6, 3) for layer in chosen)
    ones = [sum(len(np.unique(layer[: k + 1])) for layer in chosen) for k in range(6)]
    one = read[0] / ones[0]
    assert read == [one * n for n in ones]
    assert one > 3 * 64 * 32  # gate, up and down of one expert, a byte a value or more


def test_the_choice_is_the_models_own(tmp_path: Path) -> None:
    """Rows evaluated one by one choose what they choose together."""
    with open_pair(tmp_path, seed=5, **SMALL) as engine:
        runner = engine.runner
        timeline, ids = runner.new_timeline(), random_ids(engine, 12)
        for _ in runner.prefill(timeline, ids[:8]):
            pass
        together = choices(runner.target, timeline, ids[8:])
        for i, token in enumerate(ids[8:]):
            alone = choices(runner.target, timeline, [token])
            for layer, found in zip(together, alone, strict=True):
                assert np.array_equal(layer[i : i + 1], found)
            runner.evaluate_rows(timeline, [token])
            timeline.log.n += 1


def test_views_are_no_launches() -> None:
    a, b = mx.ones((4, 8)), mx.ones((8, 3))
    mx.eval(a, b)
    counted = count([mx.softmax((a @ b).reshape(3, 4).T + b[:4, :1], axis=-1)])
    assert counted.kinds["Matmul"] == counted.kinds["Softmax"] == counted.kinds["Add"] == 1
    assert counted.launches == 3
    assert counted.nodes == counted.kinds.total() > 3


def test_counting_a_step_leaves_the_timeline_alone(tmp_path: Path) -> None:
    with open_pair(tmp_path, seed=5, **SMALL) as engine:
        session = engine.session()
        session.sync(random_ids(engine, 9))
        before = session.state()
        assert step_count(engine.runner, session.timeline, 7).launches > 100
        after = session.state()
    assert all(np.array_equal(before[name], after[name]) for name in before)
