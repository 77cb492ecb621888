"""Which files to open: the model, and the support file that lies beside it."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from ds4chat.cli.arguments import meant_command
from ds4chat.errors import ModelFileError, SettingsError
from ds4chat.protocol.commands import Load
from ds4chat.settings import Settings
from ds4chat.settings_row import nearest

MAX_LOOKED_AT = 16
NO_SUPPORT = "none"

_SUPPORT_WORDS = ("dspark", "dflash")
# Checkpoints whose support files do not fit each other; only file names tell them apart.
_CHECKPOINT_WORDS = ("0731", "vision")

WHERE_FROM = """\
ds4chat needs a DeepSeek-V4-Flash model in GGUF form, and to speculate its
DSpark support file:

  model    DeepSeek-V4-Flash-IQ2XXS-w2Q2K-AProjQ8-SExpQ8-OutQ8-chat-v2-imatrix-0731.gguf
           86.7 GB, sha256 ca22ae2f838e1407...
  support  DeepSeek-V4-Flash-DSpark-support-0731.gguf
           6.0 GB, sha256 7e319924541db3f7...

The ds4 project publishes them. Put both into one folder, then:

  ds4chat --model FILE"""


def where_from(program: str) -> str:
    """Where models come from; `program` is how a shell finds this one."""
    return WHERE_FROM.replace("ds4chat --model", f"{shlex.quote(program)} --model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The files of one start. `is_found`: the support file was not named by the person."""

    model: Path
    support: Path | None
    is_found: bool = False


def choose(settings: Settings, nano: Path | None) -> Pair | None:
    """Decide the files; None: no model was named and none is bundled.

    Args:
        settings: what the person asked for.
        nano: folder of the bundled pair, if there is one.

    Raises:
        SettingsError: a named path cannot be read.
    """
    model = model_file(settings, nano)
    if model is None:
        return None
    check_readable(model, "model")
    if settings.support == NO_SUPPORT:
        return Pair(model=model, support=None)
    if settings.support is not None:
        support = Path(settings.support).expanduser()
        check_readable(support, "support file")
        return Pair(model=model, support=support)
    return Pair(model=model, support=find_support(model), is_found=True)


def model_file(settings: Settings, nano: Path | None) -> Path | None:
    """The model that was asked for, else the bundled one; None: there is none."""
    if settings.model:
        return Path(settings.model).expanduser()
    return bundled_model(nano) if nano is not None else None


def other(name: str, load: Load) -> Load:
    """Another model's files instead of those of `load`. Raises SettingsError."""
    model = Path(name).expanduser()
    check_readable(model, "model")
    support = find_support(model)
    return replace(load, model_path=str(model), support_path=str(support or ""))


def check_readable(path: Path, what: str) -> None:
    """Refuse a path that is no readable file. Raises SettingsError."""
    if path.is_dir():
        raise SettingsError(f"{what} {path}: a folder", "Name the GGUF file in it.")
    if not path.exists():
        raise SettingsError(f"{what} {path}: there is no such file", meant_file(path))
    if not os.access(path, os.R_OK):
        raise SettingsError(f"{what} {path}: not readable for you", "Check its permissions.")


def meant_file(path: Path) -> str:
    """What to do about a path that leads nowhere."""
    command = meant_command(str(path))
    if command:
        return f"Did you mean the command `ds4chat {command}`?"
    try:
        beside = sorted(p.name for p in path.parent.glob("*.gguf"))
    except OSError:
        beside = []
    near = nearest(path.name, beside)
    return f"Did you mean {path.parent / near}?" if near else "Check the path."


def bundled_model(nano: Path) -> Path | None:
    """The main file of the bundled pair."""
    files = [path for path in sorted(nano.glob("*.gguf")) if not _is_support_name(path)]
    if len(files) > 1:
        files = [path for path in files if not _says_support(path)]
    return files[0] if files else None


def find_support(model: Path) -> Path | None:
    """The support file in the model's folder, by name, else by what the file says it is.

    A file that belongs to another checkpoint is not taken; if several fit, none is.
    """
    beside = [path for path in _neighbours(model) if _same_checkpoint(model, path)]
    named = [path for path in beside if _is_support_name(path)]
    if named:
        return named[0] if len(named) == 1 else None
    told = [path for path in beside[:MAX_LOOKED_AT] if _says_support(path)]
    return told[0] if len(told) == 1 else None


def _neighbours(model: Path) -> list[Path]:
    try:
        return [
            path
            for path in sorted(model.resolve().parent.glob("*.gguf"))
            if path.is_file() and not path.samefile(model)
        ]
    except OSError:
        return []


def _is_support_name(path: Path) -> bool:
    return any(word in path.name.lower() for word in _SUPPORT_WORDS)


def _same_checkpoint(model: Path, support: Path) -> bool:
    names = model.resolve().name.lower(), support.name.lower()
    return all((word in names[0]) == (word in names[1]) for word in _CHECKPOINT_WORDS)


def _says_support(path: Path) -> bool:
    from ds4chat.formats.gguf import GgufFile
    from ds4chat.formats.keys import KeyReader

    try:
        with GgufFile.open(path) as gguf:
            kind = KeyReader(gguf.metadata).text("general.architecture")
    except ModelFileError:
        return False
    return any(word in kind for word in _SUPPORT_WORDS)
