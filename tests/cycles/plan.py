"""What happens in a cycle, drawn from its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum


class Moment(StrEnum):
    """When it happens."""

    START = "start"
    LOAD = "load"
    IDLE = "idle"
    PREFILL = "prefill"
    STREAM = "stream"
    SAVE = "save"
    QUIT = "quit"


class Act(StrEnum):
    """What happens."""

    CANCEL = "cancel"  # Cancel to the engine; Esc, or Ctrl+C, on the screen
    QUIT = "quit"
    TERM = "SIGTERM"
    HUP = "SIGHUP"
    INT = "SIGINT"
    KILL = "SIGKILL"
    KILL_ENGINE = "SIGKILL to the engine"
    HANG_UP = "the terminal closes"


ENGINE_ACTS = (Act.CANCEL, Act.QUIT, Act.TERM, Act.HUP, Act.INT, Act.KILL)
SCREEN_ACTS = tuple(Act)

# Seconds from the moment's own sign (an event, a line in a file) to the act, at the most.
_ENGINE_DELAYS = {Moment.START: 0.4, Moment.LOAD: 0.4, Moment.PREFILL: 1.0, Moment.SAVE: 0.03,
                  Moment.QUIT: 0.03}  # fmt: skip
_SCREEN_DELAYS = {Moment.START: 1.2, Moment.LOAD: 0.6, Moment.PREFILL: 1.0, Moment.SAVE: 0.06,
                  Moment.QUIT: 0.3}  # fmt: skip
_QUESTIONS = ("tell me", "and why is that so? ", "0 1 2 3 5 8 ", "über Wasser – 水の話 ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One cycle. `n_tokens`: how much of a reply is there when it happens."""

    seed: int
    on_screen: bool
    moment: Moment
    act: Act
    delay_s: float
    n_tokens: int
    question: str
    n_before: int  # replies before it
    goes_on: bool  # whether the chat is taken up again afterwards

    def __str__(self) -> str:
        where = "screen" if self.on_screen else "engine"
        return (
            f"seed {self.seed}: {where}, {self.act} at {self.moment} + {self.delay_s:.3f} s, "
            f"{self.n_before} replies before, {len(self.question)} characters, "
            f"{self.n_tokens} tokens{', then on' if self.goes_on else ''}"
        )


def draw(seed: int, screen_share: float) -> Plan:
    """The cycle of a seed; `screen_share` of all seeds run in a terminal."""
    rng = random.Random(seed)
    on_screen = rng.random() < screen_share
    moment = rng.choice(tuple(Moment))
    act = rng.choice(SCREEN_ACTS if on_screen else ENGINE_ACTS)
    delays = _SCREEN_DELAYS if on_screen else _ENGINE_DELAYS
    word = rng.choice(_QUESTIONS)
    return Plan(
        seed=seed,
        on_screen=on_screen,
        moment=moment,
        act=act,
        delay_s=rng.random() * delays.get(moment, 0.0),
        n_tokens=rng.randrange(1, 40),
        question=(word * rng.choice((1, 1, 4, 20))).strip()[:400],
        n_before=rng.choice((0, 0, 0, 1, 2)),
        goes_on=rng.random() < 0.35,
    )
