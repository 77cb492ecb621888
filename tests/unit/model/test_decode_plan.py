"""Plans of decode passes: what each row sees, said slot by slot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.cli.bench_open import FLASH
from ds4chat.model import decode_plan
from ds4chat.model.decode_plan import DecodePlanner
from ds4chat.model.kv import kept_rows, ring_size
from ds4chat.model.plan import Plan, Planner
from ds4chat.ops import dispatch
from ds4chat.ops.dispatch import Dispatcher
from ds4chat.ops.replay import emptied

WINDOW, TOPK = 16, 3
CONFIG = replace(
    FLASH,
    block=replace(FLASH.block, window=WINDOW, rope_dim=12),  # half a SIMD vector and more
    index_topk=TOPK,
    compress_ratios=(0, 4, 128),
)
PASSES = [
    *((0, 1), (0, 8), (3, 1), (3, 2), (7, 8), (15, 1), (16, 4), (100, 3)),
    *((127, 1), (126, 8), (255, 1), (255, 2), (250, 8), (511, 1), (1020, 5)),
]


def planner() -> DecodePlanner:
    ropes = Planner(CONFIG)
    return DecodePlanner(CONFIG, ropes.plain, ropes.compressed)


@pytest.fixture(params=[False, True], autouse=True)
def is_replayed(request: pytest.FixtureRequest) -> Iterator[bool]:
    before = dispatch.current()
    dispatch.use(Dispatcher(backend="reference", is_replayed=request.param))
    yield request.param
    dispatch.use(before)


def seen_slots(n: int, length: int, ratio: int, n_slots: int) -> NDArray[np.bool_]:
    """Which slots each row sees: the newest position of each, then the completed rows."""
    ring = ring_size(WINDOW)
    held = dict[int, int]()
    for position in range(n + length):
        held[position % ring] = position
    seen = np.zeros((length, 1 + ring + n_slots), dtype=bool)
    seen[:, 0] = True
    for i, row in enumerate(range(n, n + length)):
        for slot, position in held.items():
            seen[i, 1 + slot] = row - WINDOW < position <= row
        for j in range(n_slots):
            seen[i, 1 + ring + j] = ratio * (j + 1) <= row + 1
    return seen


@pytest.mark.parametrize(("n", "length"), PASSES)
def test_each_row_sees_its_window_and_the_rows_completed_by_then(n: int, length: int) -> None:
    plan = planner().plan([7] * length, n)
    assert (plan.n, plan.length, plan.is_prefill) == (n, length, False)
    for ratio, of in plan.by_ratio.items():
        seen = seen_slots(n, length, ratio, of.n_slots)
        np.testing.assert_array_equal(np.array(of.mask) == 0, seen)
        assert np.isneginf(np.array(of.mask)[~seen]).all()
        np.testing.assert_array_equal(np.array(of.is_live), seen.any(axis=0))
        assert of.is_live.dtype == mx.bool_
        n_rows = (n + length) // ratio if ratio else 0
        assert of.must_choose == (ratio == 4 and n_rows > TOPK)


@pytest.mark.parametrize(("n", "length"), PASSES)
def test_rows_go_to_the_slots_of_their_positions(n: int, length: int) -> None:
    ids, positions = list(range(40, 40 + length)), np.arange(n, n + length)
    plan = planner().plan(ids, n)
    assert plan.ids.tolist() == ids
    np.testing.assert_array_equal(plan.window_slots, positions % ring_size(WINDOW))
    for ratio, n_raw in ((4, 15), (128, 135)):
        of = plan.by_ratio[ratio]
        assert of.phase is not None
        assert of.raw_slots is not None
        np.testing.assert_array_equal(of.phase, positions % ratio)
        np.testing.assert_array_equal(of.raw_slots, positions % n_raw)
        done = [r for r in range(n + length) if n < ratio * (r + 1) <= n + length]
        assert [job.row.item() for job in of.jobs] == done
        for job, row in zip(of.jobs, done, strict=True):
            start = ratio * (row - 1 if ratio == 4 and row else row)
            tokens = np.arange(start, ratio * (row + 1))
            np.testing.assert_array_equal(job.raw_slots, tokens % n_raw)
            assert job.is_first == (row == 0)
            wanted = Planner(CONFIG).compressed.host_table(np.array([ratio * row]))
            np.testing.assert_array_equal(job.table.cos, wanted.cos)
            np.testing.assert_array_equal(job.table.sin, wanted.sin)


@pytest.mark.parametrize("n", [0, 3, 127, 255, 300])
def test_a_plan_made_ahead_is_the_plan(n: int) -> None:
    made = planner()
    ahead = made.ahead(n)
    made.plan([1] * 3, n + 1)  # another pass uses the buffer meanwhile
    made.plan([2], n)
    assert contents(made.with_ids(ahead, [9])) == contents(planner().plan([9], n))


def contents(plan: Plan) -> list[object]:
    found: list[mx.array] = []
    form = emptied(replace(plan, source=None), found)
    names = [f.name for f in fields(plan)]
    return [names, str(form), *(np.array(a).tobytes() for a in found)]


def test_layouts_are_kept_and_no_more_than_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_plan, "MAX_LAYOUTS", 2)
    made = planner()

    def layout(n: int, length: int = 1) -> object:
        source = made.plan([1] * length, n).source
        assert source is not None
        return source.layout

    first = layout(300)
    assert layout(301) is first
    assert layout(303) is not first  # completes a row of ratio 4
    assert layout(302) is first
    layout(304, 2)
    assert layout(305) is first
    assert layout(307) is not first
    layout(308, 2)
    layout(307)
    assert layout(309) is not first


def test_nine_rows_are_too_many() -> None:
    with pytest.raises(ValueError, match="at most 8 rows, not 9"):
        planner().plan([0] * 9, 0)


@pytest.mark.parametrize(("n", "length"), [(4, 1), (130, 8), (255, 2), (1020, 5), (2046, 6)])
def test_a_kept_plan_says_the_same_with_more_room(n: int, length: int) -> None:
    """Columns behind those of the ordinary plan are hidden, jobs beyond its own are none."""
    plans = planner()
    layout = plans.kept(n, length)
    assert layout is not None
    layout.views[decode_plan.IDS][:] = range(length)
    plan, words = plans.kept_plan(layout, n)
    mx.eval(words)
    usual = plans.plan(list(range(length)), n)
    np.testing.assert_array_equal(plan.ids, usual.ids)
    np.testing.assert_array_equal(plan.window_slots, usual.window_slots)
    for ratio, of in plan.by_ratio.items():
        other = usual.by_ratio[ratio]
        columns = other.mask.shape[1]
        np.testing.assert_array_equal(of.mask[:, :columns], other.mask)
        assert np.isneginf(np.array(of.mask[:, columns:])).all()
        rows = [int(np.array(job.row)[0]) for job in of.jobs]
        wanted = [int(np.array(job.row)[0]) for job in other.jobs]
        assert rows == wanted + [decode_plan.NO_ROW] * (len(rows) - len(wanted))
        assert len(rows) == (-(-length // ratio) if ratio else 0)
        for job, same in zip(of.jobs, other.jobs, strict=False):
            np.testing.assert_array_equal(job.raw_slots, same.raw_slots)
            np.testing.assert_array_equal(job.table.cos, same.table.cos)


def test_kept_layouts_last_over_positions_but_not_over_the_first_rows() -> None:
    plans = planner()
    layouts = [plans.kept(n, 1) for n in range(129, 129 + 200)]
    assert len(set(map(id, layouts))) == 1
    assert plans.kept(3, 1) is None  # completes row 0 of ratio 4
    assert plans.kept(126, 2) is None  # and of ratio 128
    assert plans.kept(2, 1) is not None


def test_a_layout_is_filled_again_for_another_position() -> None:
    plans = planner()
    first, again = plans.kept(200, 1), plans.kept(201, 1)
    assert first is again is not None
    np.testing.assert_array_equal(
        plans.kept_plan(again, 201)[0].window_slots, plans.plan([1], 201).window_slots
    )


@pytest.mark.parametrize("ratio", [4, 128])
def test_kept_rows_hold_what_is_asked_and_at_most_a_third_more(ratio: int) -> None:
    least = kept_rows(ratio, 0)
    assert least == (256 if ratio == 4 else 64)
    for n in range(5000):
        kept = kept_rows(ratio, n)
        assert n <= kept <= max(least, n * 4 / 3 + least)
        assert kept % least == 0
    sizes = {kept_rows(ratio, n) for n in range(4096, 65536)}
    assert len(sizes) <= 4 * 4 + 1


def test_a_plan_that_was_interrupted_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a plan must not count as one: the next pass would see the wrong rows."""
    plans = planner()
    assert plans.kept(200, 1) is not None

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(DecodePlanner, "_fill_ratio", stop)
        plans.kept(201, 1)
    layout = plans.kept(201, 1)
    wanted = planner().kept(201, 1)
    assert layout is not None and wanted is not None
    np.testing.assert_array_equal(layout.words, wanted.words)
