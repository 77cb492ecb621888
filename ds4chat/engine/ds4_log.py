"""ds4's own log lines (`DS4_DSPARK_SPEC_LOG`, `DS4_DSPARK_STATS`), as pure text.

Names and order of the fields are ds4's, so that its tools read them. Our rounds verify the
anchor together with the drafts (ds4: a seed batch): `accepted=0` at entry, and a round's
`accepted` counts the tokens it emitted, the anchor included. Lines that stand for a rollback
and replay never occur here. Figures of what does not exist here (snapshot, replay, the split of
the proposal's time, proposal lengths) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from ds4chat.engine.api import RoundReport
from ds4chat.protocol.types import Usage

PREFIX = "ds4: DSpark "


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


def tail_skip_line(*, budget: int, minimum: int) -> str:
    """Give the line of a step that was plain because the reply is nearly over."""
    return _line("scheduler tail skip", {"max": budget, "min": minimum})


def skip_line(*, remaining: int) -> str:
    """Give the line of a plain step inside a pause, `remaining` more to come."""
    return _line("scheduler skip", {"remaining": remaining})


def stats_line(usage: Usage, *, n_no_draft: int = 0, n_scheduler_skips: int = 0) -> str:
    """Give the line that ds4 prints when a session is freed.

    Args:
        usage: the figures of the session.
        n_no_draft: attempts whose proposal was cut to nothing.
        n_scheduler_skips: plain steps that the policy decided.
    """
    cycles = usage.n_rounds + n_no_draft
    full, missed = _full_and_missed(usage)
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
        "no_draft": n_no_draft,
        "scheduler_skips": n_scheduler_skips,
    }
    return f"{_line('stats', counts)} {_times(usage)} {_histogram(usage)}"


def _full_and_missed(usage: Usage) -> tuple[int, int]:
    """Count rounds whose drafts were all accepted, and rounds whose first draft was rejected.

    A rejection at place i is a round that tested i and did not accept it; a round without any
    rejection was full.
    """
    rejected = [tested - accepted for accepted, tested in usage.by_position]
    return usage.n_rounds - sum(rejected), rejected[0] if rejected else 0


def _times(usage: Usage) -> str:
    saved_ms = (usage.plain_step_s or 0.0) * usage.n_accepted * 1e3
    return (
        f"time_ms propose={usage.draft_s * 1e3:.1f} verify={usage.verify_s * 1e3:.1f} "
        f"spec_total={usage.verify_s * 1e3:.1f} target={usage.plain_s * 1e3:.1f} "
        f"saved={saved_ms:.1f} net_saved={'n/a' if usage.n_rounds else '0.0'}"
    )


def _histogram(usage: Usage) -> str:
    """Write the histogram of accepted drafts (proposal lengths are not kept: no second one)."""
    pairs = (f"{n}:{count}" for n, count in enumerate(usage.histogram) if count)
    return f"accepted_len_hist={','.join(pairs)}"


def _ratio(part: float, whole: int) -> float:
    return part / whole if whole else 0.0


def _line(name: str, fields: Mapping[str, int | str]) -> str:
    return f"{PREFIX}{name} " + " ".join(f"{key}={value}" for key, value in fields.items())
