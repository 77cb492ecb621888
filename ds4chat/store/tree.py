"""The conversation of a session as a tree of turns. Pure: no file, no clock.

`Tree.apply` folds a transcript's records, one after the other; nothing is ever removed. What
the records leave out (a damaged line) never makes up a conversation that did not take place:
a turn that is not whole is marked, and a branch that runs through one is not sent.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ds4chat.errors import SessionFileError
from ds4chat.protocol.events import Notice, TokensCommitted, TurnFinished
from ds4chat.protocol.types import (
    Channel,
    FinishReason,
    Message,
    Role,
    Span,
    ThinkMode,
    Usage,
)
from ds4chat.store.records import (
    MAIN,
    Asked,
    BranchRenamed,
    Entry,
    Forked,
    Header,
    OptionsSet,
    Problem,
    Record,
    Replied,
    SnapshotSaved,
    SnapshotsGone,
    SystemSet,
    TurnEvent,
    Undone,
    WentTo,
)


@dataclass(slots=True, kw_only=True)
class Turn:
    """A question, and all that the engine reported about its reply, in order.

    `damage` says what of it was lost; a turn whose question was lost has `is_lost`.
    """

    id: int
    parent: int | None
    branch: str
    question: str
    think: ThinkMode
    system: str = ""
    options: OptionsSet | None = None
    at: str = ""
    events: list[TurnEvent] = field(default_factory=list)
    answer: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    finished: TurnFinished | None = None
    ended_at: str = ""
    damage: str = ""
    is_lost: bool = False

    @property
    def answer_text(self) -> str:
        """The visible answer."""
        return "".join(self.answer)

    @property
    def reasoning_text(self) -> str:
        """The reasoning."""
        return "".join(self.reasoning)

    @property
    def has_reply(self) -> bool:
        """Whether there is anything of a reply."""
        return bool(self.ids or self.answer or self.reasoning)

    @property
    def reason(self) -> FinishReason | None:
        """Why the reply ended; None: it did not, or the program died in it."""
        return self.finished.reason if self.finished else None

    @property
    def usage(self) -> Usage | None:
        """The reply's figures."""
        return self.finished.usage if self.finished else None

    def spans(self, channel: Channel | None = None) -> Iterator[Span]:
        """The tokens of a channel, or of both, with provenance."""
        for event in self.events:
            if isinstance(event, TokensCommitted) and channel in (None, event.channel):
                yield from event.spans

    def check(self) -> str:
        """CRC-32 of the reply's texts and token ids, eight hex digits."""
        texts = "\0".join((self.reasoning_text, self.answer_text, *map(str, self.ids)))
        return f"{zlib.crc32(texts.encode('utf-8', 'surrogatepass')):08x}"

    def messages(self, *, with_ids: bool = True) -> list[Message]:
        """The person's message, and the reply if there is any of it."""
        found = [Message(role=Role.USER, text=self.question)]
        if self.has_reply:
            found.append(
                Message(
                    role=Role.ASSISTANT,
                    text=self.answer_text,
                    reasoning=self.reasoning_text,
                    ids=tuple(self.ids) if with_ids else (),
                    think=self.think,
                )
            )
        return found


@dataclass(slots=True, kw_only=True)
class Branch:
    """A line of turns, named. See `Forked` for `start`, which counts where the line has it."""

    name: str
    leaf: int | None = None
    start: int | None = None
    base: str = ""
    why: str = ""


