"""`pytest -p tests.shake --shake SEED tests/contract`: pauses that let races be lost.

Between any two statements of the program's own functions, and of the terminal that tests look
through, there may be a pause: in this process and in every Python that it starts. Of all places
a few are slow, three times each; anywhere else a pause is short and seldom. A test that fails
then, and is right, has found two statements that must not be parted.

Which places are slow is drawn from the seed; what the machine does besides is not.
"""

from __future__ import annotations

import ast
import atexit
import builtins
import os
import random
import shutil
import sys
import tempfile
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

SEED, CACHE = "SHAKE_SEED", "SHAKE_CACHE"
ROOT = Path(__file__).parents[1]
SHAKEN = (
    "ds4chat/cli/", "ds4chat/client/", "ds4chat/demo/", "ds4chat/engine/host",
    "ds4chat/engine/owner", "ds4chat/engine/turns", "ds4chat/store/", "ds4chat/tui/",
    "tests/cycles/", "tests/job_shell", "tests/scripted_engine", "tests/terminal",
)  # fmt: skip
P_SLOW, P_ANY = 0.006, 0.0005
N_TIMES = 3

_START = """import importlib.util as u
s = u.spec_from_file_location("_shake", {path!r})
m = u.module_from_spec(s)
s.loader.exec_module(m)
m.shake()
"""


class Pauses:
    """Called before each statement, with its place."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._rng = random.Random(f"{seed}/{time.time_ns()}")
        self._left: dict[str, int] = {}

    def __call__(self, place: str) -> None:
        """Wait here, or do not."""
        if place not in self._left:
            is_slow = random.Random(f"{self._seed}/{place}").random() < P_SLOW
            self._left[place] = N_TIMES if is_slow else 0
        if self._left[place]:
            self._left[place] -= 1
            is_long = self._rng.random() < 0.2
            time.sleep(self._rng.uniform(0.1, 0.4) if is_long else self._rng.uniform(0, 0.03))
        elif self._rng.random() < P_ANY:
            time.sleep(self._rng.uniform(0, 0.02))


class Parted(ast.NodeTransformer):
    """Puts a call before every statement of a function."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._depth = 0

    def visit(self, node: ast.AST) -> Any:
        """Part what lies within `node`, then its own statements."""
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        before = self._depth
        self._depth = 0 if isinstance(node, ast.ClassDef) else before + is_function
        self.generic_visit(node)
        for field in ("body", "orelse", "finalbody") if self._depth else ():
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                setattr(node, field, [s for old in statements for s in self._parted(old)])
        self._depth = before
        return node

    def _parted(self, statement: ast.stmt) -> list[ast.stmt]:
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if is_text or isinstance(statement, ast.Global | ast.Nonlocal):
            return [statement]
        place = ast.Constant(f"{self._name}:{statement.lineno}")
        call = ast.Expr(ast.Call(ast.Name("_shake", ast.Load()), [place], []))
        return [ast.copy_location(call, statement), statement]


def shake() -> None:
    """Part what is imported from now on, as the environment says."""
    compiled = SourceFileLoader.source_to_code
    builtins._shake = Pauses(os.environ[SEED])  # type: ignore[attr-defined]
    sys.pycache_prefix = os.environ[CACHE]  # what is parted is not for other runs

    def source_to_code(self: Any, data: Any, path: Any, *, _optimize: int = -1) -> Any:
        name = str(path).removeprefix(f"{ROOT}{os.sep}")
        if not name.startswith(SHAKEN):
            return compiled(self, data, path, _optimize=_optimize)
        tree = ast.fix_missing_locations(Parted(name).visit(ast.parse(data, str(path))))
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)

    SourceFileLoader.source_to_code = source_to_code  # type: ignore[method-assign]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The seed."""
    parser.addoption("--shake", metavar="SEED", help="pause between statements")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin before anything of the program is imported."""
    seed = early_config.known_args_namespace.shake
    if seed is None:
        return
    folder = tempfile.mkdtemp(prefix="ds4chat-shake-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (Path(folder) / "sitecustomize.py").write_text(_START.format(path=__file__))
    others = os.environ.get("PYTHONPATH")
    os.environ |= {SEED: seed, CACHE: folder}
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *([others] if others else [])])
    shake()
