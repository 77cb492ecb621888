"""The speculation panel: what drafting does and what it buys."""

from __future__ import annotations

from collections.abc import Collection
from itertools import zip_longest

from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from ds4chat.protocol.events import RoundVerified
from ds4chat.protocol.types import Source, SpecState
from ds4chat.tui import units
from ds4chat.tui.figures import N_RECENT, Figures
from ds4chat.tui.markdown.clean import clean_line
from ds4chat.tui.palette import ATTRIBUTES, Attribute, ColourMode

WIDTH = 36  # columns, border and padding included
TEXT_WIDTH = WIDTH - 3

_BARS = "▁▂▃▄▅▆▇█"
_LABEL = "$secondary"
_TYPES = {
    Attribute.NONE: "",
    Attribute.UNDERLINE: "underline",
    Attribute.BOLD: "bold",
    Attribute.ITALIC: "italic",
    Attribute.REVERSE: "reverse",
}
_STATE_STYLES = {
    SpecState.ON: "bold $source-accepted",
    SpecState.OFF: "$source-plain",
    SpecState.PARKED: "bold $warning",
    SpecState.UNAVAILABLE: "$source-plain",
}


def bars(values: Collection[float], top: float) -> str:
    """Values from 0 to `top` as one bar character each."""
    if top <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[min(7, max(0, round(value / top * 7)))] for value in values)


def share(accepted: int, tested: int) -> str:
    """`.91`, `1.0`, or `--` when nothing was tested."""
    if not tested:
        return "--"
    text = f"{accepted / tested:.2f}"
    return "1.0" if text == "1.00" else text.removeprefix("0")


def block(last: RoundVerified | None, block_size: int) -> Content:
    """The newest block: `#` accepted, `x` wrong, blank behind it, `-` not drafted."""
    if last is None:
        return Content.styled("[ ]" * block_size, _LABEL)
    n_tested = len(last.proposal_ids)
    cells: list[tuple[str, str]] = []
    for i in range(max(block_size, n_tested)):
        if i < last.n_accepted:
            cells.append(("[#]", "$source-accepted"))
        elif i < n_tested:
            cells.append(("[x]" if i == last.n_accepted else "[ ]", "$source-fallback"))
        else:
            cells.append(("[-]", _LABEL))
    return Content.assemble(*cells, f" {last.n_accepted}/{n_tested}")


def lines(figures: Figures) -> list[Content]:
    """All lines of the panel."""
    state = Content.assemble(
        ("SPECULATION  ", "bold"), (str(figures.state), _STATE_STYLES[figures.state])
    )
    if figures.state is SpecState.UNAVAILABLE:
        return [state, *_reason(figures)]
    if not figures.block_size:
        return [Content.styled("SPECULATION", "bold"), _label("known when the model is loaded")]
    counts, top = figures.counts, figures.block_size
    accept_len = f"{figures.accept_len:.2f}" if figures.accept_len is not None else "--"
    positions = " ".join(share(*pair) for pair in counts.by_position[:6])
    return [
        state,
        *_reason(figures),
        Content(""),
        Content.assemble(("block   ", _LABEL), block(figures.last, top)),
        *_recent(figures),
        Content(""),
        _pair("accept length", accept_len),
        _label("accepted by position"),
        Content(positions or "--"),
        _pair(
            "blocks with 0.." + str(top),
            bars(counts.histogram, max(counts.histogram, default=0)),
        ),
        Content(""),
        _label("confidence: said, came true"),
        *_calibration(figures),
        Content(""),
        _times(figures),
        _pair("net saved", _net(figures)),
    ]


def legend() -> Content:
    """Each source in its colour and type."""
    parts = (
        (str(source), f"{_TYPES[ATTRIBUTES[source]]} $source-{source}".strip())
        for source in Source
        if source is not Source.FORCED
    )
    return Content(" ").join(Content.styled(*part) for part in parts)


def _label(text: str) -> Content:
    return Content.styled(text, _LABEL)


