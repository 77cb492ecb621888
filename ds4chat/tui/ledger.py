"""What speculation cost and bought in a reply: the sums behind the receipt and `/why`. Pure.

Everything is measured against the best plain step of this process, p: plain decoding would have
taken p for each token. The saved time has three parts that sum to it:

    rounds   tokens made in rounds times p, minus all drafting and verifying
    plain    plain steps times p, minus what they took
    rest     minus what ran between the steps (choosing, text, reports)
"""

from __future__ import annotations

from dataclasses import dataclass

from ds4chat.protocol.types import Usage
from ds4chat.tui import units


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The parts of a reply's saved time, in seconds; negative: lost."""

    rounds_s: float
    plain_s: float
    rest_s: float


def ledger(usage: Usage) -> Ledger | None:
    """Split a reply's saved time; None where it is not known or nothing was drafted."""
    p, saved_s = usage.plain_step_s, usage.saved_s
    if p is None or saved_s is None or not has_drafted(usage):
        return None
    plain_s = usage.n_plain_steps * p - usage.plain_s
    rest_s = usage.draft_s + usage.verify_s + usage.plain_s - usage.decode_s
    return Ledger(rounds_s=saved_s - plain_s - rest_s, plain_s=plain_s, rest_s=rest_s)


def has_drafted(usage: Usage) -> bool:
    """Whether speculation did anything in the reply."""
    return usage.n_rounds > 0 or usage.draft_s > 0


def break_even(usage: Usage) -> float | None:
    """Accept length at which a round costs as much as plain decoding; None when unknown.

    All drafting counts, also drafts that were never verified.
    """
    if not usage.n_rounds or not usage.plain_step_s:
        return None
    return (usage.draft_s + usage.verify_s) / usage.n_rounds / usage.plain_step_s


def loss(usage: Usage) -> str:
    """Why speculation lost, by the largest part of the loss; empty when it did not."""
    parts = ledger(usage)
    if parts is None or usage.saved_s is None or usage.saved_s >= 0:
        return ""
    worst = min(parts.rounds_s, parts.plain_s, parts.rest_s)
    if worst == parts.rounds_s:
        even = break_even(usage)
        if even is None or usage.accept_len is None:
            return "no draft was sure enough to be verified"
        return f"{usage.accept_len:.1f} per block, break-even is {even:.1f}"
    if worst == parts.plain_s:
        return "plain steps slower than the best one"
    return "time between the steps"


def speed_up(usage: Usage) -> float | None:
    """Plain time over real time for the same tokens; None when unknown."""
    if usage.saved_s is None or usage.decode_s <= 0:
        return None
    return (usage.saved_s + usage.decode_s) / usage.decode_s


def why(usage: Usage) -> str:
    """The ledger of a reply in sentences, one a line."""
    lines = [
        f"{usage.n_tokens} tokens, {usage.n_thinking} of them reasoning, in "
        f"{units.seconds(usage.decode_s)} of decoding.",
        f"The prompt had {usage.n_prompt:,} tokens; {usage.n_cached:,} were still held, the "
        f"rest took {units.seconds(usage.prefill_s)}.",
    ]
    if not usage.n_tokens:
        return "\n".join([*lines, "It ended before its first token: nothing was decoded."])
    if not has_drafted(usage):
        return "\n".join([*lines, "Every token took a plain step: nothing was drafted."])
    return "\n".join([*lines, *_rounds(usage), *_plain_steps(usage), *_balance(usage)])


def _rounds(usage: Usage) -> list[str]:
    if usage.n_rounds == 0:
        return [
            f"The drafter ran {usage.n_no_draft} times for {units.seconds(usage.draft_s)}, and "
            "no draft was sure enough to be verified."
        ]
    share = usage.n_accepted / usage.n_drafted if usage.n_drafted else 0.0
    return [
        f"{usage.n_rounds} rounds tested {usage.n_drafted} drafts and accepted "
        f"{usage.n_accepted} ({share:.0%}).",
        f"A round cost {_each(usage.draft_s, usage.n_rounds)} ms of drafting and "
        f"{_each(usage.verify_s, usage.n_rounds)} ms of verifying.",
    ]


def _plain_steps(usage: Usage) -> list[str]:
    """How many steps were plain, and why."""
    if not usage.n_plain_steps:
        return []
    causes = (
        (usage.n_pause_skips, "while it was parked"),
        (usage.n_no_draft, "because every draft was cut"),
        (usage.n_tail_skips, "near the end of the reply"),
        (usage.n_no_room, "without room for a draft"),
        (usage.n_draft_errors, "because the drafter failed"),
    )
    words = [f"{n} {cause}" for n, cause in causes if n]
    other = usage.n_plain_steps - sum(n for n, _ in causes)
    if other > 0:
        words.append(f"{other} to measure, or because speculation was off")
    steps = "1 step was" if usage.n_plain_steps == 1 else f"{usage.n_plain_steps} steps were"
    return [f"{steps} plain: {', '.join(words)}."]


def _balance(usage: Usage) -> list[str]:
    parts, ratio = ledger(usage), speed_up(usage)
    if parts is None or usage.plain_step_s is None or usage.saved_s is None:
        return ["No plain step was measured yet, so what that saved is not known."]
    lines = _verdict(usage)
    net = "saved" if usage.saved_s >= 0 else "lost"
    factor = f", {ratio:.2f}x" if ratio is not None else ""
    lines.append(
        f"Net: {net} {abs(usage.saved_s):.2f} s against plain decoding{factor}: rounds "
        f"{parts.rounds_s:+.2f} s, plain steps {parts.plain_s:+.2f} s, between the steps "
        f"{parts.rest_s:+.2f} s."
    )
    reason = loss(usage)
    return [*lines, f"The largest part of the loss: {reason}."] if reason else lines


def _verdict(usage: Usage) -> list[str]:
    even = break_even(usage)
    if even is None or usage.plain_step_s is None:
        return []
    accept_len = usage.accept_len or 0.0
    verdict = "more" if accept_len >= even else "less"
    return [
        f"The best plain step measured is {units.milliseconds(usage.plain_step_s)} ms, so a "
        f"round must bring {even:.2f} tokens to break even; it brought {accept_len:.2f}, which "
        f"is {verdict}."
    ]


def _each(total_s: float, n: int) -> str:
    return units.milliseconds(total_s / n)
