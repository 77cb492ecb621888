"""Requests from the screen to the engine.

Each is answered by exactly one `Done` or `Refused` with its `request_id`. A reply's end is not
the answer of `Submit` (that only says: accepted) but the event `TurnFinished`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ds4chat.protocol.types import Message, Sampling, SpecOptions, ThinkMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Open a model file and its support file. Progress comes as `ModelLoading`."""

    request_id: int
    model_path: str
    support_path: str = ""  # empty: none
    support_note: str = ""  # of support files that lie beside the model and are not used
    needs_support: bool = False  # refuse the load rather than go on without the support file
    backend: str = "auto"
    ctx: int | None = None  # None: the engine's default for this file
    kv_fp8: bool = True
    cpu_blas: bool = True  # on the CPU, the fast matrix product if it can be built
    spec: SpecOptions = field(default_factory=SpecOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """Answer a conversation. The whole conversation is sent; the engine reuses what it holds.

    `messages` ends with a user message. `turn_id` is chosen by the caller and names the turn in
    every event. Nothing is remembered between turns except the KV cache, so that a restarted
    engine needs no other command than `Load` before it.
    """

    request_id: int
    turn_id: int
    messages: tuple[Message, ...]
    lane: int = 0
    think: ThinkMode = ThinkMode.OFF
    sampling: Sampling = field(default_factory=Sampling)
    spec: SpecOptions = field(default_factory=SpecOptions)
    max_tokens: int | None = None  # None: up to the context
    stop: tuple[str, ...] = ()
    ignore_end: bool = False  # end tokens do not end the reply (benchmarks)
    drafts: bool = True  # False: a new lane is plain for good, nothing kept for a drafter
    keep_reasoning: bool = False  # earlier replies keep their reasoning in the prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Stop the running turn of a lane after the round in progress; what was made is kept."""

    request_id: int
    lane: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Let a lane's turn wait after the round in progress, until `Resume` or `Cancel`."""

    request_id: int
    lane: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Let a paused lane go on; without a pause there is nothing to do."""

    request_id: int
    lane: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSpeculation:
    """Change how the running turn speculates, from the next round; the KV cache is kept.

    `keep_on`: draft until the turn ends, also where the policy would park.
    """

    request_id: int
    spec: SpecOptions
    lane: int = 0
    keep_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopThinking:
    """Close the reasoning section now (a forced `</think>`) and answer."""

    request_id: int
    lane: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenize:
    """Count and list the tokens of a text (plain: markers are text). Answer: `Tokenized`."""

    request_id: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseSession:
    """Forget a lane's KV cache."""

    request_id: int
    lane: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveSnapshot:
    """Keep a lane's KV state as `folder`/`name`. `SnapshotSaved` comes before the answer.

    The state is copied before the next command, and written meanwhile. With `before_reply` the
    state before the newest reply is kept: what the next prompt shares if that reply's reasoning
    will not be sent again.
    """

    request_id: int
    folder: str
    name: str
    lane: int = 0
    before_reply: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreSnapshot:
    """Let a lane go on from a snapshot. `SnapshotRestored` comes before the answer.

    Of `names`, newest first, the first is taken that belongs to the loaded model and whose
    tokens begin the conversation; if there is none, the lane stays as it is.

    `messages` is the conversation so far, with or without a reply at its end.
    """

    request_id: int
    folder: str
    names: tuple[str, ...]
    messages: tuple[Message, ...]
    lane: int = 0
    think: ThinkMode = ThinkMode.OFF
    keep_reasoning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """End the engine process; a running turn is cancelled first."""

    request_id: int


Command = (
    Load
    | Submit
    | Cancel
    | Pause
    | Resume
    | SetSpeculation
    | StopThinking
    | Tokenize
    | CloseSession
    | SaveSnapshot
    | RestoreSnapshot
    | Shutdown
)
