"""Typed reading of metadata keys that collects every problem instead of stopping at one."""

from __future__ import annotations

import difflib
import math
from typing import Any

import numpy as np

from ds4chat.formats.show import printable
from ds4chat.formats.values import Metadata, MetaValue

_MAX_INT = (1 << 31) - 1
_MAX_ENTRIES = 1 << 16  # of a list that is taken whole


class KeyReader:
    """Reads keys of one file; `problems` grows by one line for each that cannot be used.

    A reader returns None for a key it has complained about. Any integer width will do for a
    whole number, and a whole number for a float, as converters differ in both.
    """

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self.problems: list[str] = []

    def integer(
        self, key: str, *, default: int | None = None, least: int = 1, most: int = _MAX_INT
    ) -> int | None:
        """A whole number within `least .. most`; `default` if the key is absent."""
        value = self._value(key, default, f"a whole number from {least} to {most}")
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self._wrong(key, "a whole number")
            return None
        if not least <= value <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            self.problems.append(f"key {key} is {value}; {wanted} wanted")
            return None
        return value

    def number(self, key: str, *, default: float | None = None) -> float | None:
        """A positive finite number."""
        value = self._value(key, default, "a positive number")
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._wrong(key, "a number")
            return None
        if not (math.isfinite(value) and value > 0):
            self.problems.append(f"key {key} is {value}; a positive number wanted")
            return None
        return float(value)

    def flag(self, key: str, *, wanted: bool) -> None:
        """Complain unless the key is the boolean `wanted`."""
        value = self._value(key, None, str(wanted).lower())
        if value is None:
            return
        if not isinstance(value, bool):
            self._wrong(key, str(wanted).lower())
        elif value is not wanted:
            self.problems.append(
                f"key {key} is {str(value).lower()}; {str(wanted).lower()} wanted"
            )

    def text(self, key: str, default: str = "") -> str:
        """A string; `default` if it is absent or something else."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else default

    def integers(self, key: str, *, count: int | None = None) -> tuple[int, ...] | None:
        """The first `count` (None: all) whole numbers of an array."""
        array = self._array(key, "iu", f"an array of {count or 1} or more whole numbers")
        if array is not None and count is None and len(array) > _MAX_ENTRIES:
            self.problems.append(
                f"key {key} has {len(array):,} entries; at most {_MAX_ENTRIES:,} wanted"
            )
            return None
        return self._first(key, array, count)

    def uniform(self, key: str, *, count: int, default: float | None) -> float | None:
        """The one positive value of an array whose first `count` entries are equal.

        A plain number means itself.
        """
        if key not in self.metadata and default is not None:
            return default
        if isinstance(self.metadata.get(key), int | float):
            return self.number(key)
        array = self._array(key, "iuf", f"an array of {count} or more equal numbers")
        values = self._first(key, array, count)
        if values is None:
            return None
        if len(set(values)) > 1:
            shown = ", ".join(f"{value:g}" for value in sorted(set(values))[:6])
            self.problems.append(
                f"key {key} differs from layer to layer ({shown}); one value wanted"
            )
            return None
        if not (math.isfinite(values[0]) and values[0] > 0):
            self.problems.append(f"key {key} is {values[0]}; a positive number wanted")
            return None
        return float(values[0])

    def _value(self, key: str, default: MetaValue | None, wanted: str) -> MetaValue | None:
        value = self.metadata.get(key, default)
        if value is None:
            self.problems.append(f"key {key} is missing ({wanted} wanted{self._nearest(key)})")
        return value

    def _nearest(self, key: str) -> str:
        head = key.split(".", 1)[0] + "."
        known = [name for name in self.metadata if name.startswith(head)][:500]
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.9)
        return f"; the file has {printable(near[0])}" if near else ""

    def _wrong(self, key: str, wanted: str) -> None:
        self.problems.append(
            f"key {key} is stored as {self.metadata.describe(key)}; {wanted} wanted"
        )

    def _array(self, key: str, kinds: str, wanted: str) -> Any:
        value = self._value(key, None, wanted)
        if value is None:
            return None
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
            self._wrong(key, wanted)
            return None
        return value

    def _first(self, key: str, array: Any, count: int | None) -> tuple[Any, ...] | None:
        if array is None:
            return None
        if len(array) < (count or 1):
            self.problems.append(
                f"key {key} has {len(array)} entries; at least {count or 1} wanted"
            )
            return None
        return tuple(array[:count].tolist())
