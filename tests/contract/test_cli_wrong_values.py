"""Wrong values of the subcommands' options: one line says what is wrong and what is wanted."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from ds4chat import settings
from ds4chat.cli import bench, doctor, race, sessions
from ds4chat.cli.main import main
from ds4chat.settings_row import Row
from ds4chat.store.library import Library
from tests.unit.store import build

GARBAGE = ("abc", "", "-3", "nan", "1e999", "9" * 30, "9" * 5_000, "0x10", "1.5.2", "²")
TEXTS = {"--model", "--support", "--only", "--prompt"}  # any text may be right
MARKS = (" is not ", " is none of ", "expected ")


def values() -> Iterator[tuple[str, str]]:
    """Each option of each benchmark that takes a value, with the name of the benchmark."""
    for kind, parser in bench.make_parser().kinds.items():
        for action in parser.actions:
            if action.option_strings and action.nargs != 0:
                yield kind, action.option_strings[-1]


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What is said of a line that is refused with status 2."""
    try:
        status: object = main(list(words))
    except SystemExit as left:
        status = left.code
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line.startswith("ds4chat")]
    assert len(lines) == 1, err
    return lines[0]


@pytest.mark.parametrize(("kind", "flag"), [each for each in values() if each[1] not in TEXTS])
def test_garbage_for_a_benchmark(
    capsys: pytest.CaptureFixture[str], kind: str, flag: str
) -> None:
    for value in GARBAGE:
        said = refusal(capsys, "bench", kind, f"{flag}={value}")
        assert said.startswith(f"ds4chat bench {kind}: error: argument ")
        assert flag in said
        assert len(said) < 250
        assert any(mark in said for mark in MARKS)
        assert "invalid" not in said


def test_the_texts_are_those_of_the_table() -> None:
    assert {flag for _, flag in values()} >= TEXTS


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ui --size abc", "argument --size: 'abc' is not columns x rows, such as 120x45"),
        (
            "ui --size 0x0",
            "'0x0' is not columns x rows, such as 120x45, from 40x10 to 1000x500",
        ),
        ("ui --size 120x", "'120x' is not columns x rows"),
        ("ui --size 99999x99999", "from 40x10 to 1000x500"),
        ("ui --tokens 5 x", "'x' is not a whole number from 0 to 1048576"),
        ("ui --tps 0", "'0' is not a number from 1 to 100000"),
        ("ui --keys 0", "'0' is not a whole number from 1 to 20000"),
        ("ui --keys 20001", "'20001' is not a whole number from 1 to 20000"),
        ("ui --runs 0", "'0' is not a whole number from 1 to 1000"),
        ("ui --length 0", "'0' is not a whole number from 1 to 1048576"),
        ("open --repeat 1001", "'1001' is not a whole number from 1 to 1000"),
        ("snapshot --tokens 0", "'0' is not a whole number from 1 to 1048576"),
        ("decode -c 15", "'15' is not a whole number from 16 to 1048576"),
        ("decode --backend gpu", "'gpu' is none of auto, metal, cuda, cpu; did you mean"),
        ("kernels --rows 9", "'9' is not a whole number from 1 to 8"),
        ("spec --accept 0.5", "'0.5' is not a number from 1 to 8"),
        ("ui --tokens", "argument --tokens: expected at least one argument"),
    ],
)
def test_what_is_wanted_is_said(
    capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    assert said in refusal(capsys, "bench", *line.split())


@pytest.mark.parametrize("kind", ["decode", "prefill", "kernels", "snapshot", "ui"])
def test_files_of_a_benchmark_that_are_not_there(
    capsys: pytest.CaptureFixture[str], kind: str, tmp_path: Path
) -> None:
    more = ["--against-json"] if kind == "ui" else []
    said = refusal(capsys, "bench", kind, *more, "--model", f"{tmp_path}/no.gguf")
    assert said == f"ds4chat: model {tmp_path}/no.gguf: there is no such file"
    if kind != "kernels":
        said = refusal(capsys, "bench", kind, *more, "--support", f"{tmp_path}/no.gguf")
        assert said == f"ds4chat: support file {tmp_path}/no.gguf: there is no such file"


def test_an_empty_prompt_of_a_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "bench", "spec", "--prompt", " ")
    assert "argument --prompt: it is empty; there are code, list" in said


# Settings.


CHECKED = [row for row in settings.rows() if row.flags and (row.kind is not str or row.choices)]


