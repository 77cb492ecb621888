"""A long reply holds no more arrays at its end than after its beginning."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.long_reply import Mark, open_engine, plain_steps, prompted, spec_rounds, watch


def check_level(marks: list[Mark], every: int) -> None:
    """Arrays are level; memory grows by the KV rows alone, which are small here."""
    warm = marks[1:]
    assert {mark.n_arrays for mark in warm} == {warm[0].n_arrays}
    assert warm[-1].active_mb - warm[0].active_mb < 0.01 * every * len(warm)
    assert warm[-1].rss_mb - warm[0].rss_mb < 64


@pytest.mark.slow
def test_a_long_reply_is_level(tmp_path: Path) -> None:
    n_tokens, every = 4_000, 500
    with open_engine(tmp_path) as engine:
        plain, spec = prompted(engine), prompted(engine)
        seen: list[Mark] = []
        text = watch(plain_steps(plain), n_tokens, every, seen.append)
        check_level(seen, every)
        plain.close()
        seen.clear()
        assert watch(spec_rounds(engine, spec, text), n_tokens, every, seen.append) == text
        check_level(seen, every)


def test_a_short_one_shows_the_same_figures(tmp_path: Path) -> None:
    with open_engine(tmp_path) as engine:
        seen: list[Mark] = []
        text = watch(plain_steps(prompted(engine)), 120, 40, seen.append)
        rounds = spec_rounds(engine, prompted(engine), text)
        assert watch(rounds, 120, 40, seen.append) == text
        assert len(seen) == 6
        assert seen[1].n_arrays == seen[2].n_arrays > 0
