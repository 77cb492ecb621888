"""`python -m tests.fuzz`: run the targets, or show one case again.

python -m tests.fuzz                               every target, 300 CPU seconds each
python -m tests.fuzz --target themes --seconds 20  one
python -m tests.fuzz --target themes --seed 4711   one case
python -m tests.fuzz --replay build/fuzz/themes-1a2b3c4d   a saved one
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

# One arena: every other one would take 64 MB of address space, which is what is limited.
_QUIET = {
    "MALLOC_ARENA_MAX": "1", "TOKENIZERS_PARALLELISM": "false", "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1", "DS4CHAT_CPU_BLAS": "off",
}  # fmt: skip
_MODULES = ("targets_model", "targets_transcript", "targets_snapshot", "targets_text")


def _restart() -> None:
    """Begin again with an environment that the C library reads at its start."""
    if any(os.environ.get(name) != value for name, value in _QUIET.items()):
        words = [sys.executable, "-m", "tests.fuzz", *sys.argv[1:]]
        os.execve(sys.executable, words, {**os.environ, **_QUIET})


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--target", action="append", default=[], metavar="NAME")
    parser.add_argument("--seconds", type=float, default=300.0, help="CPU seconds a target")
    parser.add_argument("--cases", type=int, help="cases a target, at most")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, help="this case only")
    parser.add_argument("--replay", type=Path, metavar="FOLDER", help="a saved case")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), metavar="FOLDER")
    parser.add_argument("--bar", type=float, default=2.0, help="CPU seconds a case may take")
    parser.add_argument("--wait", type=float, default=10.0, help="seconds a case may wait")
    parser.add_argument("--planted", action="store_true", help="the harness's own faults")
    parser.add_argument("--no-shrink", action="store_true", help="save cases as they are")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run; 1 if anything was found."""
    options = _parse(argv)
    run = import_module("tests.fuzz.run")  # after the restart
    names = ("planted",) if options.planted else _MODULES
    targets = [t for name in names for t in import_module(f"tests.fuzz.{name}").TARGETS]
    status: int = run.run(targets, options)
    return status


if __name__ == "__main__":
    _restart()
    sys.exit(main())
