"""The frozen shape of the engine API, for the host, tests and the race.

Engine.open(model_path, support_path=None, *, backend="auto", ctx=None,
            confidence_threshold=None, policy="money", draft_max=None, kv_fp8=True,
            end_ids=None, knobs=None, progress=None)
returns an `EngineApi`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ds4chat.engine.policy_base import PlainKind, PolicyEvent
from ds4chat.protocol.types import Message, ModelInfo, Sampling, Source, SpecOptions, Token

Progress = Callable[[int, int], None]
"""Called with (tokens done, tokens to do) between prefill chunks; may raise to cancel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """What the last `speculate` did; the host turns it into RoundVerified or PlainStep.

    `proposal` and `confidences` are what was verified (after all cuts); empty for a plain step.
    `kind` says why a step was plain; `policy_log` holds ds4's log lines of the policy.
    """

    round: int  # 0: a plain step
    proposal: tuple[int, ...]
    confidences: tuple[float, ...]
    n_accepted: int
    draft_s: float
    verify_s: float  # a plain step's time when `round` is 0
    reason: str  # why this many drafts, or why plain
    kind: PlainKind | None = None  # None: a round
    policy_log: tuple[str, ...] = ()


class SessionApi(Protocol):
    """One mutable timeline over a loaded model. Positions count from 0."""

    @property
    def ids(self) -> tuple[int, ...]:
        """The committed token ids."""

    @property
    def n(self) -> int:
        """Number of committed tokens."""

    @property
    def next_source(self) -> Source:
        """Source of the next first token if it equals `choose()`."""

    @property
    def last_report(self) -> RoundReport | None:
        """What the last `step` or `speculate` did."""

    @property
    def draft_error(self) -> str:
        """Why the drafter is out of use in this session; empty while it works."""

    def sync(self, ids: Sequence[int], *, progress: Progress | None = None) -> int:
        """Hold exactly `ids`, reusing what is held; returns how many tokens were reused."""

    def logits(self) -> NDArray[np.float32]:
        """`(V,)` logits of the last committed token."""

    def choose(self) -> int:
        """The target's token for the next position."""

    def margin(self) -> float:
        """Top-1 minus top-2 logit of the last committed token."""

    def set_sampling(self, sampling: Sampling) -> None:
        """Sample with these settings from the next position on."""

    def set_spec(self, spec: SpecOptions, *, keep_on: bool = False) -> None:
        """Speculate with these options from the next round on; `keep_on`: do not park."""

    def set_end_ids(self, end_ids: frozenset[int]) -> None:
        """Let these ids end a reply from now on; none: nothing ends it (benchmarks)."""

    def begin_request(self) -> None:
        """Tell the scheduler that a reply begins."""

    def step(self, token: int) -> Token:
        """Commit one token by a plain step."""

    def speculate(
        self, first_token: int, max_tokens: int, *, proposal: Sequence[int] | None = None
    ) -> list[Token]:
        """Exactly one round (or one plain step, if the policy says so)."""

    def drain_policy_events(self) -> list[PolicyEvent]:
        """State changes of the policy since the last call, oldest first."""

    def set_commit_filter(self, accept: Callable[[Sequence[int]], int] | None) -> None:
        """Set the commit filter: `accept(ids)` gets [first, accepted drafts...] before commit.

        It returns how many of them to commit (1..len): stop texts end a round early through it.
        """

    def state(self) -> dict[str, NDArray[Any]]:
        """The logical state: name to array; drafter rows under `draft.`."""

    def kv_bytes(self) -> int:
        """Bytes that the KV state holds."""

    def close(self) -> None:
        """Free the arrays."""


class EngineApi(Protocol):
    """A loaded model and its tokenizer."""

    @property
    def info(self) -> ModelInfo:
        """What was opened."""

    @property
    def end_ids(self) -> frozenset[int]:
        """Ids that end a reply."""

    def tokenize(self, text: str) -> list[int]:
        """Plain text to ids: markers in it are text."""

    def render(
        self,
        messages: Sequence[Message | Mapping[str, str]],
        think: object = None,
        *,
        keep_reasoning: bool = False,
    ) -> list[int]:
        """A conversation to ids, the opener of the reply included."""

    def detokenize(self, ids: Sequence[int]) -> str:
        """Ids to text; broken UTF-8 becomes U+FFFD."""

    def session(
        self,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int = 0,
        drafts: bool = True,
    ) -> SessionApi:
        """A new empty timeline; without `drafts` it decodes plainly for good."""

    def stats(self) -> dict[str, Any]:
        """Figures of the engine: sizes, times, counts."""

    def close(self) -> None:
        """Free the weights."""
