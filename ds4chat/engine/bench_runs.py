"""Timed runs over the engine, for benchmarks: each yields one sample after the other.

A caller may stop between two samples and still has those before. Nothing here decides what is
fast enough; the first sample of every case is a warm-up and says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from ds4chat.engine.copies import copy_once
from ds4chat.engine.engine import Engine
from ds4chat.engine.expert_reads import expert_bytes
from ds4chat.engine.graph_count import step_count
from ds4chat.engine.runner import Runner, Timeline
from ds4chat.engine.session import Session
from ds4chat.model.kv import MAX_ROWS
from ds4chat.protocol.types import Policy, SpecOptions

Clock = Callable[[], float]

_COPIED_BYTES = (1 << 30, 64 << 20)  # on a GPU, on a CPU
SHIPPED = "plain"
BARE = "plain, no draft rows"
LOOSE = "plain, no draft rows, rows not exact"
UNRECORDED = "plain, no draft rows, each launch through MLX"
COPY = "copies of memory"
RACE_PLAIN, RACE_SPEC = "plain, in a race", "speculative, in a race"
DRAFTER = "speculative"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One timed run of `n_units` (tokens, or passes for `verify`)."""

    case: str
    run: int  # 0: the warm-up
    n_units: int
    seconds: float
    accept_len: float | None = None
    is_identical: bool | None = None  # to the plain text, or the single rows; None: not asked
    facts: dict[str, float] = field(default_factory=dict)

    @property
    def is_warm_up(self) -> bool:
        """Whether it only made things ready."""
        return self.run == 0


def some_ids(engine: Engine, n: int) -> list[int]:
    """`n` token ids without an end among them, the same at every call."""
    usable = [i for i in range(engine.info.n_vocab) if i not in engine.end_ids]
    return [usable[(i * 7919 + 13) % len(usable)] for i in range(n)]


def prefill(
    engine: Engine, sizes: Sequence[int], repeat: int, clock: Clock = time.perf_counter
) -> Iterator[Sample]:
    """Read prompts of given sizes into fresh sessions."""
    for run in range(repeat + 1):
        for size in sizes:
            session = engine.session()
            start = clock()
            session.sync(some_ids(engine, size))
            seconds = clock() - start
            session.close()
            yield Sample(case=f"prefill {size}", run=run, n_units=size, seconds=seconds)


def decode(
    engine: Engine, context: int, n: int, repeat: int, clock: Clock = time.perf_counter
) -> Iterator[Sample]:
    """Plain decoding behind `context` tokens on every plain path of this build, in turn.

    One path is not exact: it is there so that nobody has to believe that the plain path was
    slowed down to look good beside it. Where passes are recorded, the last path is the one
    without.
    """
    held = engine.session()
    held.sync(some_ids(engine, context))
    target = engine.runner.target
    paths = {
        BARE: engine.runner.without_drafter(),
        LOOSE: Runner(target, None, is_row_exact=False),
    }
    if engine.runner.recorded is not None:
        paths[UNRECORDED] = Runner(target, None, is_row_exact=True)
    counted = step_count(engine.runner, held.timeline, held.choose())
    facts: dict[str, float] = {"nodes": counted.nodes, "launches": counted.launches}
    for run in range(repeat + 1):
        session = copy_of(engine, held)
        seconds = _timed(clock, partial(_steps, session, n))
        session.close()
        yield Sample(case=SHIPPED, run=run, n_units=n, seconds=seconds, facts=facts)
        for case, runner in paths.items():
            timeline = _without_drafts(runner, held)
            first = held.choose()
            work = _loose_steps if case == LOOSE else _bare_steps
            seconds = _timed(clock, partial(work, runner, timeline, first, n))
            yield Sample(case=case, run=run, n_units=n, seconds=seconds)


