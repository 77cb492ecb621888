"""A model that another process holds: asked about, waited for, shared."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ds4chat.cli import busy
from ds4chat.engine import owner


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "flash.gguf"
    with path.open("wb") as file:
        file.truncate(busy.LARGE_BYTES)  # takes no room on the disk
    claim = owner.claim(path)
    yield path
    claim.release()


class Person:
    """Answers questions, one after another."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, question: str) -> str | None:
        self.asked.append(question)
        return self.answers.pop(0)


@pytest.mark.parametrize(
    ("answers", "opens"),
    [(["g\n"], True), (["q\n"], False), ([None], False), (["what?\n", "", "Go\n"], True)],
)
def test_a_person_decides(held: Path, answers: list[str | None], opens: bool) -> None:
    person = Person(*answers)
    assert busy.may_open(held, "auto", person) is opens
    assert f"flash.gguf is already open in process {os.getpid()}" in person.asked[0]
    assert len(person.asked) == len(answers)


@pytest.mark.parametrize("when_busy", ["auto", "wait"])
def test_waiting_goes_on_when_the_model_is_free(
    held: Path,
    when_busy: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    waited: list[int] = []

    def wait(holder: owner.Holder) -> None:
        waited.append(holder.pid)
        holder.path.unlink()

    monkeypatch.setattr(owner, "wait", wait)
    ask = Person("w\n") if when_busy == "auto" else None
    assert busy.may_open(held, when_busy, ask)
    assert waited == [os.getpid()]
    assert "--no-wait goes on" in capsys.readouterr().err


def test_without_a_person_it_waits(held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "wait", lambda holder: holder.path.unlink())
    assert busy.may_open(held, "auto", None)


def test_sharing_and_small_models_go_on_silently(
    held: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert busy.may_open(held, "share", None)
    os.truncate(held, busy.LARGE_BYTES - 1)
    assert busy.may_open(held, "auto", None)
    assert capsys.readouterr() == ("", "")
