"""Names of sessions and branches: what may be one, and how one is made from any text.

A session's name is its folder's name, so it must be harmless as one on every file system that
the folder may be copied to, and as a word on a command line.
"""

from __future__ import annotations

import difflib
import re
import shlex
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from ds4chat.errors import SessionFileError
from ds4chat.store.clean import clean, clean_line

MAX_CHARS = 80
MAX_BYTES = 200
_FORBIDDEN = frozenset('/\\<>:"|?*')
_DEVICES = frozenset(
    {"con", "prn", "aux", "nul", "conin$", "conout$"}
    | {f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789¹²³"}
)


def check_name(name: str) -> str:
    """A person's name for a session, in Unicode's composed form.

    Raises:
        SessionFileError: it cannot be one; the hint offers a name that can.
    """
    composed = unicodedata.normalize("NFC", name)
    wrong = _what_is_wrong(composed)
    if wrong:
        safe = safe_name(name)
        raise SessionFileError(
            f"{clean_line(name, 60)!r} cannot name a session: {wrong}", f"Try {safe!r}."
        )
    return composed


def _what_is_wrong(name: str) -> str:
    """Why a composed name is refused; empty: it is not."""
    bad = sorted(_FORBIDDEN & set(name))
    n_bytes = len(name.encode("utf-8", "surrogatepass"))
    tests = (
        (not any(unicodedata.category(c)[0] in "LNPS" for c in name), "it is empty"),
        (
            len(name) > MAX_CHARS or n_bytes > MAX_BYTES,
            f"it is longer than {MAX_CHARS} characters or {MAX_BYTES} bytes",
        ),
        (
            clean(name) != name or any(c in "\t\n\ufffd" for c in name),
            "it holds a control or invisible character",
        ),
        (bool(bad), f"it holds {''.join(bad[:1])!r}"),
        (
            name[:1] in tuple(".-~") or name[:1].isspace(),
            "it begins with '.', '-', '~' or a space",
        ),
        (name[-1:] == "." or name[-1:].isspace(), "it ends with '.' or a space"),
        (
            name.partition(".")[0].strip().casefold() in _DEVICES,
            "some systems reserve it for a device",
        ),
    )
    return next((why for is_so, why in tests if is_so), "")


def safe_name(text: str, fallback: str = "chat") -> str:
    """A good name for a session, made from the first line of any text."""
    line = text.strip().partition("\n")[0]
    words = re.findall(r"[^\W_]+", unicodedata.normalize("NFC", clean(line[:400])))
    name = ""
    for word in words:
        longer = f"{name}-{word.lower()}" if name else word.lower()[:40]
        if len(longer) > 40 or len(longer.encode()) > MAX_BYTES // 2:
            break
        name = longer
    while len(name.encode()) > MAX_BYTES // 2:
        name = name[:-1]
    if not name or _what_is_wrong(name):
        return f"{fallback}-{name}" if name else fallback
    return name


def plain_label(text: str) -> str:
    """A person's name for a branch.

    Raises:
        SessionFileError: it is empty, too long, all digits, or holds control characters.
    """
    label = text.strip()
    if not label or len(label) > MAX_CHARS or clean_line(label) != label:
        raise SessionFileError(
            f"{clean_line(text, 60)!r} cannot name a branch",
            f"1 to {MAX_CHARS} visible characters on one line.",
        )
    if label.isdecimal():
        raise SessionFileError(
            f"{label!r} cannot name a branch: it would be taken for a turn's number",
            "Add a letter.",
        )
    return label


def nearest(word: str, known: Iterable[str]) -> str:
    """The known name most like `word`, or an empty string."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return found[0] if found else ""


def resume_command(
    name: str,
    root: Path | None = None,
    model: str = "",
    program: str = "ds4chat",
    support: str = "",
) -> str:
    """The exact command that resumes a session.

    Args:
        name: the session.
        root: where it lies, if that is not the usual folder.
        model: the model file, if it was named on the command line.
        program: how the program was started.
        support: the support file, likewise named.
    """
    words = [program, *(["-m", model] if model else [])]
    words += ["--support", support] if support else []
    words += ["-r", name]
    words += ["--sessions", str(root)] if root is not None else []
    return shlex.join(words)
