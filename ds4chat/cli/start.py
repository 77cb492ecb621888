"""Settings to what the engine and the screen are asked: pure, but for reading prompt files."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from ds4chat.cli.models import Pair
from ds4chat.errors import ModelFileError, SettingsError
from ds4chat.formats.show import shown_path
from ds4chat.protocol.commands import Load
from ds4chat.protocol.types import Policy, Sampling, SpecOptions, ThinkMode
from ds4chat.settings import Origin, Settings
from ds4chat.tui.problems import brief

MAX_PROMPT_BYTES = 64 << 20
_LAYERS = tuple(Origin)
_AS_TEXT = "Only text can be asked: convert it first."


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
            model_path=str(pair.model.absolute()) if pair else "",
            support_path=str(pair.support.absolute()) if pair and pair.support else "",
            support_note=pair.note if pair else "",
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


def strict(how: Start, pair: Pair) -> Start:
    """Without a screen: a support file that was named is used, or the start fails.

    A person who also allows plain decoding (`--plain`) gets that with a notice.
    """
    is_named = pair.support is not None and not pair.is_found
    load = replace(how.load, needs_support=is_named and how.spec.enabled)
    return replace(how, load=load)


def refusal(error: ModelFileError, load: Load) -> ModelFileError:
    """The refusal of a start in one line, if it is the support file that does not fit."""
    if not load.needs_support or not error.message.startswith(shown_path(load.support_path)):
        return error
    pair = shlex.join([load.model_path, "--pair", load.support_path])
    return ModelFileError(
        f"the support file cannot be used: {brief(error.message)}",
        f"--plain answers without it; `ds4chat inspect {pair}` checks both files.",
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
        SettingsError: it cannot be read, is no text in UTF-8, or is absurdly large.
    """
    what = "standard input" if name == "-" else name
    try:
        if name == "-":
            raw = sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1)
        else:
            with Path(name).expanduser().open("rb") as file:
                raw = file.read(MAX_PROMPT_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{what}: cannot be read: {error.strerror}") from error
    if len(raw) > MAX_PROMPT_BYTES:
        raise SettingsError(f"{what}: larger than {MAX_PROMPT_BYTES:,} bytes")
    return _text(raw, what)


def _text(raw: bytes, what: str) -> str:
    zero = raw.find(b"\0")
    if zero >= 0:
        raise SettingsError(f"{what}: a binary file, not text (byte {zero} is zero)", _AS_TEXT)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{what}: not UTF-8 text (byte {error.start})", _AS_TEXT) from error
    return text.removesuffix("\n").removesuffix("\r")