def verify(
    engine: Engine, context: int, repeat: int, clock: Clock = time.perf_counter
) -> Iterator[Sample]:
    """T(1) .. T(8): passes over so many rows behind `context` tokens, nothing committed.

    `is_identical`: each row has the bits of a pass over it alone. Each comes with the bytes of
    the experts that its rows choose; how fast memory is copied is measured beside them.
    """
    target, drafter = engine.runner.target, engine.runner.drafter
    recorded = engine.runner.recorded
    runner = Runner(target, drafter, is_row_exact=True, recorded=recorded)
    ids = some_ids(engine, context + MAX_ROWS)
    rows = ids[context:]
    timeline, single = runner.new_timeline(), runner.new_timeline()
    for log in (timeline, single):
        for _ in runner.prefill(log, ids[:context]):
            pass
    if recorded is not None:
        for k in range(MAX_ROWS, 0, -1):  # the longest first: it makes room for all
            for _ in range(recorded.uses_before(k) + 1):
                runner.evaluate_rows(timeline, rows[:k])
    alone = []
    for token in rows:
        alone.append(runner.evaluate_rows(single, [token])[0])
        single.log.n += 1
    read = expert_bytes(target, timeline, rows)
    sizes = list(range(1, MAX_ROWS + 1))
    for run in range(repeat + 1):
        copied, copy_s = copy_once(_COPIED_BYTES[engine.info.backend == "cpu"], clock)
        yield Sample(case=COPY, run=run, n_units=copied, seconds=copy_s)
        runner.evaluate_rows(timeline, rows[:1])  # after the copy the caches are cold
        first = (run - 1) % MAX_ROWS  # another one in each run
        for k in sizes[first:] + sizes[:first]:
            start = clock()
            found = runner.evaluate_rows(timeline, rows[:k])
            seconds = clock() - start
            same = all(found[i].tobytes() == alone[i].tobytes() for i in range(k))
            yield Sample(
                case=f"T({k})", run=run, n_units=1, seconds=seconds, is_identical=same,
                facts={"expert_bytes": read[k - 1]},
            )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecPlan:
    """What `spec` runs: `n` tokens behind `prompt`, at given accept lengths and for real."""

    prompt: tuple[int, ...]
    n: int
    accept_lens: tuple[float, ...]
    policy: Policy
    repeat: int


def forced_name(accept_len: float) -> str:
    """The case of a given accept length."""
    return f"forced {accept_len:g}"


def spec(engine: Engine, plan: SpecPlan, clock: Clock = time.perf_counter) -> Iterator[Sample]:
    """Plain and speculative decoding of one text, in turn within each run.

    A forced accept length is reached through given proposals; the drafter runs all the same
    and its time counts. The cases of a race run both lanes in turn, each on its own clock.

    Raises:
        ContextFullError: prompt and text do not fit into the context.
    """
    held = engine.session()
    held.sync(plan.prompt)
    block = min(engine.info.block_size, MAX_ROWS - 1)
    truth = _decode_plainly(copy_of(engine, held), plan.n + block + 1)
    bench = _SpecBench(engine, held, truth, plan, clock)
    for run in range(plan.repeat + 1):
        cases: list[Callable[[int], Sequence[Sample]]] = [bench.plain, bench.bare, bench.real]
        cases += [
            partial(bench.forced, accept_len=length, block=block) for length in plan.accept_lens
        ]
        cases.append(bench.race)
        for case in cases[run % len(cases) :] + cases[: run % len(cases)]:
            yield from case(run)


class _SpecBench:
    """The cases of `spec`: each begins with a copy of the same state."""

    def __init__(
        self, engine: Engine, held: Session, truth: list[int], plan: SpecPlan, clock: Clock
    ) -> None:
        self._engine = engine
        self._held = held
        self._truth = truth
        self._plan = plan
        self._clock = clock
        self._bare = engine.runner.without_drafter()

    def plain(self, run: int) -> Sequence[Sample]:
        """Plain decoding as the chat does it."""
        session = self._begin()
        seconds = _timed(self._clock, lambda: _steps(session, self._plan.n))
        return [self._sample(SHIPPED, run, session, seconds)]

    def bare(self, run: int) -> Sequence[Sample]:
        """Plain decoding without keeping the drafter's rows."""
        timeline, first = _without_drafts(self._bare, self._held), self._held.choose()
        n = self._plan.n
        seconds = _timed(self._clock, lambda: _bare_steps(self._bare, timeline, first, n))
        return [Sample(case=BARE, run=run, n_units=n, seconds=seconds)]

    def real(self, run: int) -> Sequence[Sample]:
        """Speculation as the chat does it."""
        session = self._begin()
        tally = _Tally()

        def work() -> None:
            while (left := self._left(session)) > 0:
                session.speculate(session.choose(), left)
                tally.note(session)

        return [self._sample(DRAFTER, run, session, _timed(self._clock, work), tally)]

    def forced(self, run: int, accept_len: float, block: int) -> Sequence[Sample]:
        """Rounds that come to a given accept length."""
        session = self._begin()
        tally = _Tally()

        def work() -> None:
            while (left := self._left(session)) > 0:
                at = session.n - self._held.n
                n_right = _n_right(tally.n_rounds, accept_len, block)
                proposal = self._proposal(at, n_right, block)
                session.speculate(self._truth[at], left + block, proposal=proposal)
                tally.note(session)

        name = forced_name(accept_len)
        return [self._sample(name, run, session, _timed(self._clock, work), tally)]

    def race(self, run: int) -> Sequence[Sample]:
        """Both lanes in turn: always the one that has used less time."""
        plain, quick = copy_of(self._engine, self._held, drafts=False), self._begin()
        clocks = {id(plain): 0.0, id(quick): 0.0}
        tally = _Tally()
        while todo := [s for s in (quick, plain) if self._left(s) > 0]:
            session = min(todo, key=lambda s: clocks[id(s)])
            start = self._clock()
            if session is plain:
                session.step(session.choose())
            else:
                session.speculate(session.choose(), self._left(session))
                tally.note(session)
            clocks[id(session)] += self._clock() - start
        return [
            self._sample(RACE_PLAIN, run, plain, clocks[id(plain)]),
            self._sample(RACE_SPEC, run, quick, clocks[id(quick)], tally),
        ]

    def _begin(self) -> Session:
        session = copy_of(self._engine, self._held)
        session.set_spec(SpecOptions(policy=self._plan.policy))
        session.begin_request()
        return session

    def _left(self, session: Session) -> int:
        return self._plan.n - (session.n - self._held.n)

    def _proposal(self, at: int, n_right: int, block: int) -> list[int]:
        """Drafts behind token `at` of which `n_right` are the target's own."""
        drafts = self._truth[at + 1 : at + 1 + block]
        n_vocab = self._engine.info.n_vocab
        wrong = [(token + 1) % n_vocab for token in drafts[n_right:]]
        return drafts[:n_right] + wrong

    def _sample(
        self,
        case: str,
        run: int,
        session: Session,
        seconds: float,
        tally: _Tally | None = None,
    ) -> Sample:
        made = list(session.ids[self._held.n :])
        session.close()
        return Sample(
            case=case,
            run=run,
            n_units=len(made),
            seconds=seconds,
            accept_len=tally.accept_len if tally is not None else None,
            is_identical=made == self._truth[: len(made)],
            facts=tally.facts() if tally is not None else {},
        )


