"""The program without a screen, over a real engine process with scripted replies."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ds4chat.cli import arguments, prompts
from ds4chat.cli.main import main
from ds4chat.protocol.types import FinishReason, Sampling, Source, ThinkMode
from ds4chat.store.library import Library
from ds4chat.store.records import OptionsSet, Replied
from tests.scripted_chat import make_link
from tests.scripted_engine import TALE

AS_TEXT = "Only text can be asked: convert it first."
REASONING = "Hm, let me think about it."


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "scripted.gguf"
    path.touch()
    return path


@pytest.fixture(autouse=True)
def no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe_in(monkeypatch, b"")


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


def test_a_named_support_file_that_does_not_fit_is_status_1_and_said_in_one_line(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    support = tmp_path / "broken-support.gguf"
    support.touch()
    assert run(model, "--support", support, "-p", "tell") == 1
    out, err = capsys.readouterr()
    assert out == ""
    first, *rest = err.splitlines()
    assert first == (f"ds4chat: the support file cannot be used: {support}: not a GGUF file")
    assert len(rest) == 1
    assert "--plain answers without it" in rest[0]
    assert f"ds4chat inspect {model} --pair {support}" in rest[0]


def test_a_support_file_that_does_not_fit_is_a_notice_when_plain_is_allowed_or_it_was_found(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    support = tmp_path / "broken-dspark.gguf"
    support.touch()
    for argv in (["--support", support, "--plain"], []):
        assert run(model, *argv, "-p", "tell") == 0
        out, err = capsys.readouterr()
        assert out == TALE
        assert err.startswith(f"ds4chat: no speculation: {support}: not a GGUF file")


def test_an_engine_that_refuses_is_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.touch()
    assert run(broken, "-p", "x") == 1
    assert capsys.readouterr() == (
        "", f"ds4chat: {broken}: not a GGUF file\n  Download it again.\n",
    )  # fmt: skip
    assert run(broken, "-p", "x", "--json") == 1
    line = json.loads(capsys.readouterr().out)
    assert line["event"] == "error"
    assert line["hint"] == "Download it again."


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("crash", "killed by SIGKILL"),
        ("raise", "RuntimeError: the device is lost"),
        ("nan", "layer 3 computed NaN"),
    ],
)
def test_an_engine_that_fails_in_mid_reply_is_status_1(
    prompt: str, words: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model, "-p", prompt) == 1
    out, err = capsys.readouterr()
    assert TALE.startswith(out.rstrip("\n"))
    assert words in err


def test_a_prompt_that_does_not_fit_is_status_1(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model, "-p", "word " * 50, "-c", 32) == 1
    assert "the context is full" in capsys.readouterr().err


def test_a_context_that_fills_up_keeps_the_partial_answer(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model, "-p", "tell", "-c", 20) == 0
    out, err = capsys.readouterr()
    assert out.rstrip("\n")
    assert TALE.startswith(out.rstrip("\n"))
    assert "the context is full" in err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["/no/such.gguf", "-p", "x"], "there is no such file"),
        (["MODEL", "--support", "/no/such.gguf", "-p", "x"], "support file /no/such.gguf"),
        (["MODEL", "-f", "/no/such"], "cannot be read"),
        (["MODEL", "-p", " "], "the prompt is empty"),
        (["MODEL"], "the prompt is empty"),
        (["MODEL", "-p", "x", "--temp", "hot"], "--temp: 'hot' is not a number"),
        (["MODEL", "-p", "x", "--system-file", "/no/such"], "cannot be read"),
        (["--inspect"], "--inspect wants a file"),
        (
            ["MODEL", "-p", "x", "--theme", "drk"],
            "--theme: there is no theme 'drk'\n  Did you mean 'dark'?",
        ),
        (["MODEL", "-p", "x", "--theme", "nope"], "There are: colour-blind, dark"),
        (["MODEL", "-p", "x", "--backend", "metl"], "Did you mean 'metal'?"),
        (["MODEL", "-p", "x", "--sessions", "MODEL"], "a file, not a folder"),
        (["inspekt"], "Did you mean the command `ds4chat inspect`?"),
    ],
)
def test_usage_errors_are_status_2(
    argv: list[str], words: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*(str(model) if word == "MODEL" else word for word in argv)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


def test_settings_files_and_variables_count(
    model: Path,
    isolated_environment: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = isolated_environment / "config" / "ds4chat" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'model = "{model}"\nmax_tokens = 1\n')
    monkeypatch.setenv("DS4CHAT_MAX_TOKENS", "2")
    assert run("-p", "tell", "--json") == 0
    receipt = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert receipt["usage"]["n_tokens"] == 2
    config.write_text("max_tokns = 1\n")
    assert run("-p", "tell") == 2
    assert "'max_tokens'" in capsys.readouterr().err


def test_a_defect_is_status_3_with_a_report(
    model: Path, isolated_environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def defective(log_path: Path, *, on_said: object = None) -> object:
        raise AssertionError("this cannot be")

    assert main([str(model), "-p", "x"], defective) == 3  # type: ignore[arg-type]
    assert "AssertionError: this cannot be" in capsys.readouterr().err
    assert list(isolated_environment.rglob("crash-*.txt"))


def test_without_a_model_it_says_where_models_come_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ds4chat.paths.nano_dir", lambda: None)
    assert run("-p", "x") == 2
    err = capsys.readouterr().err
    assert "DeepSeek-V4-Flash-DSpark-support-0731.gguf" in err
    assert err.endswith("\n  ds4chat --model FILE\n")
    monkeypatch.setattr(sys, "argv", [".venv/bin/ds4chat"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert run("-p", "x") == 2
    assert capsys.readouterr().err.endswith("\n  .venv/bin/ds4chat --model FILE\n")


def test_blocks_are_logged_in_ds4s_own_lines(
    model: Path,
    isolated_environment: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DS4_DSPARK_SPEC_LOG", "1")
    assert run(model, "-p", "tell") == 0
    out, err = capsys.readouterr()
    assert out == TALE
    lines = err.splitlines()
    assert lines[0].startswith("ds4: DSpark spec enter accepted=0 max=")
    assert "ds4: DSpark spec direct-full drafted=5 accepted=6" in lines
    assert any("spec miss first" in line for line in lines)
    log = isolated_environment / "state" / "ds4chat" / "engine.log"
    assert "spec direct-full" in log.read_text()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("DS4_DSPARK_SCHEDULER_WINDOW", "0", "it must be 1 or more"),
        ("DS4_DSPARK_SCHEDULER", "on", "it must be 0 or 1"),
        ("DS4_DSPARK_SCHEDULER_WINDO", "4", "DS4_DSPARK_SCHEDULER_WINDOW"),
    ],
)
def test_ds4s_variables_are_checked_before_the_model_is_opened(
    name: str,
    value: str,
    words: str,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(name, value)
    assert run(model, "-p", "tell") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


def test_the_statistics_line_comes_at_the_end(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DS4_DSPARK_STATS", "1")
    assert run(model, "-p", "tell") == 0
    out, err = capsys.readouterr()
    assert out == TALE
    (line,) = err.splitlines()
    assert line.startswith("ds4: DSpark stats cycles=")
    assert " accepted_len_hist=" in line


def test_ds4s_own_way_of_decoding_with_the_target_alone(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["-m", model, "--mtp", model, "--dspark", "--dspark-strict", "--temp", 0]
    assert run(*line, "-n", 9, "-p", "tell", "--json", "--mtp-draft", 2) == 0
    out, err = capsys.readouterr()
    kinds = {json.loads(line)["event"] for line in out.splitlines()}
    assert "plain_step" in kinds
    assert "round" not in kinds
    assert err.startswith("ds4chat: --mtp-draft is ignored")


def test_end_tokens_can_be_ignored(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(model, "-p", "say a", "--ignore-eos", "-n", 9, "--json") == 0
    receipt = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (receipt["reason"], len(receipt["ids"])) == ("length", 9)


def test_subcommands_are_reached(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    for argv in (
        ["inspect", str(tmp_path / "x.gguf")],
        ["--inspect", str(tmp_path / "x.gguf")],
    ):
        assert main(argv) == 1
        assert "x.gguf" in capsys.readouterr().err
    for word in ("inspect", "bench"):
        with pytest.raises(SystemExit):
            main([word, "--help"])
        assert f"ds4chat {word}" in capsys.readouterr().out


def test_the_log_lies_in_the_persons_own_folder(
    model: Path, isolated_environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model, "-p", "raise") == 1
    log = isolated_environment / "state" / "ds4chat" / "engine.log"
    assert "the device is lost" in log.read_text()
    assert os.stat(log.parent).st_mode & 0o777 == 0o700  # noqa: PTH116 - the mode alone


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


def test_a_session_that_is_not_there_is_a_usage_error(
    session: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model, "--sessions", session, "-r", "tolk", "-p", "say x") == 2
    assert "Did you mean 'talk'?" in capsys.readouterr().err
