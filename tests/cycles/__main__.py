"""`python -m tests.cycles --n 1000 [--seed FIRST] [--screen-share 0.2]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.cycles.plan import draw
from tests.cycles.run import Cycles
from tests.signals import heed_signals


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the cycles; 1 if something was wrong in any."""
    parser = argparse.ArgumentParser(prog="tests.cycles", allow_abbrev=False)
    parser.add_argument("--n", type=int, default=100, help="how many cycles")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first one")
    parser.add_argument(
        "--screen-share", type=float, default=0.2, help="how many run in a terminal, 0..1"
    )
    parser.add_argument("--keep", action="store_true", help="keep the files of failed cycles")
    options = parser.parse_args()
    heed_signals()
    folder = Path(tempfile.mkdtemp(prefix="ds4chat-cycles-"))
    cycles = Cycles(folder, keeps=options.keep)
    failed, n_screen, start = [], 0, time.monotonic()
    for seed in range(options.seed, options.seed + options.n):
        plan = draw(seed, options.screen_share)
        n_screen += plan.on_screen
        wrong = cycles.run(plan)
        if wrong:
            failed.append(seed)
            say(f"FAILED {plan}\n    {wrong}")
        if (seed - options.seed) % 25 == 24:
            n_done = seed - options.seed + 1
            say(f"{n_done} cycles, {len(failed)} failed, next seed {seed + 1}")
    say(
        f"{options.n} cycles ({n_screen} in a terminal) in {time.monotonic() - start:.0f} s; "
        f"failed: {failed or 'none'}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
