"""Every setting of the program, once; and the only reader of the process environment.

A value comes from the strongest of four layers: default < settings file (TOML) < environment
(`DS4CHAT_<NAME>`) < command line; each value remembers its layer. To add a setting, add one
field to `Settings`: `--help`, the variable's name and the settings screen derive from it.

This module must not know the engine or the screen: choices are plain words.
"""

from __future__ import annotations

import math
import os
import typing
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from ds4chat.errors import SettingsError
from ds4chat.settings_row import ENV_PREFIX, Row, Value, nearest
from ds4chat.smallfile import plain, read_toml

MAX_FILE_BYTES = 1 << 20

# Variables that start like a setting's and are none: the test suite and the build read them.
_NOT_SETTINGS = frozenset({"DS4CHAT_UPDATE_SNAPSHOTS", "DS4CHAT_BUILD_CPU_BLAS"})
_TABLES = frozenset({"keys"})  # of the settings file, read by the screen
_PATH_VARIABLES = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
_TERMINAL_VARIABLES = (
    "TERM", "COLORTERM", "NO_COLOR", "TERM_PROGRAM", "TMUX", "STY", "SSH_CONNECTION",
)  # fmt: skip


class Origin(StrEnum):
    """The layer that a value came from, weakest first."""

    DEFAULT = "default"
    FILE = "settings file"
    ENVIRONMENT = "environment"
    SESSION = "session"  # of the session that is resumed; the model only
    COMMAND_LINE = "command line"


