"""Snapshots in the engine process: saved behind the next prompt, restored into a lane.

A snapshot is copied on the engine's thread and written by another. The event `SnapshotSaved`
comes when the file has its name, and the command's answer after that.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from ds4chat.engine.api import SessionApi
from ds4chat.engine.host_open import HostedEngine
from ds4chat.errors import Ds4Error, SnapshotError
from ds4chat.protocol.commands import RestoreSnapshot, SaveSnapshot
from ds4chat.protocol.engine import Emit
from ds4chat.protocol.events import Done, Refused, SnapshotRestored, SnapshotSaved
from ds4chat.protocol.types import Message, Role

if TYPE_CHECKING:
    from ds4chat.engine.engine import Engine
    from ds4chat.engine.session import Session
    from ds4chat.engine.snapshot_chain import Manifest
    from ds4chat.engine.snapshot_writer import Outcome, SnapshotWriter

_log = logging.getLogger("ds4chat.snapshots")


class HostSnapshots:
    """Saves and restores for the host. Its methods belong to the engine's thread.

    Args:
        emit: where events and late answers go; called by the writer's thread too.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._writer: SnapshotWriter | None = None
        self._cleaned: set[Path] = set()

    def save(
        self, command: SaveSnapshot, engine: HostedEngine, session: SessionApi | None
    ) -> None:
        """Copy a session's state and have it written; the answer comes when it is.

        Raises:
            SnapshotError: there is nothing to save, or too much waits for the disk.
        """
        from ds4chat.engine import snapshots  # noqa: PLC0415 - brings MLX along

        real = _real(engine)
        if session is None:
            raise SnapshotError(f"lane {command.lane} holds nothing that could be saved")
        held = _real_session(session)
        folder = Path(command.folder)
        take = snapshots.take_before_reply if command.before_reply else snapshots.take
        data = take(real, held, folder)
        self._clean_once(folder)
        self._running().save(data, command.name, lambda done: self._saved(command, done))

    def restore(self, command: RestoreSnapshot, engine: HostedEngine) -> SessionApi:
        """A session that goes on from the first of the named snapshots that fits.

        Raises:
            SnapshotError: none does; the reason is that of the first.
        """
        from ds4chat.engine import snapshots  # noqa: PLC0415 - brings MLX along

        real = _real(engine)
        self.wait()  # one of them may be under way
        ids = _conversation(command, engine)
        folder, first = Path(command.folder), None
        for name in command.names:
            try:
                _check(real, folder, name, ids)
                restored = snapshots.restore(real, folder, name)
            except SnapshotError as error:
                first = first or error
                continue
            self._emit(
                SnapshotRestored(
                    lane=command.lane,
                    folder=command.folder,
                    name=name,
                    n_tokens=restored.manifest.n,
                    notices=restored.notices,
                )
            )
            return restored.session
        raise first or SnapshotError("no snapshot was named")

    def wait(self) -> None:
        """Wait until everything that was asked for is on the disk."""
        if self._writer is not None:
            self._writer.wait()

    def close(self) -> None:
        """Finish what was asked for; called before the process ends."""
        if self._writer is not None:
            self._writer.close()

    def _clean_once(self, folder: Path) -> None:
        """Before the first save to a folder: remove what a killed engine left half-written."""
        if folder not in self._cleaned:
            self._cleaned.add(folder)
            self._running().clean(folder, _note)

    def _running(self) -> SnapshotWriter:
        if self._writer is None:
            from ds4chat.engine.snapshot_writer import SnapshotWriter  # noqa: PLC0415

            self._writer = SnapshotWriter()
        return self._writer

    def _saved(self, command: SaveSnapshot, done: Outcome) -> None:
        """Report a save; on the writer's thread, or at once if it was not begun."""
        number = command.request_id
        if done.manifest is None:
            error: Ds4Error = done.error or SnapshotError("the snapshot was not written")
            self._emit(Refused(request_id=number, message=error.message, hint=error.hint))
            return
        self._emit(_report(command, done.manifest, done.seconds))
        self._emit(Done(request_id=number))


def _note(done: Outcome) -> None:
    if done.error is not None:
        _log.warning("%s: not cleaned: %s", done.folder, done.error.message)


def _report(command: SaveSnapshot, manifest: Manifest, seconds: float) -> SnapshotSaved:
    return SnapshotSaved(
        folder=command.folder,
        name=command.name,
        n_tokens=manifest.n,
        token_hash=manifest.token_hash,
        parent=manifest.parent,
        n_bytes=manifest.links[-1].n_bytes,
        save_s=seconds,
    )


def _check(engine: Engine, folder: Path, name: str, ids: list[int]) -> None:
    """Refuse a snapshot of another engine or conversation before its data is read.

    In this order: the same text has other tokens for another model, which is the reason then.
    """
    from ds4chat.engine.snapshot_chain import compare, token_hash  # noqa: PLC0415
    from ds4chat.engine.snapshot_files import read_manifest  # noqa: PLC0415
    from ds4chat.engine.snapshots import identity  # noqa: PLC0415

    manifest = read_manifest(folder, name)
    compare(manifest.identity, identity(engine))
    if manifest.n > len(ids) or token_hash(ids[: manifest.n]) != manifest.token_hash:
        raise SnapshotError(
            f"the snapshot {name} holds {manifest.n:,} tokens that are not the beginning of "
            "this conversation",
            "It is read again with the next message.",
        )


def _conversation(command: RestoreSnapshot, engine: HostedEngine) -> list[int]:
    """Token ids that every next prompt of the conversation begins with, and an opener."""
    messages = command.messages
    if not messages or messages[-1].role is not Role.USER:
        messages = (*messages, Message(role=Role.USER, text=""))
    return list(engine.render(messages, command.think, keep_reasoning=command.keep_reasoning))


def _real(engine: HostedEngine) -> Engine:
    from ds4chat.engine.engine import Engine  # noqa: PLC0415

    if not isinstance(engine, Engine):
        raise SnapshotError("this engine keeps no snapshots")
    return engine


def _real_session(session: SessionApi) -> Session:
    from ds4chat.engine.session import Session  # noqa: PLC0415

    assert isinstance(session, Session)
    return session
