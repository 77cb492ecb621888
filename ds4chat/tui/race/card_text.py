"""A speed card as lines of text: the same lines that the picture shows."""

from __future__ import annotations

from ds4chat import sizes
from ds4chat.protocol.types import Sampling, SpecOptions
from ds4chat.tui.markdown.clean import clean_line
from ds4chat.tui.race.card import LaneFigures, SpeedCard

_N_HASH = 16  # hex digits of a hash that a person compares by eye

PLAIN_NOTE = (
    "plain: one target pass a token and nothing kept for a drafter, the fastest exact plain "
    "path of this build (`ds4chat bench decode` compares all)."
)
CLOCK_NOTE = (
    "One run, lanes taking turns on one device; each rate counts its own lane's engine time, "
    "the prompt excluded."
)
SPREAD_NOTE = "`ds4chat bench spec` gives medians and spread over many runs."


def rows(card: SpeedCard) -> list[tuple[str, str]]:
    """Name and value of each line, cleaned for a terminal."""
    found = [
        ("plain", rate(card.plain)),
        ("speculative", rate(card.spec)),
        ("ratio", _ratio(card.ratio)),
        ("accept length", _acceptance(card.spec)),
        ("verdict", card.verdict_words),
        ("text plain", card.plain.text_sha256[:_N_HASH]),
        ("text spec.", card.spec.text_sha256[:_N_HASH]),
        ("prompt", _prompt(card)),
        ("model", _file(card.files.model or card.files.name, card.files.model_fingerprint)),
        ("", f"{card.files.name}, {card.files.quant}, {sizes.size(card.files.weight_bytes)}"),
        ("support", _file(card.files.support or "none", card.files.support_fingerprint)),
        ("settings", _asked(card)),
        ("", _drafting(card.settings.spec, card.settings.block_size)),
        ("engine", _engine(card)),
        ("machine", _machine(card)),
        ("", card.machine.system),
        ("versions", _versions(card)),
        ("measured", card.measured_at),
    ]
    return [(name, clean_line(value)) for name, value in found]


def notes() -> tuple[str, ...]:
    """What the figures mean."""
    return (PLAIN_NOTE, CLOCK_NOTE, SPREAD_NOTE)


def as_text(card: SpeedCard) -> str:
    """The whole card."""
    lines = ["ds4chat speed card", ""]
    lines += [f"{name:<14}{value}".rstrip() for name, value in rows(card)]
    return "\n".join([*lines, "", *notes()]) + "\n"


def rate(figures: LaneFigures) -> str:
    """Tokens a second with what they were computed from."""
    if figures.tps is None:
        return "no tokens"
    return (
        f"{figures.tps:.1f} tok/s ({figures.n_tokens} tokens in {figures.decode_s:.2f} s, "
        f"ended by {figures.ended})"
    )


def _ratio(ratio: float | None) -> str:
    return "unknown" if ratio is None else f"{ratio:.2f}x"


def _acceptance(spec: LaneFigures) -> str:
    steps = f"{spec.n_plain_steps} plain steps"
    parked = f"; {spec.why or spec.state}" if spec.state != "on" else ""
    if spec.accept_len is None:
        return f"none, {steps}{parked}"
    return (
        f"{spec.accept_len:.2f} over {spec.n_rounds} rounds, {spec.n_accepted} of "
        f"{spec.n_drafted} drafts accepted, {steps}{parked}"
    )


def _prompt(card: SpeedCard) -> str:
    return f"{card.prompt_label}, {card.n_prompt:,} tokens, {card.prompt_sha256[:_N_HASH]}"


def _file(name: str, fingerprint: str) -> str:
    return f"{name}, {fingerprint[:_N_HASH] or 'fingerprint unknown'}"


def _asked(card: SpeedCard) -> str:
    settings = card.settings
    return (
        f"{_sampling(settings.sampling)}, think {settings.think}, "
        f"at most {settings.max_tokens:,} tokens, context {settings.ctx:,}"
    )


def _sampling(sampling: Sampling) -> str:
    if sampling.temperature == 0:
        return "temperature 0 (argmax)"
    return (
        f"temperature {sampling.temperature:g}, top-p {sampling.top_p:g}, "
        f"top-k {sampling.top_k}, min-p {sampling.min_p:g}, seed {sampling.seed}"
    )


def _drafting(spec: SpecOptions, block_size: int) -> str:
    cap = "whole block" if spec.draft_max is None else f"at most {spec.draft_max}"
    threshold = "own" if spec.confidence_threshold is None else f"{spec.confidence_threshold:g}"
    return f"policy {spec.policy}, block {block_size}, {cap}, confidence threshold {threshold}"


def _engine(card: SpeedCard) -> str:
    settings = card.settings
    exact = "exact" if settings.is_exact else "NOT exact here"
    note = f" ({settings.exact_note})" if settings.exact_note else ""
    fp8 = "FP8" if settings.kv_fp8 else "unrounded"
    return (
        f"{settings.backend}, {settings.device}, {settings.activation_dtype}, KV {fp8}, "
        f"{exact}{note}"
    )


def _machine(card: SpeedCard) -> str:
    machine = card.machine
    memory = f", {sizes.size(machine.memory_bytes)} memory" if machine.memory_bytes else ""
    return f"{machine.processor}, {machine.n_cores} cores{memory}"


def _versions(card: SpeedCard) -> str:
    machine = card.machine
    return f"ds4chat {machine.ds4chat}, MLX {machine.mlx}, Python {machine.python}"
