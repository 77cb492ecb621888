"""One branch as an SVG drawing: fixed cells, as a terminal shows it."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass

from ds4chat.protocol.types import Channel, Source
from ds4chat.store.clean import clean, clean_line
from ds4chat.store.export.look import Look
from ds4chat.store.export.pieces import Piece, model_line, pieces, receipt
from ds4chat.store.graphemes import graphemes
from ds4chat.store.tree import Tree, Turn

COLUMNS = 96
CELL_W, CELL_H, BASELINE, MARGIN = 8, 18, 13, 16
_TAB = 4

_ATTRIBUTES = {
    Source.FALLBACK: ";text-decoration:underline",
    Source.BONUS: ";font-weight:bold",
    Source.PLAIN: ";font-style:italic",
    Source.FORCED: ";text-decoration:overline",
}


@dataclass(frozen=True, slots=True)
class _Run:
    """Text of one style in one row, from a column on."""

    column: int
    n_cells: int
    text: str
    style: str


def to_svg(tree: Tree, name: str, look: Look, branch: str | None) -> str:
    """One branch as a drawing."""
    canvas = _Canvas()
    canvas.line(clean_line(name, COLUMNS), "title")
    canvas.line(model_line(tree)[:COLUMNS], "dim")
    for source in Source:
        canvas.put(f"{source} ", str(source))
    canvas.feed()
    for turn in tree.path(branch):
        _turn(canvas, turn)
    return canvas.svg(look, clean_line(name))


def _turn(canvas: _Canvas, turn: Turn) -> None:
    canvas.feed()
    canvas.line(f"you ({turn.id})", "dim")
    canvas.line("(lost)" if turn.is_lost else clean(turn.question), "text")
    for channel, title in ((Channel.THINKING, "reasoning"), (Channel.ANSWER, "reply")):
        drawn = [piece for piece in pieces(turn, channel) if not _is_ghost(piece)]
        if any(piece.text for piece in drawn):
            canvas.line(title, "dim")
            for piece in drawn:
                canvas.put(piece.text, str(piece.token.source) if piece.token else "text")
            canvas.feed()
    notes = (f"damaged: {turn.damage}" if turn.damage else "", receipt(turn))
    canvas.line(" · ".join(note for note in notes if note), "dim")


def _is_ghost(piece: Piece) -> bool:
    return piece.token is None and bool(piece.note)


class _Canvas:
    """Rows of runs; text wraps at `COLUMNS` cells."""

    def __init__(self) -> None:
        self._rows: list[list[_Run]] = [[]]
        self._column = 0

    def feed(self) -> None:
        """Begin the next row."""
        self._rows.append([])
        self._column = 0

    def line(self, text: str, style: str) -> None:
        """Put text and begin the next row."""
        self.put(text, style)
        self.feed()

    def put(self, text: str, style: str) -> None:
        """Put text at the pen."""
        for place, part in enumerate(text.split("\n")):
            if place:
                self.feed()
            for chunk, n_cells in self._wrapped(part):
                self._rows[-1].append(_Run(self._column, n_cells, chunk, style))
                self._column += n_cells

    def _wrapped(self, text: str) -> Iterator[tuple[str, int]]:
        """Parts of one line that fit a row each, with their widths."""
        chunk, n_cells = "", 0
        line = text.replace("\t", " " * _TAB)
        for start, end, wide in graphemes(line):
            if self._column + n_cells + wide > COLUMNS:
                if chunk:
                    yield chunk, n_cells
                self.feed()
                chunk, n_cells = "", 0
            chunk += line[start:end]
            n_cells += wide
        if chunk:
            yield chunk, n_cells

    def svg(self, look: Look, title: str) -> str:
        """The drawing."""
        width = COLUMNS * CELL_W + 2 * MARGIN
        height = len(self._rows) * CELL_H + 2 * MARGIN
        drawn = [_draw(run, row) for row, runs in enumerate(self._rows) for run in runs]
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}">'
            f"<title>{html.escape(title)}</title><style>{_style(look)}</style>"
            f'<rect width="100%" height="100%" fill="{look.background}"/>\n'
            + "\n".join(drawn)
            + "\n</svg>\n"
        )


def _draw(run: _Run, row: int) -> str:
    x, y = MARGIN + run.column * CELL_W, MARGIN + row * CELL_H + BASELINE
    length = f' textLength="{run.n_cells * CELL_W}"' if run.n_cells else ""
    return f'<text x="{x}" y="{y}" class="{run.style}"{length}>{html.escape(run.text)}</text>'


def _style(look: Look) -> str:
    rules = [
        "text{font:14px ui-monospace,monospace;white-space:pre}",
        f".text{{fill:{look.foreground}}}",
        f".title{{fill:{look.foreground};font-weight:bold}}",
        f".dim{{fill:{look.dim}}}",
    ]
    for source in Source:
        extra = _ATTRIBUTES.get(source, "")
        rules.append(f".{source}{{fill:{look.sources[source]}{extra}}}")
    return "".join(rules)
