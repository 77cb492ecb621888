"""Facts that the engine reports.

A turn obeys this grammar, per lane:

    TurnStarted PrefillProgress*
    (TokensCommitted | RoundVerified | PlainStep | PolicyChanged | StatsSnapshot | Notice)*
    TurnFinished

Load and notice events (with `turn_id` None) may stand between turns, `SnapshotSaved` anywhere.
`TurnFinished` is always sent, exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass

from ds4chat.protocol.types import Channel, FinishReason, ModelInfo, Span, SpecState, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First line of the engine process."""

    protocol_version: int
    build: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The command was carried out, or, for `Submit`, accepted."""

    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The command was not carried out."""

    request_id: int
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenized:
    """The token ids of a text and the text of each."""

    request_id: int
    ids: tuple[int, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLoading:
    """How far loading has come. `stage` is a short phrase for the screen; total 0: unknown."""

    stage: str
    done_bytes: int
    total_bytes: int
    elapsed_s: float = 0.0
    done_tensors: int = 0
    total_tensors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReady:
    """The model can answer."""

    info: ModelInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFailed:
    """The engine cannot go on (`fatal`), or a load failed (not fatal)."""

    message: str
    hint: str = ""
    fatal: bool = True
    log_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted:
    """A reply begins; `n_cached` prompt tokens were already held."""

    turn_id: int
    lane: int
    n_prompt: int
    n_cached: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillProgress:
    """Prompt tokens evaluated so far, of all that must be."""

    turn_id: int
    n_done: int
    n_total: int
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensCommitted:
    """New text of one channel, in order, with provenance.

    `at_s` is the lane's own clock then: engine seconds that the turn has decoded for. Time in
    which the engine worked for another lane, or waited, is not in it.
    """

    turn_id: int
    channel: Channel
    spans: tuple[Span, ...]
    at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundVerified:
    """One speculative round.

    `proposal_ids` and `proposal_texts` are what was put before the target (after all cuts),
    `confidences` the drafter's estimates for them, `n_accepted` how many were kept. The rest
    are ghosts. `decision` says in words why this many were drafted.
    """

    turn_id: int
    round: int
    proposal_ids: tuple[int, ...]
    proposal_texts: tuple[str, ...]
    confidences: tuple[float, ...]
    n_accepted: int
    draft_s: float
    verify_s: float
    decision: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainStep:
    """One plain decode step and why it was plain."""

    turn_id: int
    step_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChanged:
    """Speculation was switched on, off, parked, un-parked or became unavailable."""

    turn_id: int | None
    state: SpecState
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsSnapshot:
    """Running figures of a turn, at most ten a second."""

    turn_id: int
    tps: float
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something a person should know. `level` is `info`, `warning` or `error`."""

    turn_id: int | None
    level: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFinished:
    """A reply ended. `ids` are exactly the generated tokens, for `Message.ids`."""

    turn_id: int
    reason: FinishReason
    usage: Usage
    ids: tuple[int, ...]
    message: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSaved:
    """A snapshot is in place: on the disk, under its name.

    `token_hash` is SHA-256 (hex) over its token ids as little-endian 32-bit integers, `parent`
    the snapshot that it continues (empty: none), `n_bytes` what it added to the disk.
    """

    folder: str
    name: str
    n_tokens: int
    token_hash: str
    parent: str = ""
    n_bytes: int = 0
    save_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRestored:
    """A lane holds a snapshot's tokens; `notices` is what a person should know about it."""

    lane: int
    folder: str
    name: str
    n_tokens: int
    notices: tuple[str, ...] = ()


Event = (
    Hello
    | Done
    | Refused
    | Tokenized
    | ModelLoading
    | ModelReady
    | EngineFailed
    | TurnStarted
    | PrefillProgress
    | TokensCommitted
    | RoundVerified
    | PlainStep
    | PolicyChanged
    | StatsSnapshot
    | Notice
    | TurnFinished
    | SnapshotSaved
    | SnapshotRestored
)


def can_replace(event: Event) -> bool:
    """Say whether a newer event of the same kind makes this one worthless."""
    return isinstance(event, PrefillProgress | StatsSnapshot | ModelLoading)
