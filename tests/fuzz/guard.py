"""Watches one case: what it raises, how long it takes, what it allocates, where it writes.

The bars hold for every case. Memory is refused above the bar, not estimated: the limit on the
address space (`RLIMIT_AS`) is set to what the process has now plus the allowance, so that any
allocation above it fails, also one by `mmap` or in C; on Linux the peak of resident memory is
read too, for memory that was free in the process before.
"""

from __future__ import annotations

import errno
import gc
import os
import re
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Any

from ds4chat.errors import Ds4Error
from tests.fuzz.case import Files, Target, is_outside_whole, lay_out, size_of

PAGE = resource.getpagesize()
MAX_LINE_CHARS = 2000
MAX_MESSAGE_CHARS = 200_000


class Fault(StrEnum):
    """What a case must never do."""

    CRASH = "crash"
    HANG = "hang"
    MEMORY = "memory"
    WRITE = "write"
    MESSAGE = "message"
    LEAK = "leak"
    DEATH = "death"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Seconds of CPU, seconds of waiting, and bytes beside four times the case's size."""

    cpu_s: float = 2.0
    wait_s: float = 10.0
    spare_bytes: int = 64 << 20

    def bytes_for(self, n_bytes: int) -> int:
        """What a case of this size may allocate."""
        return 4 * n_bytes + self.spare_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a case. `label` names the kind of answer; `where` and `text` a fault's."""

    label: str
    fault: Fault | None = None
    where: str = ""
    text: str = ""
    cpu_s: float = 0.0
    peak_bytes: int = 0

    @property
    def key(self) -> str:
        """Cases with equal keys show the same fault."""
        return f"{self.fault}: {self.label} {self.where}"


class HangError(BaseException):
    """Raised in a case by the clock; no `except Exception` of the program stops it."""


class OutsideError(BaseException):
    """Raised in a case that was about to change a file elsewhere."""


class Guard:
    """Runs cases one after the other in this process. One for each process."""

    def __init__(self, target: Target, home: Path, bars: Bars) -> None:
        self._target = target
        self._folder = home / "case"
        self._bars = bars
        self._writes = _Writes()
        self._unraisable: list[str] = []
        sys.unraisablehook = lambda found: self._unraisable.append(repr(found.exc_value))
        sys.dont_write_bytecode = True
        warnings.simplefilter("error")  # a warning would be printed into the chat
        sys.addaudithook(self._writes.hook)
        for number in (signal.SIGPROF, signal.SIGALRM):
            signal.signal(number, _on_clock)

    def run(self, files: Files) -> Outcome:
        """Lay out a case, run it, and judge what it did."""
        lay_out(files, self._folder)
        target = self._target
        allowed = None if target.may_write is None else self._folder / target.may_write
        self._unraisable.clear()
        n_open = _count_open()
        allowance = self._bars.bytes_for(size_of(files))
        start_bytes = _start_peak()
        start_s = time.process_time()
        self._writes.allowed, self._writes.is_on = allowed, True
        try:
            label, fault, where, text = self._answer(allowance)
        finally:
            self._writes.is_on = False
        cpu_s = time.process_time() - start_s
        peak = max(0, _peak_bytes() - start_bytes)
        if fault is None:
            label, fault, text = self._afterwards(label, peak, allowance, n_open)
        return Outcome(
            label=label, fault=fault, where=where, text=text, cpu_s=cpu_s, peak_bytes=peak
        )

    def _answer(self, allowance: int) -> tuple[str, Fault | None, str, str]:
        try:
            with _Limits(self._bars, allowance):
                return f"ok {self._target.run(self._folder)}".strip(), None, "", ""
        except Ds4Error as error:
            wrong = _wrong_message(error, self._folder)
            if wrong:
                return wrong, Fault.MESSAGE, _where(error), repr(error.message)[:2000]
            if "Cannot allocate memory" in error.message:
                return "refused by the system", Fault.MEMORY, _where(error), error.message
            return kind_of(error, self._folder), None, "", ""
        except BaseException as error:  # noqa: BLE001  judged, whatever it is
            text = "".join(traceback.format_exception(error, limit=-12))[-6000:]
            return type(error).__name__, _fault_of(error), _where(error), text

    def _afterwards(
        self, label: str, peak: int, allowance: int, n_open: int
    ) -> tuple[str, Fault | None, str]:
        """What can only be seen when it is over."""
        if peak > allowance:
            said = f"{peak:,} bytes resident; {allowance:,} allowed"
            return label, Fault.MEMORY, said
        if not is_outside_whole(self._folder):
            return label, Fault.WRITE, "the file outside was changed"
        if self._unraisable:
            return label, Fault.LEAK, self._unraisable[0]
        if _count_open() > n_open:
            gc.collect()
            if _count_open() > n_open:
                return label, Fault.LEAK, "a file stayed open"
        return label, None, ""


def _fault_of(error: BaseException) -> Fault:
    if isinstance(error, HangError):
        return Fault.HANG
    if isinstance(error, OutsideError):
        return Fault.WRITE
    is_memory = isinstance(error, OSError) and error.errno == errno.ENOMEM
    return Fault.MEMORY if is_memory or isinstance(error, MemoryError) else Fault.CRASH


