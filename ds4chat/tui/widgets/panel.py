"""The speculation panel: what drafting does and what it buys."""

from __future__ import annotations

from collections.abc import Collection

from textual.content import Content
from textual.widgets import Static

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


class SpeculationPanel(Static):
    """Shows `Figures`; the screen says when."""

    DEFAULT_CSS = f"""
    SpeculationPanel {{
        width: {WIDTH}; height: 100%; padding: 0 1; border-left: vkey $panel;
        overflow: hidden;
    }}
    """

    def __init__(self) -> None:
        super().__init__(id="panel", markup=False)

    def show(self, figures: Figures, mode: ColourMode) -> None:
        """Redraw."""
        found = [*lines(figures), Content(""), _label(f"colours: {mode}")]
        if mode is ColourMode.SOURCE:
            found.append(legend())
        self.update(Content("\n").join(found), layout=False)
