"""Cycles one after another, each in a home of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.cycles.engine_cycle import EngineCycle, replies
from tests.cycles.left import Wrong, all_gone, at_home
from tests.cycles.plan import Plan
from tests.cycles.screen_cycle import ScreenCycle
from tests.engines import SMALL
from tests.make_pair import make_pair


class Cycles:
    """Runs cycles over one small pair.

    Args:
        folder: where the pair and the homes lie.
        keeps: whether the home of a cycle that went wrong is kept.
    """

    def __init__(self, folder: Path, *, keeps: bool = False) -> None:
        self._folder = folder
        self._keeps = keeps
        self._pair = make_pair(folder / "pair", seed=31, **SMALL)
        self._reply = self._at_home(replies(self._pair))

    def run(self, plan: Plan) -> str:
        """Run a cycle; what is wrong, or an empty string."""
        home = Path(tempfile.mkdtemp(prefix=f"seed-{plan.seed}-", dir=self._folder))
        wrong = ""
        try:
            with at_home(home):
                self._run(plan, home)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next cycle runs
            wrong = (
                str(error) if isinstance(error, Wrong) else f"{type(error).__name__}: {error}"
            )
        if not (wrong and self._keeps):
            shutil.rmtree(home, ignore_errors=True)
        return wrong

    def _run(self, plan: Plan, home: Path) -> None:
        try:
            if plan.on_screen:
                cycle = ScreenCycle(plan, self._pair, home)
                cycle.run()
                all_gone(home)
                cycle.nothing_held()
            else:
                EngineCycle(plan, self._pair, home, self._reply).run()
        finally:
            all_gone(home)

    def _at_home(
        self, reply: Callable[[str], tuple[int, ...]]
    ) -> Callable[[str], tuple[int, ...]]:
        home = self._folder / "undisturbed"

        def ask(question: str) -> tuple[int, ...]:
            with at_home(home):
                return reply(question)

        return ask