def _pair(label: str, value: str) -> Content:
    gap = " " * max(1, TEXT_WIDTH - len(label) - len(value))
    return Content.assemble((label, _LABEL), gap, value)


def _recent(figures: Figures) -> list[Content]:
    """The last blocks in two rows, oldest first."""
    marks = bars(figures.recent, figures.block_size)
    half = N_RECENT // 2
    gap = " " * (TEXT_WIDTH - half - len("last 40"))
    return [
        Content.assemble(("last 40", _LABEL), gap, marks[:half]),
        Content.assemble(("blocks ", _LABEL), gap, marks[half:]),
    ]


def _reason(figures: Figures) -> list[Content]:
    text = clean_line(figures.reason)
    return [Content.styled(text, "italic")] if text else []


def _calibration(figures: Figures) -> list[Content]:
    n_bins = len(figures.bins)
    said = "".join(f"{(i + 0.5) / n_bins:>6.1f}" for i in range(n_bins)).replace(" 0.", "  .")
    true = "".join(f"{share(n_right, n):>6}" for n, n_right in figures.bins)
    return [Content.styled(said, _LABEL), Content(true)]


def _times(figures: Figures) -> Content:
    found: list[str | tuple[str, str]] = []
    times = (
        ("draft", figures.draft_s), ("verify", figures.verify_s), ("plain", figures.plain_s),
    )  # fmt: skip
    for label, value in times:
        text = units.milliseconds(value) if value is not None else "--"
        found += [(f"{label} ", _LABEL), f"{text} "]
    return Content.assemble(*found, ("ms", _LABEL))


def _net(figures: Figures) -> str:
    if figures.saved_s is None or figures.ratio is None:
        return "--"
    return f"{figures.saved_s:+.1f} s ({figures.ratio:.2f}x)"


class SpeculationPanel(Widget):
    """Shows `Figures`; the screen says when.

    Drawn line by line: a round changes a few lines, and only those are painted again.
    """

    DEFAULT_CSS = f"""
    SpeculationPanel {{
        width: {WIDTH}; height: 100%; padding: 0 1; border-left: vkey $panel;
        overflow: hidden;
    }}
    """

    def __init__(self) -> None:
        super().__init__(id="panel")
        self._found: list[Content] = []
        self._drawn: list[tuple[Content, list[Strip]]] = []
        self._rows: list[Strip] = []

    def show(self, figures: Figures, mode: ColourMode) -> None:
        """Redraw what changed."""
        found = [*lines(figures), Content(""), _label(f"colours: {mode}")]
        if mode is ColourMode.SOURCE:
            found.append(legend())
        self._found = found
        if self.size.width:
            self._draw()

    def _draw(self) -> None:
        before, old = self._drawn, self._rows
        self._drawn = [
            before[at]
            if at < len(before) and _is_same(before[at][0], line)
            else self._line(line)
            for at, line in enumerate(self._found)
        ]
        self._rows = [strip for _, strips in self._drawn for strip in strips]
        for y, (was, now) in enumerate(zip_longest(old, self._rows)):
            if was is not now:
                self.refresh(Region(0, y, self.size.width, 1))

    def _line(self, line: Content) -> tuple[Content, list[Strip]]:
        strips = Visual.to_strips(self, line, self.size.width, None, self.visual_style)
        return line, strips

    def _draw_anew(self) -> None:
        self._drawn = []
        self._draw()

    def on_resize(self) -> None:
        """Fit the lines to the width."""
        self._draw_anew()

    def notify_style_update(self) -> None:
        """Take another theme's colours."""
        super().notify_style_update()
        if self.is_mounted and self.size.width:
            self._draw_anew()

    def render_line(self, y: int) -> Strip:
        """One line, wrapped ones counted as they are drawn."""
        if y < len(self._rows):
            return self._rows[y]
        return Strip.blank(self.size.width, self.visual_style.rich_style)


def _is_same(one: Content, other: Content) -> bool:
    return one.plain == other.plain and one.spans == other.spans
