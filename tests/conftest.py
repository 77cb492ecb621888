"""Keep the machine out of the tests: own folders, clean environment, no network."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from tests import idle
from tests.signals import heed_signals

heed_signals()  # a shell's background job ignores SIGINT, one behind nohup SIGHUP

# How long an example takes tells of the machine's other work, not of the program.
settings.register_profile(
    "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")

_LOOKS = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}


@pytest.fixture(autouse=True)
def isolated_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Point HOME and the XDG folders at an empty place; drop the person's own settings."""
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        is_ours = name.startswith(("DS4CHAT_", "DS4_DSPARK_", "XDG_"))
        if is_ours and name != "DS4CHAT_UPDATE_SNAPSHOTS":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    for name, folder in (("CONFIG", "config"), ("DATA", "data"), ("STATE", "state")):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / folder))
    monkeypatch.setenv("DS4CHAT_CPU_BLAS", "off")  # a fresh home would compile it every time
    for name, value in _LOOKS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return home


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse every connection but those inside this machine's kernel (AF_UNIX)."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX:
            refuse()
        connect(self, address)

    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        raise AssertionError("a test tried to use the network")

    monkeypatch.setattr(socket.socket, "connect", guarded)
    monkeypatch.setattr(socket.socket, "connect_ex", guarded)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(autouse=True)
def patient_pilots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pilots wait for a screen's rest, not for 20 ms without processor time."""
    for name in ("textual.pilot", "textual.app"):
        if name in sys.modules:
            monkeypatch.setattr(sys.modules[name], "wait_for_idle", idle.wait_for_idle)
