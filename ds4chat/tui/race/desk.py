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
        self._opened: dict[Race, tuple[ModelInfo, str]] = {}
        self._machine = machine.look()

    @property
    def last(self) -> Race | None:
        """The newest race."""
        return self.races[-1] if self.races else None

    def add(self, race: Race, info: ModelInfo, support_path: str) -> None:
        """Begin to listen for a race; older ones are forgotten when they have ended.

        Args:
            race: it is about to start.
            info: the model that it runs on, as it is open now.
            support_path: the support file; empty: none.
        """
        self.races = [old for old in self.races if not old.is_over] + [race]
        opened = self._opened | {race: (info, support_path)}
        self._opened = {kept: opened[kept] for kept in self.races}

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

    def card(self, race: Race) -> SpeedCard:
        """The card of a race, dated when it ended: what was open then, whatever is now."""
        info, support_path = self._opened[race]
        dated = race.ended_at or _now()
        return make_card(race, info, support_path, self._machine, dated)


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
