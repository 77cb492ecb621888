"""Races made by hand: no engine, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from ds4chat.demo.script import default_info
from ds4chat.protocol.commands import Command, Submit
from ds4chat.protocol.events import (
    Event,
    RoundVerified,
    TokensCommitted,
    TurnFinished,
    TurnStarted,
)
from ds4chat.protocol.types import (
    Channel,
    FinishReason,
    ModelInfo,
    Source,
    Span,
    Token,
    Usage,
)
from ds4chat.tui.race.ask import RaceAsk, Side, conversation
from ds4chat.tui.race.card import SpeedCard, make_card
from ds4chat.tui.race.machine import Machine
from ds4chat.tui.race.race import Phase, Race

MACHINE = Machine(
    system="Linux 6 x86_64", processor="A <CPU> & more", n_cores=2, memory_bytes=8 * 10**9,
    python="3.11.7", ds4chat="0.1.0", mlx="0.32.4",
)  # fmt: skip
IDS = (11, 12, 13, 14, 15)


def make_race(label: str = "code (typical)") -> tuple[Race, list[Command]]:
    sent: list[Command] = []
    numbers = count(1)
    ask = RaceAsk(label=label, messages=conversation("", "Say it."), max_tokens=50)
    race = Race(sent.append, lambda: next(numbers), ask)
    race.start()
    return race, sent


def phase_of(race: Race) -> Phase:
    """The phase, which a type checker cannot take for the one before."""
    return race.phase


def turn_of(race: Race, side: Side) -> int:
    return race.lanes[side].turn_id


def spans(ids: Sequence[int], logit: float = 9.0) -> tuple[Span, ...]:
    return tuple(
        Span(
            text=f"w{i} ",
            token=Token(
                id=i, source=Source.PLAIN, round=0, position=0, confidence=None, margin=0.5,
                logit=logit,
            ),
        )
        for i in ids
    )  # fmt: skip


def finished(turn_id: int, ids: Sequence[int], **rest: object) -> TurnFinished:
    usage = Usage(n_tokens=len(ids), n_plain_steps=len(ids), decode_s=0.5, plain_s=0.4)
    fields = {"reason": FinishReason.STOP, "usage": usage, "ids": tuple(ids), **rest}
    return TurnFinished(turn_id=turn_id, **fields)  # type: ignore[arg-type]


def committed(turn_id: int, ids: Sequence[int]) -> TokensCommitted:
    return TokensCommitted(turn_id=turn_id, channel=Channel.ANSWER, spans=spans(ids), at_s=0.1)


def play(
    race: Race,
    side: Side,
    ids: Sequence[int] = IDS,
    *,
    step_s: float = 0.1,
    logit: float = 9.0,
    **rest: object,
) -> None:
    """Let a lane write `ids`, one token a step, and end."""
    turn_id = turn_of(race, side)
    race.report(TurnStarted(turn_id=turn_id, lane=1, n_prompt=7, n_cached=0))
    for place, span in enumerate(spans(ids, logit), start=1):
        event: Event = TokensCommitted(
            turn_id=turn_id, channel=Channel.ANSWER, spans=(span,), at_s=place * step_s
        )
        race.report(event)
    race.report(finished(turn_id, ids, **rest))


def verified(turn_id: int, n_accepted: int = 3) -> RoundVerified:
    return RoundVerified(
        turn_id=turn_id, round=1, proposal_ids=(1, 2, 3, 4), proposal_texts=("a",) * 4,
        confidences=(0.9,) * 4, n_accepted=n_accepted, draft_s=0.01, verify_s=0.02,
    )  # fmt: skip


def submits(sent: Sequence[Command]) -> list[Submit]:
    return [command for command in sent if isinstance(command, Submit)]


def card_of(race: Race, info: ModelInfo | None = None) -> SpeedCard:
    return make_card(
        race, info or default_info(), "/x/support.gguf", MACHINE, "2026-01-02T03:04:05+00:00"
    )
