"""The races of one chat: the running one, those that still end, and the last one's card."""

from __future__ import annotations

from datetime import datetime

from ds4chat.protocol.events import EngineFailed, Event, Hello
from ds4chat.protocol.types import ModelInfo
from ds4chat.tui.race import machine
from ds4chat.tui.race.card import SpeedCard, make_card
from ds4chat.tui.race.race import Race


class RaceDesk:
    """Hands events to the race that they belong to."""

    def __init__(self) -> None:
        self.races: list[Race] = []
        self._machine = machine.look()

    @property
    def last(self) -> Race | None:
        """The newest race."""
        return self.races[-1] if self.races else None

    def add(self, race: Race) -> None:
        """Begin to listen for a race; older ones are forgotten when they have ended."""
        self.races = [old for old in self.races if not old.is_over] + [race]

    def report(self, event: Event) -> Race | None:
        """Give an event to its race; None: it belongs to none."""
        if isinstance(event, Hello) or (isinstance(event, EngineFailed) and event.fatal):
            for race in self.races:
                race.engine_died(
                    event.message if isinstance(event, EngineFailed) else "it was started again"
                )
        owner = next((race for race in self.races if race.owns(event)), None)
        if owner is not None:
            owner.report(event)
            if owner.is_over and not owner.ended_at:
                owner.ended_at = _now()
        return owner

    def card(self, race: Race, info: ModelInfo, support_path: str) -> SpeedCard:
        """The card of a race, dated when it ended."""
        dated = race.ended_at or _now()
        return make_card(race, info, support_path, self._machine, dated)


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
