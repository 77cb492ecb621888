"""Which drafts a round keeps, and what to call the token after them.

Pure rules on token ids: no arrays, no model, no sampling. The target's *choice* at a row is its
argmax at temperature 0 and its keyed sample above; the rules are the same for both. The drafter
proposes one token with certainty (a point mass), and for that, accepting exactly the target's
own sample is residual rejection sampling.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ds4chat.protocol.types import Source

MAX_VERIFIED = 7
"""Most drafts in one verify pass: with the anchor eight rows, what the decode kernels hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the target made of a proposal.

    `next_token` is the target's choice at row `n_accepted`: the next anchor, judged but not yet
    evaluated.
    """

    n_accepted: int
    next_token: int


def accept_greedy(proposal: Sequence[int], target: Sequence[int]) -> Verdict:
    """Keep the longest prefix of `proposal` that `target` also chose.

    Greedy case of speculative sampling (Leviathan et al. 2023, arXiv:2211.17192, Algorithm 1).

    Args:
        proposal: `(proposal_len,)` token ids, anchor excluded.
        target: `(proposal_len + 1,)` the target's choice at each row; row 0 is the anchor's.

    Raises:
        ValueError: `target` is not one longer than `proposal`.
    """
    if len(target) != len(proposal) + 1:
        raise ValueError(
            f"{len(target)} target choices for {len(proposal)} drafts; "
            f"expected {len(proposal) + 1}"
        )
    n_accepted = 0
    while n_accepted < len(proposal) and proposal[n_accepted] == target[n_accepted]:
        n_accepted += 1
    return Verdict(n_accepted=n_accepted, next_token=int(target[n_accepted]))


def cut_at_end(
    proposal: Sequence[int], end_ids: Collection[int]
) -> tuple[tuple[int, ...], int | None]:
    """Cut a proposal before its first end id, which is never evaluated.

    The row before the cut judges the end id, so it costs nothing to have drafted it.

    Args:
        proposal: token ids as drafted, anchor excluded.
        end_ids: ids that end a reply.

    Returns:
        The drafts before the first end id, and that end id (None: the proposal has none).
    """
    for i, token in enumerate(proposal):
        if token in end_ids:
            return tuple(proposal[:i]), token
    return tuple(proposal), None


def next_source(
    *, n_kept: int, n_accepted: int, next_token: int, drafted_end: int | None
) -> Source:
    """Name the source of the token that the target chose after the accepted drafts.

    Args:
        n_kept: drafts put before the target (after all cuts).
        n_accepted: how many of them the target also chose.
        next_token: the target's choice at row `n_accepted`.
        drafted_end: the end id that `cut_at_end` took off, None if there was none or if another
            cut (confidence, room) already shortened the proposal before it.

    Raises:
        ValueError: `n_accepted` is not in `0..n_kept`.
    """
    if not 0 <= n_accepted <= n_kept:
        raise ValueError(f"{n_accepted} accepted of {n_kept} drafts")
    if n_accepted < n_kept:
        return Source.FALLBACK
    if drafted_end is not None:
        return Source.ACCEPTED if next_token == drafted_end else Source.FALLBACK
    return Source.BONUS if n_kept else Source.PLAIN


def room_for_drafts(*, budget: int, ctx: int, n: int) -> int:
    """Give the most drafts that a round may verify.

    The anchor takes one token of the budget and position `n`; every draft takes one more of
    both. At most `MAX_VERIFIED`, at least 0.

    Args:
        budget: tokens that may still be committed in this reply.
        ctx: context size in tokens; positions run from 0 to `ctx - 1`.
        n: committed tokens.
    """
    return max(0, min(budget - 1, ctx - n - 1, MAX_VERIFIED))
