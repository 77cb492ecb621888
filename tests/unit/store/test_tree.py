from __future__ import annotations

from pathlib import Path

import pytest

from ds4chat.errors import SessionFileError
from ds4chat.protocol.types import Message, Role, ThinkMode
from ds4chat.store import moves
from ds4chat.store.library import Library
from ds4chat.store.records import (
    Asked,
    BranchRenamed,
    Entry,
    Forked,
    OptionsSet,
    Record,
    Undone,
    WentTo,
)
from ds4chat.store.session import Session
from ds4chat.store.tree import Tree, tree_of
from tests.unit.store import build


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Library(tmp_path, clock=build.clock()).create("a")


def ids(session: Session, branch: str | None = None) -> list[int]:
    return [turn.id for turn in session.tree.path(branch)]


def test_fork_leaves_the_original_alone(session: Session) -> None:
    for question in ("a", "b", "c"):
        build.say(session, question)
    session.fork(1, "other")
    build.say(session, "d")
    assert ids(session) == [1, 4]
    assert ids(session, "main") == [1, 2, 3]
    session.goto("main")
    assert ids(session) == [1, 2, 3]
    assert [turn.id for turn in session.tree.children(1)] == [2, 4]


def test_undo_keeps_the_turn_in_the_tree(session: Session) -> None:
    build.say(session, "a")
    build.say(session, "b")
    assert session.undo().question == "b"
    assert ids(session) == [1]
    assert [turn.id for turn in session.tree.taken_back()] == [2]
    session.goto("2")
    assert ids(session) == [1, 2]
    assert session.tree.current == "branch-2"


def test_retry_makes_a_sibling(session: Session) -> None:
    build.say(session, "a")
    question = session.undo().question
    build.say(session, question)
    assert ids(session) == [2]
    assert session.tree.turns[2].parent is None


def test_undo_of_nothing_is_refused(session: Session) -> None:
    with pytest.raises(SessionFileError, match="nothing to undo"):
        session.undo()


def test_edit_asks_an_old_turn_otherwise(session: Session) -> None:
    for question in ("a", "b", "c"):
        build.say(session, question)
    turn = session.edit(2, "B", ThinkMode.LOW)
    assert (turn.parent, turn.question) == (1, "B")
    assert ids(session) == [1, 4]
    first = session.edit(1, "A", ThinkMode.OFF)
    assert first.parent is None


def test_compact_sends_only_the_newest_turns(session: Session) -> None:
    for question in ("a", "b", "c"):
        build.say(session, question)
    session.compact(2)
    build.say(session, "d")
    assert ids(session) == [2, 3, 4]
    assert ids(session, "main") == [1, 2, 3]
    session.fork(3)
    assert ids(session) == [2, 3]
    session.fork(1)
    assert ids(session) == [1]
    session.goto("branch-2")
    for _ in range(3):
        session.undo()
    assert ids(session) == []


@pytest.mark.parametrize("n_keep", [0, 2, 9, -1])
def test_compact_refuses_what_makes_no_sense(session: Session, n_keep: int) -> None:
    build.say(session, "a")
    build.say(session, "b")
    with pytest.raises(SessionFileError, match="cannot be kept"):
        session.compact(n_keep)


def test_the_system_text_goes_with_the_branch(session: Session) -> None:
    session.set_system("old")
    build.say(session, "a")
    session.fork(1, "new")
    session.set_system("new")
    build.say(session, "b")
    session.goto("main")
    assert session.messages()[0] == Message(role=Role.SYSTEM, text="old")
    session.goto("new")
    assert session.messages()[0] == Message(role=Role.SYSTEM, text="new")


def test_messages_are_what_the_chat_sends(session: Session) -> None:
    session.set_system("Be brief.")
    build.talk(session, "Sum?", ThinkMode.HIGH)
    session.ask("And?", ThinkMode.OFF)
    system, question, reply, last = session.messages()
    assert system == Message(role=Role.SYSTEM, text="Be brief.")
    assert question == Message(role=Role.USER, text="Sum?")
    assert (reply.text, reply.reasoning) == (build.ANSWER, build.THINKING)
    assert reply.think is ThinkMode.HIGH
    assert reply.ids == tuple(span.token.id for span in session.tree.turns[1].spans())
    assert last == Message(role=Role.USER, text="And?")


