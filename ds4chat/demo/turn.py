"""One scripted turn, a step at a time: no thread, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ds4chat.demo.script import Piece, Reply, Script, end_think_piece, plan
from ds4chat.demo.tally import Tally
from ds4chat.protocol.commands import Submit
from ds4chat.protocol.events import (
    Event,
    Notice,
    PlainStep,
    PolicyChanged,
    RoundVerified,
    StatsSnapshot,
    TokensCommitted,
    TurnFinished,
)
from ds4chat.protocol.types import (
    Channel,
    FinishReason,
    Policy,
    Source,
    Span,
    SpecOptions,
    SpecState,
    Token,
)

PARK_WINDOW = 8  # rounds that must lose before speculation parks
PARK_STEPS = 16  # plain steps until it is tried again
STATS_EVERY = 4  # steps between two StatsSnapshot

_GHOSTS = (" the", " then", " one", " it", "\n", ",", " is", " so", " value", ".", " and", "(")


@dataclass(frozen=True, slots=True)
class _Ending:
    reason: FinishReason
    message: str = ""
    hint: str = ""


@dataclass(slots=True, kw_only=True)
class Drafting:
    """What speculation is doing; outlives a turn."""

    state: SpecState
    n_rounds: int = 0  # of this engine's life
    n_parked: int = 0  # plain steps left to wait
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=PARK_WINDOW))


class Turn:
    """The reply to one `Submit`: `steps` yields the events of one round or step at a time.

    Commands that act on a running turn are the other methods; they take effect at the next
    step, as in the real engine.
    """

    def __init__(
        self, submit: Submit, script: Script, reply: Reply, tally: Tally, drafting: Drafting
    ) -> None:
        self._submit = submit
        self._script = script
        self._reply = reply
        self._tally = tally
        self._drafting = drafting
        self._todo = deque(plan(script, reply, submit.think))
        self._spec = submit.spec
        self._is_kept_on = False
        self._next_source = Source.PLAIN
        self._ending: _Ending | None = None
        self._n_steps = 0
        self._ids: list[int] = []

    @property
    def ids(self) -> list[int]:
        """The tokens generated so far."""
        return self._ids

    @property
    def n_steps(self) -> int:
        """Rounds and plain steps so far."""
        return self._n_steps

    @property
    def tally(self) -> Tally:
        """The figures so far."""
        return self._tally

    @property
    def is_ending(self) -> bool:
        """Whether it was cancelled or failed, so that no further step comes."""
        return self._ending is not None

    def cancel(self) -> None:
        """End before the next step; what was made is kept."""
        self._ending = _Ending(FinishReason.CANCELLED)

    def fail(self, message: str, hint: str = "") -> None:
        """End before the next step with an error."""
        self._ending = _Ending(FinishReason.ERROR, message, hint)

    def set_spec(self, spec: SpecOptions, *, keep_on: bool = False) -> None:
        """Speculate with other options from the next step; `keep_on`: without parking."""
        before, self._spec = self._spec, spec
        was_off = replace(before, enabled=True) == spec != before
        stays = self._is_kept_on and spec == before
        self._is_kept_on = spec.enabled and (keep_on or was_off or stays)

    def stop_thinking(self) -> None:
        """Put `</think>` next and drop the rest of the reasoning."""
        if not self._todo or self._todo[0].channel is not Channel.THINKING:
            return
        answer = [piece for piece in self._todo if piece.channel is Channel.ANSWER]
        self._todo = deque([end_think_piece(self._script, is_forced=True), *answer])

    def steps(self) -> Iterator[list[Event]]:
        """Yield the events of each step, `TurnFinished` last."""
        while (ending := self._ending or self._natural_end()) is None:
            events = list(self._policy_events())
            self._n_steps += 1
            n_drafts = self._n_drafts()
            if why := self._why_plain(n_drafts):
                events += self._plain_step(why)
            else:
                events += self._round(n_drafts)
            yield events + list(self._side_events())
        yield [
            TurnFinished(
                turn_id=self._submit.turn_id,
                reason=ending.reason,
                usage=self._tally.usage(),
                ids=tuple(self._ids),
                message=ending.message,
                hint=ending.hint,
            )
        ]

    def _natural_end(self) -> _Ending | None:
        if not self._todo:
            return _Ending(FinishReason.STOP)
        if self._n_steps == self._reply.nonfinite_after:
            return _Ending(
                FinishReason.NONFINITE,
                f"the model computed NaN at token {self._tally.n_tokens + 1}",
                "/retry answers again",
            )
        limit = self._submit.max_tokens
        if limit is not None and self._tally.n_tokens >= limit:
            return _Ending(FinishReason.LENGTH)
        if self._room() <= 0:
            return _Ending(
                FinishReason.CONTEXT_FULL,
                f"the context of {self._script.info.ctx:,} tokens is full",
                "/new starts an empty conversation",
            )
        return None

    def _room(self) -> int:
        return self._script.info.ctx - self._tally.n_prompt - self._tally.n_tokens

    def _n_drafts(self) -> int:
        """How many drafts the next round may put before the target."""
        limits = [self._script.info.block_size, self._room() - 1]
        if self._spec.draft_max is not None:
            limits.append(self._spec.draft_max)
        if self._submit.max_tokens is not None:
            limits.append(self._submit.max_tokens - self._tally.n_tokens - 1)
        return max(0, min(limits))

    def _policy_events(self) -> Iterator[Event]:
        drafting, spec = self._drafting, self._spec
        if drafting.state is SpecState.UNAVAILABLE:
            return
        if not spec.enabled:
            if drafting.state is not SpecState.OFF:
                yield self._change(SpecState.OFF, "switched off by you")
        elif drafting.state is SpecState.OFF:
            yield self._change(SpecState.ON, "switched on by you")
        elif drafting.state is SpecState.PARKED:
            if spec.policy is Policy.FIXED:
                yield self._change(SpecState.ON, "you asked for speculation at all times")
            elif self._is_kept_on:
                yield self._change(SpecState.ON, "you keep it on for this reply")
            elif drafting.n_parked <= 0:
                yield self._change(SpecState.ON, "trying again")
        elif (why := self._losing()) and not (spec.policy is Policy.FIXED or self._is_kept_on):
            drafting.n_parked = PARK_STEPS
            yield self._change(SpecState.PARKED, why)

    def _losing(self) -> str:
        recent, script = self._drafting.recent, self._script
        if len(recent) < PARK_WINDOW:
            return ""
        per_block = sum(recent) / len(recent)
        break_even = (script.draft_s + script.verify_s) / script.plain_step_s
        if per_block >= break_even:
            return ""
        return f"{per_block:.1f} per block, break-even is {break_even:.1f}"

    def _change(self, state: SpecState, reason: str) -> PolicyChanged:
        self._drafting.state = state
        self._drafting.recent.clear()
        return PolicyChanged(turn_id=self._submit.turn_id, state=state, reason=reason)

    def _round(self, n_drafts: int) -> Iterator[Event]:
        drafting = self._drafting
        proposal, confidences, n_right = self._propose(n_drafts)
        if not proposal:
            yield from self._plain_step("confidence below your threshold")
            return
        drafting.n_rounds += 1
        n_accepted = min(n_right, len(proposal))
        kept = [self._todo.popleft() for _ in range(n_accepted + 1)]
        accept_len = n_accepted + (1 if self._todo else 0)
        drafting.recent.append(accept_len)
        draft_s, verify_s = (
            self._jitter(self._script.draft_s),
            self._jitter(self._script.verify_s),
        )
        self._tally.add_round(
            n_drafted=len(proposal),
            n_accepted=n_accepted,
            accept_len=accept_len,
            draft_s=draft_s,
            verify_s=verify_s,
        )
        yield RoundVerified(
            turn_id=self._submit.turn_id,
            round=drafting.n_rounds,
            proposal_ids=tuple(piece.id for piece in proposal),
            proposal_texts=tuple(piece.text for piece in proposal),
            confidences=confidences,
            n_accepted=n_accepted,
            draft_s=draft_s,
            verify_s=verify_s,
            decision=f"drafting {len(proposal)} of {self._script.info.block_size}",
        )
        yield from self._commit(kept, confidences, drafting.n_rounds)
        is_full = n_accepted == len(proposal)
        self._next_source = Source.BONUS if is_full else Source.FALLBACK

    def _propose(self, n_drafts: int) -> tuple[list[Piece], tuple[float, ...], int]:
        """Drafts after the confidence cut, their confidences, and how many are right."""
        reply, coming = self._reply, list(self._todo)[1 : n_drafts + 1]
        wanted = reply.accepts[self._drafting.n_rounds % len(reply.accepts)]
        n_right = min(wanted, len(coming))
        if any(piece.is_forced for piece in coming[:n_right]):
            n_right = 0
        # Where a right draft is the last token, the next would be the end token, cut off.
        at_end = 0 < n_right == len(self._todo) - 1
        proposal = coming[:n_right]
        if not at_end:
            proposal += self._ghosts(n_drafts - n_right, coming[n_right : n_right + 1])
        confidences = self._confidences(n_right, len(proposal))
        n_kept = self._cut(confidences)
        return proposal[:n_kept], confidences[:n_kept], n_right

    def _why_plain(self, n_drafts: int) -> str:
        if self._drafting.state is not SpecState.ON:
            return str(self._drafting.state)
        return "no room to draft" if n_drafts <= 0 else ""

    def _plain_step(self, reason: str) -> Iterator[Event]:
        self._drafting.n_parked -= 1
        step_s = self._jitter(self._script.plain_step_s)
        self._tally.add_plain(step_s)
        yield PlainStep(turn_id=self._submit.turn_id, step_s=step_s, reason=reason)
        self._next_source = Source.PLAIN
        yield from self._commit([self._todo.popleft()], (), 0)

    def _commit(
        self, pieces: list[Piece], confidences: tuple[float, ...], round_: int
    ) -> Iterator[Event]:
        spans: list[Span] = []
        channel = pieces[0].channel
        for position, piece in enumerate(pieces):
            if piece.channel is not channel:
                yield self._spans(channel, spans)
                channel, spans = piece.channel, []
            confidence = confidences[position - 1] if position else None
            source = Source.ACCEPTED if position else self._next_source
            token = Token(
                id=piece.id,
                source=Source.FORCED if piece.is_forced else source,
                round=round_,
                position=position,
                confidence=confidence,
                margin=round(0.2 + (piece.id % 97) / 12, 3),
                logit=round(12 + (piece.id % 89) / 8, 3),
            )
            spans.append(Span(text=piece.text, token=token))
            self._ids.append(piece.id)
        self._tally.n_tokens += len(pieces)
        self._tally.n_thinking += sum(p.channel is Channel.THINKING for p in pieces)
        yield self._spans(channel, spans)

    def _spans(self, channel: Channel, spans: list[Span]) -> TokensCommitted:
        return TokensCommitted(
            turn_id=self._submit.turn_id,
            channel=channel,
            spans=tuple(spans),
            at_s=self._tally.decode_s,
        )

    def _side_events(self) -> Iterator[Event]:
        turn_id, warning = self._submit.turn_id, self._reply.warning
        if warning is not None and self._n_steps == 1:
            yield Notice(
                turn_id=turn_id, level="warning", message=warning.message, hint=warning.hint
            )
        if self._n_steps % STATS_EVERY == 0:
            yield StatsSnapshot(turn_id=turn_id, tps=self._tally.tps, usage=self._tally.usage())

    def _ghosts(self, count: int, right: list[Piece]) -> list[Piece]:
        """Made-up wrong drafts; the first is never the token that was right there."""
        words = [word for word in _GHOSTS if word not in {piece.text for piece in right}]
        seed = self._drafting.n_rounds * 5
        texts = [words[(seed + i * 3) % len(words)] for i in range(count)]
        return [
            Piece(id=self._script.token_id(t.encode()), text=t, channel=Channel.ANSWER)
            for t in texts
        ]

    def _confidences(self, n_right: int, n: int) -> tuple[float, ...]:
        """High where the draft is right, lower from the first wrong one; the same every run."""
        noise = [(self._drafting.n_rounds * 37 + i * 23) % 30 / 100 for i in range(n)]
        return tuple(
            round(0.97 - noise[i] if i < n_right else max(0.05, 0.55 - noise[i] - i / 20), 3)
            for i in range(n)
        )

    def _cut(self, confidences: tuple[float, ...]) -> int:
        threshold = self._spec.confidence_threshold
        if threshold is None:
            return len(confidences)
        low = (i for i, confidence in enumerate(confidences) if confidence < threshold)
        return next(low, len(confidences))

    def _jitter(self, seconds: float) -> float:
        return seconds * (1 + ((self._n_steps * 7919) % 21 - 10) / 200)


@dataclass(slots=True, kw_only=True)
class Running:
    """A turn in its lane. `engine_s` is its scripted decode time."""

    lane: int
    turn: Turn
    steps: Iterator[None]
    engine_s: float = 0.0
    is_prefilled: bool = False
    is_paused: bool = False

    @property
    def is_waiting(self) -> bool:
        """Whether it is paused and nobody wants its end."""
        return self.is_paused and not self.turn.is_ending
