"""The host as a process: its pipes, its signals, its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ds4chat.protocol.codec import decode_event, encode
from ds4chat.protocol.commands import Load, Shutdown, Submit
from ds4chat.protocol.events import Done, Event, Hello, Refused, TokensCommitted, TurnFinished
from ds4chat.protocol.types import PROTOCOL_VERSION, Message, Role

PATIENCE_S = 60.0  # until a test gives up; nothing waits so long


class Process:
    def __init__(self, log: Path, *options: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "tests.scripted_engine", "--log", str(log), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def write(self, data: bytes) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(data)
        self.popen.stdin.flush()

    def send(self, *commands: Load | Submit | Shutdown) -> None:
        for command in commands:
            self.write(encode(command).encode())

    def ask(self, text: str) -> None:
        self.send(Load(request_id=1, model_path="x"))
        message = Message(role=Role.USER, text=text)
        self.send(Submit(request_id=2, turn_id=1, messages=(message,)))

    def next(self) -> Event:
        assert self.popen.stdout is not None
        return decode_event(self.popen.stdout.readline().decode())

    def until(self, kind: type[Event]) -> Event:
        while not isinstance(event := self.next(), kind):
            pass
        return event

    def end_of_input(self) -> int:
        self.popen.communicate(timeout=PATIENCE_S)
        return self.popen.returncode


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    with running(tmp_path / "log", grace_s=PATIENCE_S) as made:
        yield made


@contextmanager
def running(log: Path, *, grace_s: float) -> Iterator[Process]:
    made = Process(log, "--grace", str(grace_s))
    yield made
    made.popen.kill()
    with made.popen:
        pass


def test_hello_comes_first_and_the_group_is_its_own(process: Process) -> None:
    hello = process.next()
    assert isinstance(hello, Hello)
    assert hello.protocol_version == PROTOCOL_VERSION
    assert hello.pid == process.popen.pid
    assert os.getpgid(hello.pid) == hello.pid
    assert os.getpgid(hello.pid) != os.getpgrp()


def test_garbage_then_work(process: Process) -> None:
    process.next()
    process.write(b"\x00\xff garbage\n\n")
    assert isinstance(process.next(), Refused)
    process.ask("tell")
    process.until(TokensCommitted)


def test_the_end_of_input_ends_it(process: Process) -> None:
    process.ask("endless")
    process.until(TokensCommitted)
    assert process.end_of_input() == 0


def test_the_end_of_input_ends_it_even_in_a_prefill(tmp_path: Path) -> None:
    with running(tmp_path / "log", grace_s=0.3) as process:
        process.ask("hang")
        process.until(Done)
        assert process.end_of_input() in (0, -signal.SIGALRM)


def test_shutdown_is_answered_last(process: Process) -> None:
    process.ask("endless")
    process.until(TokensCommitted)
    process.send(Shutdown(request_id=8))
    while process.next() != Done(request_id=8):
        pass
    assert process.popen.wait(PATIENCE_S) == 0


def test_the_terminals_interrupt_does_not_reach_it(process: Process) -> None:
    process.ask("endless")
    process.until(TokensCommitted)
    process.popen.send_signal(signal.SIGINT)
    for _ in range(20):
        process.until(TokensCommitted)
    assert process.popen.poll() is None
    assert process.end_of_input() == 0


def test_terminate_ends_it(process: Process) -> None:
    process.ask("endless")
    process.until(TokensCommitted)
    process.popen.terminate()
    assert process.popen.wait(PATIENCE_S) == -signal.SIGTERM


def test_failures_are_in_the_log(process: Process, tmp_path: Path) -> None:
    process.ask("raise")
    process.until(TurnFinished)
    process.end_of_input()
    log = (tmp_path / "log").read_text()
    assert "the device is lost" in log
    assert "Traceback" in log