@pytest.mark.parametrize("row", CHECKED, ids=lambda row: row.name)
def test_garbage_for_a_race(capsys: pytest.CaptureFixture[str], row: Row) -> None:
    for value in GARBAGE:
        said = refusal(capsys, "race", f"{row.flags[-1]}={value}")
        assert " is not " in said
        assert row.wanted in said
        assert any(flag in said for flag in row.flags)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "/no/model.gguf"], "model /no/model.gguf: there is no such file"),
        (["--support", "/no/s.gguf"], "support file /no/s.gguf: there is no such file"),
        (["--system-file", "/no/text"], "/no/text: cannot be read"),
        (["--theme", "no-theme"], "--theme: there is no theme 'no-theme'"),
        (["--card", "card"], "card card: the ending must be one of .svg, .txt, .json"),
        (["--card", ""], "the ending must be one of"),
        (["--card", "/no/folder/card.svg"], "there is no folder /no/folder"),
        ([""], "the prompt is empty"),
        (["cdoe"], "'cdoe'"),
    ],
)
def test_other_wrong_words_of_a_race(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert said in refusal(capsys, "race", *words)


def test_doctor_says_which_setting_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--ctx", "abc"]) == 1
    out, err = capsys.readouterr()
    assert (err, "Traceback" in out) == ("", False)
    assert "--ctx: 'abc' is not a whole number from 16, or auto" in " ".join(out.split())


# Sessions.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    library = Library(tmp_path / "sessions", clock=build.clock())
    session = library.create("tea")
    build.say(session, "Hello")
    session.close()
    return library.root


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["list", "more"], 2, "'more' is one word too many"),
        (["show", "nope"], 1, "there is no session 'nope'"),
        (["show", ""], 1, "'' cannot name a session: it is empty"),
        (["show", "../x"], 1, "cannot name a session: it holds '/'"),
        (["show", "a" * 5_000], 1, "longer than 80 characters"),
        (["show", "tea", "--branch", "zz"], 1, "there is no branch 'zz'"),
        (["search", ""], 2, "the text to find is empty"),
        (["search", "a" * 5_000], 1, "was not said in any session"),
        (["rename", "tea", ""], 1, "'' cannot name a session"),
        (["rename", "tea", "a" * 500], 1, "longer than 80 characters"),
        (["delete", "nope"], 1, "there is no session 'nope'"),
        (["undelete", "nope"], 1, "there is no deleted session 'nope'"),
        (["strip", "nope"], 1, "there is no session 'nope'"),
        (["path", "nope"], 1, "there is no session 'nope'"),
        (["export", "tea", "--format", "zz"], 2, "'zz' is none of markdown, json, html, svg"),
        (["export", "tea", "-o", "x.zz"], 2, "the suffix '.zz' names no format"),
        (["export", "tea", "-o", ""], 2, "-o names no file"),
        (["export", "tea", "-o", "/"], 2, "-o names no file"),
        (["export", "tea", "-o", "/no/folder/x.md"], 2, "cannot be written"),
        (["export", "tea", "--branch", "zz"], 1, "there is no branch 'zz'"),
        (["export", "tea", "--format", "svg", "--theme", "zz"], 2, "there is no theme 'zz'"),
    ],
)
def test_wrong_words_about_sessions(
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    words: list[str],
    status: int,
    said: str,
) -> None:
    try:
        found: object = main(["sessions", "--sessions", str(folder), *words])
    except SystemExit as left:
        found = left.code
    out, err = capsys.readouterr()
    assert (found, out) == (status, "")
    (line,) = [line for line in err.splitlines() if line.startswith("ds4chat")]
    assert said in line


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "--sessions names no folder"),
        ("a" * 5_000, "cannot be listed: File name too long"),
    ],
)
def test_a_folder_of_sessions_that_cannot_be(
    capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    assert said in refusal(capsys, "sessions", "--sessions", name, "list")
    assert said in refusal(capsys, "sessions", "list", "--sessions", name)
    if not name:
        assert said in refusal(capsys, "--sessions", name, "-p", "Hello")


def test_every_subcommand_is_in_the_table() -> None:
    """Options that take a value and are in no test above; a new one belongs into one."""
    own = {
        action.option_strings[-1]
        for module in (race, doctor, sessions)
        for parser in (module.make_parser(), *module.make_parser().kinds.values())
        for action in parser.actions
        if action.option_strings and action.nargs != 0 and not is_setting(action)
    }
    tried = {"--card", "--report", "--sessions", "--branch", "--format", "--theme", "--output"}
    assert own == tried


def is_setting(action: argparse.Action) -> bool:
    return any(set(row.flags) & set(action.option_strings) for row in settings.rows()) and (
        "--theme" not in action.option_strings
    )
