"""What README and `docs/` promise exists: flags, commands, settings, every name of the API."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from ds4chat import settings
from ds4chat.cli import arguments
from ds4chat.engine.engine import Engine
from ds4chat.engine.session import Session
from ds4chat.protocol.types import Token
from ds4chat.tui.commands import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
OWNERS = {"engine": Engine, "session": Session, "Engine": Engine, "t": Token}
NOT_OPTIONS_OF_THE_API = {"knobs", "progress"}  # for tools
FLAG = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]+|-[a-z]+)(?![\w-])")


def code() -> list[str]:
    """Code spans and blocks outside the Python ones."""
    without = re.sub(r"```python.*?```", "", TEXT, flags=re.S)
    blocks = re.findall(r"```\w*\n(.*?)```", without, flags=re.S)
    return blocks + re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", without, flags=re.S))


@cache
def known_flags() -> frozenset[str]:
    own = {name for flag in arguments.flag_table() for name in flag.names}
    texts = [
        inspect.getsource(importlib.import_module(f"ds4chat.cli.{name}"))
        for name in arguments.COMMANDS
    ]
    benches = (ROOT / "ds4chat" / "cli").glob("bench*.py")
    tools = {Path(*name.split(".")) for name in re.findall(r"python -m (tests\.[\w.]+)", TEXT)}
    paths = (*benches, *(ROOT / tool.with_suffix(".py") for tool in tools))
    texts += [path.read_text(encoding="utf-8") for path in paths]
    return frozenset(own | set(FLAG.findall("\n".join(texts))))


def test_every_flag_that_is_named_exists() -> None:
    lines = [line for part in code() for line in part.splitlines()]
    ours = [re.sub(r'"[^"]*"', "", line) for line in lines if not line.startswith("pip ")]
    found = {flag for line in ours for flag in FLAG.findall(line)}
    assert len(found) > 40
    assert found - known_flags() == set()


def test_the_table_of_flags_leaves_no_setting_out() -> None:
    shown = {flag for part in code() for flag in FLAG.findall(part)}
    for row in settings.rows():
        flags = {*row.flags, *(flag for flag, _ in row.shortcuts)}
        assert not flags or flags & shown, row.name


def test_every_slash_command_that_is_named_exists() -> None:
    spans = re.findall(r"`/([a-z-]+)[^`/]*`", TEXT)
    assert "why" in spans
    assert set(spans) - set(COMMANDS) == set()


def test_the_examples_of_a_settings_file_can_be_loaded(tmp_path: Path) -> None:
    examples = re.findall(r"```toml\n(.*?)```", TEXT, flags=re.S)
    assert examples
    for example in examples:
        path = tmp_path / "config.toml"
        path.write_text(example)
        values = settings.load(config_file=path, environ={})
        for name, value in tomllib.loads(example).items():
            if name != "keys":  # a table of its own, for the screen
                assert getattr(values, name) == value


def python_names() -> list[tuple[str, str]]:
    """(variable, attribute) pairs that the Python block and the table of calls use."""
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)
    nodes = [n for n in ast.walk(ast.parse(block)) if isinstance(n, ast.Attribute)]
    used = [(n.value.id, n.attr) for n in nodes if isinstance(n.value, ast.Name)]
    table = re.findall(r"`(engine|session|Engine)\.(\w+)", TEXT)
    return sorted({pair for pair in (*used, *table) if pair[0] in OWNERS})


@pytest.mark.parametrize(("owner", "name"), python_names())
def test_every_name_of_the_api_exists(owner: str, name: str) -> None:
    assert hasattr(OWNERS[owner], name)


def test_enough_names_were_found() -> None:
    assert len(python_names()) > 15


def signature(text: str) -> list[str]:
    """Parameter names of a call as README writes it."""
    made = ast.parse(f"def f({text}): ...").body[0]
    assert isinstance(made, ast.FunctionDef)
    return [a.arg for a in (*made.args.args, *made.args.kwonlyargs)]


@pytest.mark.parametrize(
    ("call", "real"),
    [
        ("Engine.open", Engine.open),
        ("engine.session", Engine.session),
        ("session.sync", Session.sync),
        ("session.step", Session.step),
        ("session.speculate", Session.speculate),
    ],
)
def test_signatures_are_true(call: str, real: object) -> None:
    (text,) = set(re.findall(rf"`{re.escape(call)}\((.*?)\)`", TEXT))
    wanted = list(inspect.signature(real).parameters)  # type: ignore[arg-type]
    left_out = {"self", *NOT_OPTIONS_OF_THE_API}
    assert signature(text) == [name for name in wanted if name not in left_out]
