"""The reply loop: one turn over a session, a round at a time.

A `Turn` advances by one prefill or one round a call, so that a host can answer commands between
rounds and let several lanes take turns. It reports protocol events and obeys their grammar:
`TurnStarted` first, `TurnFinished` last and exactly once. It knows neither MLX nor the pipe;
the session, the text tools, the clock and `emit` are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from ds4chat.engine import turn_ends
from ds4chat.engine.api import RoundReport, SessionApi
from ds4chat.engine.ds4_log import step_lines
from ds4chat.engine.stats import TurnStats
from ds4chat.engine.turn_ends import End
from ds4chat.engine.turn_plan import TurnControls, TurnPlan, TurnTools
from ds4chat.errors import Ds4Error
from ds4chat.protocol.events import (
    Notice,
    PlainStep,
    PolicyChanged,
    PrefillProgress,
    RoundVerified,
    StatsSnapshot,
    TokensCommitted,
    TurnFinished,
    TurnStarted,
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
    Usage,
)
from ds4chat.text.loops import LoopWatch

MIN_REPORT_S = 0.1  # at most ten PrefillProgress and StatsSnapshot a second


class PrefillCancelledError(Exception):
    """Raised through `SessionApi.sync` by the progress callback to end a prefill."""


class Turn:
    """One reply. Call `advance` until it returns False."""

    def __init__(
        self, plan: TurnPlan, session: SessionApi, controls: TurnControls, tools: TurnTools
    ) -> None:
        self._plan = plan
        self._session = session
        self._controls = controls
        self._tools = tools
        self._emit = tools.emit
        self._stats = TurnStats(plan.block_size)
        self._figures = Usage(n_prompt=len(plan.ids))
        self._spec = plan.spec
        self._state = (
            SpecState.UNAVAILABLE if session.draft_error else self._state_of(plan.spec)
        )
        self._ids: list[int] = []
        self._n_thinking = 0
        self._loops = LoopWatch()
        self._is_started = self._is_prefilled = self._is_finished = False
        self._created_s = self._advanced_s = tools.clock()
        self._reported_s = float("-inf")
        self._held = (0, 0)  # bytes and tokens of the KV state, when last looked at
        self.engine_s = 0.0  # decoding only: what the lanes of a race are compared by

    @property
    def lane(self) -> int:
        """The lane that it runs in."""
        return self._plan.lane

    @property
    def is_prefilled(self) -> bool:
        """Whether the prompt is evaluated."""
        return self._is_prefilled

    @property
    def is_waiting(self) -> bool:
        """Whether it is paused and nobody wants its end."""
        return self._controls.is_paused and not self._controls.is_cancelled

    @property
    def is_finished(self) -> bool:
        """Whether `TurnFinished` was sent."""
        return self._is_finished

    def advance(self) -> bool:
        """Do one prefill or one round; return whether the turn goes on.

        Raises:
            Exception: whatever the engine raises that is no `Ds4Error`; call `fail` then.
        """
        if self._is_finished:
            return False
        self._advanced_s = self._tools.clock()
        try:
            end = self._decode() if self._is_prefilled else self._prefill()
        except PrefillCancelledError:
            end = End(reason=FinishReason.CANCELLED)
        except Ds4Error as error:
            end = turn_ends.end_of(error)
        self._held = self._session.kv_bytes(), self._session.n
        self._charge()
        if end is not None:
            self._finish(end)
        elif self._is_prefilled and self._ids:
            self._report_stats()
        return not self._is_finished

    def fail(self, message: str, hint: str = "") -> None:
        """End the turn with an error, unless it has ended."""
        if not self._is_finished:
            self._finish(End(reason=FinishReason.ERROR, message=message, hint=hint))

    # prefill

    def _prefill(self) -> End | None:
        plan = self._plan
        if self._controls.is_cancelled:
            raise PrefillCancelledError
        if len(plan.ids) >= plan.ctx:
            return turn_ends.context_full(len(plan.ids), plan.ctx)
        self._session.set_sampling(plan.sampling)
        self._session.set_spec(plan.spec)
        self._session.set_end_ids(plan.end_ids)
        self._session.set_commit_filter(self._admit)
        self._session.drain_policy_events()  # of the last reply
        n_cached = self._session.sync(plan.ids, progress=self._on_progress)
        self._start(n_cached)
        self._session.begin_request()
        self._tell_policy()
        self._is_prefilled = True
        return None

    def _on_progress(self, n_done: int, n_total: int) -> None:
        if self._controls.is_cancelled and n_done < n_total:
            raise PrefillCancelledError
        self._start(len(self._plan.ids) - n_total)
        now = self._tools.clock()
        if n_done < n_total and now - self._reported_s < MIN_REPORT_S:
            return
        self._reported_s = now
        self._emit(
            PrefillProgress(
                turn_id=self._plan.turn_id,
                n_done=n_done,
                n_total=n_total,
                elapsed_s=now - self._advanced_s,
            )
        )

    def _start(self, n_cached: int) -> None:
        if self._is_started:
            return
        self._is_started = True
        self._figures = replace(self._figures, n_cached=n_cached)
        self._emit(
            TurnStarted(
                turn_id=self._plan.turn_id,
                lane=self._plan.lane,
                n_prompt=len(self._plan.ids),
                n_cached=n_cached,
            )
        )

    def _decode(self) -> End | None:
        if self._controls.is_cancelled:
            return End(reason=FinishReason.CANCELLED)
        stop_thinking, change = self._controls.take()
        if change is not None:
            self._respec(change.spec, keep_on=change.keep_on)
        first = self._session.choose()
        if (end := self._end_before(first)) is not None:
            return end
        if stop_thinking and self._is_thinking():
            self._close_thinking()
        else:
            self._round(first)
        return None if self._tools.gate.hit is None else End(reason=FinishReason.STOP)

    def _end_before(self, first: int) -> End | None:
        if first in self._plan.end_ids:
            self._stats.note_end()
            return End(reason=FinishReason.STOP)
        limit = self._plan.max_tokens
        if limit is not None and len(self._ids) >= limit:
            return turn_ends.length(limit)
        if self._session.n >= self._plan.ctx:
            return turn_ends.context_full(self._session.n, self._plan.ctx)
        return None

    def _round(self, first: int) -> None:
        room = self._plan.ctx - self._session.n
        if self._plan.max_tokens is not None:
            room = min(room, self._plan.max_tokens - len(self._ids))
        pos = self._session.n
        if self._spec.enabled and self._plan.block_size:
            tokens = self._session.speculate(first, room)
        else:
            tokens = [self._session.step(first)]
        if self._session.last_report is not None:
            self._report_round(self._session.last_report)
        self._commit(tokens)
        self._tell_policy()
        self._log_round(room, pos)
        if self._session.draft_error:
            self._lose_drafter(self._session.draft_error)

    def _log_round(self, budget: int, pos: int) -> None:
        write, report = self._tools.spec_log, self._session.last_report
        if write is None or report is None:
            return
        for line in step_lines(report, budget=budget, pos=pos, base=self._session.choose):
            write(line)

    def _admit(self, ids: Sequence[int]) -> int:
        n_until = self._tools.gate.n_until_stop(self._tools.splitter, ids)
        return len(ids) if n_until is None else n_until

    def _close_thinking(self) -> None:
        assert self._plan.close_think_id is not None
        token = self._session.step(self._plan.close_think_id)
        self._commit([replace(token, source=Source.FORCED, confidence=None)])

    def _is_thinking(self) -> bool:
        return (
            self._plan.close_think_id is not None
            and self._tools.splitter.channel is Channel.THINKING
        )

    def _commit(self, tokens: Sequence[Token]) -> None:
        if not self._ids:
            first_token_s = self._tools.clock() - self._created_s
            self._figures = replace(self._figures, first_token_s=first_token_s)
        shown: list[tuple[Channel, Span]] = []
        for token in tokens:
            self._ids.append(token.id)
            self._n_thinking += self._tools.splitter.channel is Channel.THINKING
            shown += self._tools.splitter.push(token)
        self._show(self._tools.gate.push(shown))
        self._watch_loops(tokens)

    def _watch_loops(self, tokens: Sequence[Token]) -> None:
        """Tell once if reasoning at temperature 0 only repeats itself."""
        is_watched = self._is_thinking() and self._plan.sampling.temperature == 0
        if is_watched and self._loops.push(token.id for token in tokens):
            self._emit(
                Notice(
                    turn_id=self._plan.turn_id,
                    level="warning",
                    message="the reasoning repeats itself",
                    hint="Temperature 0 does that; the model's makers advise temperature 1 and "
                    "top-p 0.95. In the chat Ctrl+T answers now.",
                )
            )

    def _show(self, shown: list[tuple[Channel, Span]]) -> None:
        if not shown:
            return
        spent_s = 0.0 if self._is_finished else self._tools.clock() - self._advanced_s
        at_s = self._figures.decode_s + spent_s
        for channel, pairs in groupby(shown, key=lambda pair: pair[0]):
            spans = tuple(span for _, span in pairs)
            self._emit(
                TokensCommitted(
                    turn_id=self._plan.turn_id, channel=channel, spans=spans, at_s=at_s
                )
            )

    # policy

    def _report_round(self, report: RoundReport) -> None:
        self._stats.note(report)
        turn_id = self._plan.turn_id
        if report.round == 0:
            self._emit(PlainStep(turn_id=turn_id, step_s=report.verify_s, reason=report.reason))
            return
        self._emit(
            RoundVerified(
                turn_id=turn_id,
                round=report.round,
                proposal_ids=report.proposal,
                proposal_texts=tuple(map(self._tools.text_of, report.proposal)),
                confidences=report.confidences,
                n_accepted=report.n_accepted,
                draft_s=report.draft_s,
                verify_s=report.verify_s,
                decision=report.reason,
            )
        )

    def _state_of(self, spec: SpecOptions) -> SpecState:
        if not self._plan.block_size:
            return SpecState.UNAVAILABLE
        return SpecState.ON if spec.enabled else SpecState.OFF

    def _tell_policy(self) -> None:
        for event in self._session.drain_policy_events():
            self._set_state(event.state, event.reason, again=True)

    def _set_state(self, state: SpecState, reason: str, *, again: bool = False) -> None:
        if self._state is SpecState.UNAVAILABLE or (state is self._state and not again):
            return
        self._state = state
        self._emit(PolicyChanged(turn_id=self._plan.turn_id, state=state, reason=reason))

    def _respec(self, spec: SpecOptions, *, keep_on: bool) -> None:
        is_parked = self._state is SpecState.PARKED and spec == self._spec
        self._spec = spec
        self._session.set_spec(spec, keep_on=keep_on)
        if not spec.enabled:
            self._session.drain_policy_events()
            self._set_state(SpecState.OFF, "off: you switched it off")
            return
        self._tell_policy()
        if not is_parked:
            is_fixed = spec.policy is Policy.FIXED
            why = "at all times, as you asked" if is_fixed else "you switched it on"
            self._set_state(SpecState.ON, f"on: {why}")

    def _lose_drafter(self, why: str) -> None:
        if self._state is SpecState.UNAVAILABLE:
            return
        self._emit(
            Notice(
                turn_id=self._plan.turn_id,
                level="warning",
                message=f"the drafter failed: {why}",
                hint="The reply goes on without speculation.",
            )
        )
        self._set_state(SpecState.UNAVAILABLE, why)

    # ends and figures

    def _charge(self) -> None:
        spent_s = self._tools.clock() - self._advanced_s
        figures = self._figures
        if self._ids:
            self.engine_s += spent_s
            self._figures = replace(figures, decode_s=figures.decode_s + spent_s)
        else:
            self._figures = replace(figures, prefill_s=figures.prefill_s + spent_s)

    def _report_stats(self) -> None:
        now = self._tools.clock()
        if now - self._reported_s < MIN_REPORT_S:
            return
        self._reported_s = now
        usage = self._usage()
        tps = usage.n_tokens / usage.decode_s if usage.decode_s > 0 else 0.0
        self._emit(StatsSnapshot(turn_id=self._plan.turn_id, tps=tps, usage=usage))

    def _usage(self) -> Usage:
        kv_bytes, n_context = self._held
        base = replace(
            self._figures,
            n_thinking=self._n_thinking,
            kv_bytes=kv_bytes,
            n_context=n_context,
        )
        usage = self._stats.usage(base, plain_step_s=self._tools.plain_step_s())
        return replace(usage, n_tokens=len(self._ids))  # forced tokens too

    def _finish(self, end: End) -> None:
        self._is_finished = True
        self._start(0)
        gate = self._tools.gate
        try:
            self._show(gate.push(self._tools.splitter.finish()) + gate.finish())
        finally:
            self._emit(
                TurnFinished(
                    turn_id=self._plan.turn_id,
                    reason=end.reason,
                    usage=self._usage(),
                    ids=tuple(self._ids),
                    message=end.message,
                    hint=end.hint,
                )
            )
