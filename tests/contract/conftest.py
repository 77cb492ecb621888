"""What the tests of the program without a screen share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.one_shot import pipe_in


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "scripted.gguf"
    path.touch()
    return path


@pytest.fixture
def no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input that is empty; a module asks for it by `usefixtures`."""
    pipe_in(monkeypatch, b"")
