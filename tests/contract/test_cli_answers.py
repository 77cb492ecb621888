"""The program without a screen, over a real engine process with scripted replies."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ds4chat.cli import arguments, prompts
from ds4chat.protocol.types import Source
from tests.contract.one_shot import AS_TEXT, REASONING, pipe_in, real_input, run
from tests.scripted_engine import TALE

pytestmark = pytest.mark.usefixtures("no_input")


def test_one_shot_puts_only_the_answer_on_standard_output(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model, "-p", "tell") == 0
    assert capsys.readouterr() == (TALE, "")


def test_statistics_and_reasoning_go_to_standard_error(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model, "-p", "say yes", "-v", "--think", "--show-thinking") == 0
    out, err = capsys.readouterr()
    assert out == "yes\n"
    assert err.startswith(f"{REASONING}\n")
    assert "tok/s" in err.splitlines()[-1]


def test_reasoning_is_left_out_unless_asked_for(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model, "-p", "say yes", "--think") == 0
    assert capsys.readouterr() == ("yes\n", "")


def test_a_prompt_from_a_file_or_a_pipe(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "prompt").write_text("say from a file\n")
    assert run(model, "-f", tmp_path / "prompt") == 0
    pipe_in(monkeypatch, b"say from a pipe\n")
    assert run(model) == 0
    pipe_in(monkeypatch, b"say from a dash\n")
    assert run(model, "-f", "-") == 0
    assert capsys.readouterr().out == "from a file\nfrom a pipe\nfrom a dash\n"


def test_json_lines_hold_the_whole_reply(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model, "-p", "tell", "--json", "--think") == 0
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    kinds = [line["event"] for line in lines]
    assert kinds[:2] == ["model", "start"]
    assert kinds[-1] == "receipt"
    assert "round" in kinds
    tokens = [
        (line["channel"], token)
        for line in lines
        if line["event"] == "tokens"
        for token in line["tokens"]
    ]
    assert "".join(t["text"] for channel, t in tokens if channel == "answer") == TALE
    assert "".join(t["text"] for channel, t in tokens if channel == "thinking") == REASONING
    assert {token["source"] for _, token in tokens} <= set(Source)
    assert [token["id"] for _, token in tokens] == lines[-1]["ids"]
    assert err == ""


def test_plain_and_speculative_text_are_equal(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model, "-p", "tell", "--plain", "-n", 17) == 0
    plain = capsys.readouterr().out
    assert run(model, "-p", "tell", "--spec", "-n", 17) == 0
    assert capsys.readouterr().out == plain
    assert plain.rstrip("\n") == TALE[: len(plain) - 1]


@pytest.mark.parametrize("as_file", [False, True], ids=["pipe", "file"])
def test_what_is_piped_in_stands_below_the_prompt(
    as_file: bool,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with real_input(monkeypatch, tmp_path, b"the text\n", as_file=as_file):
        assert run(model, "-p", "say this:") == 0
    assert capsys.readouterr().out == "this:\n\nthe text\n"


def test_empty_input_adds_nothing_to_the_prompt(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for data in (b"", b" \n"):
        with real_input(monkeypatch, tmp_path, data):
            assert run(model, "-p", "say this") == 0
    with real_input(monkeypatch, tmp_path, b""):
        assert run(model) == 2
    out, err = capsys.readouterr()
    assert out == "this\nthis\n"
    assert err == "ds4chat: the prompt is empty\n  Give one with -p TEXT, -f FILE or a pipe.\n"


def test_a_prompt_file_leaves_standard_input_alone(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "prompt").write_text("say it")
    with real_input(monkeypatch, tmp_path, b"not read"):
        assert run(model, "-f", tmp_path / "prompt") == 0
        assert sys.stdin.read() == "not read"
    assert capsys.readouterr().out == "it\n"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x7fELF\x02\x01\0\0", "standard input: a binary file, not text (byte 6 is zero)"),
        (b"caf\xe9", "standard input: not UTF-8 text (byte 3)"),
    ],
)
def test_binary_input_is_refused_before_a_model_is_opened(
    data: bytes,
    words: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for argv in ([model, "-p", "say"], [model]):
        with real_input(monkeypatch, tmp_path, data):
            assert run(*argv) == 2
        assert capsys.readouterr() == ("", f"ds4chat: {words}\n  {AS_TEXT}\n")


def test_five_megabytes_of_input_are_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "line of text\n" * (5_000_000 // 13)
    with real_input(monkeypatch, tmp_path, text.encode(), as_file=True):
        found = prompts.prompt(arguments.parse(["-p", "sum up"]))
    assert found == "sum up\n\n" + text.removesuffix("\n")


def test_end_tokens_can_be_ignored(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(model, "-p", "say a", "--ignore-eos", "-n", 9, "--json") == 0
    receipt = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (receipt["reason"], len(receipt["ids"])) == ("length", 9)
