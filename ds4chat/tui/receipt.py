"""What a reply cost and what speculation bought, in words. Pure."""

from __future__ import annotations

from ds4chat.protocol.types import FinishReason, Usage
from ds4chat.tui import ledger, units

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
    if usage.saved_s is None or not ledger.has_drafted(usage):
        return ""
    if usage.saved_s >= 0:
        return f"saved {units.seconds(usage.saved_s)}"
    return f"lost {units.seconds(-usage.saved_s)} ({ledger.loss(usage)})"
