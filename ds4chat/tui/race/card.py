"""The speed card: what a race measured, and everything a sceptic would ask about it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import PurePath

from ds4chat.protocol.types import ModelInfo, Sampling, SpecOptions
from ds4chat.tui.race.ask import RaceAsk
from ds4chat.tui.race.lane import Lane
from ds4chat.tui.race.machine import Machine
from ds4chat.tui.race.race import Race
from ds4chat.tui.race.verdict import Verdict

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFigures:
    """One lane. Times are engine seconds of decoding, rates tokens a second of them."""

    n_tokens: int
    tps: float | None
    decode_s: float
    prefill_s: float
    n_plain_steps: int
    n_rounds: int
    n_drafted: int
    n_accepted: int
    accept_len: float | None
    draft_s: float
    verify_s: float
    plain_s: float
    state: str
    why: str
    ended: str
    text_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFigures:
    """The model and its support file. A fingerprint is empty where it is not known."""

    model: str
    model_fingerprint: str
    support: str
    support_fingerprint: str
    name: str
    quant: str
    weight_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the engine ran and what was asked of it."""

    backend: str
    device: str
    activation_dtype: str
    ctx: int
    kv_fp8: bool
    is_exact: bool
    exact_note: str
    block_size: int
    think: str
    max_tokens: int
    sampling: Sampling
    spec: SpecOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedCard:
    """One race. `ratio` is speculative over plain tokens a second, each on its own clock."""

    format: int
    measured_at: str  # ISO 8601, with offset
    prompt_label: str
    prompt_sha256: str
    n_prompt: int
    machine: Machine
    files: FileFigures
    settings: Settings
    plain: LaneFigures
    spec: LaneFigures
    ratio: float | None
    verdict: Verdict
    verdict_words: str

    def as_json(self) -> str:
        """All of it as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"


def make_card(
    race: Race, info: ModelInfo, support_path: str, machine: Machine, measured_at: str
) -> SpeedCard:
    """Write down a race.

    Args:
        race: a race, finished or not.
        info: what the engine opened.
        support_path: the support file; empty: none.
        machine: what it ran on.
        measured_at: date and time, ISO 8601.
    """
    verdict = race.verdict
    said = "\0".join(f"{m.role}\0{m.reasoning}\0{m.text}" for m in race.ask.messages)
    return SpeedCard(
        format=FORMAT,
        measured_at=measured_at,
        prompt_label=race.ask.label,
        prompt_sha256=hashlib.sha256(said.encode("utf-8", "replace")).hexdigest(),
        n_prompt=max(race.plain.n_prompt, race.spec.n_prompt),
        machine=machine,
        files=_files(info, support_path),
        settings=_settings(info, race.ask),
        plain=_figures(race.plain),
        spec=_figures(race.spec),
        ratio=race.ratio,
        verdict=verdict,
        verdict_words=verdict.words(),
    )


def _files(info: ModelInfo, support_path: str) -> FileFigures:
    return FileFigures(
        model=PurePath(info.path).name,
        model_fingerprint=info.fingerprint,
        support=PurePath(support_path).name or info.support_name,
        support_fingerprint=info.support_fingerprint,
        name=info.name,
        quant=info.quant,
        weight_bytes=info.weight_bytes,
    )


def _settings(info: ModelInfo, ask: RaceAsk) -> Settings:
    return Settings(
        backend=info.backend,
        device=info.device,
        activation_dtype=info.activation_dtype,
        ctx=info.ctx,
        kv_fp8=info.kv_fp8,
        is_exact=info.is_exact,
        exact_note=info.exact_note,
        block_size=info.block_size,
        think=str(ask.think),
        max_tokens=ask.max_tokens,
        sampling=ask.sampling,
        spec=ask.spec,
    )


def _figures(lane: Lane) -> LaneFigures:
    usage, counts = lane.usage, lane.counts
    return LaneFigures(
        n_tokens=lane.n_tokens,
        tps=lane.tps,
        decode_s=lane.clock_s,
        prefill_s=usage.prefill_s if usage else 0.0,
        n_plain_steps=usage.n_plain_steps if usage else lane.n_plain_steps,
        n_rounds=usage.n_rounds if usage else counts.n_rounds,
        n_drafted=usage.n_drafted if usage else 0,
        n_accepted=usage.n_accepted if usage else 0,
        accept_len=lane.accept_len,
        draft_s=usage.draft_s if usage else 0.0,
        verify_s=usage.verify_s if usage else 0.0,
        plain_s=usage.plain_s if usage else 0.0,
        state=str(lane.state),
        why=lane.why,
        ended=str(lane.end.reason) if lane.end is not None else "running",
        text_sha256=lane.text_sha256,
    )
