"""The scripted engine's snapshots: it has no KV state, so token ids are all that they hold."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from ds4chat.demo.script import Script, prompt_ids
from ds4chat.errors import SnapshotError
from ds4chat.protocol.commands import RestoreSnapshot, SaveSnapshot
from ds4chat.protocol.events import SnapshotRestored, SnapshotSaved
from ds4chat.protocol.types import Message, Role
from ds4chat.store.snapshots import check_snapshot_name, token_hash


def keep(
    command: SaveSnapshot | RestoreSnapshot,
    script: Script,
    held: dict[int, list[int]],
    running: Collection[int],
) -> SnapshotSaved | SnapshotRestored:
    """Save what a lane holds, or let it hold what was saved.

    Args:
        command: what to do.
        script: for the ids of a conversation.
        held: ids by lane; changed by a restore.
        running: lanes with a reply.

    Raises:
        SnapshotError: it cannot be done; nothing has changed.
    """
    if command.lane in running:
        raise SnapshotError("a reply is running", "Stop it first.")
    if isinstance(command, SaveSnapshot):
        return save(command, held.get(command.lane, []))
    held[command.lane], event = restore(command, script)
    return event


def save(command: SaveSnapshot, held: list[int]) -> SnapshotSaved:
    """Write the ids that a lane holds.

    Raises:
        SnapshotError: it holds none, or the disk refuses.
    """
    if not held:
        raise SnapshotError("nothing to save: the lane is empty")
    folder = Path(command.folder)
    data = json.dumps({"links": [], "scripted_ids": held}).encode()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        _path(folder, command.name).write_bytes(data)
    except OSError as error:
        raise SnapshotError(
            f"{folder}: the snapshot cannot be written: {error.strerror}"
        ) from error
    return SnapshotSaved(
        folder=command.folder,
        name=command.name,
        n_tokens=len(held),
        token_hash=token_hash(held),
        n_bytes=len(data),
    )


def restore(command: RestoreSnapshot, script: Script) -> tuple[list[int], SnapshotRestored]:
    """The ids of the first of the named snapshots that begins the conversation.

    Raises:
        SnapshotError: none does.
    """
    messages = (*command.messages, Message(role=Role.USER, text=""))
    wanted = prompt_ids(script, messages, command.think)
    for name in command.names:
        held = _read(_path(Path(command.folder), name))
        if held and held == wanted[: len(held)]:
            event = SnapshotRestored(
                lane=command.lane, folder=command.folder, name=name, n_tokens=len(held)
            )
            return held, event
    raise SnapshotError(
        f"none of {len(command.names)} snapshots begins this conversation",
        "It is read again with the next message.",
    )


def _path(folder: Path, name: str) -> Path:
    return folder / f"{check_snapshot_name(name)}.json"


def _read(path: Path) -> list[int]:
    try:
        body = json.loads(path.read_bytes())
        return [int(token) for token in body["scripted_ids"]]
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return []
