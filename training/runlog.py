"""The log of a run: one JSON object a line, on disk and on screen."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Log:
    """Lines for people and for the card."""

    path: Path
    start: float = field(default_factory=time.monotonic)

    def __call__(self, **values: Any) -> None:
        values = {"s": round(time.monotonic() - self.start, 1), **values}
        with self.path.open("a") as f:
            f.write(json.dumps(values) + "\n")
        print(json.dumps(values), flush=True)