@dataclass(slots=True)
class _Tally:
    """Sums over the rounds of one run."""

    n_rounds: int = 0
    n_accepted: int = 0
    n_plain: int = 0
    draft_s: float = 0.0
    verify_s: float = 0.0

    def note(self, session: Session) -> None:
        """Take in the session's last round."""
        report = session.last_report
        assert report is not None
        self.draft_s += report.draft_s
        if report.round == 0:
            self.n_plain += 1
            return
        self.n_rounds += 1
        self.n_accepted += report.n_accepted
        self.verify_s += report.verify_s

    @property
    def accept_len(self) -> float | None:
        """Mean of accepted + 1."""
        return self.n_accepted / self.n_rounds + 1 if self.n_rounds else None

    def facts(self) -> dict[str, float]:
        """Counts, and seconds in all."""
        return {
            "n_rounds": self.n_rounds,
            "n_plain_steps": self.n_plain,
            "draft_s": self.draft_s,
            "verify_s": self.verify_s,
        }


def copy_of(engine: Engine, source: Session, *, drafts: bool = True) -> Session:
    """A session in the same state, bit for bit; the source is not touched.

    Without `drafts` it has no rows for the drafter and decodes plainly for good.
    """
    runner = engine.runner if drafts else engine.runner.without_drafter()
    timeline = runner.new_timeline()
    timeline.restore(source.n, source.timeline.logical_state())
    session = engine.session(drafts=drafts)
    session.resume(source.head(), timeline)
    return session


def _without_drafts(runner: Runner, source: Session) -> Timeline:
    timeline = runner.new_timeline()
    timeline.restore(source.n, source.timeline.logical_state())
    return timeline


def _n_right(i: int, accept_len: float, block: int) -> int:
    """Right drafts of round i, so that the mean of right + 1 comes to `accept_len`."""
    right = accept_len - 1
    return min(block, max(0, round((i + 1) * right) - round(i * right)))


def _timed(clock: Clock, work: Callable[[], object]) -> float:
    start = clock()
    work()
    return clock() - start


def _steps(session: Session, n: int) -> None:
    for _ in range(n):
        session.step(session.choose())


def _bare_steps(runner: Runner, timeline: Timeline, first: int, n: int) -> None:
    token = first
    for _ in range(n):
        row = runner.evaluate_rows(timeline, [token])[0]
        timeline.log.n += 1
        token = int(row.argmax())


def _loose_steps(runner: Runner, timeline: Timeline, first: int, n: int) -> None:
    token = first
    for _ in range(n):
        for _, row in runner.prefill(timeline, [token]):
            token = int(row.argmax())


def _decode_plainly(session: Session, n: int) -> list[int]:
    _steps(session, n)
    made = list(session.ids[-n:])
    session.close()
    return made
