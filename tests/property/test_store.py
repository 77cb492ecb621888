"""Any conversation survives the disk, and damage costs only what it touches."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds4chat.errors import SessionFileError
from ds4chat.protocol.events import (
    Notice,
    PlainStep,
    PolicyChanged,
    RoundVerified,
    TokensCommitted,
    TurnFinished,
    TurnStarted,
)
from ds4chat.protocol.types import (
    Channel,
    FinishReason,
    Message,
    Role,
    Sampling,
    Source,
    Span,
    SpecState,
    ThinkMode,
    Token,
    Usage,
)
from ds4chat.store import codec, transcripts
from ds4chat.store.export import FORMATS, export
from ds4chat.store.names import check_name, safe_name
from ds4chat.store.records import (
    Entry,
    Header,
    OptionsSet,
    Record,
    SnapshotSaved,
    SnapshotsGone,
    SystemSet,
)
from ds4chat.store.session import Session
from ds4chat.store.transcripts import Reading
from tests.unit.store.test_export import LOOK

WHERE = Path("transcript.jsonl")
TEXTS = st.text(max_size=20)  # lone surrogates too
NUMBERS = st.floats(allow_nan=False)
COUNTS = st.integers(0, 2**40)
TOKENS = st.builds(
    Token,
    id=st.integers(0, 2**31 - 1),
    source=st.sampled_from(Source),
    round=COUNTS,
    position=st.integers(0, 9),
    confidence=st.none() | NUMBERS,
    margin=NUMBERS,
    logit=st.none() | NUMBERS,
)
SPANS = st.lists(st.builds(Span, text=TEXTS, token=TOKENS), max_size=4).map(tuple)
USAGES = st.builds(
    Usage, n_tokens=COUNTS, decode_s=NUMBERS, accept_len=st.none() | NUMBERS,
    by_position=st.lists(st.tuples(COUNTS, COUNTS), max_size=3).map(tuple),
    histogram=st.lists(COUNTS, max_size=3).map(tuple),
)  # fmt: skip


def events(turn_id: int) -> st.SearchStrategy[Any]:
    """One event of a running turn."""
    here = st.just(turn_id)
    return st.one_of(
        st.builds(TurnStarted, turn_id=here, lane=COUNTS, n_prompt=COUNTS, n_cached=COUNTS),
        st.builds(
            TokensCommitted, turn_id=here, channel=st.sampled_from(Channel), spans=SPANS,
            at_s=NUMBERS,
        ),
        st.builds(
            RoundVerified, turn_id=here, round=COUNTS,
            proposal_ids=st.lists(COUNTS, max_size=3).map(tuple),
            proposal_texts=st.lists(TEXTS, max_size=3).map(tuple),
            confidences=st.lists(NUMBERS, max_size=3).map(tuple),
            n_accepted=st.integers(0, 5), draft_s=NUMBERS, verify_s=NUMBERS, decision=TEXTS,
        ),
        st.builds(PlainStep, turn_id=here, step_s=NUMBERS, reason=TEXTS),
        st.builds(
            PolicyChanged, turn_id=st.none() | here, state=st.sampled_from(SpecState),
            reason=TEXTS,
        ),
        st.builds(Notice, turn_id=st.none() | here, level=TEXTS, message=TEXTS, hint=TEXTS),
    )  # fmt: skip


def ends(turn_id: int) -> st.SearchStrategy[TurnFinished]:
    return st.builds(
        TurnFinished, turn_id=st.just(turn_id), reason=st.sampled_from(FinishReason),
        usage=USAGES, ids=st.lists(COUNTS, max_size=3).map(tuple), message=TEXTS, hint=TEXTS,
    )  # fmt: skip


OTHERS: st.SearchStrategy[Record] = st.one_of(
    st.builds(SystemSet, text=TEXTS),
    st.builds(OptionsSet, sampling=st.builds(Sampling, temperature=NUMBERS)),
    st.builds(
        SnapshotSaved, name=st.sampled_from("abc"), n_tokens=COUNTS, token_hash=TEXTS,
        turn_id=st.none() | st.integers(0, 5),
    ),
    st.builds(SnapshotsGone, names=st.just(("a", "b")), why=TEXTS),
)  # fmt: skip


class Log:
    """Keeps a session's lines in memory."""

    is_failing = False

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def append(self, line: bytes, *, sync: bool) -> None:
        self.lines.append(line)

    def retry(self) -> bool:
        return True

    def close(self) -> None:
        pass


class MemorySession(Session):
    """A session that writes to memory."""

    def __init__(self) -> None:
        header = Entry(n=1, at="", record=Header(id="x"))
        data = codec.encode(header)
        super().__init__(WHERE.parent, transcripts.read_bytes(data, WHERE), clock=lambda: "")
        self.log = Log()
        self.log.lines.append(data)
        self._writer = self.log

    @property
    def is_read_only(self) -> bool:
        return False


def _steps(draw: st.DrawFn, session: MemorySession) -> Iterator[None]:
    """Any moves of a person and any reports of an engine."""
    for _ in range(draw(st.integers(0, 8))):
        what = draw(st.sampled_from(["ask", "ask", "ask", "undo", "fork", "goto", "compact",
                                     "other"]))  # fmt: skip
        turns = list(session.tree.turns)
        if what == "ask":
            turn = session.ask(draw(TEXTS), draw(st.sampled_from(ThinkMode)))
            for event in draw(st.lists(events(turn.id), max_size=4)):
                session.report(event)
            if draw(st.integers(0, 5)):
                session.report(draw(ends(turn.id)))
        elif what == "undo" and session.tree.leaf is not None:
            session.undo()
        elif what == "fork":
            session.fork(draw(st.sampled_from([None, *turns])))
        elif what == "goto":
            session.goto(draw(st.sampled_from([*session.tree.branches, *map(str, turns)])))
        elif what == "compact" and len(session.tree.path()) > 1:
            session.compact(draw(st.integers(1, len(session.tree.path()) - 1)))
        elif what == "other":
            session.append(draw(OTHERS))
        yield


