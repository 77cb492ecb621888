"""The engine as a child process: an `EngineLink` over pipes.

Three threads serve one process: one writes commands (so that `send` never waits for a full
pipe), one reads events, one keeps the last lines of standard error. When the process dies, the
reader says so once, as `EngineFailed`; everything else stays as it is until `restart`.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ds4chat.client import wire
from ds4chat.errors import EngineError, ProtocolError
from ds4chat.protocol.codec import decode_event, encode
from ds4chat.protocol.commands import Command, Shutdown
from ds4chat.protocol.engine import Emit
from ds4chat.protocol.events import Done, EngineFailed, Event, Hello, Notice, Refused
from ds4chat.protocol.types import PROTOCOL_VERSION

SHUTDOWN_REQUEST = -2  # of the `Shutdown` that `close` sends; the screen's are not negative
KEPT_LINES = 200
SHOWN_LINES = 3

OnSaid = Callable[[str], None]

# How long `close` waits for each way to end a process; together less than two seconds. What
# is left of it then goes to the threads, which may have words to pass on; at least the last.
_PATIENCE_S = (1.0, 0.4, 0.4)


def host_command(log_path: Path) -> list[str]:
    """The command that starts the engine.

    `-P`: a file in the working directory must not stand in for a library.
    """
    return [sys.executable, "-P", "-m", "ds4chat.engine.host", "--log", str(log_path)]


def _ignore(_line: str) -> None:
    """Nobody wants to hear."""


class EngineProcess:
    """Starts, feeds, watches and ends the engine process.

    Args:
        log_path: the engine's log; its folder exists.
        command: what to run; None: the engine of this package.
        on_said: called with each line of the engine's standard error, on a thread of its own.
    """

    def __init__(
        self,
        log_path: Path,
        command: Sequence[str] | None = None,
        *,
        on_said: OnSaid | None = None,
    ) -> None:
        self._log_path = log_path
        self._command = list(command) if command is not None else host_command(log_path)
        self._on_said = on_said or _ignore
        self._emit: Emit | None = None
        self._life: _Life | None = None

    def start(self, emit: Emit) -> None:
        """Start the engine; `Hello` is the first event. Returns at once."""
        self._emit = emit
        self._begin(emit)

    def send(self, command: Command) -> None:
        """Queue a command. If the engine is gone, `Refused` is emitted."""
        if self._emit is None:
            raise EngineError("the engine was not started")
        life = self._life  # read once: another thread may close it
        if life is None or not life.send(command):
            self._emit(
                Refused(
                    request_id=command.request_id, message=wire.GONE, hint=wire.RESTART_HINT
                )
            )

    def restart(self) -> None:
        """End what is left of the engine and start a fresh one."""
        if self._emit is None:
            raise EngineError("the engine was not started")
        self.close()
        self._begin(self._emit)

    def close(self) -> None:
        """End the engine within two seconds; no event comes afterwards."""
        life, self._life = self._life, None
        if life is not None:
            life.close()

    @property
    def is_alive(self) -> bool:
        """Whether the engine process runs."""
        life = self._life
        return life is not None and life.is_alive

    def _begin(self, emit: Emit) -> None:
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        except OSError as error:
            emit(
                EngineFailed(
                    message=f"the engine cannot be started: {self._command[0]}: "
                    f"{error.strerror}",
                    hint="Install ds4chat again.",
                )
            )
            return
        life = self._life = _Life(process, emit, self._log_path, self._on_said)
        life.start()  # behind that: who hears its first event can send to it


class _Life:
    """One process and its threads."""

    def __init__(
        self, process: subprocess.Popen[bytes], emit: Emit, log_path: Path, on_said: OnSaid
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._emit = emit
        self._log_path = log_path
        self._on_said = on_said
        self._ledger = wire.Ledger()
        self._outbox: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # of the two flags below
        self._is_closing = False
        self._is_over = False
        self._telling = threading.RLock()  # of the flag below; who is told may close
        self._is_muted = False
        self._verdict = ""
        self._said: deque[str] = deque(maxlen=KEPT_LINES)
        self._reader = self._thread("events", self._read, process.stdout)
        self._writer = self._thread("commands", self._write, process.stdin)
        self._listener = self._thread("stderr", self._listen, process.stderr)

    def start(self) -> None:
        """Begin to read and to write."""
        for thread in (self._listener, self._reader, self._writer):
            thread.start()

    def _thread(self, name: str, target: object, stream: BinaryIO | object) -> threading.Thread:
        return threading.Thread(
            target=target,  # type: ignore[arg-type]
            args=(stream,),
            name=f"engine-{name}",
            daemon=True,
        )

    @property
    def is_alive(self) -> bool:
        return not self._is_over and self._process.poll() is None

    def send(self, command: Command) -> bool:
        """Queue a command; False: nobody will read it."""
        with self._lock:
            if self._is_over or self._is_closing:
                return False
            self._ledger.sent(command)
            self._outbox.put(command)
            self._is_closing = isinstance(command, Shutdown)
        return True

    def close(self) -> None:
        """Ask, then insist, then kill the whole process group."""
        deadline_s = time.monotonic() + sum(_PATIENCE_S)
        with self._lock:
            self._is_closing = True
            self._outbox.put(Shutdown(request_id=SHUTDOWN_REQUEST))
            self._outbox.put(None)
        for patience_s, kill in zip(
            _PATIENCE_S, (None, self._process.terminate, self._kill_group), strict=True
        ):
            if kill is not None:
                kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)
                break
        self._kill_group()
        deadline_s = max(deadline_s, time.monotonic() + _PATIENCE_S[-1])
        for thread in (self._reader, self._writer, self._listener):
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(0.0, deadline_s - time.monotonic()))
        with self._telling:
            self._is_muted = True

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    # The three threads.

    def _write(self, stream: BinaryIO) -> None:
        with suppress(OSError), stream:
            while (command := self._outbox.get()) is not None:
                stream.write(encode(command).encode("ascii"))
                stream.flush()

    def _listen(self, stream: BinaryIO) -> None:
        with stream:
            for line in wire.lines(stream, 4096):
                text = line.decode("utf-8", "replace").rstrip()
                self._said.append(text)
                self._on_said(text)

    def _read(self, stream: BinaryIO) -> None:
        with stream:
            for line in wire.lines(stream):
                self._take(line)
        self._end(self._process.wait())

    def _take(self, line: bytes) -> None:
        try:
            event = decode_event(line.decode("ascii", "replace"))
        except ProtocolError as error:
            self._tell(Notice(turn_id=None, level="warning", message=error.message))
            return
        if isinstance(event, Hello) and event.protocol_version != PROTOCOL_VERSION:
            self._verdict = (
                f"the engine speaks protocol version {event.protocol_version}, wanted "
                f"{PROTOCOL_VERSION}: two versions of ds4chat are mixed"
            )
            self._kill_group()
            return
        self._ledger.received(event)
        if isinstance(event, Done | Refused) and event.request_id == SHUTDOWN_REQUEST:
            return
        self._tell(event)

    def _tell(self, event: Event) -> None:
        with self._telling:
            if not self._is_muted:
                self._emit(event)

    def _end(self, status: int) -> None:
        self._listener.join(1.0)
        with self._lock:
            self._is_over = True
            is_wanted = self._is_closing
        self._outbox.put(None)
        message = self._verdict or wire.death(status)
        for event in self._ledger.close("the engine was closed" if is_wanted else message):
            self._tell(event)
        if not is_wanted:
            self._report(message)

    def _report(self, message: str) -> None:
        last = [line for line in self._said if line][-SHOWN_LINES:]
        log_path = str(self._log_path)
        head = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self._process.pid} ERROR "
        try:
            how = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            with os.fdopen(os.open(log_path, how, 0o600), "a", encoding="utf-8") as log:
                log.write("".join(f"{head}{line}\n" for line in (message, *self._said)))
        except OSError as error:
            logging.getLogger("ds4chat").warning("%s: %s", log_path, error.strerror)
            log_path = ""
        self._tell(
            EngineFailed(
                message=": ".join([message, *last]),
                hint="A smaller --ctx needs less memory." if wire.KILLED in message else "",
                log_path=log_path,
            )
        )
