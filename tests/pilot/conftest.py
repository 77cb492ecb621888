"""A chat in a terminal of fixed size, look and clock; text snapshots of its screen."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

import pytest

from ds4chat.demo import Reply, Script
from ds4chat.tui.options import ChatOptions
from tests.pilot.driver import Chat, run_chat

SNAPSHOTS = Path(__file__).parent / "snapshots"
PICTURES = SNAPSHOTS / "svg"  # gzipped: browsers open them as they are
_UPDATE = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_UPDATE] = os.environ.get("DS4CHAT_UPDATE_SNAPSHOTS") == "1"


class OpenChat(Protocol):
    def __call__(
        self,
        *replies: Reply,
        script: Script | None = None,
        size: tuple[int, int] = (80, 24),
        options: ChatOptions | None = None,
        is_ready: bool = True,
        is_clock_stopped: bool = False,
    ) -> AbstractAsyncContextManager[Chat]: ...


@pytest.fixture
def open_chat() -> OpenChat:
    return run_chat


@pytest.fixture
def check_snapshot(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a screen with the stored one; DS4CHAT_UPDATE_SNAPSHOTS=1 stores it instead."""

    def check(name: str, screen: str) -> None:
        path = SNAPSHOTS / f"{name}.txt"
        if request.config.stash.get(_UPDATE, False):
            path.parent.mkdir(exist_ok=True)
            path.write_text(screen + "\n", encoding="utf-8")
        assert path.is_file(), f"{path} is missing: run `make snap`"
        assert screen + "\n" == path.read_text(encoding="utf-8")

    return check


@pytest.fixture
def check_picture(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare an SVG with the stored one; a new one that differs is left beside it."""

    def check(name: str, svg: str) -> None:
        path = PICTURES / f"{name}.svgz"
        new = PICTURES / f"{name}.new.svg"
        if request.config.stash.get(_UPDATE, False):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(gzip.compress(svg.encode(), 9, mtime=0))
        stored = gzip.decompress(path.read_bytes()).decode() if path.is_file() else ""
        if stored != svg:
            new.parent.mkdir(exist_ok=True)
            new.write_text(svg, encoding="utf-8")
        assert stored == svg, f"{path} differs from {new}: look at both, then `make snap`"
        new.unlink(missing_ok=True)

    return check
