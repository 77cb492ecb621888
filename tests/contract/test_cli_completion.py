"""The completion scripts: derived from the parsers, and bash's really completes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from ds4chat import paths, settings
from ds4chat.cli import arguments, completion, vocabulary
from ds4chat.cli.completion import Command, Flag
from ds4chat.cli.main import main
from ds4chat.store.library import Library


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["--completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_every_flag_and_command_is_in_the_script(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = script(shell, capsys)
    for row in settings.rows():
        for flag in (*row.flags, *(flag for flag, _ in row.shortcuts)):
            assert flag.lstrip("-") in text
    for word in (*arguments.COMMANDS, "completion", "json", "mtp-draft"):
        assert word in text
    below = [(at, command) for at, command in vocabulary.program().walk() if at]
    assert len(below) > 20
    for at, command in below:
        for word in (at.rpartition(" ")[2], *(name.lstrip("-") for name in command.names)):
            assert word in text, (at, word)


def complete(
    text: str, words: list[str], folder: Path, environ: Mapping[str, str] | None = None
) -> list[str]:
    """What bash offers behind `words`, whose last one is being typed."""
    source = folder / "completion.bash"
    source.write_text(text)
    typed = " ".join(f"'{word}'" for word in words)
    code = (
        f"source {source}; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _ds4chat; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", code], capture_output=True, text=True, check=True, cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **(environ or {})},
    )  # fmt: skip
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


@needs_bash
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["ds4chat", "--dspark-s"], ["--dspark-strict"]),
        (["ds4chat", "--mtp-m"], ["--mtp-model", "--mtp-margin"]),
        (["ds4chat", "--policy", ""], ["money", "window", "fixed"]),
        (["ds4chat", "--policy", "w"], ["window"]),
        (["ds4chat", "--policy", "=", "w"], ["window"]),
        (["ds4chat", "a.gguf", "--backend", "cu"], ["cuda"]),
        (["ds4chat", "ins"], ["inspect"]),
        (["ds4chat", "a.gguf", "ins"], []),
        (["ds4chat", "--model", "fla"], ["flash.gguf"]),
        (["ds4chat", "fla"], ["flash.gguf"]),
        (["ds4chat", "--temp", "fla"], []),
        (["ds4chat", "--spec", "fla"], ["flash.gguf"]),
        (["ds4chat", "--theme", "da"], ["dark"]),
        (["ds4chat", "--sessions", "sto"], ["store"]),
        (["ds4chat", "sessions", "un"], ["undelete"]),
        (["ds4chat", "sessions", "--sessions", "store", "un"], ["undelete"]),
        (["ds4chat", "sessions", "fla"], []),
        (["ds4chat", "sessions", "list", "--de"], ["--deleted"]),
        (
            ["ds4chat", "sessions", "show", "tea", "--"],
            ["--help", "--sessions", "--branch", "--tree"],
        ),
        (["ds4chat", "sessions", "export", "tea", "--format", "h"], ["html"]),
        (["ds4chat", "sessions", "export", "tea", "-o", "fla"], ["flash.gguf"]),
        (["ds4chat", "bench", "dec"], ["decode"]),
        (["ds4chat", "bench", "spec", "--rep"], ["--repeat"]),
        (["ds4chat", "bench", "spec", "--model", "fla"], ["flash.gguf"]),
        (["ds4chat", "race", "co"], ["code", "count"]),
        (["ds4chat", "race", "--ca"], ["--card"]),
        (["ds4chat", "race", "code", "--policy", "w"], ["window"]),
        (["ds4chat", "doctor", "--rep"], ["--report"]),
        (["ds4chat", "doctor", "--report", "fla"], ["flash.gguf"]),
        (["ds4chat", "inspect", "fla"], ["flash.gguf"]),
        (["ds4chat", "inspect", "a.gguf", "--pair", "fla"], ["flash.gguf"]),
    ],
)
def test_bash_completes(
    words: list[str], wanted: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flash.gguf").touch()
    (tmp_path / "store").mkdir()
    assert sorted(complete(script("bash", capsys), words, tmp_path)) == sorted(wanted)


@needs_bash
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["-r", ""], ["$(touch x)", "tea", "tea time"]),
        (["--resume", "tea"], ["tea", "tea time"]),
        (["--replay", "v1-s"], ["v1-scripted"]),
        (["--replay", "tea t"], ["tea time"]),
        (["sessions", "show", "tea"], ["tea", "tea time"]),
        (["sessions", "export", "$"], ["$(touch x)"]),
        (["sessions", "undelete", ""], ["gone"]),
    ],
)
@pytest.mark.parametrize("place", ["usual", "xdg", "named"])
def test_bash_completes_names_of_sessions(
    words: list[str],
    wanted: list[str],
    place: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    environ = {"XDG_DATA_HOME": str(tmp_path / "xdg")} if place == "xdg" else {}
    dirs = paths.UserDirs.from_variables({"HOME": str(tmp_path), **environ})
    root = tmp_path / "mine" if place == "named" else dirs.sessions_root
    library = Library(root)
    for name in ("tea", "tea time", "$(touch x)", "gone"):
        library.create(name).close()
    library.delete("gone")
    typed = ["ds4chat", *words]
    if place == "named":
        typed[-2:-2] = ["--sessions", str(root)]
    assert sorted(complete(script("bash", capsys), typed, tmp_path, environ)) == sorted(wanted)
    assert not (tmp_path / "x").exists()


def test_an_apostrophe_cannot_end_a_quoted_word() -> None:
    program = Command(flags=(Flag(names=("--x",), doc="a person's own [one]"),))
    for shell in ("zsh", "fish"):
        assert "person'\"'\"'s" in completion.script(shell, program)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_their_script(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    path = tmp_path / "script"
    path.write_text(script(shell, capsys))
    subprocess.run([shell, "-n", str(path)], check=True)
