"""The model file of a session that is resumed: used again while it is the same file."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from ds4chat.cli.keep import Keep
from ds4chat.cli.models import find_support
from ds4chat.engine.fingerprint import fingerprint
from ds4chat.errors import Ds4Error, ModelFileError, SettingsError
from ds4chat.formats.gguf import GgufFile
from ds4chat.protocol.types import ModelInfo
from ds4chat.settings import Origin, Settings
from ds4chat.store.library import Library


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The settings to start with, and what the person is told about the model."""

    values: Settings
    note: str = ""


def choose(kept: Keep, values: Settings, *, other: Path | None) -> Choice:
    """Take the session's own model, unless the command line names one.

    Args:
        kept: the session that is resumed; none: nothing changes.
        values: the settings of this start.
        other: the model that this start would open else, of the settings or bundled, if any.

    Raises:
        SettingsError: the session's model cannot be used and there is no other.
    """
    if not kept.resume or values.origin("model") is Origin.COMMAND_LINE:
        return Choice(values=values)
    info = _model_of(kept)
    if info is None or not info.path:
        return Choice(values=values)
    path = Path(info.path)
    wrong = _what_is_wrong(path, info.fingerprint)
    if not wrong:
        origins = {**values.origins, "model": Origin.SESSION}
        used = replace(values, model=str(path), origins=origins)
        return Choice(values=used, note=_note(path, info, used, other))
    why = f"the session's model {path} {wrong}"
    if other is not None:
        return Choice(values=values, note=f"T{why[1:]}; this start's own model is used.")
    again = shlex.join(["ds4chat", "-m", "FILE", "-r", kept.resume])
    raise SettingsError(f"{why} ({info.name})", f"Name the file: {again}")


def _model_of(kept: Keep) -> ModelInfo | None:
    """What the session was last written with; a session that cannot be read says so later."""
    try:
        options = Library(kept.root).read(kept.resume).tree.options
    except Ds4Error:
        return None
    return options.model if options is not None else None


def _what_is_wrong(path: Path, wanted: str) -> str:
    """Why a file is not the session's model; empty if it is."""
    if not path.is_file():
        return "is not there any more"
    try:
        with GgufFile.open(path) as gguf:
            found = fingerprint(gguf) if wanted else ""
    except ModelFileError as error:
        return f"cannot be used: {error.message}"
    if found != wanted:
        return f"is another file now (fingerprint {found[:12]}, the session's is {wanted[:12]})"
    return ""


def _note(path: Path, info: ModelInfo, used: Settings, other: Path | None) -> str:
    """What is to be said of the session's model: nothing where it would be opened anyway."""
    if other is None or not other.exists() or not path.samefile(other):
        return f"The model is the session's own: {path}{_drafts(info, used)}."
    lacks_drafts = info.support_name and used.support is None and find_support(path) is None
    return f"The model is the session's: {path}{_drafts(info, used)}." if lacks_drafts else ""


def _drafts(info: ModelInfo, values: Settings) -> str:
    """What becomes of the session's support file, if this start names none."""
    if not info.support_name or values.support is not None:
        return ""
    found = find_support(Path(values.model))
    if found is not None:
        return f", with {found.name} beside it"
    return (
        f"; its support file ({info.support_name}) does not lie beside it, "
        "--support FILE names one"
    )