class _Limits:
    """The clock and the limit on memory, while a case runs."""

    def __init__(self, bars: Bars, allowance: int) -> None:
        self._bars = bars
        self._allowance = allowance
        self._hard = resource.getrlimit(resource.RLIMIT_AS)[1]

    def __enter__(self) -> None:
        used = _address_space()
        if used:
            resource.setrlimit(resource.RLIMIT_AS, (used + self._allowance, self._hard))
        # Again and again: a handler's exception may be lost in a destructor.
        signal.setitimer(signal.ITIMER_PROF, self._bars.cpu_s, 0.5)
        signal.setitimer(signal.ITIMER_REAL, self._bars.wait_s, 1.0)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (self._hard, self._hard))


def _on_clock(number: int, _frame: FrameType | None) -> None:
    raise HangError("by the CPU's clock" if number == signal.SIGPROF else "by the wall's clock")


# Files.

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class _Writes:
    """An audit hook that lets a case change files below one folder only."""

    def __init__(self) -> None:
        self.allowed: Path | None = None
        self.is_on = False

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """Called by the interpreter before each operation."""
        if not self.is_on or event not in _CHANGES:
            return
        self.is_on = False  # looking up a path must not be judged itself
        try:
            for path in _CHANGES[event](args):
                self._judge(event, path)
        finally:
            self.is_on = True

    def _judge(self, event: str, path: str) -> None:
        allowed = self.allowed
        if allowed is not None and (path + "/").startswith(f"{allowed}/"):
            return
        if path not in ("/dev/null", "/dev/tty"):
            raise OutsideError(f"{event} {path}")


def _opened(args: tuple[Any, ...]) -> list[str]:
    path, _mode, flags = args
    if isinstance(path, int) or not flags & _WRITING:
        return []
    text = os.fsdecode(path)
    if flags & os.O_NOFOLLOW and os.path.islink(text):  # noqa: PTH114
        return []  # it will be refused
    return [os.path.realpath(text)]


def _named(*places: tuple[int, int]) -> Callable[[tuple[Any, ...]], list[str]]:
    """Paths at these places of the arguments; the second number is that of their `dir_fd`."""

    def find(args: tuple[Any, ...]) -> list[str]:
        found = []
        for place, fd_place in places:
            path = args[place]
            if isinstance(path, int):
                continue
            text = os.fsdecode(path)
            dir_fd = args[fd_place] if 0 <= fd_place < len(args) else -1
            if dir_fd >= 0:
                text = str(Path(f"/proc/self/fd/{dir_fd}").readlink() / text)
            head, tail = os.path.split(os.path.abspath(text))  # noqa: PTH100
            found.append(f"{os.path.realpath(head)}/{tail}")
        return found

    return find


_CHANGES: dict[str, Callable[[tuple[Any, ...]], list[str]]] = {
    "open": _opened,
    "os.rename": _named((0, 2), (1, 3)),
    "os.remove": _named((0, 1)),
    "os.rmdir": _named((0, 1)),
    "os.mkdir": _named((0, 2)),
    "os.link": _named((1, 3)),
    "os.symlink": _named((1, 2)),
    "os.truncate": _named((0, -1)),
    "os.chmod": _named((0, 2)),
    "os.utime": _named((0, 3)),
}


def _count_open() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    except OSError:
        return 0


# Memory.


def _address_space() -> int:
    """Bytes of address space in use; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[0]) * PAGE
    except OSError:
        return 0


def _start_peak() -> int:
    """Forget the peak so far; resident bytes now."""
    try:
        with open("/proc/self/clear_refs", "wb") as file:  # noqa: PTH123
            file.write(b"5")
    except OSError:
        return _peak_bytes()
    return _status(b"VmRSS:")


def _peak_bytes() -> int:
    """Most resident bytes since `_start_peak`."""
    return _status(b"VmHWM:") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _status(word: bytes) -> int:
    try:
        with open("/proc/self/status", "rb") as file:  # noqa: PTH123
            rest = file.read().partition(word)[2]
    except OSError:
        return 0
    return int(rest.split(maxsplit=1)[0]) * 1024 if rest else 0


# Messages.


def _wrong_message(error: Ds4Error, folder: Path) -> str:
    """What a person's terminal would take amiss in an error; empty: nothing."""
    for text in (error.message, error.hint):
        lines = text.split("\n")
        if any(not line.startswith("  ") for line in lines[1:]):
            return "a line break from the input"
        if any(not line.isprintable() for line in lines):
            return "a character that is not printable"
        longest = max(map(len, lines)) - len(str(folder))
        if longest > MAX_LINE_CHARS or len(text) > MAX_MESSAGE_CHARS:
            return "far too long"
    return "" if error.message.strip() else "no words"


_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\[.*\]")
_NUMBERS = re.compile(r"[-+]?\d[\d,._]*(?:e[-+]?\d+)?")


def kind_of(error: Ds4Error, folder: Path) -> str:
    """An error's message without what differs from case to case."""
    return f"{type(error).__name__}: {kind_of_words(error.message, folder)}"


def kind_of_words(text: str, folder: Path = Path("/nowhere")) -> str:
    """The same for any text of the program."""
    words = text.replace(f"{folder}/", "").replace(str(folder), "").split("\n")[0][:400]
    words = re.sub("[0-9a-f]{32}", "…", words)
    return _NUMBERS.sub("0", _QUOTED.sub("'…'", words))[:110]


def _where(error: BaseException) -> str:
    """The innermost line of the program that an exception came through."""
    found = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if "/ds4chat/" in frame.filename and "/tests/" not in frame.filename:
            found = f"{frame.filename.rpartition('/ds4chat/')[2]}:{frame.name}"
    return found
