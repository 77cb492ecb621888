"""When and how far to draft: one scheduler per session, chosen by the user's policy.

`money` measures (`policy_money`), `window` is ds4's (`policy_window`), `fixed` always verifies
what there is room for. All are pure: times come in as arguments.
"""

from __future__ import annotations

from ds4chat.draft.verify import MAX_VERIFIED
from ds4chat.engine.costs import CostModel
from ds4chat.engine.policy_base import Decision, PolicyEvent, RoundOutcome, Scheduler
from ds4chat.engine.policy_money import MoneyScheduler
from ds4chat.engine.policy_window import WindowKnobs, WindowScheduler
from ds4chat.protocol.types import Policy, SpecOptions

__all__ = [
    "CostModel",
    "Decision",
    "FixedScheduler",
    "MoneyScheduler",
    "PolicyEvent",
    "RoundOutcome",
    "Scheduler",
    "WindowKnobs",
    "WindowScheduler",
    "block_notice",
    "make_scheduler",
]


class FixedScheduler(Scheduler):
    """Always min(draft-max, block, room) drafts: for tests, goldens and sample sessions.

    Raises:
        SettingsError: an option is out of range.
    """

    def __init__(self, spec: SpecOptions, *, block_size: int, costs: CostModel) -> None:
        super().__init__(spec, block_size=block_size, costs=costs, threshold=0.0)


def make_scheduler(
    spec: SpecOptions,
    *,
    block_size: int,
    costs: CostModel | None,
    window_knobs: WindowKnobs | None = None,
) -> Scheduler:
    """Build the scheduler of the user's policy.

    `spec.enabled` is not looked at: whoever switches speculation off does not ask a scheduler.

    Args:
        spec: the user's options.
        block_size: drafts that the drafter makes, anchor excluded.
        costs: the process's measured times; None starts without any.
        window_knobs: for the `window` policy; None: ds4's defaults.

    Raises:
        SettingsError: an option is out of range.
    """
    costs = CostModel() if costs is None else costs
    match spec.policy:
        case Policy.MONEY:
            return MoneyScheduler(spec, block_size=block_size, costs=costs)
        case Policy.WINDOW:
            knobs = WindowKnobs() if window_knobs is None else window_knobs
            return WindowScheduler(spec, block_size=block_size, costs=costs, knobs=knobs)
        case Policy.FIXED:
            return FixedScheduler(spec, block_size=block_size, costs=costs)


def block_notice(block_size: int) -> str:
    """Say that a long block is not verified whole; empty when it is."""
    if block_size <= MAX_VERIFIED:
        return ""
    return (
        f"the draft module makes blocks of {block_size}; at most {MAX_VERIFIED} drafts of each "
        "are verified"
    )
