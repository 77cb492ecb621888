"""A session's settings against those of this start: which hold, said line by line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

from ds4chat.protocol.types import ModelInfo, Sampling, SpecOptions
from ds4chat.settings import Origin, Settings
from ds4chat.settings_row import ENV_PREFIX
from ds4chat.store.records import OptionsSet
from ds4chat.tui.controller import ChatController


@dataclass(frozen=True, slots=True)
class _Row:
    """A setting: its name, the chat's part that holds it, and the field there."""

    setting: str
    part: str
    field: str


_ROWS = (
    _Row("temp", "sampling", "temperature"),
    _Row("top_k", "sampling", "top_k"),
    _Row("top_p", "sampling", "top_p"),
    _Row("min_p", "sampling", "min_p"),
    _Row("seed", "sampling", "seed"),
    _Row("spec", "spec", "enabled"),
    _Row("policy", "spec", "policy"),
    _Row("confidence", "spec", "confidence_threshold"),
    _Row("draft_max", "spec", "draft_max"),
)
THIS_CHAT = "this chat"  # changed since the program began
_MODEL_FIELDS = (
    ("name", "model"),
    ("quant", "weights"),
    ("fingerprint", "model file"),
    ("support_fingerprint", "support file"),
    ("kv_fp8", "kv-fp8"),
    ("backend", "backend"),
    ("device", "device"),
)


class Adopting(Protocol):
    """What holds the settings that a session brings back."""

    sampling: Sampling
    spec: SpecOptions
    max_tokens: int | None


def in_force(chat: ChatController, engine_build: str) -> OptionsSet:
    """The model and the options of the next reply."""
    return OptionsSet(
        model=chat.info,
        engine_build=engine_build,
        sampling=chat.sampling,
        spec=chat.spec,
        max_tokens=chat.max_tokens,
    )


def adopt(chat: Adopting, saved: OptionsSet, settings: Settings | None) -> list[str]:
    """Take the session's settings over, except those named on the command line.

    Returns:
        What differs, a line each.
    """
    lines = []
    for row in _ROWS:
        part = getattr(chat, row.part)
        old, new = getattr(getattr(saved, row.part), row.field), getattr(part, row.field)
        if old == new:
            continue
        if not is_flag(settings, row.setting):
            setattr(chat, row.part, replace(part, **{row.field: old}))
        lines.append(_line(settings, row.setting, old, new))
    if saved.max_tokens != chat.max_tokens:
        lines.append(_line(settings, "max_tokens", saved.max_tokens, chat.max_tokens))
        if not is_flag(settings, "max_tokens"):
            chat.max_tokens = saved.max_tokens
    return lines


def adopt_system(chat: ChatController, today: str, settings: Settings | None) -> list[str]:
    """Keep the session's system text, unless one was named on the command line."""
    saved = chat.conversation.system
    if not today or today == saved:
        return []
    if is_flag(settings, "system") or is_flag(settings, "system_file"):
        chat.conversation.system = today
        return ["system: this start's flag; all is read again with the next message"]
    return [
        f"system: the text of the session, not that of {_source_of_system(settings, today)}"
    ]


def model_differences(saved: OptionsSet | None, info: ModelInfo) -> list[str]:
    """How the loaded model differs from the session's, a line each."""
    if saved is None or saved.model is None:
        return []
    pairs = (
        (words, getattr(saved.model, field), getattr(info, field))
        for field, words in _MODEL_FIELDS
    )
    return [f"{words}: {_word(old)} then, {_word(new)} now" for words, old, new in pairs
            if old != new]  # fmt: skip


def is_flag(settings: Settings | None, name: str) -> bool:
    """Whether a setting was named on the command line."""
    return settings is not None and settings.origin(name) is Origin.COMMAND_LINE


def _line(settings: Settings | None, name: str, old: object, new: object) -> str:
    words = name.replace("_", "-")
    if is_flag(settings, name):
        return f"{words}: {_word(new)} by this start's flag (the session had {_word(old)})"
    source = _source(settings, name, new)
    return f"{words}: {_word(old)} as in the session ({source}: {_word(new)})"


def _source(settings: Settings | None, name: str, value: object) -> str:
    """Where the value that the chat had came from, in words."""
    if settings is None or getattr(settings, name) != value:
        return THIS_CHAT
    return _layer(settings, name)


def _source_of_system(settings: Settings | None, today: str) -> str:
    if settings is None or (settings.system != today and not settings.system_file):
        return THIS_CHAT
    return _layer(settings, "system" if settings.system == today else "system_file")


def _layer(settings: Settings, name: str) -> str:
    return {
        Origin.DEFAULT: "the default",
        Origin.FILE: "the settings file",
        Origin.ENVIRONMENT: f"the variable {ENV_PREFIX}{name.upper()}",
        Origin.SESSION: "the session",
        Origin.COMMAND_LINE: "this start's flag",
    }[settings.origin(name)]


def _word(value: Any) -> str:
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return "on" if value else "off"
    text = str(value)
    return (text if len(text) < 40 else text[:12] + "…") or "none"
