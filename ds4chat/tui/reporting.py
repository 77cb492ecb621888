"""Answers of /stats, /model and /spec as text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ds4chat import sizes
from ds4chat.protocol.types import ModelInfo, Policy, SpecState, Usage
from ds4chat.protocol.usage import SessionStats, full_and_missed
from ds4chat.tui import units
from ds4chat.tui.controller import ChatController, Phase

_POLICIES = {
    Policy.MONEY: "parks itself when it loses",
    Policy.WINDOW: "ds4's window rule",
    Policy.FIXED: "at all times",
}


def speculation(chat: ChatController) -> str:
    """What speculation is doing and why."""
    figures, spec = chat.figures, chat.spec
    why = f" ({figures.reason})" if figures.reason else ""
    if figures.state is SpecState.UNAVAILABLE:
        return f"Speculation is unavailable{why}."
    if not spec.enabled:
        return "Speculation is off: one target pass a token."
    state = "parked" if figures.state is SpecState.PARKED else "on"
    why = why.replace(f"({state}: ", "(", 1) if spec.policy is not Policy.FIXED else ""
    return f"Speculation is {state}{why}, {_POLICIES[spec.policy]}."


def switched(chat: ChatController, *, was_parked: bool) -> str:
    """What F3 has just done."""
    if was_parked:
        until = "until this reply ends" if chat.is_busy else "for the next reply"
        return f"Speculation is kept on {until}; /spec on keeps it on for good"
    state = "on" if chat.spec.enabled else "off"
    return f"Speculation {state}{' from the next block' if chat.is_busy else ''}"


def stats(chat: ChatController) -> str:
    """Figures of this chat."""
    figures, turns = chat.figures, chat.conversation.turns
    usages = [turn.usage for turn in turns if turn.usage is not None]
    n_tokens = sum(usage.n_tokens for usage in usages)
    decode_s = sum(usage.decode_s for usage in usages)
    lines = [
        f"Replies: {len(usages)}, {n_tokens:,} tokens"
        + (f", {n_tokens / decode_s:.1f} tok/s" if decode_s else ""),
        f"Context: {chat.n_context:,} tokens"
        + (f" of {chat.info.ctx:,}" if chat.info is not None else ""),
    ]
    if usages and usages[-1].kv_bytes:
        lines.append(f"KV cache: {sizes.size(usages[-1].kv_bytes)}")
    if figures.accept_len is not None:
        lines.append(
            f"Accept length: {figures.accept_len:.2f} over {figures.counts.n_rounds} rounds"
        )
    if figures.saved_s is not None and figures.ratio is not None:
        lines.append(f"Net saved: {figures.saved_s:+.1f} s ({figures.ratio:.2f}x)")
    lines.append(speculation(chat))
    if usages:
        total = SessionStats()
        for usage in usages:
            total.add(usage)
        lines += ["", f"All {len(usages)} replies:", *counts(total.usage)]
        lines += ["", "The last reply:", *counts(usages[-1])]
    return "\n".join(lines)


def counts(usage: Usage) -> list[str]:
    """Every count, time and histogram of one reply or of a sum, one kind a line."""
    full, missed = full_and_missed(usage)
    steps = {
        "parked": usage.n_pause_skips,
        "all drafts cut": usage.n_no_draft,
        "near the end": usage.n_tail_skips,
        "no room": usage.n_no_room,
        "drafter failed": usage.n_draft_errors,
    }
    share = f" ({usage.n_accepted / usage.n_drafted:.0%})" if usage.n_drafted else ""
    positions = [f"{a / t:.2f}" for a, t in usage.by_position if t]
    other_s = usage.decode_s - usage.draft_s - usage.verify_s - usage.plain_s
    times = {
        "prefill": usage.prefill_s,
        "draft": usage.draft_s,
        "verify": usage.verify_s,
        "plain": usage.plain_s,
        "between": max(0.0, other_s),
    }
    return [
        f"  tokens: {usage.n_tokens:,}, {usage.n_thinking:,} of them reasoning",
        f"  rounds: {usage.n_rounds:,}, {full:,} full, {usage.n_rounds - full - missed:,} "
        f"partial, {missed:,} missed the first draft",
        f"  drafts: {usage.n_drafted:,} tested, {usage.n_accepted:,} accepted{share}",
        f"  by position: {' '.join(positions) or 'nothing tested'}",
        f"  accepted a round: {_histogram(usage.histogram)}",
        f"  tested a step: {_histogram(usage.draft_lens)}",
        f"  plain steps: {usage.n_plain_steps:,}"
        + "".join(f", {n:,} {why}" for why, n in steps.items() if n),
        "  time: " + ", ".join(f"{name} {units.seconds(s)}" for name, s in times.items()),
    ]


def _histogram(values: Sequence[int]) -> str:
    return "  ".join(f"{n}:{count:,}" for n, count in enumerate(values) if count) or "none"


def _file(info: ModelInfo) -> str:
    """The model's file and its own size; all weights are more where there is a support file."""
    try:
        own = f", {sizes.size(Path(info.path).stat().st_size)}" if info.path else ""
    except OSError:
        own = ", not there any more"
    both = " with the support file" if info.support_name else ""
    return f"{info.path or 'none'}{own}; weights{both}: {sizes.size(info.weight_bytes)}"


def model(chat: ChatController) -> str:
    """What is loaded."""
    info = chat.info
    if info is None:
        return f"No model is loaded yet; the engine is {chat.phase}."
    support = (
        f"{info.support_name}, blocks of {info.block_size}" if info.support_name else "none"
    )
    lines = [
        f"Model: {info.name} ({info.quant}), {info.n_layers} layers, {info.n_vocab:,} tokens",
        f"File: {_file(info)}",
        f"Drafter: {support}",
        f"Context: {info.ctx:,} tokens (trained for {info.ctx_trained:,})",
        f"Runs on: {info.backend}, {info.device}, {info.activation_dtype}; "
        f"loaded in {units.seconds(info.load_s)}",
        f"Exact: {'yes' if info.is_exact else 'no'}"
        + (f", {info.exact_note}" if info.exact_note else ""),
    ]
    if chat.phase is not Phase.READY:
        lines.append(f"The engine is {chat.phase}.")
    return "\n".join(lines)
