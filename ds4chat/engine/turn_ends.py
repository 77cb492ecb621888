"""Why a reply ends, in words."""

from __future__ import annotations

from dataclasses import dataclass

from ds4chat.errors import ContextFullError, Ds4Error, NonFiniteError
from ds4chat.protocol.types import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of a turn."""

    reason: FinishReason
    message: str = ""
    hint: str = ""


def length(limit: int) -> End:
    """The reply reached its limit."""
    return End(
        reason=FinishReason.LENGTH,
        message=f"the reply reached its limit of {limit:,} tokens",
    )


def context_full(n: int, ctx: int) -> End:
    """Nothing more fits."""
    return End(
        reason=FinishReason.CONTEXT_FULL,
        message=f"the context is full: {n:,} tokens held or asked for, room for {ctx:,}",
        hint="In the chat /compact drops the oldest turns; or start with a larger --ctx.",
    )


def end_of(error: Ds4Error) -> End:
    """The engine failed."""
    if isinstance(error, NonFiniteError):
        reason = FinishReason.NONFINITE
    elif isinstance(error, ContextFullError):
        reason = FinishReason.CONTEXT_FULL
    else:
        reason = FinishReason.ERROR
    return End(reason=reason, message=error.message, hint=error.hint)
