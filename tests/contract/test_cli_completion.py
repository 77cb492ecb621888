"""The completion scripts: derived from the flags, and bash's really completes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ds4chat import settings
from ds4chat.cli import arguments, completion
from ds4chat.cli.main import main


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


def complete(text: str, words: list[str], folder: Path) -> list[str]:
    """What bash offers behind `words`, whose last one is being typed."""
    source = folder / "completion.bash"
    source.write_text(text)
    typed = " ".join(f"'{word}'" for word in words)
    code = (
        f"source {source}; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _ds4chat; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", code], capture_output=True, text=True, check=True, cwd=folder
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["ds4chat", "--dspark-s"], ["--dspark-strict"]),
        (["ds4chat", "--mtp-m"], ["--mtp-model", "--mtp-margin"]),
        (["ds4chat", "--policy", ""], ["money", "window", "fixed"]),
        (["ds4chat", "--policy", "w"], ["window"]),
        (["ds4chat", "a.gguf", "--backend", "cu"], ["cuda"]),
        (["ds4chat", "ins"], ["inspect"]),
        (["ds4chat", "a.gguf", "ins"], []),
        (["ds4chat", "--model", "fla"], ["flash.gguf"]),
        (["ds4chat", "fla"], ["flash.gguf"]),
        (["ds4chat", "--temp", "fla"], []),
        (["ds4chat", "--spec", "fla"], ["flash.gguf"]),
    ],
)
def test_bash_completes(
    words: list[str], wanted: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flash.gguf").touch()
    assert sorted(complete(script("bash", capsys), words, tmp_path)) == sorted(wanted)


def test_an_apostrophe_cannot_end_a_quoted_word() -> None:
    flag = completion.Flag(names=("--x",), doc="a person's own [one]")
    for shell in ("zsh", "fish"):
        assert "person'\"'\"'s" in completion.script(shell, [flag], ())


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_their_script(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    path = tmp_path / "script"
    path.write_text(script(shell, capsys))
    subprocess.run([shell, "-n", str(path)], check=True)