@st.composite
def sessions(draw: st.DrawFn) -> MemorySession:
    session = MemorySession()
    for _ in _steps(draw, session):
        pass
    return session


def read(data: bytes) -> Reading:
    return transcripts.read_stream(io.BufferedReader(io.BytesIO(data)), WHERE)


def facts(session: Any) -> tuple[Any, ...]:
    tree = session.tree
    return (
        tree.turns, tree.branches, tree.current, tree.system, tree.options,
        list(tree.snapshots.items()), tree.notices,
    )  # fmt: skip


@given(session=sessions())
@settings(max_examples=60, deadline=None)
def test_any_session_survives_the_disk(session: MemorySession) -> None:
    found = read(b"".join(session.log.lines))
    assert found.problems == []
    assert facts(found) == facts(session)
    assert found.tree.messages() == session.messages()
    assert found.entries == session.entries
    assert session.content() == b"".join(session.log.lines)
    assert found.next_n == len(session.log.lines) + 1


@given(session=sessions())
@settings(max_examples=20, deadline=None)
def test_any_session_can_be_exported(session: MemorySession) -> None:
    for kind in FORMATS:
        export(session.tree, "x", kind, LOOK).encode()


def whole_before(session: MemorySession, n_lines: int) -> dict[int, Any]:
    """Turns that were complete within the first lines."""
    data = b"".join(session.log.lines[:n_lines])
    return {i: t for i, t in read(data).tree.turns.items() if t.finished} if n_lines else {}


@given(session=sessions(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_cut_file_keeps_all_turns_before_the_cut(
    session: MemorySession, data: st.DataObject
) -> None:
    content = b"".join(session.log.lines)
    cut = data.draw(st.integers(0, len(content)))
    n_whole = content[:cut].count(b"\n")
    if not n_whole and cut < len(session.log.lines[0]) - 1:
        with pytest.raises(SessionFileError, match="not a transcript"):
            read(content[:cut])
        return
    found = read(content[:cut])
    assert found.problems == []
    assert found.good_bytes + found.torn_bytes == cut
    for turn_id, turn in whole_before(session, n_whole).items():
        assert found.tree.turns[turn_id].finished == turn.finished
        assert found.tree.turns[turn_id].events[: len(turn.events)] == turn.events


@given(session=sessions(), data=st.data())
@settings(max_examples=80, deadline=None)
def test_flipped_bits_are_noticed_and_cost_no_turn_before_them(
    session: MemorySession, data: st.DataObject
) -> None:
    content = bytearray(b"".join(session.log.lines))
    flips = data.draw(st.lists(st.integers(0, len(content) * 8 - 1), min_size=1, max_size=3,
                               unique=True))  # fmt: skip
    for place in flips:
        content[place // 8] ^= 1 << place % 8
    first_line = bytes(content[: min(flips) // 8]).count(b"\n")
    try:
        found = read(bytes(content))
    except SessionFileError:
        assert first_line == 0 or len(session.log.lines) == 1
        return
    assert found.problems or found.torn_bytes or found.is_unended
    for turn_id, turn in whole_before(session, first_line).items():
        assert found.tree.turns[turn_id].answer == turn.answer
        assert found.tree.turns[turn_id].ids == turn.ids
        assert found.tree.turns[turn_id].finished == turn.finished


@given(session=sessions(), data=st.data())
@settings(max_examples=80, deadline=None)
def test_a_lost_line_never_makes_up_a_conversation(
    session: MemorySession, data: st.DataObject
) -> None:
    """A turn whose text or ids differ from what was said is marked, or its end is missing."""
    lines = session.log.lines
    if len(lines) < 2:
        return
    lost = data.draw(st.integers(1, len(lines) - 1))
    found = read(b"".join([*lines[:lost], b"garbage\n", *lines[lost + 1 :]])).tree
    for turn_id, turn in found.turns.items():
        said = session.tree.turns[turn_id]
        if not turn.damage:
            assert (turn.question, turn.think) == (said.question, said.think)
            assert (turn.answer_text, turn.ids) == (said.answer_text, said.ids)


@given(data=st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    with pytest.raises(SessionFileError, match="not a transcript"):
        read(data)


MESSAGES = st.lists(
    st.tuples(
        TEXTS, st.none() | st.tuples(TEXTS, TEXTS, st.lists(COUNTS, max_size=3).map(tuple)),
        st.sampled_from(ThinkMode),
    ), max_size=5,
)  # fmt: skip


@given(system=st.text(min_size=1, max_size=5) | st.just(""), rows=MESSAGES)
@settings(max_examples=100, deadline=None)
def test_messages_become_a_tree_and_come_back(system: str, rows: list[Any]) -> None:
    messages = [Message(role=Role.SYSTEM, text=system)] if system else []
    for question, reply, think in rows:
        messages.append(Message(role=Role.USER, text=question))
        if reply is not None:
            text, reasoning, ids = reply
            messages.append(
                Message(
                    role=Role.ASSISTANT, text=text, reasoning=reasoning, ids=ids, think=think
                )
            )
    session = MemorySession()
    session.adopt(messages)
    assert session.messages() == tuple(messages)
    assert read(b"".join(session.log.lines)).tree.messages() == tuple(messages)


@given(text=st.text(max_size=60))
@settings(max_examples=300, deadline=None)
def test_a_safe_name_is_always_one(text: str) -> None:
    assert check_name(safe_name(text)) == safe_name(text)
