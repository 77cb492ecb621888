"""The drafter after a gap: it proposes what it would have proposed without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ds4chat.engine.engine import Engine
from ds4chat.engine.session import Session
from ds4chat.engine.snapshot_files import DiskFiles
from ds4chat.engine.snapshots import restore, take, write
from tests.cases.replies import FIXED, PLAIN, open_small
from tests.engines import differing, random_ids, spec_tokens

N_PROMPT = 140
N_BEFORE = 10
Gap = Callable[[Engine, Path], Session]


class Stop(Exception):
    """Cancels a prefill."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_small(tmp_path_factory.mktemp("pair")) as opened:
        yield opened


def prompted(engine: Engine) -> Session:
    session = engine.session()
    session.sync(random_ids(engine, N_PROMPT))
    return session


def saved_and_resumed(engine: Engine, folder: Path) -> Session:
    session = prompted(engine)
    spec_tokens(session, N_BEFORE)
    write(take(engine, session, folder), "one", DiskFiles())
    session.close()
    return restore(engine, folder, "one").session


def paused_speculation(engine: Engine, folder: Path) -> Session:
    """Plain steps are read by the drafter too."""
    session = prompted(engine)
    session.set_spec(PLAIN)
    spec_tokens(session, N_BEFORE)
    session.set_spec(FIXED)
    return session


def cancelled_prefill(engine: Engine, folder: Path) -> Session:
    """Stopped before the last token of the prompt, then asked again."""
    session = engine.session()

    def cancel(done: int, total: int) -> None:
        if done:
            raise Stop

    with pytest.raises(Stop):
        session.sync(random_ids(engine, N_PROMPT), progress=cancel)
    assert session.n == N_PROMPT - 1
    session.sync(random_ids(engine, N_PROMPT))
    spec_tokens(session, N_BEFORE)
    return session


def gone_back(engine: Engine, folder: Path) -> Session:
    """A long reply is taken back and the question asked again."""
    session = prompted(engine)
    session.sync([*random_ids(engine, N_PROMPT), *random_ids(engine, 200, seed=6)])
    spec_tokens(session, 9)
    assert session.sync(random_ids(engine, N_PROMPT)) == N_PROMPT - 1
    spec_tokens(session, N_BEFORE)
    return session


def another_chat_between(engine: Engine, folder: Path) -> Session:
    """Saved, the lane used for something else, restored."""
    session = prompted(engine)
    spec_tokens(session, N_BEFORE)
    write(take(engine, session, folder), "one", DiskFiles())
    session.sync(random_ids(engine, 90, seed=8))
    spec_tokens(session, 9)
    return restore(engine, folder, "one").session


def rejected_drafts(engine: Engine, folder: Path) -> Session:
    session = prompted(engine)
    while session.n < N_PROMPT + N_BEFORE:
        session.speculate(session.choose(), 6, proposal=[3, 4, 5, 6, 7])
    return session


GAPS = [
    saved_and_resumed, paused_speculation, cancelled_prefill, gone_back, another_chat_between,
    rejected_drafts,
]  # fmt: skip


@pytest.mark.parametrize("gap", GAPS)
def test_proposals_after_a_gap_are_those_without(
    engine: Engine, tmp_path: Path, gap: Gap
) -> None:
    whole, after = prompted(engine), gap(engine, tmp_path)
    spec_tokens(whole, N_BEFORE)
    assert differing(whole, after) == []
    for _ in range(3):
        after.poison()
        made = [s.speculate(s.choose(), 64) for s in (whole, after)]
        one, two = whole.last_report, after.last_report
        assert one is not None
        assert two is not None
        assert len(one.proposal) == 5
        assert (one.proposal, one.confidences) == (two.proposal, two.confidences)
        assert [t.id for t in made[0]] == [t.id for t in made[1]]


def test_left_resumed_and_continued_for_200_tokens(engine: Engine, tmp_path: Path) -> None:
    never_left, left = prompted(engine), prompted(engine)
    spec_tokens(never_left, 30)
    spec_tokens(left, 30)
    write(take(engine, left, tmp_path), "one", DiskFiles())
    left.close()
    resumed = restore(engine, tmp_path, "one").session
    counts = []
    texts = []
    for session in (never_left, resumed):
        n_accepted, tokens = 0, list[int]()
        while len(tokens) < 200:
            tokens += [t.id for t in session.speculate(session.choose(), 200 - len(tokens))]
            assert session.last_report is not None
            n_accepted += session.last_report.n_accepted
        texts.append(tokens)
        counts.append(n_accepted)
    assert texts[0] == texts[1]
    assert counts[0] == counts[1]
    assert differing(never_left, resumed) == []
