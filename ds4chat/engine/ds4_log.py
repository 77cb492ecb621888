"""ds4's own log lines (`DS4_DSPARK_SPEC_LOG`, `DS4_DSPARK_STATS`), as pure text.

Names and order of the fields are ds4's, so that its tools read them. Our rounds verify the
anchor together with the drafts (ds4: a seed batch): `accepted=0` at entry, and a round's
`accepted` counts the tokens it emitted, the anchor included. Lines that stand for a rollback
and replay never occur here, and their counts and times are 0; the parts of the proposal's and
the verifier's times do not exist here and are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ds4chat.engine.api import RoundReport
from ds4chat.engine.policy_base import PlainKind
from ds4chat.protocol.types import Usage
from ds4chat.protocol.usage import full_and_missed

PREFIX = "ds4: DSpark "


def step_lines(
    report: RoundReport, *, budget: int, pos: int, base: Callable[[], int]
) -> tuple[str, ...]:
    """Give all lines of a step: what drafting came to, then what the scheduler said.

    Args:
        report: what the step did.
        budget: tokens that could still be committed when it began.
        pos: committed tokens when it began.
        base: gives the target's choice at row 0; called only after a first-draft miss.
    """
    own: tuple[str, ...] = ()
    if report.round != 0 or report.kind is PlainKind.NO_DRAFT:
        is_miss = report.proposal and report.n_accepted == 0
        own = spec_lines(report, budget=budget, pos=pos, base=base() if is_miss else 0)
    elif report.kind is PlainKind.NO_ROOM:
        own = no_room_lines(budget=budget, pos=pos)
    return own + report.policy_log


def spec_lines(report: RoundReport, *, budget: int, pos: int, base: int) -> tuple[str, ...]:
    """Give the lines of a step that drafted.

    Args:
        report: what the step did.
        budget: tokens that could still be committed when it began.
        pos: committed tokens when it began.
        base: the target's choice at row 0.
    """
    n = len(report.proposal)
    enter = _line("spec enter", {"accepted": 0, "max": budget, "valid": int(n > 0), "len": n})
    enter = f"{enter} pos={pos}"
    n_emitted = report.n_accepted + 1
    if n == 0:
        return enter, f"{PREFIX}spec skip no-draft"
    if report.n_accepted == 0:
        return enter, _line("spec miss first", {"draft": report.proposal[0], "base": base})
    if report.n_accepted == n:
        return enter, _line("spec direct-full", {"drafted": n, "accepted": n_emitted})
    fields = {"drafted": n, "committed": report.n_accepted, "accepted": n_emitted}
    return enter, _line("spec direct-partial", fields)


def no_room_lines(*, budget: int, pos: int) -> tuple[str, ...]:
    """Give the lines of a step that had no room for a draft."""
    fields = {"accepted": 0, "max": budget, "valid": 0, "len": 0, "pos": pos}
    return _line("spec enter", fields), f"{PREFIX}spec skip no-room"


def scheduler_line(what: str, **fields: int | str) -> str:
    """Give a line of the scheduler, such as `skip` or `no-draft pause`."""
    return _line(f"scheduler {what}", fields)


def stats_line(usage: Usage) -> str:
    """Give the line that ds4 prints when a session is freed.

    Args:
        usage: the figures of the session.
    """
    cycles = usage.n_rounds + usage.n_no_draft + usage.n_draft_errors
    full, missed = full_and_missed(usage)
    partial = usage.n_rounds - full - missed
    counts: dict[str, int | str] = {
        "cycles": cycles,
        "first_tokens": 0,
        "proposed": usage.n_drafted,
        "accepted_draft": usage.n_accepted,
        "accept_rate": f"{_ratio(100 * usage.n_accepted, usage.n_drafted):.1f}%",
        "avg_accept": f"{_ratio(usage.n_accepted, cycles):.3f}",
        "seed_batches": usage.n_rounds,
        "full": full,
        "partial": partial,
        "direct_full": full,
        "direct_partial": partial,
        "replay_fallbacks": 0,
        "miss_first": missed,
        "no_draft": usage.n_no_draft,
        "no_room": usage.n_no_room,
        "invalid": 0,
        "scheduler_skips": usage.n_pause_skips,
        "tail_skips": usage.n_tail_skips,
        "verifier_unavailable": 0,
        "errors": usage.n_draft_errors,
    }
    hists = (
        f"draft_len_hist={_hist(usage.draft_lens)} accepted_len_hist={_hist(usage.histogram)}"
    )
    return f"{_line('stats', counts)} {_times(usage)} {hists}"


def _times(usage: Usage) -> str:
    """Times in milliseconds; a round's whole time is not one step's, so net is unknown."""
    saved_ms = (usage.plain_step_s or 0.0) * usage.n_accepted * 1e3
    spent_ms = (usage.draft_s + usage.verify_s) * 1e3
    net = "n/a" if usage.n_rounds else f"{saved_ms - spent_ms:.1f}"
    return (
        f"time_ms propose={usage.draft_s * 1e3:.1f} snapshot=0.0 "
        f"verify={usage.verify_s * 1e3:.1f} replay=0.0 spec_total={usage.verify_s * 1e3:.1f} "
        f"target={usage.plain_s * 1e3:.1f} saved={saved_ms:.1f} net_saved={net}"
    )


def _hist(counts: Sequence[int]) -> str:
    return ",".join(f"{n}:{count}" for n, count in enumerate(counts) if count)


def _ratio(part: float, whole: int) -> float:
    return part / whole if whole else 0.0


def _line(name: str, fields: Mapping[str, int | str]) -> str:
    return f"{PREFIX}{name} " + " ".join(f"{key}={value}" for key, value in fields.items())
