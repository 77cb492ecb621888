"""One widget below the other; where the window is too low, the least needed give rows first."""

from __future__ import annotations

from collections.abc import Sequence

from textual.geometry import Size
from textual.layout import ArrangeResult, WidgetPlacement
from textual.layouts.vertical import VerticalLayout
from textual.widget import Widget

GIVES = (
    ("body", 3),
    ("banner", 0),
    ("completion", 3),
    ("crash", 3),
    ("status", 1),
    ("prompt-row", 3),
    ("body", 1),
    ("completion", 1),
    ("status", 0),
    ("prompt-row", 2),
    ("body", 0),
    ("crash", 0),
    ("header", 0),
    ("search", 0),
    ("HintLine", 1),
    ("prompt-row", 1),
    ("completion", 0),
    ("keys", 0),
    ("HintLine", 0),
)
"""Ids (or kinds) of widgets in the order in which they give, each down to so many rows."""
LEAST_BODY = 3  # rows that others leave to the transcript while they can


def fit(rows: Sequence[int], names: Sequence[str], height: int) -> list[int]:
    """The rows that each widget gets.

    Args:
        rows: what each wants.
        names: the widgets' ids.
        height: the window's.
    """
    found = [
        max(n, LEAST_BODY) if name == "body" else n for n, name in zip(rows, names, strict=True)
    ]
    too_many = sum(found) - height
    for name, least in GIVES:
        if too_many <= 0:
            break
        if name in names:
            place = names.index(name)
            given = max(0, min(too_many, found[place] - least))
            found[place] -= given
            too_many -= given
    return found


class StackLayout(VerticalLayout):
    """The chat's layout: the prompt and the line of keys are in the window, however low."""

    name = "stack"

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        """Place the widgets from the top; see `fit`."""
        placed = super().arrange(parent, children, size, greedy)
        names = [placement.widget.id or type(placement.widget).__name__ for placement in placed]
        rows = fit([placement.region.height for placement in placed], names, size.height)
        return [_moved(placed, rows, place) for place in range(len(placed))]


def _moved(
    placed: Sequence[WidgetPlacement], rows: Sequence[int], place: int
) -> WidgetPlacement:
    region = placed[place].region
    return placed[place]._replace(
        region=region._replace(y=sum(rows[:place]), height=rows[place])
    )
