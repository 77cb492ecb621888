"""A cycle of the whole program in a pseudo-terminal."""

from __future__ import annotations

import os
import re
import select
import signal
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4chat.errors import SessionFileError
from ds4chat.store.library import Library
from ds4chat.store.tree import Turn
from tests.cycles.left import children, nobody_holds, sessions_are_whole, wanted
from tests.cycles.plan import Act, Moment, Plan
from tests.make_pair import PairPaths
from tests.terminal import Terminal

PATIENCE_S = 240.0  # until a cycle is given up; nothing waits so long
ENDS_WITHIN_S = 20.0
OPENED = "\x1b[?1049h"
ESCAPE, CTRL_C, CTRL_Q, ALT_U, F8 = "\x1b", "\x03", "\x11", "\x1bu", "\x1b[19~"
SIGNALS = {Act.TERM: signal.SIGTERM, Act.HUP: signal.SIGHUP, Act.INT: signal.SIGINT,
           Act.KILL: signal.SIGKILL}  # fmt: skip

_MODE = re.compile(r"\x1b\[\?([0-9;]+)([hl])")
_ON_AT_REST = {7, 25}  # wrapping lines, a visible cursor
_IGNORED = {2026}  # synchronised output: brackets single frames


class Screen(Terminal):
    """The program in a terminal, with patience that ends."""

    @property
    def last(self) -> str:
        """The last words on the screen."""
        words = " ".join(self.plain.split())
        return re.sub(r"(Ask something; / for commands ?)+", "", words)[-800:]

    def pump(self, seconds: float) -> None:
        """Read for a while, as a terminal does."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not self.read_for(min(left, 0.05)):
                return

    def wait(self, holds: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience_s
        while not holds():
            wanted(time.monotonic() < deadline, f"it never came: {what}; {self.last}")
            is_open = self.read_for(0.02)
            wanted(is_open or bool(holds()), f"ended before {what}: {self.last}")

    def status_within(self, patience_s: float) -> int | None:
        """The exit status, once it has ended; None: it goes on."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if not self.read_for(0.02) and self.has_ended():
                return self._status
        return None

    def has_ended(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status is not None

    def read_for(self, seconds: float) -> bool:
        if not select.select([self.fd], [], [], seconds)[0]:
            return not self.has_ended()
        return self._read()


def modes_left(raw: str) -> list[str]:
    """Terminal modes that the output leaves other than a shell wants them."""
    last: dict[int, str] = {}
    for match in _MODE.finditer(raw):
        last |= {int(n): match.group(2) for n in match.group(1).split(";") if n}
    wrong = [
        f"?{number}{state}"
        for number, state in last.items()
        if number not in _IGNORED and (state == "h") != (number in _ON_AT_REST)
    ]
    pushed, popped = len(re.findall(r"\x1b\[>[0-9]+u", raw)), raw.count("\x1b[<u")
    return wrong + ([f"kitty keys pushed {pushed}, popped {popped}"] if pushed > popped else [])


class ScreenCycle:
    """One cycle in a terminal."""

    def __init__(self, plan: Plan, pair: PairPaths, home: Path) -> None:
        self.plan = plan
        self.pair = pair
        self.root = home / "sessions"
        self.screen = self._start()
        self.questions: list[str] = []

    def _start(self, *argv: str) -> Screen:
        return Screen(
            "ds4chat", str(self.pair.base), "--support", str(self.pair.support), "--cpu",
            "--ctx", "4096", "-n", "48", "--ignore-eos", "--sessions", str(self.root), *argv,
        )  # fmt: skip

    def run(self) -> None:
        try:
            self._until_moment()
            self._act()
            self._end()
        finally:
            self._close()
        was_killed = self.plan.act in (Act.KILL, Act.KILL_ENGINE, Act.HANG_UP)
        self._check(was_killed=was_killed)
        if self.plan.goes_on and self.plan.act is not Act.KILL_ENGINE:
            self._go_on()

    def _close(self) -> None:
        try:
            self.screen.kill()
        except OSError:  # the terminal has been closed
            if not self.screen.has_ended():
                os.kill(self.screen.pid, signal.SIGKILL)
                os.waitpid(self.screen.pid, 0)

    def turns(self) -> list[Turn]:
        library = Library(self.root)
        try:
            names = library.names()
            return library.read(names[0]).tree.path() if names else []
        except SessionFileError:
            return []  # it is being made

    # Up to the moment.

    def _until_moment(self) -> None:
        plan, screen = self.plan, self.screen
        if plan.moment is not Moment.START:
            screen.wait(lambda: OPENED in screen.raw, "the screen")
        if plan.moment in (Moment.START, Moment.LOAD):
            screen.pump(plan.delay_s)
            return
        screen.wait(lambda: "/4k" in screen.plain, "the model")
        for i in range(plan.n_before):
            self._answered(f"{i} before")
        if plan.moment in (Moment.PREFILL, Moment.STREAM):
            self._ask(plan.question)
            self._in_mid_reply()
        elif plan.moment is Moment.SAVE:
            self._answered(plan.question)
            screen.pump(plan.delay_s)
        elif plan.moment is Moment.QUIT:
            screen.write(CTRL_Q)
            screen.pump(plan.delay_s)

    def _in_mid_reply(self) -> None:
        if self.plan.moment is Moment.PREFILL:
            self.screen.pump(self.plan.delay_s)
            return

        def is_there() -> bool:
            turns = self.turns()
            if len(turns) < len(self.questions):
                return False
            turn = turns[-1]
            return turn.finished is not None or len(turn.ids) >= self.plan.n_tokens

        self.screen.wait(is_there, f"{self.plan.n_tokens} tokens")

    def _ask(self, question: str) -> None:
        self.questions.append(question)
        self.screen.write(question + "\r")

    def _answered(self, question: str) -> None:
        self._ask(question)
        self.screen.wait(self._is_answered, f"the reply to {question[:40]!r}")

    def _is_answered(self) -> bool:
        turns = self.turns()
        return len(turns) == len(self.questions) and turns[-1].finished is not None

    # The act.

    def _act(self) -> None:
        act, screen = self.plan.act, self.screen
        if act is Act.CANCEL:
            screen.write(ESCAPE if self._is_escape else CTRL_C)
            self._after_cancel()
        elif act is Act.QUIT:
            screen.write(CTRL_Q)
        elif act is Act.KILL_ENGINE:
            self._kill_engine()
        elif act is Act.HANG_UP:
            os.close(screen.fd)
        elif not screen.has_ended():
            os.kill(screen.pid, SIGNALS[act])

    @property
    def _is_escape(self) -> bool:
        return self.plan.n_tokens % 2 == 1

    @property
    def _number(self) -> signal.Signals | None:
        """The signal that the act is; so is Ctrl+C until the screen reads keys."""
        plan, opening = self.plan, (Moment.START, Moment.LOAD)
        is_key = plan.act is Act.CANCEL and not self._is_escape and plan.moment in opening
        return signal.SIGINT if is_key else SIGNALS.get(plan.act)

    def _after_cancel(self) -> None:
        if self.plan.moment in (Moment.PREFILL, Moment.STREAM):
            self.screen.wait(self._is_answered, "the end of the reply")
        if self.plan.moment is not Moment.QUIT:
            self.screen.write(CTRL_Q)

    def _kill_engine(self) -> None:
        screen = self.screen
        engines = children(screen.pid)
        n_before = len(screen.raw)
        for pid in engines:
            os.kill(pid, signal.SIGKILL)
        if self.plan.moment is Moment.QUIT:
            return
        if engines and self.plan.goes_on:
            screen.wait(lambda: OPENED in screen.raw, "the screen")
            screen.wait(lambda: "SIGKILL" in screen.plain, "word of the engine's death")
            screen.wait(lambda: "dead" in screen.plain_since(n_before), "the restart's offer")
            screen.write(F8)
            screen.wait(lambda: len(children(screen.pid)) == 1, "another engine")
            screen.write(ALT_U + "on again\r")  # a question that got no reply is in the prompt
            screen.wait(self._is_on_again, "a reply of the other engine")
            self.questions = [turn.question for turn in self.turns()]
        screen.write(CTRL_Q)

    def _is_on_again(self) -> bool:
        turns = self.turns()
        is_asked = bool(turns) and turns[-1].question == "on again"
        return is_asked and turns[-1].finished is not None

    # The end.

    def _end(self) -> None:
        screen, act = self.screen, self.plan.act
        if act is Act.HANG_UP:
            self._end_unseen()
            return
        status = screen.status_within(ENDS_WITHIN_S)
        if status is None and self.plan.moment in (Moment.START, Moment.LOAD):
            screen.write(CTRL_Q)  # the first one came before the keyboard was listened to
            status = screen.status_within(ENDS_WITHIN_S)
        wanted(status is not None, f"it does not end: {screen.last}")
        wanted(status in self._statuses(), f"status {status}: {screen.last}")
        wanted(not self._has_traceback(), f"a traceback: {screen.last}")
        if act is not Act.KILL:
            self._terminal_is_restored()

    def _has_traceback(self) -> bool:
        """Of ours: an interrupt before the first line of the program is Python's own affair."""
        _, mark, frames = self.screen.plain.partition("Traceback")
        is_early = self.plan.moment is Moment.START and self._number is signal.SIGINT
        return bool(mark) and (not is_early or "/ds4chat/" in frames)

    def _end_unseen(self) -> None:
        deadline = time.monotonic() + ENDS_WITHIN_S
        while not self.screen.has_ended():
            wanted(time.monotonic() < deadline, "it outlives its terminal")
            time.sleep(0.01)

    def _statuses(self) -> set[int]:
        """A signal before the program listens ends it in the usual way, as a signal.

        Python's own start may drop an interrupt: then a person presses a key (status 0). Or it
        takes one for a module that cannot be imported (status 1).
        """
        number = self._number
        if number is None:
            return {0}
        if number is signal.SIGKILL:
            return {-9, 0} if self.plan.moment is Moment.QUIT else {-9}
        early = {-number} if self.plan.moment is Moment.START else set()
        if number is signal.SIGINT and early:
            early |= {0, 1}
        late = {0, -number} if self.plan.moment is Moment.QUIT else set()
        if self.plan.act is Act.CANCEL:
            late = {0}  # it was a key after all
        return {128 + number} | early | late

    def _terminal_is_restored(self) -> None:
        screen = self.screen
        left = modes_left(screen.raw)
        wanted(not left, f"terminal modes are left: {left}")
        after = termios.tcgetattr(screen.fd)
        wanted(after == screen.before, f"termios: {after} instead of {screen.before}")

    def _check(self, *, was_killed: bool) -> list[Turn]:
        turns = sessions_are_whole(self.root, self.questions, was_killed=was_killed)
        is_sure = len(self.questions) - (self.plan.moment is Moment.PREFILL)
        wanted(len(turns) >= is_sure, f"{len(turns)} turns of {len(self.questions)} are kept")
        return turns

    def _go_on(self) -> None:
        """Take the chat up again; what was kept is there, and a reply can be had."""
        before = self.turns()
        self.questions = [turn.question for turn in before]
        self.screen = screen = self._start(*(["--continue"] if before else []))
        try:
            screen.wait(lambda: "/4k" in screen.plain, "the model, again")
            self._answered("go on")
            screen.write(CTRL_Q)
            wanted(screen.status_within(ENDS_WITHIN_S) == 0, "it does not end, again")
            self._terminal_is_restored()
        finally:
            self._close()
        after = self._check(was_killed=False)
        for old, new in zip(before, after, strict=False):
            wanted(old.ids == new.ids, f"turn {old.id} has changed")

    def nothing_held(self) -> None:
        nobody_holds(self.pair.base, was_killed=True)