def test_ids_of_another_vocabulary_are_left_out(session: Session) -> None:
    session.set_options(OptionsSet(model=build.SCRIPT.info))
    build.say(session, "a")
    assert session.messages(build.SCRIPT.info.n_vocab)[1].ids == (0, 1)
    assert session.messages(512)[1].ids == ()
    assert session.messages(512)[1].text == session.messages()[1].text


CONVERSATION = (
    Message(role=Role.SYSTEM, text="s"),
    Message(role=Role.USER, text="a"),
    Message(role=Role.USER, text="b"),
    Message(role=Role.ASSISTANT, text="", reasoning="r", ids=(1, 2), think=ThinkMode.MAX),
    Message(role=Role.USER, text="c"),
)


def test_a_conversation_from_elsewhere_comes_back(session: Session) -> None:
    session.adopt(CONVERSATION)
    assert session.messages() == CONVERSATION


@pytest.mark.parametrize("place", [Role.ASSISTANT, Role.SYSTEM])
def test_a_conversation_out_of_order_is_refused(session: Session, place: Role) -> None:
    wrong = (Message(role=Role.USER, text="a"), *(Message(role=place, text="x"),) * 2)
    with pytest.raises(SessionFileError, match="cannot stand there"):
        session.adopt(wrong)


def test_turn_numbers_of_the_chat_are_taken(session: Session) -> None:
    assert session.ask("a", ThinkMode.OFF, 5).id == 5
    assert session.ask("b", ThinkMode.OFF).id == 6
    with pytest.raises(SessionFileError, match="turn 6"):
        session.ask("c", ThinkMode.OFF, 6)


def test_a_broken_off_reply_keeps_its_text(session: Session) -> None:
    session.ask("a", ThinkMode.OFF)
    session.report(build.tokens(1, "half an answer"))
    session.break_off("the engine died")
    turn = session.tree.turns[1]
    assert turn.finished is not None
    assert turn.finished.ids == (0, 1, 2)
    assert session.messages()[1].text == "halfananswer"
    session.break_off("again")
    assert turn.finished.message == "the engine died"


def test_goto_names_the_nearest_branch(session: Session) -> None:
    session.fork(None, "recipes")
    for where in ("recipe", "99", "²", "-1", "1" * 5000):
        with pytest.raises(SessionFileError, match="no branch or turn"):
            session.goto(where)
    with pytest.raises(SessionFileError) as caught:
        session.goto("recipe")
    assert "recipes" in caught.value.hint


@pytest.mark.parametrize(
    "name", ["main", " main ", "12", "a\nb", "\x1b[31m", "x" * 81, "  ", "\u202ex"]
)
def test_branch_names_are_checked(session: Session, name: str) -> None:
    with pytest.raises(SessionFileError):
        session.fork(None, name)
    with pytest.raises(SessionFileError):
        session.rename_branch(name)


def test_a_branch_can_be_renamed(session: Session) -> None:
    build.say(session, "a")
    session.rename_branch("trunk")
    build.say(session, "b")
    assert ids(session, "trunk") == [1, 2]
    assert session.tree.current == "trunk"


def bare(*records: Record) -> Tree:
    return tree_of([Entry(n=n, at="", record=r) for n, r in enumerate(records, start=1)])


@pytest.mark.parametrize(
    "record",
    [
        Asked(turn_id=1, parent=None, text="again"),
        Asked(turn_id=2, parent=3, text="before its parent"),
        Asked(turn_id=2, parent=2, text="its own parent"),
        Forked(branch="main", base="main", leaf=None),
        Forked(branch="b", base="main", leaf=9),
        Forked(branch="b", base="main", leaf=1, start=9),
        Undone(branch="nowhere", leaf=None),
        Undone(branch="main", leaf=7),
        WentTo(branch="nowhere"),
        BranchRenamed(branch="main", name="main"),
    ],
)
def test_records_that_do_not_fit_change_nothing(record: Record) -> None:
    first = Asked(turn_id=1, parent=None, text="a")
    tree = bare(first)
    assert tree.apply(Entry(n=2, at="", record=record))
    assert tree.turns == bare(first).turns
    assert tree.branches == bare(first).branches
    with pytest.raises(ValueError, match=r"."):
        bare(first, record)


def test_a_move_names_the_turn_it_lacks() -> None:
    with pytest.raises(SessionFileError, match="no turn 4"):
        moves.fork(bare(), 4)
    with pytest.raises(SessionFileError, match="no turn 4"):
        moves.edit(bare(), 4)
