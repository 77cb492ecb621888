"""Sessions that go on without a screen."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from ds4chat.protocol.types import FinishReason, Sampling, ThinkMode
from ds4chat.store.library import Library
from ds4chat.store.records import OptionsSet, Replied
from tests.contract.one_shot import run
from tests.scripted_engine import TALE

pytestmark = pytest.mark.usefixtures("no_input")


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A session of one turn, as a chat with the scripted engine leaves it."""
    library = Library(tmp_path / "sessions")
    made = library.create("talk")
    made.set_options(OptionsSet(sampling=Sampling(temperature=0.5, seed=3)))
    made.set_system("Be brief.")
    made.ask("first", ThinkMode.OFF)
    made.append(Replied(turn_id=1, text="one"))
    made.close()
    return tmp_path / "sessions"


def test_a_session_goes_on_without_a_screen(
    session: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [model, "--sessions", session, "-r", "talk"]
    assert run(*argv, "-p", "say two") == 0
    out, err = capsys.readouterr()
    assert out == "two\n"
    assert "temp: 0.5 as in the session (the default: 0.0)" in err
    assert run(model, "--sessions", session, "--continue", "-p", "say three", "--seed", 4) == 0
    assert capsys.readouterr().out == "three\n"
    tree = Library(session).read("talk").tree
    assert [turn.question for turn in tree.path()] == ["first", "say two", "say three"]
    assert [turn.answer_text for turn in tree.path()] == ["one", "two", "three"]
    assert tree.system == "Be brief."
    assert tree.options is not None
    assert tree.options.sampling == Sampling(temperature=0.5, seed=4)
    assert Library(session).open("talk").is_read_only is False


def test_the_whole_session_is_sent(
    session: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(*argv: object) -> int:
        assert run(model, "--sessions", session, *argv, "-p", "say x", "--json") == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return int(next(line["n_prompt"] for line in lines if line["event"] == "start"))

    assert start("-r", "talk") > start() + len("Be brief. first one")


def test_nothing_is_kept_without_a_session(
    session: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model, "--sessions", session, "-p", "say x") == 0
    assert Library(session).names() == ["talk"]
    assert len(Library(session).read("talk").tree.path()) == 1


def test_a_reply_that_breaks_off_is_kept_as_far_as_it_came(
    session: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model, "--sessions", session, "-r", "talk", "-p", "crash") == 1
    (_, turn) = Library(session).read("talk").tree.path()
    assert turn.finished is not None
    assert turn.finished.reason is FinishReason.ERROR
    assert TALE.startswith(turn.answer_text)


def test_a_question_that_is_refused_is_taken_back(
    session: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [model, "--sessions", session, "-r", "talk", "-c", 64]
    assert run(*argv, "-p", "word " * 100) == 1
    assert "the context is full" in capsys.readouterr().err
    assert [turn.question for turn in Library(session).read("talk").tree.path()] == ["first"]


def test_a_session_that_another_window_has_is_left_alone(
    session: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = Library(session)
    holder = library.open("talk")
    assert run(model, "--sessions", session, "-r", "talk", "-p", "say x") == 1
    assert "is open in another window" in capsys.readouterr().err
    holder.close()
    assert len(library.read("talk").tree.path()) == 1


def test_an_interrupt_at_the_very_end_breaks_nothing_off(
    session: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []

    def keep_budget(_library: Library, n_bytes: int) -> None:
        signal.raise_signal(signal.SIGINT)
        kept.append(n_bytes)

    monkeypatch.setattr(Library, "keep_budget", keep_budget)
    assert run(model, "--sessions", session, "-r", "talk", "-p", "say two") == 0
    assert len(kept) == 1
    assert Library(session).open("talk").is_read_only is False


def test_a_session_that_is_not_there_is_a_usage_error(
    session: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model, "--sessions", session, "-r", "tolk", "-p", "say x") == 2
    assert "Did you mean 'talk'?" in capsys.readouterr().err
