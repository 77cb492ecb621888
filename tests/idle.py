"""A wait for a screen that has come to rest, also on a machine that has other work.

Textual's own wait takes a process that used no processor time for 20 ms as idle. On a crowded
machine that is also true of one that was given none, and a picture is then taken too early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from time import process_time
from typing import cast

STEP_S = 0.02
N_QUIET = 3  # turns of the loop in a row with nothing to do
MAX_TURNS = 1_000  # of a loop that never rests: a reply streams, a spinner turns


async def wait_for_idle(min_sleep: float = STEP_S, max_sleep: float = 1.0) -> None:
    """Wait until all that can run has run, and the process's threads rest too.

    Args:
        min_sleep: seconds to wait at least.
        max_sleep: seconds after which a process that never rests is let go on.
    """
    loop = asyncio.get_running_loop()
    start = loop.time()
    while True:
        before = process_time()
        await asyncio.sleep(STEP_S)
        used = process_time() - before
        await _run_dry(cast("Sized", loop._ready))  # type: ignore[attr-defined]
        elapsed = loop.time() - start
        if elapsed >= max_sleep or (elapsed > min_sleep and used < STEP_S / 20):
            return


async def _run_dry(ready: Sized) -> None:
    n_quiet = n_turns = 0
    while n_quiet < N_QUIET and n_turns < MAX_TURNS:
        await asyncio.sleep(0)
        n_quiet = 0 if len(ready) else n_quiet + 1
        n_turns += 1
