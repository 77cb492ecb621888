"""For any target and any drafts, a round commits what plain decoding would have chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from ds4chat.draft.verify import accept_greedy, cut_at_end, next_source, room_for_drafts
from ds4chat.protocol.types import Source

Choose = Callable[[Sequence[int]], int]
END = frozenset({0})


def make_target(salt: int, n_vocab: int) -> Choose:
    """A deterministic target: the next token is a function of everything before it."""

    def choose(ids: Sequence[int]) -> int:
        return hash((salt, *ids[-3:], len(ids))) % n_vocab

    return choose


def decode_plain(choose: Choose, prompt: list[int], budget: int, ctx: int) -> list[int]:
    ids = list(prompt)
    while len(ids) - len(prompt) < budget and len(ids) < ctx:
        token = choose(ids)
        if token in END:
            break
        ids.append(token)
    return ids


def decode_rounds(
    choose: Choose, prompt: list[int], budget: int, ctx: int, drafts: list[list[int]]
) -> tuple[list[int], list[Source], int]:
    """Decode in rounds; returns ids, sources and the most rows past the context (must be 0)."""
    ids, sources, overrun, source = list(prompt), [], 0, Source.PLAIN
    anchor, turn = choose(ids), 0
    while len(ids) - len(prompt) < budget and len(ids) < ctx and anchor not in END:
        room = room_for_drafts(budget=budget - (len(ids) - len(prompt)), ctx=ctx, n=len(ids))
        kept, end = cut_at_end(drafts[turn % len(drafts)], END)
        if len(kept) > room:
            kept, end = kept[:room], None
        rows = [*ids, anchor, *kept]
        overrun = max(overrun, len(rows) - ctx)
        target = [choose(rows[: len(ids) + 1 + i]) for i in range(len(kept) + 1)]
        verdict = accept_greedy(kept, target)
        ids += [anchor, *kept[: verdict.n_accepted]]
        sources += [source, *[Source.ACCEPTED] * verdict.n_accepted]
        anchor, turn = verdict.next_token, turn + 1
        source = next_source(
            n_kept=len(kept),
            n_accepted=verdict.n_accepted,
            next_token=anchor,
            drafted_end=end,
        )
    return ids, sources, overrun


@given(
    salt=st.integers(0, 2**32),
    n_vocab=st.integers(2, 6),
    n_prompt=st.integers(1, 4),
    budget=st.integers(0, 30),
    ctx=st.integers(1, 24),
    drafts=st.lists(st.lists(st.integers(0, 5), max_size=9), min_size=1, max_size=8),
)
def test_any_drafts_give_the_plain_text(
    salt: int, n_vocab: int, n_prompt: int, budget: int, ctx: int, drafts: list[list[int]]
) -> None:
    choose, prompt = make_target(salt, n_vocab), [5] * n_prompt
    plain = decode_plain(choose, prompt, budget, ctx)
    ids, sources, overrun = decode_rounds(choose, prompt, budget, ctx, drafts)
    assert ids == plain
    assert overrun <= 0
    assert len(sources) == len(ids) - len(prompt)


@given(
    proposal=st.lists(st.integers(0, 3), max_size=7),
    target=st.lists(st.integers(0, 3), min_size=8, max_size=8),
)
def test_the_verdict_is_the_first_disagreement(proposal: list[int], target: list[int]) -> None:
    verdict = accept_greedy(proposal, target[: len(proposal) + 1])
    n = verdict.n_accepted
    assert proposal[:n] == target[:n]
    assert n == len(proposal) or proposal[n] != target[n]
    assert verdict.next_token == target[n]


@given(proposal=st.lists(st.integers(0, 4), max_size=8), ends=st.frozensets(st.integers(0, 4)))
def test_what_is_kept_holds_no_end_id(proposal: list[int], ends: frozenset[int]) -> None:
    kept, end = cut_at_end(proposal, ends)
    assert not ends & set(kept)
    if end is None:
        assert list(kept) == proposal
    else:
        assert [*kept, end] == proposal[: len(kept) + 1]
        assert end in ends
