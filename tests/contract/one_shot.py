"""Answers without a screen, asked as a shell asks: arguments, pipes and files."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ds4chat.cli.main import main
from tests.scripted_chat import make_link

AS_TEXT = "Only text can be asked: convert it first."
REASONING = "Hm, let me think about it."


def pipe_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


@contextmanager
def real_input(
    monkeypatch: pytest.MonkeyPatch, folder: Path, data: bytes, *, as_file: bool = False
) -> Iterator[None]:
    """Standard input with a file descriptor: a pipe, or a file."""
    if as_file:
        (folder / "input").write_bytes(data)
        reader = (folder / "input").open("rb")
    else:
        read_fd, write_fd = os.pipe()
        os.write(write_fd, data)
        os.close(write_fd)
        reader = os.fdopen(read_fd, "rb")
    with io.TextIOWrapper(reader) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        yield


def run(*argv: object) -> int:
    return main([str(word) for word in argv], make_link)
