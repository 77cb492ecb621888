"""Keeps what lives on from the collector, whose full passes take longer than a key may."""

from __future__ import annotations

import gc

_THRESHOLDS = (20_000, 20, 50)


def settle() -> None:
    """Collect once, then keep the collector from scanning again and again what lives now.

    Without it the time of a key would grow with the transcript.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


def settle_again() -> None:
    """Settle after a whole conversation was put in the place of another, which goes."""
    gc.unfreeze()
    settle()