class Tree:
    """All turns and branches, and what is in force now."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.turns: dict[int, Turn] = {}
        self.branches: dict[str, Branch] = {MAIN: Branch(name=MAIN)}
        self.current = MAIN
        self.system = ""
        self.options: OptionsSet | None = None
        self.snapshots: dict[str, SnapshotSaved] = {}
        self.notices: list[Notice] = []  # those outside turns

    @property
    def branch(self) -> Branch:
        """The current branch."""
        return self.branches[self.current]

    @property
    def leaf(self) -> Turn | None:
        """The newest turn of the current branch."""
        return None if self.branch.leaf is None else self.turns[self.branch.leaf]

    @property
    def next_turn_id(self) -> int:
        """An id for a turn that begins now."""
        return max(self.turns, default=0) + 1

    def path(self, branch: str | None = None) -> list[Turn]:
        """The turns of a branch, oldest first, those dropped by compacting left out."""
        chosen = self.branches[branch or self.current]
        return self._path(chosen.leaf, chosen.start)

    def path_to(self, turn_id: int) -> list[Turn]:
        """All turns from the first to this one."""
        return self._path(turn_id, None)

    def _path(self, leaf: int | None, start: int | None) -> list[Turn]:
        found: list[Turn] = []
        while leaf is not None:
            found.append(self.turns[leaf])
            leaf = None if leaf == start else self.turns[leaf].parent
        return found[::-1]

    def children(self, turn_id: int | None) -> list[Turn]:
        """The turns that follow one; None: the first turns."""
        return [turn for turn in self.turns.values() if turn.parent == turn_id]

    def taken_back(self) -> list[Turn]:
        """Turns that no branch leads to any more and that nothing follows."""
        known = {branch.leaf for branch in self.branches.values()}
        known |= {turn.parent for turn in self.turns.values()}
        return [turn for turn in self.turns.values() if turn.id not in known]

    def messages(
        self, branch: str | None = None, *, n_vocab: int | None = None
    ) -> tuple[Message, ...]:
        """What to send to the engine.

        Args:
            branch: its name; None: the current one.
            n_vocab: vocabulary size of the engine's model; token ids of turns that a model
                with another vocabulary made are left out. None: all ids are kept.

        Raises:
            SessionFileError: a turn of the branch is damaged.
        """
        path = self.path(branch)
        damaged = next((turn for turn in path if turn.damage), None)
        if damaged is not None:
            before = f"/fork {damaged.parent} goes on before it." if damaged.parent else ""
            raise SessionFileError(
                f"turn {damaged.id} is damaged ({damaged.damage}): not sent to the model",
                before,
            )
        head = [Message(role=Role.SYSTEM, text=self.system)] if self.system else []
        return (
            *head,
            *(
                message
                for turn in path
                for message in turn.messages(with_ids=_ids_fit(turn, n_vocab))
            ),
        )

    def apply(self, entry: Entry) -> str:
        """Take in one record; returns what is wrong with it, or an empty string."""
        record = entry.record
        match record:
            case Asked():
                return self._ask(record, entry.at)
            case Replied():
                turn = self._open_turn(record.turn_id)
                turn.answer.append(record.text)
                turn.reasoning.append(record.reasoning)
                turn.ids.extend(record.ids)
            case Forked() | Undone() | WentTo() | BranchRenamed():
                return self._move(record)
            case SnapshotSaved() | SnapshotsGone():
                self._keep_snapshots(record)
            case Header() | OptionsSet() | SystemSet():
                self._set(record)
            case _:
                return self._take_event(record, entry)
        return ""

    def note_damage(self, problem: Problem) -> None:
        """A line could not be read: the turn that was open there may lack something."""
        newest = self.turns[next(reversed(self.turns))] if self.turns else None
        if newest is not None and newest.finished is None and not newest.damage:
            newest.damage = f"line {problem.line}"

    def _ask(self, record: Asked, at: str) -> str:
        if record.turn_id in self.turns:
            return f"turn {record.turn_id} is there already"
        if record.parent is not None and record.parent not in self.turns:
            if record.parent >= record.turn_id:
                return f"turn {record.turn_id} follows the later turn {record.parent}"
            self._lose(record.parent)
        self.turns[record.turn_id] = Turn(
            id=record.turn_id,
            parent=record.parent,
            branch=record.branch,
            question=record.text,
            think=record.think,
            system=self.system,
            options=self.options,
            at=at,
        )
        branch = self.branches.setdefault(record.branch, Branch(name=record.branch))
        branch.leaf = record.turn_id
        self.current = record.branch
        return ""

    def _lose(self, turn_id: int) -> Turn:
        """Stand-in for a turn whose question was lost."""
        turn = Turn(
            id=turn_id,
            parent=None,
            branch=self.current,
            question="",
            think=ThinkMode.OFF,
            system=self.system,
            damage="its question was lost",
            is_lost=True,
        )
        self.turns[turn_id] = turn
        return turn

    def _open_turn(self, turn_id: int) -> Turn:
        return self.turns.get(turn_id) or self._lose(turn_id)

    def _take_event(self, record: Record, entry: Entry) -> str:
        if not isinstance(record, TurnEvent):
            return ""
        if record.turn_id is None:
            self.notices += [record] if isinstance(record, Notice) else []
            return ""
        turn = self._open_turn(record.turn_id)
        if isinstance(record, TurnFinished):
            if turn.finished is not None:  # each would keep a copy of the reply's ids
                return f"turn {turn.id} had ended already"
            record = _finish(turn, record, entry)
        turn.events.append(record)
        if isinstance(record, TokensCommitted):
            texts = turn.reasoning if record.channel is Channel.THINKING else turn.answer
            texts.extend(span.text for span in record.spans)
            turn.ids.extend(span.token.id for span in record.spans)
        return ""

    def _move(self, record: Forked | Undone | WentTo | BranchRenamed) -> str:
        if isinstance(record, Forked):
            return self._fork(record)
        branch = self.branches.get(record.branch)
        if branch is None:
            return f"there is no branch {record.branch!r:.60}"
        if isinstance(record, Undone):
            if record.leaf is not None and record.leaf not in self.turns:
                return f"there is no turn {record.leaf}"
            branch.leaf = record.leaf
        elif isinstance(record, WentTo):
            self.current = record.branch
            self._restore_system()
        elif record.name in self.branches:
            return f"there is a branch {record.name!r:.60} already"
        else:
            self._rename_branch(branch, record.name)
        return ""

    def _fork(self, record: Forked) -> str:
        if record.branch in self.branches:
            return f"there is a branch {record.branch!r:.60} already"
        for turn_id in (record.leaf, record.start):
            if turn_id is not None and turn_id not in self.turns:
                return f"there is no turn {turn_id}"
        self.branches[record.branch] = Branch(
            name=record.branch,
            leaf=record.leaf,
            start=record.start,
            base=record.base,
            why=record.why,
        )
        self.current = record.branch
        if record.why != "compact":
            self._restore_system()
        return ""

    def _restore_system(self) -> None:
        """A branch goes on under the system text of its newest turn."""
        if self.leaf is not None:
            self.system = self.leaf.system

    def _rename_branch(self, branch: Branch, name: str) -> None:
        old, branch.name = branch.name, name
        if len(self.branches) > 200:  # not a list that anybody reads in order
            self.branches[name] = self.branches.pop(old)
        else:
            self.branches = {b.name: b for b in self.branches.values()}
        if self.current == old:
            self.current = name

    def _keep_snapshots(self, record: SnapshotSaved | SnapshotsGone) -> None:
        if isinstance(record, SnapshotSaved):
            self.snapshots.pop(record.name, None)  # the newest stands last
            self.snapshots[record.name] = record
            return
        for name in record.names:
            self.snapshots.pop(name, None)

    def _set(self, record: Header | OptionsSet | SystemSet) -> None:
        match record:
            case Header():
                self.header = self.header or record
            case OptionsSet():
                self.options = record
            case SystemSet():
                self.system = record.text


def _finish(turn: Turn, record: TurnFinished, entry: Entry) -> TurnFinished:
    """End a turn; no ids mean those of its spans."""
    if record.ids:
        turn.ids = list(record.ids)
    turn.finished = replace(record, ids=tuple(turn.ids))
    turn.ended_at = entry.at
    if entry.check is None or turn.is_lost:
        return turn.finished
    # The sum decides: a lost line may have held figures only, or a line may be gone unseen.
    is_whole = turn.check() == entry.check
    turn.damage = "" if is_whole else turn.damage or "a part of the reply was lost"
    return turn.finished


def _ids_fit(turn: Turn, n_vocab: int | None) -> bool:
    model = turn.options.model if turn.options is not None else None
    return n_vocab is None or (model is not None and model.n_vocab == n_vocab)


def tree_of(entries: Sequence[Entry]) -> Tree:
    """The tree of sound records. Raises ValueError for one that does not fit."""
    tree = Tree()
    for entry in entries:
        if wrong := tree.apply(entry):
            raise ValueError(wrong)
    return tree
