"""How far loading has come, in words: for the screen's status line and for plain lines."""

from __future__ import annotations

from ds4chat import sizes
from ds4chat.protocol.events import ModelLoading
from ds4chat.tui import units
from ds4chat.tui.markdown.clean import clean_line

MAX_STAGE = 40  # characters of a stage that are shown


def stage(event: ModelLoading) -> str:
    """What is done now."""
    return clean_line(event.stage)[:MAX_STAGE]


def progress(event: ModelLoading, quiet_s: float = 0.0) -> str:
    """`tensor 412 of 1,328, 21.3 of 80.8 GB, 14 s, about 39 s left`, as far as known.

    `quiet_s` is how long ago the event came.
    """
    parts = []
    if event.total_tensors:
        parts.append(f"tensor {event.done_tensors:,} of {event.total_tensors:,}")
    if event.total_bytes:
        parts.append(sizes.part(event.done_bytes, event.total_bytes))
    parts.append(units.seconds(event.elapsed_s + quiet_s))
    return ", ".join(parts) + _left(event)


def _left(event: ModelLoading) -> str:
    """How long the rest takes, once there is something to go by."""
    if not 0 < event.done_bytes < event.total_bytes or event.elapsed_s < 1:
        return ""
    rest = (event.total_bytes - event.done_bytes) * event.elapsed_s / event.done_bytes
    return f", about {units.seconds(rest)} left"
