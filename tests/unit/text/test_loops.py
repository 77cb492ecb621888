"""Repetition that never ends is seen; text that repeats a little is not."""

from __future__ import annotations

import random

import pytest

from ds4chat.text.loops import MAX_PERIOD, LoopWatch, period


def noise(n: int, seed: int = 1) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(1000) for _ in range(n)]


@pytest.mark.parametrize("p", [1, 2, 7, 24, 25, 100, MAX_PERIOD])
def test_the_period_is_found(p: int) -> None:
    block = [*range(5000, 5000 + p)]
    ids = noise(300) + block * (96 // p + 6)
    assert period(ids) == p
    assert period(ids[:-1]) == p  # a repetition need not be whole


def test_the_shortest_period_counts() -> None:
    assert period([1, 2] * 200) == 2


@pytest.mark.parametrize(
    "ids",
    [
        [], [1], [1] * 95, noise(2000), noise(100) * 3,
        [*range(60)] * 4 + [7],  # it repeated, and went on
        MAX_PERIOD * 2 * [1, 2] + noise(40),
        noise(MAX_PERIOD + 1) * 5,
    ],
    ids=range(8),
)  # fmt: skip
def test_other_text_does_not_loop(ids: list[int]) -> None:
    assert period(ids) == 0


def test_a_watch_tells_soon_and_once() -> None:
    watch = LoopWatch()
    assert not any(watch.push([token_id]) for token_id in noise(500))
    told = [n for n in range(1, 400) if watch.push([3, 1, 4])]
    assert len(told) == 1
    assert 96 <= 3 * told[0] <= 96 + 35
