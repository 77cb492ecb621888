"""The timed runs: that they run what they say. No time is judged."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from ds4chat.engine import bench_runs
from ds4chat.engine.bench_runs import BARE, DRAFTER, LOOSE, RACE_PLAIN, RACE_SPEC, SHIPPED
from ds4chat.engine.engine import Engine
from ds4chat.engine.runner import Runner
from ds4chat.protocol.types import Policy
from tests.engines import SMALL, differing, open_pair, random_ids


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("pair")
    with open_pair(folder, options={"ctx": 512, "end_ids": ()}, seed=31, **SMALL) as opened:
        yield opened


def ticking() -> Callable[[], float]:
    ticks = itertools.count()
    return lambda: float(next(ticks))


def test_a_copy_is_the_same_state_and_goes_its_own_way(engine: Engine) -> None:
    held = engine.session()
    held.sync(random_ids(engine, 150))
    copy = bench_runs.copy_of(engine, held)
    assert differing(held, copy) == []
    copy.speculate(copy.choose(), 8)
    held.step(held.choose())
    assert copy.ids[:151] == held.ids


def test_a_plain_copy_keeps_no_rows_for_the_drafter(engine: Engine) -> None:
    held = engine.session()
    held.sync(random_ids(engine, 20))
    copy = bench_runs.copy_of(engine, held, drafts=False)
    assert copy.timeline.rings is None
    for _ in range(4):
        token = held.choose()
        assert copy.choose() == token
        assert [t.id for t in copy.speculate(token, 8)] == [held.step(token).id]
    mine, theirs = copy.state(), held.state()
    assert mine.keys() < theirs.keys()
    assert all(mine[name].tobytes() == theirs[name].tobytes() for name in mine)


def test_prefill_reads_each_size_in_each_run(engine: Engine) -> None:
    samples = list(bench_runs.prefill(engine, (5, 40), 2, ticking()))
    assert [(s.case, s.run, s.n_units, s.seconds) for s in samples] == [
        (f"prefill {size}", run, size, 1.0) for run in range(3) for size in (5, 40)
    ]


def test_decode_takes_every_plain_path_in_turn(engine: Engine) -> None:
    samples = list(bench_runs.decode(engine, 20, 3, 2))
    assert [s.case for s in samples] == [SHIPPED, BARE, LOOSE] * 3
    assert all(s.seconds > 0 and s.n_units == 3 for s in samples)


def test_verify_knows_whether_rows_keep_their_bits(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = list(bench_runs.verify(engine, 30, 1))
    sizes = [f"T({k})" for k in range(1, 9)]
    warm_up = [bench_runs.COPY, sizes[-1], *sizes[:-1]]
    assert [s.case for s in samples] == [*warm_up, bench_runs.COPY, *sizes]
    samples = [s for s in samples if s.case != bench_runs.COPY]
    read = [s.facts["expert_bytes"] for s in samples[8:]]
    assert 0 < read[0] <= read[5] == sorted(read)[5]
    assert all(s.is_identical for s in samples)
    evaluate = Runner.evaluate_rows

    def spoil(self: object, timeline: object, ids: list[int]) -> object:
        rows = evaluate(self, timeline, ids)  # type: ignore[arg-type]
        rows[-1, 0] += len(ids) - 1
        return rows

    monkeypatch.setattr(Runner, "evaluate_rows", spoil)
    spoilt = [s for s in bench_runs.verify(engine, 30, 0) if s.case != bench_runs.COPY]
    assert {s.case for s in spoilt if s.is_identical} == {"T(1)"}


@pytest.fixture(scope="module")
def spec_samples(engine: Engine) -> list[bench_runs.Sample]:
    plan = bench_runs.SpecPlan(
        prompt=tuple(random_ids(engine, 25)),
        n=24,
        accept_lens=(1.0, 3.4, 6.0),
        policy=Policy.FIXED,
        repeat=1,
    )
    return list(bench_runs.spec(engine, plan))


def test_every_case_of_spec_runs_once_a_run(spec_samples: list[bench_runs.Sample]) -> None:
    wanted = {
        SHIPPED,
        BARE,
        DRAFTER,
        RACE_PLAIN,
        RACE_SPEC,
        "forced 1",
        "forced 3.4",
        "forced 6",
    }
    assert Counter(s.case for s in spec_samples) == dict.fromkeys(wanted, 2)
    assert spec_samples[0].case != spec_samples[8].case  # another one goes first


def test_forced_accept_lengths_are_reached_and_the_text_is_plain(
    spec_samples: list[bench_runs.Sample],
) -> None:
    for length in (1.0, 3.4, 6.0):
        forced = [s for s in spec_samples if s.case == f"forced {length:g}"]
        for sample in forced:
            assert sample.accept_len == pytest.approx(length, abs=0.25)
            assert sample.facts["draft_s"] > 0  # the drafter ran
            assert sample.n_units >= 24
    for sample in spec_samples:
        assert sample.is_identical is (None if sample.case == BARE else True)


def test_a_race_gives_each_lane_its_own_clock(spec_samples: list[bench_runs.Sample]) -> None:
    for case in (RACE_PLAIN, RACE_SPEC):
        for sample in (s for s in spec_samples if s.case == case):
            assert sample.n_units == 24
            assert sample.seconds > 0


@pytest.mark.parametrize(
    ("accept_len", "wanted"), [(1.0, [0] * 10), (6.0, [5] * 10), (3.5, None), (9.0, [5] * 10)]
)
def test_right_drafts_of_each_round_come_to_the_mean(
    accept_len: float, wanted: list[int] | None
) -> None:
    found = [bench_runs._n_right(i, accept_len, 5) for i in range(10)]
    if wanted is None:
        assert sum(found) / 10 + 1 == pytest.approx(accept_len)
        assert max(found) - min(found) <= 1
    else:
        assert found == wanted
