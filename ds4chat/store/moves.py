"""What a person may do with a conversation, as records to append. Pure.

Every move is checked against the tree first, so that a transcript never holds one that does
not fit; nothing that was said is ever rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ds4chat.errors import SessionFileError
from ds4chat.protocol.events import TurnFinished
from ds4chat.protocol.types import FinishReason, Message, Role, ThinkMode, Usage
from ds4chat.store.names import nearest, plain_label
from ds4chat.store.records import (
    Asked,
    BranchRenamed,
    Forked,
    Record,
    Replied,
    SystemSet,
    Undone,
    WentTo,
)
from ds4chat.store.tree import Tree


def ask(tree: Tree, text: str, think: ThinkMode, turn_id: int | None = None) -> Asked:
    """A message at the end of the current branch.

    Args:
        tree: the conversation.
        text: the message.
        think: how much to reason.
        turn_id: the chat's own number for the turn; None: the next free one.

    Raises:
        SessionFileError: the number is taken.
    """
    number = tree.next_turn_id if turn_id is None else turn_id
    if number < tree.next_turn_id:
        raise SessionFileError(
            f"turn {number} is there already; the next free number is {tree.next_turn_id}"
        )
    return Asked(
        turn_id=number, parent=tree.branch.leaf, branch=tree.current, think=think, text=text
    )


def broken_off(tree: Tree, message: str) -> TurnFinished | None:
    """The end of a turn whose engine is gone; None: no turn runs."""
    turn = tree.leaf
    if turn is None or turn.finished is not None:
        return None
    return TurnFinished(
        turn_id=turn.id,
        reason=FinishReason.ERROR,
        usage=Usage(n_tokens=len(turn.ids)),
        ids=tuple(turn.ids),
        message=message,
    )


def fork(tree: Tree, at: int | None, name: str = "", why: str = "fork") -> Forked:
    """A new branch that goes on after turn `at` (None: from before the first).

    Raises:
        SessionFileError: no such turn, or the name is taken or unusable.
    """
    if at is not None:
        _turn(tree, at)
    on_path = [turn.id for turn in tree.path()]
    return Forked(
        branch=_new_name(tree, name),
        base=tree.current,
        leaf=at,
        start=tree.branch.start if at in on_path else None,
        why=why,
    )


def edit(tree: Tree, turn_id: int, name: str = "") -> Forked:
    """A branch on which turn `turn_id` can be asked otherwise: send the new text next.

    Raises:
        SessionFileError: no such turn.
    """
    _turn(tree, turn_id)
    return fork(tree, tree.turns[turn_id].parent, name, "edit")


def compact(tree: Tree, n_keep: int, name: str = "") -> Forked:
    """A branch that sends only the newest `n_keep` turns; the old branch stays whole.

    Raises:
        SessionFileError: there are not more turns than that, or `n_keep` is below 1.
    """
    path = tree.path()
    if not 1 <= n_keep < len(path):
        raise SessionFileError(
            f"{n_keep} turns cannot be kept of {len(path)}",
            "There must be a turn to drop and one to keep.",
        )
    return Forked(
        branch=_new_name(tree, name),
        base=tree.current,
        leaf=tree.branch.leaf,
        start=path[-n_keep].id,
        why="compact",
    )


def undo(tree: Tree) -> Undone:
    """Take back the newest turn of the current branch; it stays in the tree.

    Raises:
        SessionFileError: there is none.
    """
    leaf = tree.leaf
    if leaf is None:
        raise SessionFileError("there is nothing to undo: the conversation is empty")
    parent = None if leaf.id == tree.branch.start else leaf.parent
    return Undone(branch=tree.current, leaf=parent)


def goto(tree: Tree, where: str) -> WentTo | Forked:
    """Make a branch current: by its name, or by the number of a turn.

    A turn that ends a branch stands for that branch; any other becomes a new one.

    Raises:
        SessionFileError: no such branch or turn.
    """
    if where in tree.branches:
        return WentTo(branch=where)
    if not where.isascii() or not where.isdecimal() or int(where[:18]) not in tree.turns:
        near = nearest(where, tree.branches)
        hint = f"Did you mean {near!r}?" if near else "/branches lists them."
        raise SessionFileError(f"there is no branch or turn {where!r:.60}", hint)
    turn_id = int(where)
    ending = [branch.name for branch in tree.branches.values() if branch.leaf == turn_id]
    if ending:
        return WentTo(branch=tree.current if tree.current in ending else ending[0])
    return fork(tree, turn_id)


def rename_branch(tree: Tree, name: str, branch: str | None = None) -> BranchRenamed:
    """Give a branch another name.

    Raises:
        SessionFileError: no such branch, or the name is taken or unusable.
    """
    old = branch or tree.current
    if old not in tree.branches:
        raise SessionFileError(f"there is no branch {old!r:.60}")
    return BranchRenamed(branch=old, name=_new_name(tree, name))


def adopt(tree: Tree, messages: Sequence[Message]) -> Iterable[Record]:
    """Records that put a whole conversation at the end of the current branch.

    The opposite of `Tree.messages`; the caller applies each record before the next is made.

    Raises:
        SessionFileError: a system text that is not first, or a reply without a question.
    """
    turn_id: int | None = None
    for place, message in enumerate(messages):
        if message.role is Role.SYSTEM and place == 0:
            yield SystemSet(text=message.text)
        elif message.role is Role.USER:
            follower = messages[place + 1 : place + 2]
            think = follower[0].think if follower else message.think
            record = ask(tree, message.text, think)
            turn_id = record.turn_id
            yield record
        elif message.role is Role.ASSISTANT and turn_id is not None:
            yield Replied(
                turn_id=turn_id,
                ids=message.ids,
                reasoning=message.reasoning,
                text=message.text,
            )
            turn_id = None
        else:
            raise SessionFileError(
                f"message {place + 1}: a {message.role} message cannot stand there",
                "A conversation is an optional system text, then questions and replies.",
            )


def _turn(tree: Tree, turn_id: int) -> None:
    if turn_id not in tree.turns:
        known = ", ".join(str(turn.id) for turn in tree.path()[-8:]) or "none yet"
        raise SessionFileError(
            f"there is no turn {turn_id}", f"Newest of this branch: {known}."
        )


def _new_name(tree: Tree, name: str) -> str:
    if name:
        label = plain_label(name)
        if label in tree.branches:
            raise SessionFileError(
                f"there is a branch {label!r} already", "Choose another name."
            )
        return label
    number = len(tree.branches) + 1
    while f"branch-{number}" in tree.branches:
        number += 1
    return f"branch-{number}"
