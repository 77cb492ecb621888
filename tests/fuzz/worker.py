"""Runs many cases in processes of their own, so that one that dies is only a finding."""

from __future__ import annotations

import ctypes
import multiprocessing
import resource
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.fuzz.case import Files, Target
from tests.fuzz.guard import Bars, Fault, Guard, Outcome

BATCH_CPU_S = 30.0
_LOOK_EVERY_S = 0.25
_TELL_EVERY = 100  # cases
_START_S = 120.0  # to import and to build the seeds
_FORK: Any = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A case that did what it must not."""

    target: str
    seed: int
    outcome: Outcome


@dataclass(slots=True, kw_only=True)
class Tally:
    """Figures of one target."""

    n_cases: int = 0
    case_s: float = 0.0
    labels: Counter[str] = field(default_factory=Counter)
    worst_s: float = 0.0
    worst_s_seed: int = 0
    worst_bytes: int = 0
    worst_bytes_seed: int = 0

    def add(self, seed: int, outcome: Outcome) -> None:
        """One more case."""
        self.n_cases += 1
        self.case_s += outcome.cpu_s
        self.labels[outcome.label if outcome.fault is None else outcome.key] += 1
        if outcome.cpu_s > self.worst_s:
            self.worst_s, self.worst_s_seed = outcome.cpu_s, seed
        if outcome.peak_bytes > self.worst_bytes:
            self.worst_bytes, self.worst_bytes_seed = outcome.peak_bytes, seed

    def join(self, other: Tally) -> None:
        """Another process's figures too."""
        self.n_cases += other.n_cases
        self.case_s += other.case_s
        self.labels.update(other.labels)
        if other.worst_s > self.worst_s:
            self.worst_s, self.worst_s_seed = other.worst_s, other.worst_s_seed
        if other.worst_bytes > self.worst_bytes:
            self.worst_bytes = other.worst_bytes
            self.worst_bytes_seed = other.worst_bytes_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """From which case on, until which of both is reached: seconds of CPU, or cases."""

    first: int = 0
    cpu_s: float = float("inf")
    n_cases: int | None = None


@dataclass(slots=True, kw_only=True)
class Report:
    """What a run found. `cpu_s` counts everything: seeds, making cases, running them."""

    tally: Tally = field(default_factory=Tally)
    findings: dict[str, Finding] = field(default_factory=dict)
    cpu_s: float = 0.0


def fuzz(target: Target, plan: Plan, bars: Bars) -> Report:
    """Run cases of one target."""
    report, seed = Report(), plan.first
    last = None if plan.n_cases is None else plan.first + plan.n_cases
    start = _children_cpu_s()
    while report.cpu_s < plan.cpu_s and (last is None or seed < last):
        budget = min(BATCH_CPU_S, plan.cpu_s - report.cpu_s)
        seed = _batch(target, bars, report, Plan(first=seed, cpu_s=budget), last)
        report.cpu_s = _children_cpu_s() - start
    return report


def _batch(target: Target, bars: Bars, report: Report, plan: Plan, last: int | None) -> int:
    """One process's share; the seed to go on with."""
    current = _FORK.Value(ctypes.c_longlong, -1, lock=False)
    with tempfile.TemporaryDirectory(prefix="ds4chat-fuzz-") as home:
        ours, theirs = _FORK.Pipe()
        process = _FORK.Process(
            target=_work, args=(theirs, current, target, Path(home), bars, plan, last)
        )
        process.start()
        theirs.close()
        is_done = _listen(process, ours, current, report, bars)
        process.join()
    if is_done:
        return int(current.value) + 1
    seed = int(current.value)
    if seed < 0:
        raise RuntimeError(f"the seeds of {target.name} cannot be built")
    how = -process.exitcode if process.exitcode is not None else 0
    died = Outcome(label=_name_of(how), fault=Fault.DEATH, text="the process died of it")
    report.findings.setdefault(died.key, Finding(target=target.name, seed=seed, outcome=died))
    report.tally.add(seed, died)
    return seed + 1


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"exit {-number}"


def _listen(process: Any, conn: Connection, current: Any, report: Report, bars: Bars) -> bool:
    """Take what the process says; False: it died, or had to be killed."""
    for said in _said(process, conn, current, bars):
        if said is None:
            return True
        if isinstance(said, Tally):
            report.tally.join(said)
        else:
            report.findings.setdefault(said.outcome.key, said)
    return False


def _said(process: Any, conn: Connection, current: Any, bars: Bars) -> Iterator[Any]:
    seen, since = current.value, time.monotonic()
    while True:
        try:
            while conn.poll(_LOOK_EVERY_S):
                yield conn.recv()
        except (EOFError, OSError):
            return
        if current.value != seen:
            seen, since = current.value, time.monotonic()
        allowed = _START_S if seen < 0 else 3 * bars.wait_s
        if time.monotonic() - since > allowed:
            process.kill()  # deaf to the clock: in C, or waiting in the kernel


def _work(
    conn: Connection,
    current: Any,
    target: Target,
    home: Path,
    bars: Bars,
    plan: Plan,
    last: int | None,
) -> None:
    target.prepare()
    guard, tally, seed = Guard(target, home, bars), Tally(), plan.first
    current.value = seed
    guard.run(target.case(seed))  # what is imported or built on first use is nobody's fault
    while last is None or seed < last:
        current.value = seed
        outcome = guard.run(target.case(seed))
        tally.add(seed, outcome)
        if outcome.fault is not None:
            conn.send(Finding(target=target.name, seed=seed, outcome=outcome))
        if tally.n_cases >= _TELL_EVERY:
            conn.send(tally)
            tally = Tally()
        if time.process_time() > plan.cpu_s:
            break
        seed += 1
    conn.send(tally)
    conn.send(None)


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Bench:
    """A process that runs given files, for replays and for making a case small."""

    def __init__(self, target: Target, bars: Bars) -> None:
        self._target, self._bars = target, bars
        self._home = tempfile.TemporaryDirectory(prefix="ds4chat-fuzz-")
        self._process: Any = None
        self._conn: Any = None
        self._is_new = True

    def case(self, seed: int) -> Files:
        """The case of this number, made in that process: seeds may hold an engine."""
        if self._process is None:
            self._start()
        self._conn.send(seed)
        files: Files = self._conn.recv()
        return files

    def run(self, files: Files) -> Outcome:
        """What comes of these files."""
        if self._process is None:
            self._start()
        self._conn.send(files)
        wait_s = _START_S if self._is_new else 3 * self._bars.wait_s
        self._is_new = False
        try:
            if self._conn.poll(wait_s):
                outcome: Outcome = self._conn.recv()
                return outcome
        except (EOFError, OSError):
            pass
        self._process.kill()
        self._process.join()
        how, self._process = -self._process.exitcode, None
        return Outcome(label=_name_of(how), fault=Fault.DEATH, text="the process died of it")

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._home.cleanup()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        self._conn, theirs = _FORK.Pipe()
        self._process = _FORK.Process(
            target=_serve, args=(theirs, self._target, Path(self._home.name), self._bars)
        )
        self._process.start()
        theirs.close()
        self._is_new = True


def _serve(conn: Connection, target: Target, home: Path, bars: Bars) -> None:
    target.prepare()
    guard = Guard(target, home, bars)
    guard.run(target.case(0))
    while True:
        try:
            asked = conn.recv()
        except EOFError:
            return
        conn.send(target.case(asked) if isinstance(asked, int) else guard.run(asked))
