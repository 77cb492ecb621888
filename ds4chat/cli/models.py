"""Which files to open: the model, and the support file that lies beside it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ds4chat.cli.arguments import meant_command
from ds4chat.errors import ModelFileError, SettingsError
from ds4chat.formats.show import printable
from ds4chat.protocol.commands import Load
from ds4chat.settings import Settings
from ds4chat.settings_row import nearest

MAX_LOOKED_AT = 16
MAX_NAMED = 3
NO_SUPPORT = "none"

_SUPPORT_WORDS = ("dspark", "dflash")
# Checkpoints whose support files do not fit each other; only file names tell them apart.
_CHECKPOINT_WORDS = ("0731", "vision")

WHERE_FROM = """\
ds4chat needs a DeepSeek-V4-Flash model in GGUF form, and to speculate its
DSpark support file:

  model    DeepSeek-V4-Flash-IQ2XXS-w2Q2K-AProjQ8-SExpQ8-OutQ8-chat-v2-imatrix-0731.gguf
           86.7 GB, sha256
           ca22ae2f838e14077c22bc1c1417b71b45b5e5a3687bd96c2ac6e17fdb6261c0
  support  DeepSeek-V4-Flash-DSpark-support-0731.gguf
           6.0 GB, sha256
           7e319924541db3f7a163ed7e11d7532a70d48228ab59d36cb81e1d4511885360

The ds4 project publishes them at https://huggingface.co/antirez/deepseek-v4-gguf
Put both into one folder, then:

  ds4chat --model FILE"""


def where_from(program: str) -> str:
    """Where models come from; `program` is how a shell finds this one."""
    return WHERE_FROM.replace("ds4chat --model", f"{shlex.quote(program)} --model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The files of one start.

    `is_found`: the support file was not named by the person. `note`: what is to be said of the
    support files that lie beside the model and are not used.
    """

    model: Path
    support: Path | None
    is_found: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The support file beside a model; `note` says why there is none, or which are left."""

    found: Path | None
    note: str = ""


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
    beside = look_beside(model)
    return Pair(model=model, support=beside.found, is_found=True, note=beside.note)


def model_file(settings: Settings, nano: Path | None) -> Path | None:
    """The model that was asked for, else the bundled one; None: there is none."""
    if settings.model:
        return Path(settings.model).expanduser()
    return bundled_model(nano) if nano is not None else None


def other(name: str, load: Load) -> Load:
    """Another model's files instead of those of `load`. Raises SettingsError."""
    model = Path(name).expanduser()
    check_readable(model, "model")
    beside = look_beside(model)
    support = str(beside.found or "")
    return replace(load, model_path=str(model), support_path=support, support_note=beside.note)


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
    """The support file that `look_beside` finds."""
    return look_beside(model).found


def look_beside(model: Path) -> Beside:
    """Find the support file in the model's folder, by name, else by what the file says it is.

    A file that belongs to another checkpoint is not taken, and of several none that is cut off
    or cannot be read; if several are left, none is.
    """
    beside = [path for path in _neighbours(model) if _same_checkpoint(model, path)]
    fitting = [path for path in beside if _is_support_name(path)]
    if not fitting:
        fitting = [path for path in beside[:MAX_LOOKED_AT] if _says_support(path)]
    if len(fitting) < 2:
        return Beside(found=fitting[0] if fitting else None)
    sound = [path for path in fitting[:MAX_LOOKED_AT] if _is_whole(path)]
    if len(sound) != 1:
        several = _list(sound or fitting)
        why = "" if sound else ", all of them cut off, damaged or not readable"
        return Beside(
            found=None,
            note=f"{len(sound or fitting)} support files lie beside the model ({several})"
            f"{why}: none is used. Name one with --support FILE.",
        )
    left = _list([path for path in fitting if path != sound[0]])
    note = f"beside the model {left}: cut off, damaged or not readable, passed over"
    return Beside(found=sound[0], note=f"{note}; {sound[0].name} is used.")


def _list(files: Sequence[Path]) -> str:
    """The names of files, at most three of them."""
    names = [printable(path.name) for path in files[:MAX_NAMED]]
    more = len(files) - len(names)
    return ", ".join([*names, *([f"{more} more"] if more else [])])


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


def _is_whole(path: Path) -> bool:
    """Whether a file's directory can be read and all its tensors are there."""
    from ds4chat.formats.gguf import GgufFile

    try:
        with GgufFile.open(path):
            return True
    except ModelFileError:
        return False


def _says_support(path: Path) -> bool:
    from ds4chat.formats.gguf import GgufFile
    from ds4chat.formats.keys import KeyReader

    try:
        with GgufFile.open(path) as gguf:
            kind = KeyReader(gguf.metadata).text("general.architecture")
    except ModelFileError:
        return False
    return any(word in kind for word in _SUPPORT_WORDS)
