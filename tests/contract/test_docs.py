"""What README and `docs/` tell to type is typed here, and what they quote the program says.

Flash files are replaced by a small made pair, replies are cut short, benchmarks run once. By
default what differs by its flags alone has the scripted engine; `-m slow` has real ones.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ds4chat import __version__
from tests import docs_tables
from tests.make_pair import make_pair
from tests.terminal import ROOT, Terminal

PAGES = {
    path.name: path.read_text("utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
PATIENCE_S = 240
READY = "\x1b[?1049h"

# Benchmarks may be over their bar here, and a doctor may find something: status 1.
SHORT = {
    "bench decode": "-m flash.gguf -n 2 --context 8 --repeat 1",
    "bench kernels": "--repeat 1 --launches 1 --megabytes 1 --rows 1 --only attn_kv",
    "bench launches": "-m flash.gguf --context 8 --repeat 1",
    "bench open": "--repeat 1",
    "bench prefill": "-m flash.gguf --tokens 8 --repeat 1",
    "bench snapshot": "--tokens 40",
    "bench spec": "-m flash.gguf -n 4 --repeat 1 --accept 1",
    "bench ui": "--tokens 0 --keys 2",
    "bench verify": "-m flash.gguf --context 8 --repeat 1",
}
REAL, SCRIPTED = "ds4chat", "tests.scripted_chat"
# What starts an engine, seconds of work, and which of those start a real one by default.
STARTS = re.compile(
    r" (-p|-f|< |race|doctor|bench (?!--help|kernels)|--continue|--model|flash)"
)
READS = re.compile(r" inspect ")
ALWAYS_REAL = (
    "ds4chat doctor",
    "ds4chat race code",
    "ds4chat --model flash.gguf --support dspark.gguf",
    'ds4chat --model flash.gguf -p "Why is the sky blue?" -v',
    'ds4chat -r tea -p "And then?"',
)
ONLY_REAL = re.compile(r" (doctor|race|bench|--continue)")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Folders that all commands share: `home` of the person, `files` that they name."""

    home: Path
    files: Path
    programs: Path
    chat: str

    def environ(self, program: str = REAL) -> dict[str, str]:
        """What is set for a command, besides what the tests set for all."""
        return {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_DATA_HOME": str(self.home / "data"),
            "XDG_STATE_HOME": str(self.home / "state"),
            "DS4CHAT_MAX_TOKENS": "6",
            "DS4CHAT_CPU_BLAS": "off",
            "PATH": f"{self.programs / program}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A person who has the files of the pages and a chat called tea."""
    root = tmp_path_factory.mktemp("docs")
    made = World(home=root / "home", files=root / "files", programs=root / "bin", chat="")
    for folder in (made.home, made.files, made.programs):
        folder.mkdir()
    pair = make_pair(made.files, seed=3, quant="q2")
    pair.base.rename(made.files / "flash.gguf")
    pair.support.rename(made.files / "dspark.gguf")
    (made.files / "question.txt").write_text("Name three fruits\n")
    for name in (REAL, SCRIPTED):
        program = made.programs / name / "ds4chat"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {name} "$@"\n')
        program.chmod(0o755)
    terminal = Terminal(REAL, environ=made.environ())
    try:
        terminal.until_shown("ctx 0/")
        terminal.write("Hello\r")
        terminal.until_shown("tok/s ·")
        terminal.write("/rename tea\r")
        terminal.until(lambda _: (made.home / "data/ds4chat/sessions/tea").is_dir())
        terminal.write("\x11")
        assert terminal.end() == 0
        return dataclasses.replace(made, chat=terminal.plain)
    finally:
        terminal.kill()


@pytest.fixture
def folder(world: World, tmp_path: Path) -> Path:
    """A folder of its own with the files in it."""
    for path in world.files.iterdir():
        os.link(path, tmp_path / path.name)
    return tmp_path


def blocks(text: str) -> Iterator[str]:
    """Lines of the blocks that are typed into a shell."""
    for block in re.findall(r"^```(?:sh)?\n(.*?)^```", text, flags=re.S | re.M):
        yield from block.splitlines()


def bare(line: str) -> str:
    """A line without its comment; # inside quotes is text."""
    return re.sub(r"\s+#\s.*", "", line).strip()


def spans(text: str) -> list[str]:
    """Code within sentences."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))


def commands() -> list[str]:
    """Every line of every page once, and what sentences tell to type."""
    typed = [bare(line) for text in PAGES.values() for line in blocks(text)]
    told = [
        span for text in PAGES.values() for span in spans(text) if span.startswith("ds4chat ")
    ]
    return sorted({line for line in (*typed, *told) if line} - {"ds4chat"})


OURS = [line for line in commands() if "ds4chat" in line]
OTHERS = [line for line in commands() if "ds4chat" not in line]


def opens_the_screen(line: str) -> bool:
    words = shlex.split(line, posix=True)
    flags = {"-p", "-f", "--completion", "--version", "--help", "<", "|"}
    names = {"inspect", "bench", "race", "sessions", "doctor"}
    return words[0] == "ds4chat" and not flags & set(words) and not names & set(words[1:2])


SCREENS = [line for line in OURS if opens_the_screen(line)]
LINES = [line for line in OURS if not opens_the_screen(line)]


def shortened(line: str) -> str:
    name = " ".join(line.split()[1:3])
    return f"{line} {SHORT[name]}" if name in SHORT and "--help" not in line else line


def runs(lines: list[str]) -> list[object]:
    """Each line with the program that runs it; what takes long is marked."""
    made: list[object] = []
    for line in lines:
        if line in ALWAYS_REAL or READS.search(line) or not STARTS.search(line):
            made.append((line, REAL))
            continue
        made.append(pytest.param(line, REAL, marks=pytest.mark.slow))
        if not ONLY_REAL.search(line):
            made.append((line, SCRIPTED))
    return made


def test_the_pages_have_commands() -> None:
    assert len(SCREENS) > 4
    assert len(LINES) > 25
    assert len(OTHERS) > 4


def test_what_is_always_real_is_there() -> None:
    assert set(ALWAYS_REAL) <= set(OURS)


@pytest.mark.parametrize(("line", "program"), runs(LINES))
def test_a_command_runs(line: str, program: str, world: World, folder: Path) -> None:
    ran = subprocess.run(
        ["bash", "-c", shortened(line)],
        cwd=folder, env={**os.environ, **world.environ(program)}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    may_miss = line.startswith(("ds4chat bench", "ds4chat doctor"))
    said = f"{ran.stdout[-1500:]}\n{ran.stderr[-1500:]}"
    assert ran.returncode == 0 or (may_miss and ran.returncode == 1), said
    assert "Traceback" not in ran.stderr
    assert ran.stdout or ran.stderr or line.startswith("source"), said


@pytest.mark.parametrize(("line", "program"), runs(SCREENS))
def test_a_command_opens_the_screen(
    line: str, program: str, world: World, folder: Path
) -> None:
    words = [
        str(folder / word) if word.endswith(".gguf") else word for word in shlex.split(line)[1:]
    ]
    terminal = Terminal(program, *words, environ=world.environ(program))
    try:
        terminal.until(lambda raw: READY in raw)
        terminal.until_shown("ctx ")
        terminal.write("\x11")
        assert terminal.end() == 0, terminal.plain[-1500:]
    finally:
        terminal.kill()


def test_the_first_run(world: World) -> None:
    assert "ds4-nano" in world.chat
    assert "Resume this chat with:" in world.chat
    assert "-r tea" in world.chat


@pytest.mark.parametrize("line", OTHERS)
def test_a_command_of_other_tools_is_there(line: str) -> None:
    words = shlex.split(line)
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M)
        assert words[1] in targets
    elif words[0] == "pip":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extras = re.findall(r"\[(\w+)\]", words[2])
        assert set(extras) <= set(project["optional-dependencies"])
    else:
        assert words[:2] == ["python", "-m"]
        subprocess.run(
            [sys.executable, *words[1:]],
            cwd=ROOT, capture_output=True, check=True, timeout=PATIENCE_S,
        )  # fmt: skip


def told() -> list[tuple[str, str]]:
    """Modules and targets that sentences and tables of all pages name."""
    texts = [*PAGES.values(), *((ROOT / name).read_text("utf-8") for name in MORE)]
    found = {tuple(span.split()[:3]) for text in texts for span in spans(text)}
    modules = {words[2] for words in found if words[:2] == ("python", "-m")}
    targets = {words[1] for words in found if words[0] == "make" and len(words) > 1}
    return [
        *(("module", name) for name in sorted(modules)),
        *(("target", n) for n in sorted(targets)),
    ]


MORE = (
    "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "EXPERIMENTS.md",
    "kernels/README.md", "sessions/README.md",
)  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), told())
def test_what_sentences_name_is_there(kind: str, name: str) -> None:
    if kind == "module":
        assert importlib.util.find_spec(name) is not None
    else:
        assert re.search(rf"^{name}:", (ROOT / "Makefile").read_text(), flags=re.M)


@pytest.mark.parametrize("name", [*PAGES, *MORE])
def test_links_lead_somewhere(name: str) -> None:
    path = ROOT / "docs" / name if name in PAGES and name != "README.md" else ROOT / name
    text = path.read_text("utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not target.startswith("https://"):
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize(("name", "make"), docs_tables.TABLES)
def test_tables_are_the_programs(name: str, make: object) -> None:
    assert callable(make)
    wanted = make()
    shown = docs_tables.found(PAGES[name], wanted[0])
    assert shown == wanted, "python -m tests.docs_tables writes it"


def test_keys_of_the_readme_are_the_programs() -> None:
    rows = docs_tables.found(PAGES["README.md"], "| key | action |")[2:]
    known = {
        key.strip()
        for row in docs_tables.of_keys()[2:]
        for key in re.split(r",|\(also|\bin an\b", row.split("|")[1])
    }
    named = {key.strip() for row in rows for key in re.split("[·,]", row.split("|")[1])}
    assert named - known == set()
    assert len(named) > 20


def literals() -> str:
    """Every text of the program, one a line; what a text is filled with is left out."""
    trees = (ast.parse(path.read_text("utf-8")) for path in (ROOT / "ds4chat").rglob("*.py"))
    nodes = (
        node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)
    )
    return "\n".join(node.value for node in nodes if isinstance(node.value, str))


def test_messages_that_are_quoted_are_the_programs() -> None:
    said = literals()
    tables = [
        row for text in PAGES.values() for row in text.splitlines() if row.startswith("| *")
    ]
    quoted = [q for row in tables for q in re.findall(r"\*([^*]+)\*", row.split(" | ")[0])]
    quoted = [q for q in quoted if not q[0].isupper()]  # a message to type
    assert len(quoted) > 10
    for text in quoted:
        for part in text.split(" .. "):
            assert part in said, text


def test_figures_stand_in_the_experiments() -> None:
    source = (ROOT / "EXPERIMENTS.md").read_text("utf-8").replace(",", "")
    for name in ("README.md", "performance.md"):
        text = re.sub(r"```.*?```|`[^`]+`", "", PAGES[name], flags=re.S)
        figures = re.findall(r"(\d+\.\d+)(?= (?:tok/s|x\b))", text)
        assert len(figures) > 4
        for figure in figures:
            assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.])", source), (name, figure)


def test_the_changelog_is_about_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## \[([^\]]+)\]", text, flags=re.M)
    assert headings[0] == "Unreleased"
    newest = re.search(r"^Becomes (\S+),", text, flags=re.M)
    assert __version__ == (newest[1] if newest else headings[1])
    kinds = re.findall(r"^### (.*)$", text, flags=re.M)
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_readme_is_short() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 250


@pytest.mark.slow
def test_the_example_of_the_api_runs(world: World) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGES["python-api.md"], flags=re.S)
    nano = ROOT / "ds4chat" / "nano"
    for name, path in (("flash", "ds4-nano"), ("dspark", "ds4-nano-dspark")):
        assert f'"{name}.gguf"' in example
        example = example.replace(f"{name}.gguf", str(nano / f"{path}.gguf"))
    subprocess.run(
        [sys.executable, "-c", example],
        env={**os.environ, **world.environ()}, check=True, capture_output=True,
        timeout=PATIENCE_S,
    )  # fmt: skip
