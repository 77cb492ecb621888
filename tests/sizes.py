"""`python -m tests.sizes`: the longest modules and functions of the package."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
N_SHOWN = 12


def functions(path: Path) -> list[tuple[int, str]]:
    """Length in lines and name of every function of a file."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [
        (
            (node.end_lineno or node.lineno) - node.lineno + 1,
            f"{path.relative_to(ROOT)}:{node.name}",
        )
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, kinds)
    ]


def main() -> None:
    """Print the longest of each."""
    paths = sorted((ROOT / "ds4chat").rglob("*.py"))
    modules = [
        (len(p.read_text("utf-8").splitlines()), str(p.relative_to(ROOT))) for p in paths
    ]
    every = [f for p in paths for f in functions(p)]
    for title, rows in (("modules", modules), ("functions", every)):
        sys.stdout.write(f"longest {title}\n")
        for size, name in sorted(rows, reverse=True)[:N_SHOWN]:
            sys.stdout.write(f"{size:6} {name}\n")


if __name__ == "__main__":
    main()
