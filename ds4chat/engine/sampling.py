"""How the target chooses a token: a pure function of logits, settings and position.

There is no generator state. The noise of a position is one number from a counter-based
generator (Philox 4x64, Salmon et al. 2011) keyed by the seed, with the absolute position as its
counter. So the text of a seed is the same whether a position is reached by a plain step, inside
a verified block, after a resume or in a fork.

Filters keep ds4's order: temperature, then min-p relative to the best token, top-k, and top-p
over the tokens by descending logit, ties to the lowest id; the best token is always kept. Two
things differ from ds4 on purpose: arithmetic is float64, and NaN or +Inf is an error.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ds4chat.errors import NonFiniteError, SettingsError
from ds4chat.protocol.types import Sampling

Logits = NDArray[np.float32] | NDArray[np.float64]

_STREAM = 0x6473_3463_6861_7431
"""Second word of the Philox key: separates token noise from any other use of the same seed."""
_FIRST_SORTED = 256
"""Tokens sorted at first for top-p; grows eightfold until the nucleus is inside."""


def check_sampling(sampling: Sampling) -> None:
    """Refuse values that cannot be sampled with.

    Raises:
        SettingsError: names the setting, the value found and the range wanted.
    """
    _check_range("temperature", sampling.temperature, math.inf)
    _check_range("top-p", sampling.top_p, 1.0)
    _check_range("min-p", sampling.min_p, 1.0)
    if sampling.top_k < 0:
        raise SettingsError(
            f"top-k is {sampling.top_k}; it must be 0 or more", "0 switches top-k off"
        )
    if not -(2**63) <= sampling.seed < 2**64:
        raise SettingsError(
            f"seed is {sampling.seed}; it must fit in 64 bits",
            f"use a number from {-(2**63)} to {2**64 - 1}",
        )


def choose(logits: Logits, sampling: Sampling, position: int) -> int:
    """Choose the token at `position`.

    Args:
        logits: `(V,)` float32; -Inf marks a token that is never chosen.
        sampling: temperature, filters and seed.
        position: absolute position of the chosen token in the timeline, from 0.

    Raises:
        NonFiniteError: a logit is NaN or +Inf, or all are -Inf.
        SettingsError: `sampling` holds an unusable value.
    """
    check_sampling(sampling)
    best = _checked_max(logits)
    if sampling.temperature == 0:
        return int(np.argmax(logits))
    ids, weights = _kept(logits, best, sampling)
    cumulative = np.cumsum(weights)
    target = noise(sampling.seed, position) * cumulative[-1]
    # First id whose cumulative weight exceeds the target: an id of weight 0 can never be it.
    idx = int(np.searchsorted(cumulative, target, side="right"))
    if idx == len(ids):  # the product rounded up to the total
        idx = int(np.flatnonzero(weights)[-1])
    return int(ids[idx])


def choose_own(logits: Logits, sampling: Sampling, position: int) -> int:
    """`choose` from what a model computed, where nothing is masked: -Inf is as wrong as NaN.

    Raises:
        NonFiniteError: a logit is not finite.
        SettingsError: see `choose`.
    """
    if float(np.min(logits)) == -math.inf:
        raise _unusable(f"logit {int(np.argmin(logits))} is -Inf")
    return choose(logits, sampling, position)


def probabilities(logits: Logits, sampling: Sampling) -> NDArray[np.float64]:
    """Give the exact distribution that `choose` draws from, `(V,)` float64.

    Raises:
        NonFiniteError: see `choose`.
        SettingsError: see `choose`.
    """
    check_sampling(sampling)
    best = _checked_max(logits)
    result = np.zeros(len(logits), dtype=np.float64)
    if sampling.temperature == 0:
        result[int(np.argmax(logits))] = 1.0
        return result
    ids, weights = _kept(logits, best, sampling)
    result[ids] = weights / np.cumsum(weights)[-1]
    return result


def margin(logits: Logits) -> float:
    """Give the top-1 minus the top-2 logit: how sure the target is. Always finite.

    With one candidate only (one token, or all others -Inf) it is the largest float32.

    Raises:
        NonFiniteError: a logit is NaN or +Inf, or all are -Inf.
    """
    best = _checked_max(logits)
    largest = float(np.finfo(np.float32).max)
    if len(logits) < 2:
        return largest
    at = int(np.argmax(logits))
    second = max(float(part.max(initial=-math.inf)) for part in (logits[:at], logits[at + 1 :]))
    return min(best - second, largest)


def noise(seed: int, position: int) -> float:
    """Give the uniform number in [0, 1) of a position; 53 bits, no state.

    Args:
        seed: any 64-bit integer; a negative one stands for its two's complement.
        position: absolute position, from 0.
    """
    generator = np.random.Philox(
        key=np.array([seed % 2**64, _STREAM], dtype=np.uint64),
        counter=np.array([position, 0, 0, 0], dtype=np.uint64),
    )
    return float(int(generator.random_raw()) >> 11) * 2.0**-53


def _check_range(name: str, value: float, upper: float) -> None:
    if not (math.isfinite(value) and 0 <= value <= upper):
        wanted = "0 or more" if math.isinf(upper) else f"from 0 to {upper:g}"
        raise SettingsError(f"{name} is {value}; it must be {wanted}")


def _checked_max(logits: Logits) -> float:
    """Give the largest logit; the maximum carries NaN and +Inf along: one pass."""
    best = float(np.max(logits))
    if math.isfinite(best):
        return best
    if best == -math.inf:
        what = "all logits are -Inf"
    else:
        what = f"logit {int(np.argmax(logits))} is {'NaN' if math.isnan(best) else '+Inf'}"
    raise _unusable(what)


def _unusable(what: str) -> NonFiniteError:
    return NonFiniteError(
        f"the model computed no usable choice: {what}",
        "the reply stops here; `ds4chat doctor FILE` looks for damaged weights, and "
        "`ds4chat inspect FILE --sha256` gives the file's hash",
    )


def _kept(
    logits: Logits, best: float, sampling: Sampling
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Give the ids that survive the filters, ascending, and their weights (best = 1)."""
    ids = _top_k(logits, sampling.top_k)
    candidates = logits if len(ids) == len(logits) else logits[ids]
    with np.errstate(over="ignore", under="ignore"):
        weights = candidates.astype(np.float64)
        weights -= best
        weights /= sampling.temperature
        np.exp(weights, out=weights)
    mass = sampling.top_p * np.cumsum(weights)[-1] if sampling.top_p < 1 else None
    if sampling.min_p > 0:
        # Before top-p, so that less is sorted; the mass still counts what min-p drops.
        above = weights >= sampling.min_p
        ids, candidates, weights = ids[above], candidates[above], weights[above]
    if mass is not None:
        kept = _top_p(candidates, weights, float(mass))
        ids, weights = ids[kept], weights[kept]
    return ids, weights


def _top_k(logits: Logits, k: int) -> NDArray[np.intp]:
    """Give the ids of the k largest logits, ascending; ties to the lowest id. 0: all ids."""
    n = len(logits)
    if k == 0 or k >= n:
        return np.arange(n)
    border = np.partition(logits, n - k)[n - k]
    above = np.flatnonzero(logits > border)
    level = np.flatnonzero(logits == border)[: k - len(above)]
    return np.sort(np.concatenate([above, level]))


def _top_p(candidates: Logits, weights: NDArray[np.float64], mass: float) -> NDArray[np.intp]:
    """Give the places of the fewest best candidates whose weights reach `mass`, ascending.

    At least one. Only as many are sorted as are needed: a running sum does not depend on what
    follows.
    """
    size = _FIRST_SORTED
    while True:
        head = _top_k(candidates, size)
        order = head[np.argsort(-candidates[head], kind="stable")]
        n_kept = int(np.searchsorted(np.cumsum(weights[order]), mass, side="left")) + 1
        if n_kept <= len(order) or len(order) == len(candidates):
            return np.sort(order[:n_kept])
        size *= 8
