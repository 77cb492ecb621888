"""A program in a pseudo-terminal that a benchmark looks at from outside."""

from __future__ import annotations

import os
import select
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

LOST_S = 5.0  # a key that is not drawn by then is lost
_QUIT_S, _QUITS = 0.5, 20  # between two Ctrl+Q, and how many


class Work(NamedTuple):
    """Seconds of a thread: on a processor, and ready but waiting for one (Linux; else 0)."""

    ran_s: float
    waited_s: float

    def since(self, before: Work) -> Work:
        """What came since an earlier reading."""
        return Work(self.ran_s - before.ran_s, self.waited_s - before.waited_s)


class KeyTime(NamedTuple):
    """One key: seconds to the screen, of the screen's thread on a processor, and waited.

    `waited_s` is how long the program's threads, or the bench that reads, were ready and the
    machine ran something else.
    """

    wall_s: float
    ran_s: float
    waited_s: float


class Terminal:
    """A program in a pseudo-terminal. Its main thread is the one that draws."""

    def __init__(self, argv: Sequence[str], size: tuple[int, int]) -> None:
        """Start it.

        Args:
            argv: Arguments of this Python.
            size: Columns and rows.
        """
        import fcntl
        import pty
        import termios

        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            shape = struct.pack("HHHH", size[1], size[0], 0, 0)
            fcntl.ioctl(0, termios.TIOCSWINSZ, shape)
            os.execv(sys.executable, [sys.executable, *argv])
        self._seen = b""
        self._has_ended = False

    def wait_for(self, wanted: bytes, seconds: float) -> bool:
        """Read until some bytes came, at most so long; whether they came."""
        deadline = time.monotonic() + seconds
        while wanted not in self._seen:
            left = deadline - time.monotonic()
            if left <= 0 or not self._read(left):
                return False
        return True

    def send(self, data: bytes) -> None:
        """Type."""
        os.write(self._fd, data)

    def key(self, key: bytes) -> KeyTime:
        """Send a key that draws itself; how long that took."""
        self._seen = b""
        before, waited = self._work(), self._waited()
        sent = time.monotonic()
        self.send(key)
        is_drawn = self.wait_for(key, LOST_S)
        wall_s = time.monotonic() - sent if is_drawn else LOST_S
        return KeyTime(wall_s, self._work().since(before).ran_s, self._waited() - waited)

    def drain(self, seconds: float) -> None:
        """Read for a while: a terminal draws all the time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._read(left)
            self._seen = b""

    def cpu_seconds(self) -> float:
        """CPU time of the program so far; 0 where the system does not tell."""
        try:
            fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def quit(self) -> int:
        """End the program by Ctrl+Q, again where it asks; its largest resident size in bytes.

        One that does not heed it is killed.
        """
        import signal

        for _ in range(_QUITS):
            with suppress(OSError):  # it has ended and closed the terminal
                self.send(b"\x11")
            self.drain(_QUIT_S)
            pid, _, usage = os.wait4(self._pid, os.WNOHANG)
            if pid:
                break
        else:
            os.kill(self._pid, signal.SIGKILL)
            usage = os.wait4(self._pid, 0)[2]
        self._has_ended = True
        return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    def close(self) -> None:
        """End the process if it still runs, and free the terminal."""
        import signal

        if not self._has_ended:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._fd)

    def _work(self) -> Work:
        return _work(f"/proc/{self._pid}/schedstat")

    def _waited(self) -> float:
        """Of all threads of the program, any of which may hold the interpreter, and ours."""
        tasks = Path(f"/proc/{self._pid}/task")
        threads = list(tasks.iterdir()) if tasks.is_dir() else []
        waits = [_work(f"{thread}/schedstat").waited_s for thread in threads]
        return sum(waits) + _work("/proc/thread-self/schedstat").waited_s

    def _read(self, seconds: float) -> bool:
        """Read once; False when the program has ended or nothing came in time."""
        if not select.select([self._fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:  # Linux: the other side is closed
            return False
        self._seen = self._seen[-64:] + data
        return bool(data)


def _work(path: str) -> Work:
    try:
        ran, waited, _ = Path(path).read_text().split()
    except (OSError, ValueError):
        return Work(0.0, 0.0)
    return Work(int(ran) / 1e9, int(waited) / 1e9)
