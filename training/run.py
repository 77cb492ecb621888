"""Make a pair with one command: target, draft, export, evaluation.

    python -m training.run --corpus C.jsonl.zst --prepared DIR --heldout H.jsonl --out DIR

The draft's process compiles while the target trains, then waits for its weights. Everything
lands in `--out`: base.gguf, support.gguf, train.jsonl, draft.jsonl, evaluation.json.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

DRAFT_DELAY_S = 110.0
"""The target's own compilation has the processors for itself until then."""


def module(name: str, *args: str | Path) -> list[str]:
    """A command line of this package."""
    return [sys.executable, "-m", f"training.{name}", *map(str, args)]


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--corpus", type=Path, required=True)
    p.add_argument("--prepared", type=Path, required=True)
    p.add_argument("--heldout", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--target-minutes", type=float, default=13.0)
    p.add_argument("--draft-minutes", type=float, default=4.0)
    p.add_argument("--generate-seconds", type=float, default=70.0)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    done = a.out / "target.done"
    done.unlink(missing_ok=True)
    target = subprocess.Popen(
        module(
            "train",
            "--corpus",
            a.corpus,
            "--prepared",
            a.prepared,
            "--out",
            a.out,
            "--minutes",
            str(a.target_minutes),
            "--seed",
            str(a.seed),
        )
    )
    time.sleep(min(DRAFT_DELAY_S, 20 * a.target_minutes))
    draft = subprocess.Popen(
        module(
            "draft",
            "--target",
            a.out / "target.pt",
            "--mix",
            a.out / "mix.npz",
            "--out",
            a.out,
            "--minutes",
            str(a.draft_minutes),
            "--generate-seconds",
            str(a.generate_seconds),
            "--wait-for",
            done,
            "--seed",
            str(a.seed + 1),
        )
    )
    if target.wait():
        draft.kill()
        raise SystemExit("the target's trainer failed")
    pair = ("--target", a.out / "target.pt", "--prepared", a.prepared, "--out", a.out)
    subprocess.run(module("export", *pair), check=True)
    if draft.wait():
        raise SystemExit("the draft's trainer failed; base.gguf is written")
    subprocess.run(module("export", *pair, "--draft", a.out / "draft.pt"), check=True)
    subprocess.run(
        module(
            "evaluate",
            "--pair",
            a.out,
            "--heldout",
            a.heldout,
            "--words",
            a.prepared / "words.json",
            "--out",
            a.out / "evaluation.json",
        ),
        check=True,
    )


if __name__ == "__main__":
    main()
