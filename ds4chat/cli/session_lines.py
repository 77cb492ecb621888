"""A saved session without a screen: `-r NAME` and `--continue` with -p, -f, a pipe or lines.

The same store as the chat's: what is asked here is there when the chat resumes the session, and
the KV state goes on from its snapshots.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, replace

from ds4chat import __version__
from ds4chat.cli.keep import Keep
from ds4chat.cli.start import Start
from ds4chat.cli.talk import OnEvent, Talk
from ds4chat.errors import SessionFileError
from ds4chat.protocol.commands import RestoreSnapshot, SaveSnapshot
from ds4chat.protocol.events import Event, Refused, SnapshotSaved, TurnFinished
from ds4chat.protocol.types import FinishReason, Message, ModelInfo, Sampling, SpecOptions
from ds4chat.settings import Settings
from ds4chat.store import records
from ds4chat.store.library import Library
from ds4chat.store.records import OptionsSet
from ds4chat.store.session import Session
from ds4chat.tui import sessions_kv, sessions_options
from ds4chat.tui.problems import joined

_BROKEN = (FinishReason.ERROR, FinishReason.NONFINITE)
_FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)

Say = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class _Options:
    """What a session brings along; see `sessions_options.adopt`."""

    sampling: Sampling
    spec: SpecOptions
    max_tokens: int | None


class SessionLines:
    """One session that is gone on with.

    Where it may be read and not written, it is gone on with and nothing is kept.

    Args:
        kept: the session.
        budget_bytes: space for the KV snapshots of all sessions.
        say: takes what a person should know, a line each.

    Raises:
        SessionFileError: it cannot be opened, or another window has it.
    """

    def __init__(self, kept: Keep, budget_bytes: int, say: Say) -> None:
        self._say = say
        self._budget_bytes = budget_bytes
        self._library = Library(kept.root, build=__version__)
        self._is_kept, self._is_closed, self._n_asked = True, False, 0
        self._session: Session = self._open(kept.resume)
        if self._is_kept and self._session.is_read_only:
            owner = self._session.owner or "another window"
            raise SessionFileError(
                f"the session {kept.resume!r} is open in another window ({owner})",
                "Leave it there first.",
            )
        self.broken_off("ds4chat ended during this reply")
        for note in (*kept.notes, *self._session.notices):
            say(note)

    def _open(self, name: str) -> Session:
        try:
            return self._library.open(name)
        except SessionFileError as error:
            cause = error.__cause__
            if not isinstance(cause, OSError) or cause.errno not in _FORBIDDEN:
                raise
            session = self._library.read(name)
            self._is_kept = False
            self._say(f"what is said now is not kept: {error.message}")
            return session

    def adopt(self, start: Start, values: Settings) -> Start:
        """How this start asks, with the session's settings where no flag says otherwise."""
        tree = self._session.tree
        found = _Options(sampling=start.sampling, spec=start.spec, max_tokens=start.max_tokens)
        if tree.options is not None:
            for line in sessions_options.adopt(found, tree.options, values):
                self._say(line)
        leaf, is_flag = tree.leaf, sessions_options.is_flag
        think = start.think if leaf is None or is_flag(values, "think") else leaf.think
        is_ours = is_flag(values, "system") or is_flag(values, "system_file")
        return replace(
            start,
            sampling=found.sampling,
            spec=found.spec,
            max_tokens=found.max_tokens,
            think=think,
            system=start.system if is_ours else tree.system,
            load=replace(start.load, spec=found.spec),
        )

    def begin(
        self, talk: Talk, start: Start, info: ModelInfo, on_event: OnEvent
    ) -> tuple[Message, ...]:
        """Give the engine the session's KV state; returns the conversation so far.

        Raises:
            SessionFileError: a turn of it is damaged.
        """
        for line in sessions_options.model_differences(self._session.tree.options, info):
            self._say(line)
        self._write(lambda: self._session.set_system(start.system))
        messages = self._messages(info)
        names = sessions_kv.usable(self._session)
        if names:
            restore = RestoreSnapshot(
                request_id=talk.number(),
                folder=str(self._session.snapshots_dir),
                names=names[: sessions_kv.MAX_TRIED],
                messages=messages,
                think=start.think or info.think_default,
                keep_reasoning=start.keep_reasoning,
            )
            answer = talk.command(restore, on_event)
            if isinstance(answer, Refused):
                self._say(f"the KV snapshot is not used: {answer.message}")
        options = OptionsSet(
            model=info, sampling=start.sampling, spec=start.spec, max_tokens=start.max_tokens
        )
        self._write(lambda: self._session.set_options(options))
        return messages

    def _messages(self, info: ModelInfo) -> tuple[Message, ...]:
        """The conversation; ids of another model are left out, they would be other words."""
        found = self._session.messages(info.n_vocab)
        options = [turn.options for turn in self._session.tree.path()]
        models = [option.model for option in options if option is not None]
        if all(model is not None and model.fingerprint == info.fingerprint for model in models):
            return found
        return tuple(replace(message, ids=()) for message in found)

    def asked(self, question: str, start: Start, info: ModelInfo) -> int:
        """Record a question; returns the number of its turn."""
        tree, think = self._session.tree, start.think or info.think_default
        turn_id = tree.next_turn_id
        if not self._is_kept:
            turn_id += self._n_asked
            self._n_asked += 1
        self._write(lambda: self._session.ask(question, think, turn_id))
        return turn_id

    def taken_back(self) -> None:
        """The question was refused."""
        self._write(self._session.undo)

    def report(self, event: Event) -> None:
        """Record what the engine reports."""
        self._write(lambda: self._session.report(event))

    def _write(self, work: Callable[[], object]) -> None:
        """Record; a disk that refuses costs no answer, the store tells of it once."""
        if not self._is_kept:
            return
        try:
            work()
        except SessionFileError as error:
            self._say(joined(error.message, error.hint))

    def broken_off(self, message: str) -> None:
        """The reply ended without an end."""
        self._write(lambda: self._session.break_off(message))

    def save(self, talk: Talk, start: Start, end: TurnFinished, on_event: OnEvent) -> None:
        """Keep the KV state after a reply."""
        if end.reason in _BROKEN or not self._is_kept:
            return
        session, name = self._session, f"t{end.turn_id}"
        turn = session.tree.turns[end.turn_id]

        def take(event: Event) -> None:
            if isinstance(event, SnapshotSaved):
                self._write(lambda: session.snapshot_saved(_record(event, end.turn_id)))
            else:
                on_event(event)

        command = SaveSnapshot(
            request_id=talk.number(),
            folder=str(session.snapshots_dir),
            name=name,
            before_reply=bool(turn.reasoning) and not start.keep_reasoning,
        )
        answer = talk.command(command, take)
        if isinstance(answer, Refused):
            self._say(f"no KV snapshot: {answer.message}")

    def close(self) -> None:
        """Write what waits, and keep to the space for KV snapshots. Safe to call twice."""
        was_closed, self._is_closed = self._is_closed, True
        self._session.close()
        if self._is_kept and not was_closed:
            self._library.keep_budget(self._budget_bytes)


def _record(event: SnapshotSaved, turn_id: int) -> records.SnapshotSaved:
    return records.SnapshotSaved(
        name=event.name,
        n_tokens=event.n_tokens,
        token_hash=event.token_hash,
        turn_id=turn_id,
        parent=event.parent,
        n_bytes=event.n_bytes,
    )
