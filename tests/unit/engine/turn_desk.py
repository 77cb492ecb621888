"""A turn over a scripted session, and what it reported."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ds4chat.engine.turn_plan import TurnControls, TurnPlan, TurnTools
from ds4chat.engine.turns import Turn
from ds4chat.protocol.events import Event
from ds4chat.protocol.types import (
    Message,
    Role,
    Sampling,
    SpecOptions,
    ThinkMode,
)
from ds4chat.text.parse import ChannelSplitter
from ds4chat.text.stops import StopGate
from tests.grammar import TurnLog, read_turns
from tests.scripted_engine import ScriptedEngine, ScriptedSession


def ticking(step_s: float = 0.05) -> Callable[[], float]:
    ticks = itertools.count()
    return lambda: next(ticks) * step_s


@dataclass
class Desk:
    """An engine, one session, and what a turn over it reported."""

    engine: ScriptedEngine = field(default_factory=ScriptedEngine)
    events: list[Event] = field(default_factory=list)
    clock: Callable[[], float] = field(default_factory=ticking)
    session: ScriptedSession = field(init=False)
    controls: TurnControls = field(default_factory=TurnControls)
    turn_ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.session = self.engine.session()

    def ids(self, text: str, think: ThinkMode = ThinkMode.OFF) -> tuple[int, ...]:
        return tuple(self.engine.render([Message(role=Role.USER, text=text)], think))

    def turn(
        self,
        text: str = "tell",
        *,
        think: ThinkMode = ThinkMode.OFF,
        spec: bool = True,
        max_tokens: int | None = None,
        stop: tuple[str, ...] = (),
        ends: bool = True,
        temperature: float = 0.5,
    ) -> Turn:
        tokenizer = self.engine.tokenizer
        plan = TurnPlan(
            turn_id=next(self.turn_ids),
            lane=0,
            ids=self.ids(text, think),
            ctx=self.engine.info.ctx,
            end_ids=self.engine.end_ids if ends else frozenset(),
            close_think_id=tokenizer.specials.think_close,
            block_size=self.engine.info.block_size,
            sampling=Sampling(temperature=temperature),
            spec=SpecOptions(enabled=spec),
            max_tokens=max_tokens,
        )
        tools = TurnTools(
            splitter=ChannelSplitter(tokenizer, think),
            gate=StopGate(stop),
            text_of=tokenizer.piece,
            emit=self.events.append,
            clock=self.clock,
            plain_step_s=lambda: 0.02,
        )
        return Turn(plan, self.session, self.controls, tools)

    def finish(self, turn: Turn) -> TurnLog:
        while turn.advance():
            pass
        assert turn.advance() is False
        return list(read_turns(self.events).values())[-1]

    def run(self, text: str = "tell", **options: object) -> TurnLog:
        return self.finish(self.turn(text, **options))  # type: ignore[arg-type]
