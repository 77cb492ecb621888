"""The rows that a session stores, with the round trips on, against the float64 reference.

One layer, so that nothing but a rounding border can tell the two apart: a code in a thousand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engines import open_pair, random_ids
from tests.make_pair import make_pair
from tests.reference import draft_context, read_pair, run_target
from tests.reference.maths import fp8_round_trip, hyper_pre
from tests.reference.target import Layer

N = 300


def share_of_differing(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    assert found.shape == wanted.shape
    scale = np.abs(wanted).max()
    return float((np.abs(found - wanted) > 1e-5 * scale).mean())


@pytest.mark.parametrize("ratio", [4, 128, 0])
def test_stored_rows(tmp_path: Path, ratio: int) -> None:
    options: dict[str, Any] = {"ratios": (ratio,), "n_hash": 0, "seed": 4, "n_stages": 2}
    with open_pair(tmp_path, **options) as engine:
        ids, session = random_ids(engine, N), engine.session()
        session.sync(ids[:130])
        session.sync(ids[: N - 3])
        for token in ids[N - 3 :]:
            session.step(token)
        state = session.state()
    paths = make_pair(tmp_path, **options)
    pair = read_pair(paths.base, paths.support)
    layer, sizes = Layer(pair, 0, True), pair.sizes
    embedding = pair.base["token_embd.weight"]
    streams = [np.tile(embedding[i], (sizes.streams, 1)) for i in ids]
    xs = [layer.norm(hyper_pre(x, layer.w, "hc_attn", sizes)[0], "attn_norm") for x in streams]
    window = np.stack([layer.key(x, t) for t, x in enumerate(xs)][N - 127 :])
    assert share_of_differing(state["layers.0.window"], window) <= 1e-3
    if ratio:
        rows = np.stack(layer.compressed(xs, "attn_compressor", sizes.head_dim))
        rounded = fp8_round_trip(rows, sizes.rope_dim)
        assert share_of_differing(state["layers.0.rows"], rounded) <= 1e-3
        assert share_of_differing(state["layers.0.rows"], rows) > 0.2  # they are rounded
    if ratio == 4:
        wanted = layer.index_rows(xs)
        assert share_of_differing(state["layers.0.index_rows"], wanted) <= 1e-3
    captures = run_target(pair, ids, round_trips=True).captures
    for stage in range(2):
        wanted = draft_context(pair, captures, stage, round_trips=True)
        found = state[f"draft.{stage}.window"]
        assert len(found) == 128
        assert share_of_differing(found, wanted) <= 1e-2
