"""One timeline: tokens in order, the state that belongs to them, and what comes next.

Speculation changes nothing but speed: after every committed token the logical state is bit for
bit that of plain decoding, whatever was drafted (`design`: append, verify, set n).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ds4chat.draft.verify import (
    MAX_VERIFIED,
    next_source,
    room_for_drafts,
)
from ds4chat.engine.api import Progress, RoundReport
from ds4chat.engine.choices import Choices, judge
from ds4chat.engine.drafting import PLAIN_STEP, Draft, Drafting
from ds4chat.engine.marks import Marks
from ds4chat.engine.policy_base import PolicyEvent, RoundOutcome, Scheduler
from ds4chat.engine.runner import Runner, Timeline
from ds4chat.engine.sampling import margin
from ds4chat.engine.snapshot_chain import Head
from ds4chat.errors import ContextFullError, EngineError
from ds4chat.protocol.types import Sampling, Source, SpecOptions, Token

MakeScheduler = Callable[[SpecOptions], Scheduler]
CommitFilter = Callable[[Sequence[int]], int]


class Session:
    """See `engine/api.py` for the contract. Made by `Engine.session`."""

    def __init__(
        self,
        runner: Runner,
        *,
        ctx: int,
        end_ids: frozenset[int],
        sampling: Sampling,
        spec: SpecOptions,
        make_scheduler: MakeScheduler,
        check_thread: Callable[[], None],
    ) -> None:
        self._runner = runner
        self._ctx = ctx
        self._end_ids = end_ids
        self._sampling = sampling
        self._spec = spec
        self._make_scheduler = make_scheduler
        self._check_thread = check_thread
        self._timeline: Timeline | None = runner.new_timeline()
        self._ids: list[int] = []
        self._row: NDArray[np.float32] | None = None
        self._choices = Choices()
        self.marks = Marks()
        self._next_source = Source.PLAIN
        self._n_rounds = 0
        self._commit_filter: CommitFilter | None = None
        self._scheduler = make_scheduler(spec)
        self._drafting = Drafting(runner, end_ids)
        self.last_report: RoundReport | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        """The committed token ids."""
        return tuple(self._ids)

    @property
    def n(self) -> int:
        """Number of committed tokens."""
        return len(self._ids)

    @property
    def end_ids(self) -> frozenset[int]:
        """Ids that end a reply; they are never evaluated."""
        return self._end_ids

    @property
    def next_source(self) -> Source:
        """Source of the next first token if it equals `choose()`; else it is `plain`."""
        return self._next_source

    @property
    def draft_error(self) -> str:
        """Why the drafter is out of use in this session; empty while it works."""
        return self._drafting.error

    @property
    def scheduler(self) -> Scheduler:
        """The policy that decides how far to draft."""
        return self._scheduler

    def sync(self, ids: Sequence[int], *, progress: Progress | None = None) -> int:
        """Hold exactly `ids`, reusing what is held.

        Returns how many tokens were reused; none after NaN. `progress` is called between
        chunks with (done, to do); it may raise to cancel, what was evaluated then stays held.

        Raises:
            ValueError: `ids` is empty or holds an id outside the vocabulary.
            ContextFullError: more tokens than the context.
        """
        timeline = self._open()
        wanted = [self._checked(i) for i in ids]
        if not wanted:
            raise ValueError("a session holds at least one token")
        if len(wanted) > self._ctx:
            raise ContextFullError(
                f"{len(wanted):,} tokens do not fit into a context of {self._ctx:,}",
                "shorten the conversation, or start with a larger --ctx",
            )
        if self._row is not None and not np.isfinite(self._row).all():
            self.marks.clear()  # nothing that NaN has touched is used again
            timeline = self._go_back([])
        elif wanted == self._ids and self._row is not None:
            return len(wanted)
        if wanted[: len(self._ids)] != self._ids or len(wanted) == len(self._ids):
            timeline = self._go_back(wanted)
        n_reused = len(self._ids)
        self._next_source, self._row = Source.PLAIN, None
        n_new = len(wanted) - n_reused
        if progress is not None:
            progress(0, n_new)
        for done, row in self.marks.prefill(self._runner, timeline, wanted[n_reused:]):
            self._ids = wanted[: n_reused + done]
            self._row = row if done == n_new else None
            if progress is not None:
                progress(done, n_new)
        return n_reused

    def logits(self) -> NDArray[np.float32]:
        """`(V,)` float32 logits of the last committed token.

        Raises:
            EngineError: nothing is held yet, or a prefill was cancelled.
        """
        self._open()
        return self._last_row().copy()

    def choose(self) -> int:
        """The next position's argmax or keyed sample; NonFiniteError if it has none."""
        self._open()
        return self._choices.of(self._last_row(), self._sampling, self.n)

    def margin(self) -> float:
        """Top-1 minus top-2 logit of the last committed token."""
        self._open()
        return margin(self._last_row())

    def set_sampling(self, sampling: Sampling) -> None:
        """Sample with these settings from the next position on."""
        self._sampling = sampling

    def set_spec(self, spec: SpecOptions, *, keep_on: bool = False) -> None:
        """Speculate with these options from the next round on; `keep_on`: do not park."""
        before, self._spec = self._spec, spec
        if is_new := replace(before, enabled=spec.enabled) != spec:
            self._scheduler = self._make_scheduler(spec)
        if spec.enabled and (keep_on or not (is_new or before.enabled)):
            self._scheduler.override(True)

    def set_end_ids(self, end_ids: frozenset[int]) -> None:
        """Let these ids end a reply from now on; none: nothing ends it (benchmarks)."""
        self._end_ids = self._drafting.end_ids = end_ids

    def set_commit_filter(self, accept: CommitFilter | None) -> None:
        """Let `accept([first, accepted drafts...])` say how many of them to commit (1..len)."""
        self._commit_filter = accept

    def begin_request(self) -> None:
        """Tell the policy that a reply begins."""
        self._scheduler.begin_request()

    def drain_policy_events(self) -> list[PolicyEvent]:
        """State changes of the policy since the last call."""
        return self._scheduler.drain_events()

    def step(self, token: int) -> Token:
        """Commit one token by a plain step.

        Raises:
            ContextFullError: the context is full.
            ValueError: `token` is an end id or outside the vocabulary.
        """
        return self._plain_step(self._first(token), PLAIN_STEP)

    def speculate(
        self, first_token: int, max_tokens: int, *, proposal: Sequence[int] | None = None
    ) -> list[Token]:
        """Exactly one round, or one plain step if the policy says so.

        Args:
            first_token: the next token, normally `choose()`; it is always committed.
            max_tokens: most tokens to commit, at least 1.
            proposal: verify these drafts, whatever policy and confidences say (the drafter
                still runs). At most seven.

        Returns:
            The committed tokens: `first_token`, then the accepted drafts.

        Raises:
            ContextFullError: the context is full.
            ValueError: an argument is out of range.
        """
        if max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens}; it must be at least 1")
        if proposal is not None and len(proposal) > MAX_VERIFIED:
            raise ValueError(f"{len(proposal)} drafts proposed; at most {MAX_VERIFIED} fit")
        first = self._first(first_token)
        room = room_for_drafts(budget=max_tokens, ctx=self._ctx, n=self.n)
        if proposal is None:
            draft = self._drafting.decide(
                self._open(), first, max_tokens, room, self._spec, self._scheduler
            )
        else:
            given = [self._checked(t) for t in proposal]
            draft = self._drafting.given(self._open(), first, room, given)
        if not draft.is_round:
            return [self._plain_step(first, draft)]
        return self._verify(first, draft)

    def state(self) -> dict[str, NDArray[Any]]:
        """The logical state: name to array (engine.md 1.5); drafter rows under `draft.`."""
        return {
            "n": np.array(self.n, np.int64),
            "ids": np.array(self._ids, np.int64),
            "logits": self.logits(),
            **self._open().logical_state(),
        }

    def head(self) -> Head:
        """What a snapshot holds beside the arrays; raises EngineError without any logits."""
        return Head(
            ids=self.ids,
            row=self.logits(),
            sampling=self._sampling,
            next_source=self._next_source,
            n_rounds=self._n_rounds,
        )

    def resume(self, head: Head, timeline: Timeline) -> None:
        """Go on from a snapshot: `timeline` holds the arrays of `head.ids`."""
        self._open()
        self._timeline, self._ids, self._row = timeline, list(head.ids), head.row
        self._sampling, self._next_source = head.sampling, head.next_source
        self._n_rounds = head.n_rounds
        self.marks.clear()

    @property
    def timeline(self) -> Timeline:
        """The arrays behind the session."""
        return self._open()

    def poison(self) -> None:
        """Fill every slot outside the logical state with NaN (tests of exactness)."""
        self._open().poison()

    def kv_bytes(self) -> int:
        """Bytes that the state holds."""
        return self._open().n_bytes()

    def close(self) -> None:
        """Free the arrays; the session cannot be used afterwards."""
        self._check_thread()
        self._timeline = self._row = None
        self.marks.clear()

    # -- a round ---------------------------------------------------------------------------

    def _verify(self, first: int, draft: Draft) -> list[Token]:
        """Evaluate anchor and drafts in one pass and commit what the target also chose."""
        rows, told, verify_s = self._evaluate(first, draft)
        n_accepted, chosen = judge(rows, draft.kept, self._sampling, self.n + 1)
        committed = [first, *draft.kept[:n_accepted]]
        n_commit = len(committed)
        if self._commit_filter is not None:
            n_commit = min(max(1, self._commit_filter(committed)), n_commit)
        self._n_rounds += 0 if draft.is_empty else 1
        tokens = draft.tokens(told, rows, self._n_rounds, n_commit)
        source = Source.ACCEPTED
        if n_commit == len(committed):
            source = next_source(
                n_kept=len(draft.kept),
                n_accepted=n_accepted,
                next_token=chosen,
                drafted_end=draft.end,
            )
        self._commit(committed[:n_commit], rows[n_commit - 1], source)
        if n_commit == len(committed) and chosen >= 0:
            self._choices.note(self._last_row(), self._sampling, self.n, chosen)
        self._report(draft, n_commit - 1, verify_s)
        return tokens

    def _report(self, draft: Draft, n_accepted: int, verify_s: float) -> None:
        self.last_report = draft.report(self._n_rounds, n_accepted, verify_s)
        outcome = RoundOutcome(
            tested=len(draft.kept),
            accepted=n_accepted,
            draft_s=draft.draft_s,
            verify_s=verify_s,
            confidences=draft.confidences,
            confidence0=draft.confidence0,
            end_drafted=draft.end is not None,
        )
        self._scheduler.note_round(outcome)
        self._take_policy_log()

    def _plain_step(self, token: int, draft: Draft) -> Token:
        rows, told, step_s = self._evaluate(token, draft)
        self._commit([token], rows[0], Source.PLAIN)
        self._scheduler.note_plain(step_s)
        self.last_report = draft.report(0, 0, step_s)
        self._take_policy_log()
        return told

    def _evaluate(self, first: int, draft: Draft) -> tuple[NDArray[np.float32], Token, float]:
        """Rows of the anchor and the drafts, what is told of the anchor, and the seconds."""
        told: list[Token] = []
        start = time.perf_counter()
        rows = self._runner.evaluate_rows(
            self._open(), [first, *draft.kept], meanwhile=lambda: told.append(self._told(first))
        )
        return rows, told[0], time.perf_counter() - start

    def _take_policy_log(self) -> None:
        if (lines := self._scheduler.drain_log()) and self.last_report is not None:
            self.last_report = replace(self.last_report, policy_log=lines)

    # -- the timeline ----------------------------------------------------------------------

    def _commit(self, ids: list[int], row: NDArray[np.float32], source: Source) -> None:
        timeline = self._open()
        self._ids.extend(ids)
        timeline.log.n = len(self._ids)
        self._row = row
        self._next_source = source

    def _first(self, token: int) -> int:
        """Check the first token of a step or round, and what it is told of."""
        self._open()
        token = self._checked(token)
        if token in self._end_ids:
            raise ValueError(f"token {token} ends the reply; it is never evaluated")
        if self.n + 1 > self._ctx:
            raise ContextFullError(
                f"the context of {self._ctx:,} tokens is full",
                "start a new chat, or start with a larger --ctx",
            )
        self.choose()
        return token

    def _told(self, token: int) -> Token:
        """The next token as a plain step reports it; known before it is evaluated."""
        row = self._last_row()
        is_own = token == self.choose()
        return Token(
            id=token,
            source=self._next_source if is_own else Source.PLAIN,
            round=0,
            position=0,
            confidence=None,
            margin=margin(row),
            logit=float(row[token]),
        )

    def _checked(self, token: int) -> int:
        n_vocab = self._runner.target.config.n_vocab
        if not 0 <= token < n_vocab:
            raise ValueError(f"token {token} is outside the vocabulary of {n_vocab:,}")
        return int(token)

    def _last_row(self) -> NDArray[np.float32]:
        if self._row is None:
            raise EngineError("the session holds no evaluated token", "call sync() first")
        return self._row

    def _go_back(self, wanted: list[int]) -> Timeline:
        """Hold what a mark has in common with `wanted`, or nothing."""
        timeline = self._open()
        n = self.marks.rewind(timeline, self._ids, wanted)
        if n == 0:
            self._timeline = timeline = self._runner.new_timeline()
        del self._ids[n:]
        self._row = None
        return timeline

    def _open(self) -> Timeline:
        self._check_thread()
        if self._timeline is None:
            raise EngineError("the session is closed", "open a new one")
        return self._timeline
