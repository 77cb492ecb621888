"""From the engine's thread to the screen's: one message an event, routed in one place."""

from __future__ import annotations

from typing import assert_never

from textual.message import Message

from ds4chat.protocol.events import (
    Done,
    EngineFailed,
    Event,
    Hello,
    ModelLoading,
    ModelReady,
    Notice,
    PlainStep,
    PolicyChanged,
    PrefillProgress,
    Refused,
    RoundVerified,
    SnapshotRestored,
    SnapshotSaved,
    StatsSnapshot,
    Tokenized,
    TokensCommitted,
    TurnFinished,
    TurnStarted,
    can_replace,
)
from ds4chat.tui.reports import EngineReports


class EngineReported(Message):
    """The engine reported an event. Posted from any thread."""

    def __init__(self, event: Event) -> None:
        super().__init__()
        self.event = event

    def can_replace(self, message: Message) -> bool:
        """Let a waiting newer figure take the place of this one."""
        return (
            isinstance(message, EngineReported)
            and type(message.event) is type(self.event)
            and can_replace(self.event)
            and _turn(message.event) == _turn(self.event)
        )


def _turn(event: Event) -> int | None:
    """The turn of a figure that can be replaced; lanes do not replace each other's."""
    return event.turn_id if isinstance(event, StatsSnapshot | PrefillProgress) else None


def route(event: Event, reports: EngineReports) -> None:
    """Hand an event to its method; mypy names this place when a new event is added."""
    match event:
        case TokensCommitted() | RoundVerified() | PlainStep() | StatsSnapshot():
            _route_step(event, reports)
        case TurnStarted() | PrefillProgress() | PolicyChanged() | TurnFinished():
            _route_turn(event, reports)
        case Hello() | ModelLoading() | ModelReady() | EngineFailed():
            _route_engine(event, reports)
        case Done() | Refused() | Tokenized():
            _route_answer(event, reports)
        case Notice():
            reports.notice(event)
        case SnapshotSaved() | SnapshotRestored():
            return  # of saved sessions, which take them first
        case _:
            assert_never(event)


def _route_step(
    event: TokensCommitted | RoundVerified | PlainStep | StatsSnapshot, reports: EngineReports
) -> None:
    match event:
        case TokensCommitted():
            reports.tokens_committed(event)
        case RoundVerified():
            reports.round_verified(event)
        case PlainStep():
            reports.plain_step(event)
        case StatsSnapshot():
            reports.stats_snapshot(event)
        case _:
            assert_never(event)


def _route_turn(
    event: TurnStarted | PrefillProgress | PolicyChanged | TurnFinished, reports: EngineReports
) -> None:
    match event:
        case TurnStarted():
            reports.turn_started(event)
        case PrefillProgress():
            reports.prefill_progress(event)
        case PolicyChanged():
            reports.policy_changed(event)
        case TurnFinished():
            reports.turn_finished(event)
        case _:
            assert_never(event)


def _route_engine(
    event: Hello | ModelLoading | ModelReady | EngineFailed, reports: EngineReports
) -> None:
    match event:
        case Hello():
            reports.hello(event)
        case ModelLoading():
            reports.model_loading(event)
        case ModelReady():
            reports.model_ready(event)
        case EngineFailed():
            reports.engine_failed(event)
        case _:
            assert_never(event)


def _route_answer(event: Done | Refused | Tokenized, reports: EngineReports) -> None:
    match event:
        case Done():
            reports.done(event)
        case Refused():
            reports.refused(event)
        case Tokenized():
            reports.tokenized(event)
        case _:
            assert_never(event)
