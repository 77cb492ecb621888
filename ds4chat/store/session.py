"""One open session: its conversation in memory and its transcript on disk.

Every change goes through `append`, which takes it into the tree first and then writes it: a
disk that fails loses nothing that is in memory.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ds4chat.errors import SessionFileError
from ds4chat.protocol.events import Event, Notice, TurnFinished
from ds4chat.protocol.types import Message, ThinkMode
from ds4chat.store import codec, moves, snapshots
from ds4chat.store.autosave import Autosaver, Writer
from ds4chat.store.files import FileOps, trouble
from ds4chat.store.journal import Journal
from ds4chat.store.lock import Owner
from ds4chat.store.records import (
    Asked,
    Entry,
    OptionsSet,
    Record,
    Replied,
    SnapshotSaved,
    SnapshotsGone,
    SystemSet,
    TurnEvent,
    is_kept,
    needs_sync,
)
from ds4chat.store.transcripts import Reading
from ds4chat.store.tree import Tree, Turn

MAX_TEXT_CHARS = 10_000_000  # a character takes six bytes of a line at most

Clock = Callable[[], str]
"""The time as UTC, ISO 8601."""


def utc_now() -> str:
    """The time, to the millisecond: `2026-07-31T12:00:00.123Z`."""
    now = datetime.datetime.now(datetime.UTC)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Session:
    """A conversation that is kept. Made by `Library`.

    `owner` is who else writes to it (then it is read-only here), `notices` what a person should
    know about the file as it was found.
    """

    def __init__(
        self,
        folder: Path,
        reading: Reading,
        *,
        journal: Journal | None = None,
        owner: Owner | None = None,
        ops: FileOps | None = None,
        clock: Clock = utc_now,
    ) -> None:
        self._folder = folder
        self.tree: Tree = reading.tree
        self.entries: list[Entry] = reading.entries
        self.notices: list[str] = reading.notices()
        self.owner = owner
        self._next_n = reading.next_n
        self._journal = journal
        self._writer: Writer | None = journal
        self._ops = ops or FileOps()
        self._clock = clock

    # What it is.

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self._folder

    @property
    def name(self) -> str:
        """Its name: the folder's."""
        return self._folder.name

    @property
    def is_read_only(self) -> bool:
        """Whether another window writes to it, or it was opened to read."""
        return self._journal is None or self._journal.is_over

    @property
    def n_unwritten(self) -> int:
        """Lines that the disk does not hold yet."""
        return self._journal.n_unwritten if self._journal is not None else 0

    @property
    def is_failing(self) -> bool:
        """Whether the disk refused something that it does not hold yet."""
        return self._journal is not None and self._journal.is_failing

    @property
    def n_unsaved_turns(self) -> int:
        """Turns of which the disk lacks at least a part."""
        rest = self.entries[-self.n_unwritten :] if self.n_unwritten else []
        ids = {getattr(entry.record, "turn_id", None) for entry in rest}
        return len(ids - {None})

    @property
    def snapshots_dir(self) -> Path:
        """Where the engine puts this session's KV snapshots; it need not exist."""
        return self._folder / snapshots.FOLDER

    def messages(self, n_vocab: int | None = None) -> tuple[Message, ...]:
        """What to send for the current branch; see `Tree.messages`."""
        return self.tree.messages(n_vocab=n_vocab)

    # What may be done with it.

    def append(self, record: Record) -> None:
        """Take in a record and write it.

        Raises:
            SessionFileError: it does not fit, the session is read-only, or (once per trouble)
                it could not be written yet; then it is kept and written later.
        """
        if self.is_read_only and not self._is_rest(record):
            why = f"it is open in another window ({self.owner})" if self.owner else "read-only"
            raise SessionFileError(
                f"the session {self.name!r} was not changed: {why}",
                "Take it over, or /save it under another name.",
            )
        _check_size(record)
        entry = Entry(n=self._next_n, at=self._clock(), record=record)
        wrong = self.tree.apply(entry)
        if wrong:
            raise SessionFileError(f"the session {self.name!r} was not changed: {wrong}")
        entry = self._stamp(entry)
        self._next_n += 1
        self.entries.append(entry)
        if self._writer is not None:
            self._writer.append(codec.encode(entry), sync=needs_sync(record))

    def _is_rest(self, record: Record) -> bool:
        """Whether it ends a reply that ran when another window took the session over.

        The rest of such a reply is kept in memory, for a copy, and not written.
        """
        return self._journal is not None and isinstance(record, TurnEvent)

    def _stamp(self, entry: Entry) -> Entry:
        """Add what makes listing quick and losses visible."""
        record = entry.record
        n_turns = len(self.tree.turns)
        if isinstance(record, Asked):
            return replace(entry, turns=n_turns)
        if not isinstance(record, TurnFinished):
            return entry
        turn = self.tree.turns[record.turn_id]
        spans = tuple(span.token.id for span in turn.spans())
        kept = record if record.ids not in ((), spans) else replace(record, ids=())
        return replace(entry, record=kept, turns=n_turns, check=turn.check())

    def report(self, event: Event) -> None:
        """Take in what the engine reports; what a transcript does not keep is passed over."""
        if is_kept(event):
            assert isinstance(event, TurnEvent)
            turn = None if event.turn_id is None else self.tree.turns.get(event.turn_id)
            has_ended = turn is not None and turn.finished is not None
            if isinstance(event, TurnFinished) and has_ended:
                return
            if isinstance(event, Notice) or turn is not None:
                self.append(event)

    def ask(self, text: str, think: ThinkMode, turn_id: int | None = None) -> Turn:
        """A person's message at the end of the current branch."""
        record = moves.ask(self.tree, text, think, turn_id)
        self.append(record)
        return self.tree.turns[record.turn_id]

    def break_off(self, message: str) -> None:
        """End a turn whose engine is gone; what was written of it stays."""
        end = moves.broken_off(self.tree, message)
        if end is not None:
            self.append(end)

    def fork(self, at: int | None, name: str = "") -> None:
        """Go on from an earlier turn on a new branch."""
        self.append(moves.fork(self.tree, at, name))

    def edit(self, turn_id: int, text: str, think: ThinkMode) -> Turn:
        """Ask turn `turn_id` otherwise, on a new branch."""
        self.append(moves.edit(self.tree, turn_id))
        return self.ask(text, think)

    def undo(self) -> Turn:
        """Take back the newest turn and return it."""
        turn = self.tree.leaf
        self.append(moves.undo(self.tree))
        assert turn is not None
        return turn

    def goto(self, where: str) -> None:
        """Make a branch, or the branch that ends at a turn, the current one."""
        self.append(moves.goto(self.tree, where))

    def compact(self, n_keep: int) -> None:
        """Send only the newest turns from now on; the old branch stays."""
        self.append(moves.compact(self.tree, n_keep))

    def rename_branch(self, name: str, branch: str | None = None) -> None:
        """Give a branch another name."""
        self.append(moves.rename_branch(self.tree, name, branch))

    def adopt(self, messages: Sequence[Message]) -> None:
        """Put a conversation from elsewhere at the end of the current branch."""
        for record in moves.adopt(self.tree, messages):
            self.append(record)

    def set_options(self, options: OptionsSet) -> None:
        """Note the model and options in force, if they changed."""
        if options != self.tree.options:
            self.append(options)

    def set_system(self, text: str) -> None:
        """Note the system text in force, if it changed."""
        if text != self.tree.system:
            self.append(SystemSet(text=text))

    # Snapshots.

    def snapshot_saved(self, record: SnapshotSaved) -> None:
        """Note a snapshot that lies in `snapshots/` now."""
        snapshots.check_snapshot_name(record.name)
        self.append(record)

    def drop_snapshots(self, names: Sequence[str] | None = None, why: str = "strip") -> int:
        """Delete snapshots (None: all) and the orphans; returns the bytes freed.

        Raises:
            SessionFileError: one cannot be deleted, or the session is read-only.
        """
        gone = tuple(self.tree.snapshots if names is None else names)
        if gone or self.is_read_only:
            try:
                self.append(SnapshotsGone(names=gone, why=why))
            except SessionFileError:
                if self.is_read_only:
                    raise  # else the disk may be full: room comes first
        try:
            if names is None:
                paths = snapshots.everything(self._folder)
            else:
                paths = snapshots.orphans(self._folder, self.tree.snapshots)
            freed = snapshots.remove(paths, self._ops)
        except OSError as error:
            raise trouble("a snapshot cannot be deleted", self.snapshots_dir, error) from error
        if self.n_unwritten:
            self.flush()
        return freed

    def pick_snapshot(self, ids: Sequence[int]) -> SnapshotSaved | None:
        """The newest snapshot on the disk whose tokens begin `ids`."""
        absent = set(snapshots.missing(self._folder, self.tree))
        records = self.tree.snapshots.values()
        return snapshots.pick((r for r in records if r.name not in absent), ids)

    # Its end.

    def write_through(self, wrap: Callable[[Journal], Writer]) -> None:
        """Have lines written by `wrap`'s writer (an `Autosaver`) from now on."""
        if self._journal is not None:
            self._writer = wrap(self._journal)

    def flush(self) -> bool:
        """Try to write what waits; whether the disk holds everything now."""
        return self._writer is None or self._writer.retry()

    def flush_soon(self) -> None:
        """Have what waits tried again, without waiting where a thread writes."""
        if isinstance(self._writer, Autosaver):
            self._writer.retry_soon()
        else:
            self.flush()

    def content(self) -> bytes:
        """The whole transcript, also when its folder is gone."""
        return b"".join(codec.encode(entry) for entry in self.entries)

    def moved(self, folder: Path) -> None:
        """The folder has another name now."""
        self._folder = folder
        if self._journal is not None:
            self._journal.moved(folder)

    def close(self) -> None:
        """Write what waits and let others write. Safe to call twice.

        Raises:
            SessionFileError: something could not be written and is lost now.
        """
        writer, self._writer = self._writer, None
        self._journal = None
        if writer is not None:
            writer.close()


def _check_size(record: Record) -> None:
    if isinstance(record, Asked | Replied | SystemSet) and len(record.text) > MAX_TEXT_CHARS:
        raise SessionFileError(
            f"a text of {len(record.text):,} characters cannot be saved; the limit is "
            f"{MAX_TEXT_CHARS:,}"
        )
