"""What a start without a screen refuses, and with which exit status."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from ds4chat.cli.main import main
from tests.contract.one_shot import run
from tests.scripted_engine import TALE

pytestmark = pytest.mark.usefixtures("no_input")


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
