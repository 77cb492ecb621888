"""Sessions across engine processes: saved by one, continued by the next, bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ds4chat.formats.safetensors import decode
from ds4chat.protocol.commands import RestoreSnapshot, SaveSnapshot, Submit
from ds4chat.protocol.events import Done, Refused, SnapshotRestored, SnapshotSaved, TurnFinished
from ds4chat.protocol.types import Message, Role, Sampling, ThinkMode, Token
from ds4chat.store.snapshots import token_hash
from tests.grammar import TurnLog, read_turns
from tests.make_pair import PairPaths, make_pair
from tests.unit.engine.test_host_real import FIXED, Engine

WARM = Sampling(temperature=0.7, seed=11)
QUESTIONS = ("The quick brown", "fox jumps over", "the lazy dog")

OpenEngine = Callable[[], Engine]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    return make_pair(tmp_path_factory.mktemp("pair"), seed=31)


@pytest.fixture
def open_engine(pair: PairPaths, tmp_path: Path) -> Iterator[OpenEngine]:
    made: list[Engine] = []

    def start() -> Engine:
        engine = Engine(pair, tmp_path)
        engine.start()
        made.append(engine)
        return engine

    yield start
    for engine in made:
        engine.link.close()


class Talk:
    """A conversation that any engine can go on with."""

    def __init__(self, folder: Path, think: ThinkMode = ThinkMode.OFF) -> None:
        self.folder = folder
        self.think = think
        self.messages: list[Message] = []
        self.logs: list[TurnLog] = []

    def ask(self, engine: Engine, text: str, n: int = 90) -> TurnLog:
        question = Message(role=Role.USER, text=text)
        number = engine.number()
        engine.link.send(
            Submit(
                request_id=number, turn_id=number, messages=(*self.messages, question),
                sampling=WARM, spec=FIXED, max_tokens=n, think=self.think,
            )
        )  # fmt: skip
        engine.until(lambda e: isinstance(e, TurnFinished) and e.turn_id == number)
        log = read_turns(engine.events)[number]
        reply = Message(
            role=Role.ASSISTANT, text=log.answer, reasoning=log.thinking, ids=log.end.ids,
            think=self.think,
        )  # fmt: skip
        self.messages += [question, reply]
        self.logs.append(log)
        return log

    def save(self, engine: Engine, name: str, *, before_reply: bool = False) -> SnapshotSaved:
        number = engine.number()
        engine.link.send(
            SaveSnapshot(
                request_id=number, folder=str(self.folder), name=name, before_reply=before_reply
            )
        )
        assert engine.answer(number) == Done(request_id=number)
        saved = [event for event in engine.events if isinstance(event, SnapshotSaved)]
        assert saved[-1].name == name
        return saved[-1]

    def restore(self, engine: Engine, *names: str) -> SnapshotRestored | Refused:
        number = engine.number()
        engine.link.send(
            RestoreSnapshot(
                request_id=number, folder=str(self.folder), names=names,
                messages=tuple(self.messages), think=self.think,
            )
        )  # fmt: skip
        answer = engine.answer(number)
        if isinstance(answer, Refused):
            return answer
        return [event for event in engine.events if isinstance(event, SnapshotRestored)][-1]


def provenance(log: TurnLog) -> list[Token]:
    """The tokens with source, round, place, confidence, margin and logit."""
    return log.tokens


def test_quit_and_resumed_is_the_uninterrupted_chat(
    open_engine: OpenEngine, tmp_path: Path
) -> None:
    whole = Talk(tmp_path / "never")
    engine = open_engine()
    for text in QUESTIONS:
        whole.ask(engine, text)
    engine.link.close()

    talk = Talk(tmp_path / "snapshots")
    engine = open_engine()
    for place, text in enumerate(QUESTIONS[:2]):
        log = talk.ask(engine, text)
        saved = talk.save(engine, f"t{place}")
    n_held = log.started.n_prompt + len(log.end.ids)
    assert saved.n_tokens == n_held
    assert saved.parent == "t0"
    engine.link.close()

    engine = open_engine()
    found = talk.restore(engine, "t1", "t0")
    assert isinstance(found, SnapshotRestored)
    assert (found.name, found.n_tokens, found.notices) == ("t1", n_held, ())
    log = talk.ask(engine, QUESTIONS[2])
    assert log.started.n_cached == n_held
    assert provenance(log) == provenance(whole.logs[2])
    assert [dataclasses.astuple(r)[1:6] for r in log.rounds] == [
        dataclasses.astuple(r)[1:6] for r in whole.logs[2].rounds
    ]
    assert any(token.confidence is not None for token in log.tokens), "nothing was accepted"


def test_reasoning_that_is_not_sent_again_costs_no_prompt(
    open_engine: OpenEngine, tmp_path: Path
) -> None:
    whole = Talk(tmp_path / "never", ThinkMode.HIGH)
    engine = open_engine()
    for text in QUESTIONS[:2]:
        whole.ask(engine, text, 40)
    engine.link.close()

    talk = Talk(tmp_path / "snapshots", ThinkMode.HIGH)
    engine = open_engine()
    talk.ask(engine, QUESTIONS[0], 40)
    assert talk.logs[0].thinking
    talk.save(engine, "whole")
    mark = talk.save(engine, "mark", before_reply=True)
    assert mark.n_tokens == talk.logs[0].started.n_prompt - 1
    log = talk.ask(engine, QUESTIONS[1], 40)
    assert provenance(log) == provenance(whole.logs[1]), "saving changed the state"
    engine.link.close()

    del talk.messages[2:]
    engine = open_engine()
    found = talk.restore(engine, "whole", "mark")
    assert isinstance(found, SnapshotRestored)
    assert found.name == "mark"
    log = talk.ask(engine, QUESTIONS[1], 40)
    assert log.started.n_cached == whole.logs[1].started.n_cached == mark.n_tokens
    assert provenance(log) == provenance(whole.logs[1])


def test_a_snapshot_of_another_conversation_is_refused_and_the_lane_kept(
    open_engine: OpenEngine, tmp_path: Path
) -> None:
    engine = open_engine()
    other, talk = Talk(tmp_path / "s"), Talk(tmp_path / "s")
    other.ask(engine, "Something else", 8)
    other.save(engine, "other")
    log = talk.ask(engine, QUESTIONS[0], 8)
    found = talk.restore(engine, "other", "missing")
    assert isinstance(found, Refused)
    assert "not the beginning of this conversation" in found.message
    n_held = log.started.n_prompt + len(log.end.ids)
    assert talk.ask(engine, QUESTIONS[1], 8).started.n_cached == n_held


def test_another_model_is_refused_with_both_values(
    open_engine: OpenEngine, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    engine = open_engine()
    talk = Talk(tmp_path / "s")
    talk.ask(engine, QUESTIONS[0], 8)
    talk.save(engine, "t0")
    first = engine.info.fingerprint
    engine.pair = make_pair(tmp_path_factory.mktemp("other"), seed=32)
    engine.events.clear()
    engine.load()
    found = talk.restore(engine, "t0")
    assert isinstance(found, Refused)
    assert first[:8] in found.message
    assert engine.info.fingerprint[:8] in found.message


def test_an_empty_lane_has_nothing_to_save(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    number = engine.number()
    engine.link.send(SaveSnapshot(request_id=number, folder=str(tmp_path / "s"), name="x"))
    answer = engine.answer(number)
    assert isinstance(answer, Refused)
    assert "nothing that could be saved" in answer.message
    assert not (tmp_path / "s").exists()


def test_hash_and_size_are_those_of_the_files(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    talk = Talk(tmp_path / "s")
    talk.ask(engine, QUESTIONS[0], 8)
    saved = talk.save(engine, "t0")
    (path,) = (tmp_path / "s").glob("*.safetensors")
    ids = [int(i) for i in decode(path.read_bytes(), path.name).tensors["ids"].data]
    assert saved.token_hash == token_hash(ids)
    assert (saved.n_tokens, saved.n_bytes) == (len(ids), path.stat().st_size)


def test_the_first_save_removes_what_a_killed_engine_left(
    open_engine: OpenEngine, tmp_path: Path
) -> None:
    one, talk = open_engine(), Talk(tmp_path / "s")
    talk.ask(one, QUESTIONS[0], 8)
    talk.save(one, "t0")
    kept = {path.name for path in talk.folder.iterdir()}
    left = ["t1.data.tmp", "t1.json.tmp", f"{'0' * 32}.safetensors"]
    for name in left:
        (talk.folder / name).write_bytes(b"half")
    (talk.folder / "notes.txt").touch()  # not ours
    two = open_engine()
    assert isinstance(talk.restore(two, "t0"), SnapshotRestored)
    talk.ask(two, QUESTIONS[1], 8)
    talk.save(two, "t1")
    there = {path.name for path in talk.folder.iterdir()}
    assert not there & set(left)
    assert there > kept | {"t1.json", "notes.txt"}
