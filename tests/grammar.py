"""The grammar of a turn's events, as a checker for any stream of events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ds4chat.protocol.events import (
    Event,
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
from ds4chat.protocol.types import Channel, FinishReason, Source, Token

DECODING = TokensCommitted | RoundVerified | PlainStep | PolicyChanged | StatsSnapshot | Notice


@dataclass
class TurnLog:
    """What one turn's events said."""

    started: TurnStarted
    tokens: list[Token] = field(default_factory=list)
    text: dict[Channel, str] = field(default_factory=lambda: dict.fromkeys(Channel, ""))
    rounds: list[RoundVerified] = field(default_factory=list)
    plain: list[PlainStep] = field(default_factory=list)
    policy: list[PolicyChanged] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    progress: list[PrefillProgress] = field(default_factory=list)
    n_stats: int = 0
    finished: TurnFinished | None = None

    @property
    def answer(self) -> str:
        return self.text[Channel.ANSWER]

    @property
    def thinking(self) -> str:
        return self.text[Channel.THINKING]

    @property
    def end(self) -> TurnFinished:
        assert self.finished is not None, "the turn has not finished"
        return self.finished


def read_turns(events: Iterable[Event], *, all_finished: bool = True) -> dict[int, TurnLog]:
    """Check that `events` obey the grammar; return each turn's log.

    Raises:
        AssertionError: an event stands where it must not, or figures contradict each other.
    """
    logs: dict[int, TurnLog] = {}
    lanes: dict[int, int] = {}
    for event in events:
        turn_id = getattr(event, "turn_id", None)
        if turn_id is None:
            continue
        if isinstance(event, TurnStarted):
            assert turn_id not in logs, f"turn {turn_id} started twice"
            assert event.lane not in lanes, f"lane {event.lane} is busy with another turn"
            lanes[event.lane] = turn_id
            logs[turn_id] = TurnLog(started=event)
            continue
        assert turn_id in logs, f"{event} before TurnStarted"
        log = logs[turn_id]
        assert log.finished is None, f"{event} after TurnFinished"
        _take(log, event)
        if isinstance(event, TurnFinished):
            del lanes[log.started.lane]
    if all_finished:
        assert not lanes, f"turns without TurnFinished: {sorted(lanes.values())}"
    return logs


def _take(log: TurnLog, event: Event) -> None:
    match event:
        case PrefillProgress():
            is_first = not (log.tokens or log.rounds or log.plain or log.policy or log.n_stats)
            assert is_first, "PrefillProgress after decoding began"
            assert 0 <= event.n_done <= event.n_total
            log.progress.append(event)
        case TokensCommitted():
            _take_tokens(log, event)
        case RoundVerified():
            n = len(event.proposal_ids)
            assert n == len(event.proposal_texts) == len(event.confidences)
            assert 0 <= event.n_accepted <= n
            log.rounds.append(event)
        case PlainStep():
            log.plain.append(event)
        case PolicyChanged():
            log.policy.append(event)
        case StatsSnapshot():
            log.n_stats += 1
        case Notice():
            log.notices.append(event)
        case TurnFinished():
            _finish(log, event)
        case _:
            raise AssertionError(f"{type(event).__name__} inside a turn")


def _take_tokens(log: TurnLog, event: TokensCommitted) -> None:
    assert event.spans, "TokensCommitted without spans"
    for span in event.spans:
        log.text[event.channel] += span.text
        # The rest of an unfinished character names its token a second time.
        is_rest = span.text == "\ufffd" and log.tokens[-1:] == [span.token]
        if not is_rest:
            log.tokens.append(span.token)


def _finish(log: TurnLog, event: TurnFinished) -> None:
    log.finished = event
    usage = event.usage
    assert event.ids == tuple(token.id for token in log.tokens)
    assert usage.n_tokens == len(event.ids)
    if event.reason is FinishReason.ERROR:
        return  # of a dead engine: the last figures that it reported
    assert usage.n_rounds == len(log.rounds)
    assert usage.n_plain_steps == len(log.plain)
    assert usage.n_drafted == sum(len(r.proposal_ids) for r in log.rounds)
    assert usage.n_accepted == sum(r.n_accepted for r in log.rounds)
    n_accepted = sum(token.source is Source.ACCEPTED for token in log.tokens)
    assert usage.n_accepted == n_accepted, "accepted drafts and accepted tokens differ"