def _setting(  # the rows of the table below
    default: Value,
    doc: str,
    *,
    choices: tuple[str, ...] = (),
    bounds: tuple[float, float] | None = None,
    flags: str = "",
    shortcuts: Mapping[str, Value] | None = None,
    metavar: str = "",
) -> Any:
    names = {"flags": tuple(flags.split()), "shortcuts": tuple((shortcuts or {}).items())}
    shape = {"doc": doc, "choices": choices, "bounds": bounds, "metavar": metavar}
    return field(default=default, metadata=names | shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The table of settings, and the values of one start."""

    # fmt: off
    model: str = _setting(
        "", "Main GGUF file; empty: the bundled pair, where one ships with the program.",
        flags="-m --model", metavar="FILE")
    support: str | None = _setting(
        None, "DSpark support GGUF; auto: the one beside the model; none: no drafting.",
        flags="--support --mtp --mtp-model --draft-gguf --draft-model -md", metavar="FILE")
    when_busy: str = _setting(
        "auto", "Another process holds the model: ask (auto; without a terminal wait), "
        "wait for it, or share the machine's memory with it.",
        choices=("auto", "wait", "share"), shortcuts={"--wait": "wait", "--no-wait": "share"})
    backend: str = _setting(
        "auto", "Where MLX runs.", choices=("auto", "metal", "cuda", "cpu"),
        flags="--backend", shortcuts={"--metal": "metal", "--cuda": "cuda", "--cpu": "cpu"})
    cpu_blas: bool = _setting(
        True, "Fast CPU matrix product, built once with the system's C compiler.",
        shortcuts={"--cpu-blas": True, "--no-cpu-blas": False})
    ctx: int | None = _setting(
        None, "Context in tokens; auto: the model's own, at most 32,768.",
        bounds=(16, math.inf), flags="-c --ctx", metavar="N")
    kv_fp8: bool = _setting(
        True, "FP8 KV and FP4 indexer round trips, which the model was trained with.",
        shortcuts={"--kv-fp8": True, "--no-kv-fp8": False})
    spec: bool = _setting(
        True, "Speculative decoding; false: one target pass a token.",
        shortcuts={"--spec": True, "--dspark": True, "--no-spec": False, "--plain": False,
                   "--quality": False, "--dspark-strict": False})
    policy: str = _setting(
        "money", "How far to draft: by measured gain, by ds4's window rule, or always all.",
        choices=("money", "window", "fixed"), flags="--policy")
    draft_max: int | None = _setting(
        None, "Most drafts verified in a round; auto: the whole block.",
        bounds=(1, 16), flags="--draft-max", metavar="N")
    confidence: float | None = _setting(
        None, "Drafts below this confidence are not verified; auto: the policy's own.",
        bounds=(0, 1), flags="--confidence --dspark-confidence", metavar="F")
    temp: float = _setting(
        0.0, "Sampling temperature; 0 takes the likeliest token.",
        bounds=(0, 100), flags="--temp", metavar="F")
    top_p: float = _setting(
        1.0, "Sample from the smallest set of tokens with this much probability.",
        bounds=(0, 1), flags="--top-p", metavar="F")
    top_k: int = _setting(
        0, "Sample from the K likeliest tokens; 0: all.",
        bounds=(0, math.inf), flags="--top-k", metavar="N")
    min_p: float = _setting(
        0.0, "Drop tokens below this share of the likeliest token's probability.",
        bounds=(0, 1), flags="--min-p", metavar="F")
    seed: int = _setting(
        0, "Seed of the sampling noise.", bounds=(0, 2**63 - 1), flags="--seed", metavar="N")
    max_tokens: int | None = _setting(
        None, "Longest reply in tokens, reasoning included; auto: up to the context.",
        bounds=(1, math.inf), flags="-n --max-tokens --tokens", metavar="N")
    system: str = _setting(
        "", "System prompt.", flags="-s --system -sys", metavar="TEXT")
    system_file: str = _setting(
        "", "File that holds the system prompt.", flags="--system-file", metavar="FILE")
    think: str | None = _setting(
        None, "How much the model reasons; auto: the model's default.",
        choices=("off", "low", "high", "max"),
        shortcuts={"--think-low": "low", "--think": "high",
                   "--think-max": "max", "--nothink": "off"})
    keep_reasoning: bool = _setting(
        False, "Later turns still read the reasoning of earlier replies; false: only the "
        "answers, as the model was trained.",
        shortcuts={"--keep-reasoning": True, "--drop-reasoning": False})
    ignore_eos: bool = _setting(
        False, "End tokens do not end a reply (benchmarks).", shortcuts={"--ignore-eos": True})
    show_thinking: bool = _setting(
        False, "One shot: send the reasoning to stderr.", shortcuts={"--show-thinking": True})
    kv_budget: float = _setting(
        20.0, "Disk space in GB for the KV snapshots of all sessions; beyond it those of the "
        "sessions used longest ago go, never text.",
        bounds=(0, 1 << 20), flags="--kv-budget", metavar="GB")
    theme: str = _setting(
        "", "Colour theme; empty: the default one.", flags="--theme", metavar="NAME")
    color: str = _setting(
        "auto", "Whether to colour.", choices=("auto", "always", "never"), flags="--color")
    # fmt: on

    origins: Mapping[str, Origin] = field(default_factory=dict, compare=False)

    def origin(self, name: str) -> Origin:
        """Say which layer set `name`."""
        return self.origins.get(name, Origin.DEFAULT)


@cache
def rows() -> tuple[Row, ...]:
    """The table: one row a setting, in the order of `--help`."""
    hints = typing.get_type_hints(Settings)
    return tuple(
        Row(
            name=item.name,
            kind=_kind_of(hints[item.name]),
            is_optional=type(None) in typing.get_args(hints[item.name]),
            default=typing.cast(Value, item.default),
            **item.metadata,
        )
        for item in fields(Settings)
        if item.metadata
    )


def _kind_of(hint: Any) -> Any:
    options = [option for option in typing.get_args(hint) if option is not type(None)]
    return options[0] if options else hint


def load(
    command_line: Mapping[str, object] | None = None,
    *,
    config_file: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Join the four layers.

    Args:
        command_line: setting name to value, only those that were given.
        config_file: TOML file; it need not exist.
        environ: the environment; None: the process's own.

    Raises:
        SettingsError: an unknown name or an unusable value, in any layer.
    """
    table = {row.name: row for row in rows()}
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    layers = (
        (Origin.FILE, _file_layer(config_file)),
        (Origin.ENVIRONMENT, _environment_layer(os.environ if environ is None else environ)),
        (Origin.COMMAND_LINE, _command_line_layer(command_line or {})),
    )
    for origin, layer in layers:
        for name, (raw, where) in layer.items():
            if name not in table:
                raise _unknown(where, name, origin, table)
            values[name] = table[name].parse(raw, where)
            origins[name] = origin
    return Settings(**values, origins=origins)


_Layer = dict[str, tuple[object, str]]


def _unknown(where: str, name: str, origin: Origin, known: Iterable[str]) -> SettingsError:
    """Names the nearest one, as it is written in that layer."""
    near = nearest(name, known)
    is_variable = origin is Origin.ENVIRONMENT
    if near:
        hint = f"Did you mean {ENV_PREFIX + near.upper() if is_variable else repr(near)}?"
    else:
        hint = "`ds4chat --help` lists the settings."
        hint = f"Unset it: `unset {where}`. {hint}" if is_variable else hint
    return SettingsError(f"{where}: unknown setting {name!r:.60}", hint)


def _file_layer(path: Path | None) -> _Layer:
    if path is None:
        return {}
    try:
        found = read_toml(path, MAX_FILE_BYTES)
    except SettingsError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return {}
        raise
    return {
        name: (raw, f"{plain(path)}, {plain(name, 60)}")
        for name, raw in found.items()
        if name not in _TABLES
    }


def _environment_layer(environ: Mapping[str, str]) -> _Layer:
    return {
        name.removeprefix(ENV_PREFIX).lower(): (raw, plain(name, 60))
        for name, raw in environ.items()
        if name.startswith(ENV_PREFIX) and name not in _NOT_SETTINGS
    }


def _command_line_layer(given: Mapping[str, object]) -> _Layer:
    flags = {row.name: (*row.flags, *(flag for flag, _ in row.shortcuts)) for row in rows()}
    return {
        name: (raw, next((f for f in flags.get(name, ()) if f.startswith("--")), name))
        for name, raw in given.items()
    }


# What else is read from the environment.


def path_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that say where a person's files lie, for `paths.UserDirs`."""
    source = os.environ if environ is None else environ
    return {name: source[name] for name in _PATH_VARIABLES if source.get(name)}


def dspark_knobs(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The `DS4_DSPARK_*` variables, unread: the window policy gives them meaning."""
    source = os.environ if environ is None else environ
    return {name: raw for name, raw in source.items() if name.startswith("DS4_DSPARK_")}


def wants_spec_log(environ: Mapping[str, str] | None = None) -> bool:
    """Whether every speculative block is to be logged in ds4's own line format."""
    return dspark_knobs(environ).get("DS4_DSPARK_SPEC_LOG", "0") not in ("", "0")


def wants_stats_line(environ: Mapping[str, str] | None = None) -> bool:
    """Whether ds4's statistics line is to be written when a session is freed."""
    return dspark_knobs(environ).get("DS4_DSPARK_STATS", "0") not in ("", "0")


def editor_command(environ: Mapping[str, str] | None = None) -> str:
    """The person's editor (`VISUAL`, then `EDITOR`), or an empty string."""
    source = os.environ if environ is None else environ
    return source.get("VISUAL") or source.get("EDITOR") or ""


def terminal_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that say what the terminal is and can do."""
    source = os.environ if environ is None else environ
    return {name: source[name] for name in _TERMINAL_VARIABLES if source.get(name)}


def is_dumb_terminal(environ: Mapping[str, str] | None = None) -> bool:
    """Whether `TERM` names a terminal without cursor movement."""
    source = os.environ if environ is None else environ
    return source.get("TERM", "") in ("", "dumb", "unknown")


def wants_color(color: str, is_tty: bool, environ: Mapping[str, str] | None = None) -> bool:
    """Decide `--color`; `auto` colours a terminal unless `NO_COLOR` is set (no-color.org)."""
    source = os.environ if environ is None else environ
    if color != "auto":
        return color == "always"
    return is_tty and not source.get("NO_COLOR") and not is_dumb_terminal(source)


def prepare_textual(color: str, environ: MutableMapping[str, str] | None = None) -> None:
    """Set what Textual reads when it is imported; call before that.

    120 frames a second halve the delay between a key and its echo; `--color` wins over
    `NO_COLOR`, which Textual honours by itself.
    """
    target = os.environ if environ is None else environ
    target.setdefault("TEXTUAL_FPS", "120")
    if color == "never":
        target["NO_COLOR"] = "1"
    elif color == "always":
        target.pop("NO_COLOR", None)


_MLX_DEFAULTS = {
    "MLX_MAX_OPS_PER_BUFFER": "40",
    "MLX_MAX_MB_PER_BUFFER": "1000000",
    "MLX_CUDA_GRAPH_CACHE_SIZE": "400",
}


def prepare_mlx_gpu(environ: MutableMapping[str, str] | None = None) -> None:
    """Set what MLX reads at its first work on a GPU; a person's own values stay.

    MLX ends a batch of launches once the arrays bound to it sum to a few hundred MB. One stack
    of experts is larger, so that every launch with experts would end a batch.
    """
    target = os.environ if environ is None else environ
    for name, value in _MLX_DEFAULTS.items():
        target.setdefault(name, value)
