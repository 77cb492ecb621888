"""What a transcript says, one record a line: the chat's own records and the engine's events.

The engine's events of a turn are kept as they came (figures that newer ones replace are left
out), so that a session can be replayed without an engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ds4chat.protocol.events import (
    Event,
    Notice,
    PlainStep,
    PolicyChanged,
    RoundVerified,
    TokensCommitted,
    TurnFinished,
    TurnStarted,
)
from ds4chat.protocol.types import ModelInfo, Sampling, SpecOptions, ThinkMode

VERSION = 1
MAIN = "main"  # the branch that every session begins with


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """First line: the format's version, who the session is, and which build began it."""

    version: int = VERSION
    id: str
    build: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionsSet:
    """The model and the options in force from here on."""

    model: ModelInfo | None = None
    engine_build: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    spec: SpecOptions = field(default_factory=SpecOptions)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemSet:
    """The system text from here on; empty: none."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A person's message. `parent` is the turn before it on its branch; None: it is the first.

    Turn ids rise through a session; they need not be dense.
    """

    turn_id: int
    parent: int | None
    branch: str = MAIN
    think: ThinkMode = ThinkMode.OFF
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """A whole reply that came without provenance (an imported conversation)."""

    turn_id: int
    ids: tuple[int, ...] = ()
    reasoning: str = ""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A new branch, current from here on.

    Attributes:
        branch: its name.
        base: the branch that it was made from.
        leaf: the turn that it goes on from; None: from before the first.
        start: the oldest turn that is still sent (older ones were dropped); None: all are.
        why: `fork`, `edit` or `compact`.
    """

    branch: str
    base: str
    leaf: int | None
    start: int | None = None
    why: str = "fork"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """The branch now ends at `leaf`; what came after it stays in the tree."""

    branch: str
    leaf: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WentTo:
    """Another branch is current from here on."""

    branch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRenamed:
    """A branch has a new name."""

    branch: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """The session's folder was given this name."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSaved:
    """A KV snapshot lies in `snapshots/` (written after the file was renamed into place).

    Attributes:
        name: its name there, without suffix.
        n_tokens: how many tokens it holds.
        token_hash: `snapshots.token_hash` of their ids.
        turn_id: the newest turn in it; None: the system text only.
        parent: the snapshot whose rows it continues; empty: it stands alone.
        n_bytes: its size.
    """

    name: str
    n_tokens: int
    token_hash: str
    turn_id: int | None = None
    parent: str = ""
    n_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotsGone:
    """These snapshots were deleted; `why` is `strip`, `budget`, `orphan` or `merged`."""

    names: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A sound line of a kind that this program does not know, verbatim."""

    kind: str
    raw: str


TurnEvent = (
    TurnStarted
    | TokensCommitted
    | RoundVerified
    | PlainStep
    | PolicyChanged
    | Notice
    | TurnFinished
)
Record = (
    Header
    | OptionsSet
    | SystemSet
    | Asked
    | Replied
    | Forked
    | Undone
    | WentTo
    | BranchRenamed
    | Renamed
    | SnapshotSaved
    | SnapshotsGone
    | Unknown
    | TurnEvent
)

KINDS: dict[str, type] = {
    "session": Header,
    "options": OptionsSet,
    "system": SystemSet,
    "asked": Asked,
    "reply": Replied,
    "fork": Forked,
    "undo": Undone,
    "goto": WentTo,
    "branch_name": BranchRenamed,
    "name": Renamed,
    "snapshot": SnapshotSaved,
    "snapshots_gone": SnapshotsGone,
    "started": TurnStarted,
    "tokens": TokensCommitted,
    "round": RoundVerified,
    "plain": PlainStep,
    "policy": PolicyChanged,
    "notice": Notice,
    "finished": TurnFinished,
}
_NAMES = {record: kind for kind, record in KINDS.items()}
_STREAMED = (TurnStarted, TokensCommitted, RoundVerified, PlainStep, PolicyChanged)


def kind_of(record: Record) -> str:
    """The word that names a record on its line."""
    return record.kind if isinstance(record, Unknown) else _NAMES[type(record)]


def is_kept(event: Event) -> bool:
    """Whether a transcript keeps an engine event."""
    return isinstance(event, TurnEvent)


def needs_sync(record: Record) -> bool:
    """Whether a record must be on the disk before the program goes on.

    What a running reply streams is handed to the system at once, so that a dead program loses
    none of it, and reaches the disk with the record that ends the turn.
    """
    return not isinstance(record, _STREAMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of a transcript.

    Attributes:
        n: its number, from 1.
        at: when it was written, UTC, ISO 8601.
        record: what it says.
        turns: with `asked` and `finished`: how many turns the session has, for quick listing.
        check: with `finished`: `reply_check` of the reply, so that a lost line is noticed.
    """

    n: int
    at: str
    record: Record
    turns: int | None = None
    check: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something unreadable in a transcript; lines count from 1."""

    line: int
    message: str
