"""How much work something is, in calls instead of seconds."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any


class Work:
    """Counts the calls, of Python and of built-in functions, of its block on this thread."""

    def __init__(self) -> None:
        self.calls = 0

    def __enter__(self) -> Work:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(None)

    def _count(self, _frame: FrameType, event: str, _argument: Any) -> None:
        if event in ("call", "c_call"):
            self.calls += 1
