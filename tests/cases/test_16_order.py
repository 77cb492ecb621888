"""The order in which sessions are opened changes no answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ds4chat.protocol.commands import CloseSession
from ds4chat.protocol.events import Done, SnapshotRestored
from ds4chat.protocol.types import Message, Sampling
from tests.cases.replies import VERY_SMALL
from tests.grammar import TurnLog
from tests.make_pair import make_pair
from tests.unit.engine.test_host_real import Engine as RunningEngine
from tests.unit.engine.test_host_snapshots import Talk

FIRST, THEN, OTHER = "The quick brown", "and then?", "fox jumps over the lazy dog"
N = 12


class Chats:
    """Conversations in one lane of one engine process."""

    def __init__(self, engine: RunningEngine, folder: Path) -> None:
        self.engine = engine
        self.folder = folder

    def begin(self) -> Talk:
        folder = self.folder / str(len(list(self.folder.iterdir())))
        folder.mkdir()
        return Talk(folder)

    def close(self) -> None:
        number = self.engine.number()
        self.engine.link.send(CloseSession(request_id=number, lane=0))
        assert self.engine.answer(number) == Done(request_id=number)


def asked(chats: Chats, talk: Talk, text: str) -> TurnLog:
    return talk.ask(chats.engine, text, N)


def other_chat(chats: Chats, a: Talk) -> None:
    asked(chats, chats.begin(), OTHER)


def other_chat_saved_and_restored(chats: Chats, a: Talk) -> None:
    b = chats.begin()
    asked(chats, b, OTHER)
    b.save(chats.engine, "t0")
    chats.close()
    assert isinstance(b.restore(chats.engine, "t0"), SnapshotRestored)
    asked(chats, b, THEN)


def same_beginning(chats: Chats, a: Talk) -> None:
    """B asks what A asked first: its cache could be taken for A's."""
    b = chats.begin()
    asked(chats, b, FIRST)
    asked(chats, b, OTHER)


def short_chat(chats: Chats, a: Talk) -> None:
    """B is shorter than A: its length alone could pass for a beginning of A's."""
    asked(chats, chats.begin(), "x")


def other_sampling(chats: Chats, a: Talk) -> None:
    chats.engine.reply(OTHER, sampling=Sampling(temperature=1.5, seed=99), max_tokens=N)


def broken_restore(chats: Chats, a: Talk) -> None:
    """Another chat is to be opened, and cannot be."""
    b = chats.begin()
    b.messages = [Message(role=a.messages[0].role, text=OTHER)]
    assert not isinstance(b.restore(chats.engine, "t0"), SnapshotRestored)


Between = Callable[[Chats, Talk], None]
BETWEEN: list[Between] = [
    other_chat, other_chat_saved_and_restored, same_beginning, other_sampling, broken_restore,
]  # fmt: skip


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chats]:
    folder = tmp_path_factory.mktemp("chats")
    engine = RunningEngine(
        make_pair(tmp_path_factory.mktemp("pair"), seed=31, **VERY_SMALL), folder
    )
    engine.start()
    yield Chats(engine, folder)
    engine.link.close()


@pytest.fixture(scope="module")
def wanted(chats: Chats) -> TurnLog:
    """A's second answer, never having left A."""
    a = chats.begin()
    asked(chats, a, FIRST)
    log = asked(chats, a, THEN)
    assert len(log.end.ids) == N
    return log


@pytest.mark.parametrize("between", BETWEEN, ids=lambda f: f.__name__)
def test_returning_to_a_chat_finds_it_as_if_no_other_had_been_opened(
    chats: Chats, wanted: TurnLog, between: Between
) -> None:
    """Save A, open B, return to A, ask."""
    chats.close()
    a = chats.begin()
    asked(chats, a, FIRST)
    held = a.save(chats.engine, "t0").n_tokens
    between(chats, a)
    found = a.restore(chats.engine, "t0")
    assert isinstance(found, SnapshotRestored)
    log = asked(chats, a, THEN)
    assert log.started.n_cached == held
    assert log.tokens == wanted.tokens


@pytest.mark.parametrize("between", [short_chat, same_beginning], ids=lambda f: f.__name__)
def test_without_a_snapshot_it_is_read_again_and_equal(chats: Chats, between: Between) -> None:
    """Nobody restored A: what the lane holds of B must not count as A's."""
    a = chats.begin()
    asked(chats, a, FIRST)
    chats.close()
    read_again = asked(chats, a, THEN).end.ids
    a.messages = a.messages[:2]
    between(chats, a)
    assert asked(chats, a, THEN).end.ids == read_again
