"""The wait of the pilots, for a process that is given no processor time."""

from __future__ import annotations

import asyncio
import time

from tests.idle import wait_for_idle

N_CALLS = 20


class Starved:
    """Calls that follow each other, each after a while in which the process stands still."""

    def __init__(self) -> None:
        self.n_done = 0

    def call(self) -> None:
        time.sleep(0.004)
        self.n_done += 1
        if self.n_done < N_CALLS:
            asyncio.get_running_loop().call_soon(self.call)


async def test_calls_of_a_starved_process_are_waited_for() -> None:
    starved = Starved()
    starved.call()
    await wait_for_idle(0)
    assert starved.n_done == N_CALLS


async def test_a_loop_that_never_rests_is_let_go_on() -> None:
    loop = asyncio.get_running_loop()
    handles: list[asyncio.Handle] = []

    def again() -> None:
        handles[:] = [loop.call_soon(again)]

    again()
    await wait_for_idle(0, max_sleep=0.1)
    handles[0].cancel()
