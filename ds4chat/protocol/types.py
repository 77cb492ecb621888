"""Values that travel between the screen and the engine, and that the Python API returns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PROTOCOL_VERSION = 1


class Source(StrEnum):
    """Where a token came from (the five words that a person sees)."""

    ACCEPTED = "accepted"  # drafted, and the target agreed
    FALLBACK = "fallback"  # the target's token where the draft was wrong
    BONUS = "bonus"  # the target's token after a fully accepted proposal
    PLAIN = "plain"  # a plain decode step, and the first token of a reply
    FORCED = "forced"  # put there by the program; in no rate


class Channel(StrEnum):
    """Which part of a reply a text belongs to."""

    THINKING = "thinking"
    ANSWER = "answer"


class Role(StrEnum):
    """Who wrote a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class ThinkMode(StrEnum):
    """How much the model reasons before it answers."""

    OFF = "off"
    LOW = "low"
    HIGH = "high"
    MAX = "max"


class Policy(StrEnum):
    """How the engine decides how far to draft (`money` measures, `window` is ds4's)."""

    MONEY = "money"
    WINDOW = "window"
    FIXED = "fixed"


class SpecState(StrEnum):
    """What speculation is doing."""

    ON = "on"
    OFF = "off"  # switched off by the user
    PARKED = "parked"  # paused by the policy, because it loses
    UNAVAILABLE = "unavailable"  # no support file, or the drafter failed


class FinishReason(StrEnum):
    """Why a turn ended."""

    STOP = "stop"
    LENGTH = "length"
    CONTEXT_FULL = "context_full"
    CANCELLED = "cancelled"
    NONFINITE = "nonfinite"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One committed token and where it came from.

    `round` counts the rounds of a session from 1; 0 means a plain step. `position` is the place
    in the block: 0 for the anchor (the target's own token), 1.. for accepted drafts.
    `confidence` is the drafter's estimate in 0..1 for an accepted draft, else None. `margin` is
    the target's top-1 minus top-2 logit where the token was chosen, `logit` the token's own one
    there (None: not recorded).
    """

    id: int
    source: Source
    round: int
    position: int
    confidence: float | None
    margin: float
    logit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Text that one token completed, with that token's provenance.

    The texts of a channel's spans, joined, are the channel's text. `text` is empty for a token
    whose bytes only complete a character later, and for a marker that is not shown.
    """

    text: str
    token: Token


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation.

    An assistant message keeps `ids`, exactly the tokens that were generated after its opener
    (reasoning and `</think>` included, end token excluded), so that the KV cache can be reused
    without re-tokenising; `think` says which opener it had.
    """

    role: Role
    text: str
    reasoning: str = ""
    ids: tuple[int, ...] = ()
    think: ThinkMode = ThinkMode.OFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the target chooses a token. Temperature 0 is argmax, lowest id on ties."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecOptions:
    """How speculation runs. None means: the engine's own default."""

    enabled: bool = True
    policy: Policy = Policy.MONEY
    confidence_threshold: float | None = None
    draft_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What the engine opened. Sizes in bytes, context in tokens."""

    name: str
    path: str
    quant: str
    n_layers: int
    n_vocab: int
    ctx: int
    ctx_trained: int
    support_name: str = ""  # empty: no support file
    block_size: int = 0  # 0: no support file
    backend: str
    device: str
    activation_dtype: str
    weight_bytes: int
    load_s: float
    kv_fp8: bool
    is_exact: bool  # the start-up probe found every op row-invariant, or rows run one by one
    exact_note: str = ""
    think_default: ThinkMode = ThinkMode.OFF
    notes: tuple[str, ...] = ()  # things to tell the person after loading
    fingerprint: str = ""  # of the model file, hex; empty: unknown
    support_fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The figures of one reply. Times are engine seconds.

    `accept_len` is the mean over rounds of accepted + 1 (a round that a stop token ended counts
    its accepted drafts only); plain steps are excluded. `saved_s` is the time that plain
    decoding would have taken, at the best plain step of this process, minus `decode_s`.
    """

    n_prompt: int = 0
    n_cached: int = 0
    n_tokens: int = 0  # generated tokens, reasoning included, end token excluded
    n_thinking: int = 0
    n_rounds: int = 0
    n_plain_steps: int = 0
    n_drafted: int = 0  # drafts put before the target
    n_accepted: int = 0
    prefill_s: float = 0.0
    first_token_s: float = 0.0  # from Submit to the first token
    decode_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0
    plain_s: float = 0.0
    plain_step_s: float | None = None  # best plain step: running median of this process
    saved_s: float | None = None
    accept_len: float | None = None
    by_position: tuple[tuple[int, int], ...] = ()  # per draft position: (accepted, tested)
    histogram: tuple[int, ...] = ()  # rounds by number of accepted drafts, 0..block_size
    draft_lens: tuple[int, ...] = ()  # drafting steps by number of drafts tested, 0..block_size
    n_no_draft: int = 0  # steps that drafted, but every draft was cut
    n_no_room: int = 0  # plain steps because budget or context left no draft
    n_pause_skips: int = 0  # plain steps inside a pause of the policy
    n_tail_skips: int = 0  # plain steps because the reply was nearly over
    n_draft_errors: int = 0
    kv_bytes: int = 0
    n_context: int = 0  # tokens held after the turn
