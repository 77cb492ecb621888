"""What a reply cost and what speculation bought, in words. Pure."""

from __future__ import annotations

from ds4chat.protocol.types import FinishReason, Usage
from ds4chat.tui import units

_ENDINGS = {
    FinishReason.STOP: "",
    FinishReason.LENGTH: "length limit",
    FinishReason.CONTEXT_FULL: "context full",
    FinishReason.CANCELLED: "stopped",
    FinishReason.NONFINITE: "broken off",
    FinishReason.ERROR: "broken off",
}


def receipt(usage: Usage, reason: FinishReason) -> str:
    """The line below a reply."""
    parts = [_ENDINGS[reason], f"{usage.n_tokens} tok"]
    if usage.decode_s > 0:
        parts += [f"{usage.n_tokens / usage.decode_s:.1f} tok/s"]
    parts.append(mode(usage))
    if usage.accept_len is not None:
        parts.append(f"accept {usage.accept_len:.1f}")
    if usage.first_token_s > 0:
        parts.append(f"first {units.seconds(usage.first_token_s)}")
    parts.append(saved(usage))
    return " · ".join(part for part in parts if part)


def mode(usage: Usage) -> str:
    """`spec`, `plain`, or both with the plain share."""
    n_steps = usage.n_rounds + usage.n_plain_steps
    if usage.n_rounds == 0:
        return "plain"
    if usage.n_plain_steps <= 1:
        return "spec"
    return f"spec, {usage.n_plain_steps} of {n_steps} steps plain"


def saved(usage: Usage) -> str:
    """Net time against plain decoding, or what it lost and why; empty when unknown."""
    if usage.saved_s is None or usage.n_rounds == 0:
        return ""
    if usage.saved_s >= 0:
        return f"saved {units.seconds(usage.saved_s)}"
    why = loss(usage)
    return f"lost {units.seconds(-usage.saved_s)}" + (f" ({why})" if why else "")


def break_even(usage: Usage) -> float | None:
    """Accept length at which a round costs as much as plain decoding; None when unknown."""
    if not usage.n_rounds or not usage.plain_step_s:
        return None
    return (usage.draft_s + usage.verify_s) / usage.n_rounds / usage.plain_step_s


def loss(usage: Usage) -> str:
    """Why speculation lost; empty when the mean round did not."""
    even = break_even(usage)
    if even is None or usage.accept_len is None or usage.accept_len >= even:
        return ""
    return f"{usage.accept_len:.1f} per block, break-even is {even:.1f}"


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
    if usage.n_rounds == 0:
        return "\n".join([*lines, "Every token took a plain step: nothing was drafted."])
    share = usage.n_accepted / usage.n_drafted if usage.n_drafted else 0.0
    lines.append(
        f"{usage.n_rounds} rounds tested {usage.n_drafted} drafts and accepted "
        f"{usage.n_accepted} ({share:.0%}); {usage.n_plain_steps} steps were plain."
    )
    lines.append(
        f"A round cost {_each(usage.draft_s, usage.n_rounds)} ms of drafting and "
        f"{_each(usage.verify_s, usage.n_rounds)} ms of verifying."
    )
    return "\n".join([*lines, *_balance(usage)])


def _each(total_s: float, n: int) -> str:
    return units.milliseconds(total_s / n)


def _balance(usage: Usage) -> list[str]:
    even = break_even(usage)
    if even is None or usage.plain_step_s is None or usage.saved_s is None:
        return ["No plain step was measured yet, so what that saved is not known."]
    plain = units.milliseconds(usage.plain_step_s)
    accept_len = usage.accept_len or 0.0
    verdict = "more" if accept_len >= even else "less"
    ratio = speed_up(usage)
    return [
        f"The best plain step measured is {plain} ms, so a round must bring {even:.2f} tokens "
        f"to break even; it brought {accept_len:.2f}, which is {verdict}.",
        f"Net: {usage.saved_s:+.2f} s against plain decoding"
        + (f", {ratio:.2f}x." if ratio is not None else "."),
    ]
