"""Settings to what the engine and the screen are asked: pure, but for reading prompt files."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from ds4chat.cli.models import Pair
from ds4chat.errors import SettingsError
from ds4chat.protocol.commands import Load
from ds4chat.protocol.types import Policy, Sampling, SpecOptions, ThinkMode
from ds4chat.settings import Origin, Settings

MAX_PROMPT_BYTES = 64 << 20
_LAYERS = tuple(Origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How every reply of this start is asked for; in a replay, `questions` and a `banner`."""

    load: Load
    sampling: Sampling
    spec: SpecOptions
    think: ThinkMode | None
    max_tokens: int | None
    system: str
    keep_reasoning: bool = False
    ignore_end: bool = False
    questions: tuple[str, ...] = ()
    banner: str = ""


def make(settings: Settings, pair: Pair | None) -> Start:
    """Turn settings into protocol values.

    Raises:
        SettingsError: the system prompt's file cannot be read, or two prompts were given.
    """
    spec = SpecOptions(
        enabled=settings.spec,
        policy=Policy(settings.policy),
        confidence_threshold=settings.confidence,
        draft_max=settings.draft_max,
    )
    return Start(
        load=Load(
            request_id=0,
            model_path=str(pair.model) if pair else "",
            support_path=str(pair.support) if pair and pair.support else "",
            backend=settings.backend,
            ctx=settings.ctx,
            kv_fp8=settings.kv_fp8,
            cpu_blas=settings.cpu_blas,
            spec=spec,
        ),
        sampling=Sampling(
            temperature=settings.temp,
            top_k=settings.top_k,
            top_p=settings.top_p,
            min_p=settings.min_p,
            seed=settings.seed,
        ),
        spec=spec,
        think=ThinkMode(settings.think) if settings.think is not None else None,
        max_tokens=settings.max_tokens,
        system=_system(settings),
        keep_reasoning=settings.keep_reasoning,
        ignore_end=settings.ignore_eos,
    )


def _system(settings: Settings) -> str:
    if not settings.system_file:
        return settings.system
    text, file = (_LAYERS.index(settings.origin(name)) for name in ("system", "system_file"))
    if settings.system and text == file:
        raise SettingsError("a system prompt and a file of one", "Give one of the two.")
    return settings.system if settings.system and text > file else read(settings.system_file)


def read(name: str) -> str:
    """Read a prompt file, or standard input for `-`; one newline at its end is dropped.

    Raises:
        SettingsError: it cannot be read, is no UTF-8 text, or is absurdly large.
    """
    try:
        if name == "-":
            raw = sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1)
        else:
            with Path(name).expanduser().open("rb") as file:
                raw = file.read(MAX_PROMPT_BYTES + 1)
        text = raw.decode("utf-8")
    except OSError as error:
        raise SettingsError(f"{name}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{name}: not UTF-8 text (byte {error.start})") from error
    if len(raw) > MAX_PROMPT_BYTES:
        raise SettingsError(f"{name}: larger than {MAX_PROMPT_BYTES:,} bytes")
    return text.removesuffix("\n").removesuffix("\r")
