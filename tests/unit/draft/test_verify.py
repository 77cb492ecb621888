"""The accept rules: what a round keeps and what the next token is called."""

from __future__ import annotations

import pytest

from ds4chat.draft.verify import (
    MAX_VERIFIED,
    Verdict,
    accept_greedy,
    cut_at_end,
    next_source,
    room_for_drafts,
)
from ds4chat.protocol.types import Source

END = frozenset({1, 2})


@pytest.mark.parametrize(
    ("target", "n_accepted", "next_token"),
    [
        ([99, 11, 12, 13, 14, 15], 0, 99),
        ([10, 99, 12, 13, 14, 15], 1, 99),
        ([10, 11, 12, 99, 14, 15], 3, 99),
        ([10, 11, 12, 13, 99, 15], 4, 99),
        ([10, 11, 12, 13, 14, 15], 5, 15),
    ],
)
def test_the_longest_common_prefix_is_kept(
    target: list[int], n_accepted: int, next_token: int
) -> None:
    verdict = accept_greedy([10, 11, 12, 13, 14], target)
    assert verdict == Verdict(n_accepted=n_accepted, next_token=next_token)


def test_an_empty_proposal_leaves_the_anchors_choice() -> None:
    assert accept_greedy([], [7]) == Verdict(n_accepted=0, next_token=7)


@pytest.mark.parametrize("target", [[], [10], [10, 11, 12]])
def test_a_target_of_the_wrong_length_is_an_error(target: list[int]) -> None:
    with pytest.raises(ValueError, match="expected 2"):
        accept_greedy([10], target)


@pytest.mark.parametrize(
    ("proposal", "kept", "end"),
    [
        ([5, 6, 7], (5, 6, 7), None),
        ([5, 2, 7], (5,), 2),
        ([1, 2, 7], (), 1),
        ([5, 6, 1], (5, 6), 1),
        ([], (), None),
    ],
)
def test_a_proposal_is_cut_before_its_first_end_id(
    proposal: list[int], kept: tuple[int, ...], end: int | None
) -> None:
    assert cut_at_end(proposal, END) == (kept, end)


@pytest.mark.parametrize(
    ("n_kept", "n_accepted", "next_token", "drafted_end", "source"),
    [
        (3, 3, 42, None, Source.BONUS),
        (3, 2, 42, None, Source.FALLBACK),
        (3, 0, 42, None, Source.FALLBACK),
        (0, 0, 42, None, Source.PLAIN),
        (3, 3, 1, 1, Source.ACCEPTED),
        (3, 3, 42, 1, Source.FALLBACK),
        (3, 3, 2, 1, Source.FALLBACK),  # another end id than the one drafted
        (3, 1, 1, 1, Source.FALLBACK),  # the right id, but not where it was drafted
        (0, 0, 1, 1, Source.ACCEPTED),
        (0, 0, 42, 1, Source.FALLBACK),
    ],
)
def test_the_token_after_the_drafts_is_named(
    n_kept: int, n_accepted: int, next_token: int, drafted_end: int | None, source: Source
) -> None:
    found = next_source(
        n_kept=n_kept, n_accepted=n_accepted, next_token=next_token, drafted_end=drafted_end
    )
    assert found is source


@pytest.mark.parametrize(("n_kept", "n_accepted"), [(2, 3), (2, -1)])
def test_impossible_counts_are_an_error(n_kept: int, n_accepted: int) -> None:
    with pytest.raises(ValueError, match="accepted"):
        next_source(n_kept=n_kept, n_accepted=n_accepted, next_token=0, drafted_end=None)


@pytest.mark.parametrize(
    ("budget", "ctx", "n", "room"),
    [
        (100, 1000, 10, MAX_VERIFIED),
        (4, 1000, 10, 3),
        (1, 1000, 10, 0),
        (0, 1000, 10, 0),
        (100, 16, 10, 5),
        (100, 11, 10, 0),
        (100, 10, 10, 0),
        (8, 1000, 10, 7),
    ],
)
def test_room_is_the_least_of_budget_context_and_rows(
    budget: int, ctx: int, n: int, room: int
) -> None:
    assert room_for_drafts(budget=budget, ctx=ctx, n=n) == room
