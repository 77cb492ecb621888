"""A speed card as a picture: two bars and the lines of the text card. Plain SVG 1.1."""

from __future__ import annotations

import textwrap
from xml.sax.saxutils import escape

from ds4chat.tui.race.card import SpeedCard
from ds4chat.tui.race.card_text import notes, rows
from ds4chat.tui.race.verdict import Outcome

WIDTH = 920
_LINE, _LEFT, _VALUE, _BAR_TOP, _BAR_H, _BAR_W = 20, 28, 160, 66, 26, 520
_CHARS = 88  # characters that fit behind a name
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
_BACK, _FRONT, _DIM, _PLAIN, _SPEC, _BAD = (
    "#12151c", "#e6e6e6", "#8a93a3", "#8a93a3", "#55dd77", "#ff5555",
)  # fmt: skip


def as_svg(card: SpeedCard) -> str:
    """The picture. Text in it is escaped and has no control characters."""
    body = [_text(_LEFT, 38, "ds4chat speed card", size=20), *_bars(card)]
    y = _BAR_TOP + 2 * _BAR_H + 44
    for name, value in rows(card)[2:]:
        colour = _colour(card, name)
        body.append(_text(_LEFT, y, name, fill=_DIM))
        for part in textwrap.wrap(value, _CHARS) or [""]:
            body.append(_text(_VALUE, y, part, fill=colour))
            y += _LINE
    y += _LINE // 2
    for note in notes():
        for part in textwrap.wrap(note, _CHARS + 14):
            body.append(_text(_LEFT, y, part, fill=_DIM, size=12))
            y += _LINE - 4
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 8}" '
        f'viewBox="0 0 {WIDTH} {y + 8}" font-family="{_FONT}">\n'
        f'<rect width="100%" height="100%" rx="10" fill="{_BACK}"/>\n'
    )
    return head + "\n".join(body) + "\n</svg>\n"


def _bars(card: SpeedCard) -> list[str]:
    speeds = (("plain", card.plain.tps, _PLAIN), ("speculative", card.spec.tps, _SPEC))
    top = max((tps for _, tps, _ in speeds if tps), default=1.0)
    body = []
    for place, (name, tps, colour) in enumerate(speeds):
        y = _BAR_TOP + place * (_BAR_H + 8)
        length = max(2.0, _BAR_W * (tps or 0.0) / top)
        body.append(_text(_LEFT, y + 18, name, fill=_DIM))
        body.append(
            f'<rect x="{_VALUE}" y="{y}" width="{length:.1f}" height="{_BAR_H}" rx="3" '
            f'fill="{colour}"/>'
        )
        shown = f"{tps:.1f} tok/s" if tps else "no tokens"
        body.append(_text(_VALUE + length + 10, y + 18, shown, size=16))
    return body


def _colour(card: SpeedCard, name: str) -> str:
    if name != "verdict":
        return _FRONT
    return {Outcome.IDENTICAL: _SPEC, Outcome.DIFFERENT: _BAD}.get(card.verdict.outcome, _DIM)


def _text(x: float, y: float, words: str, *, fill: str = _FRONT, size: int = 14) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}" xml:space="preserve">'
        f"{escape(_visible(words))}</text>"
    )


def _visible(words: str) -> str:
    """XML 1.0 knows no surrogates and no noncharacters."""
    return "".join("\ufffd" if _is_outside(ord(c)) else c for c in words)


def _is_outside(code: int) -> bool:
    return code < 0x20 or 0xD800 <= code <= 0xDFFF or code in (0xFFFE, 0xFFFF)
