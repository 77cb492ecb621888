"""From tone, Markdown look and provenance to one cached terminal style.

Styles are chosen when a line is painted, so that another colour mode costs one repaint.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.color import Color
from rich.color import blend_rgb as blend
from rich.style import Style

from ds4chat.protocol.types import Source
from ds4chat.tui.markdown.block import NO_TOKEN, Look
from ds4chat.tui.markdown.reply import NO_CONFIDENCE, SOURCES, TokenLog
from ds4chat.tui.palette import ATTRIBUTES, DARK, Attribute, ColourMode, Palette
from ds4chat.tui.widgets.transcript_code import KINDS
from ds4chat.tui.widgets.transcript_rows import Tone

COMPONENTS = (
    *(f"transcript--{tone.value}" for tone in Tone),
    "transcript--drawn",
    "transcript--heading",
    "transcript--code",
    "transcript--label",
    *(f"transcript--syntax-{kind}" for kind in KINDS),
    "transcript--hit",
    "transcript--hit-current",
)
CSS = """
Transcript {
    background: $surface;
    color: $foreground;
    overflow-x: hidden;
    overflow-y: auto;
    scrollbar-gutter: stable;
    scrollbar-size-vertical: 1;
    & > .transcript--user { color: $foreground; text-style: none; }
    & > .transcript--answer { color: $foreground; }
    & > .transcript--thinking { color: $text-muted; }
    & > .transcript--summary { color: $text-muted; }
    & > .transcript--receipt { color: $text-muted; }
    & > .transcript--info { color: $text-muted; }
    & > .transcript--warning { color: $text-warning; }
    & > .transcript--error { color: $text-error; }
    & > .transcript--drawn { color: $text-muted; }
    & > .transcript--heading { color: $text-primary; }
    & > .transcript--code { color: $text-secondary; }
    & > .transcript--label { color: $text-accent; text-style: bold; }
    & > .transcript--syntax-comment { color: $text-muted; text-style: italic; }
    & > .transcript--syntax-string { color: $text-success; }
    & > .transcript--syntax-number { color: $text-warning; }
    & > .transcript--syntax-keyword { color: $text-primary; text-style: bold; }
    & > .transcript--syntax-name { color: $text-secondary; text-style: bold; }
    & > .transcript--hit { color: $foreground; background: $primary 40%; }
    & > .transcript--hit-current { color: $background; background: $warning; }
}
"""

# How much of a colour reasoning keeps; the rest is background.
_THINKING_STRENGTH = 0.6
_NO_KEY = (-1, 0)


class StyleBook:
    """All styles of one transcript."""

    def __init__(self, component: Callable[[str], Style]) -> None:
        """Keep the look-up of base styles.

        Args:
            component: Gives the style of a CSS component, by the part of its name that follows
                `transcript--`; background included.
        """
        self._component = component
        self._cache: dict[tuple[Tone, int, int, int], Style] = {}
        self.palette: Palette = DARK
        self.mode = ColourMode.SOURCE
        self.is_mono = False

    def clear(self) -> None:
        """Forget all styles, after a change of theme, palette, or mode."""
        self._cache.clear()

    def drawn(self, tone: Tone) -> Style:
        """The style of what the program draws around the text."""
        return self.of(tone, Look.MARKER, None, NO_TOKEN)

    def label(self) -> Style:
        """The style of the speaker's name."""
        return self._component("label")

    def syntax(self, tone: Tone, kind: str) -> Style:
        """The style of code of a kind (`KINDS`, empty: plain), where provenance is off."""
        plain = self.of(tone, Look.CODE, None, NO_TOKEN)
        if not kind:
            return self._component(tone.value)
        style = self._component(f"syntax-{kind}")
        return plain + Style(color=style.color, bold=style.bold, italic=style.italic)

    @property
    def has_syntax(self) -> bool:
        """Whether code is coloured by its syntax."""
        return self.mode is ColourMode.OFF and not self.is_mono

    def hit(self, *, is_current: bool) -> Style:
        """The style laid over what a search found."""
        if self.is_mono:
            return Style(reverse=True, bold=is_current, underline=is_current)
        return self._component("hit-current" if is_current else "hit")

    def of(self, tone: Tone, look: int, log: TokenLog | None, token: int) -> Style:
        """The style of a character; the same object for the same look."""
        source, level = _NO_KEY if log is None else self._key(log, token)
        key = (tone, look, source, level)
        style = self._cache.get(key)
        if style is None:
            style = self._cache[key] = self._make(tone, look, source, level)
        return style

    def _key(self, log: TokenLog, token: int) -> tuple[int, int]:
        """Source code and what the mode colours by; `_NO_KEY` when provenance is not shown."""
        if self.mode is ColourMode.OFF or not 0 <= token < len(log):
            return _NO_KEY
        level = 0
        if self.mode is ColourMode.POSITION:
            level = log.positions[token]
        elif self.mode is ColourMode.CONFIDENCE:
            level = log.confidences[token]
        return log.sources[token], level

    def _make(self, tone: Tone, look: int, source: int, level: int) -> Style:
        base = self._component(tone.value)
        if look & Look.GHOST:
            ghost = Style(strike=True, dim=self.is_mono or None)
            return base + ghost + Style(color=self._component("drawn").color)
        if source < 0:
            return base + self._markdown(look, with_colour=True)
        origin = SOURCES[source]
        style = base + _ATTRIBUTE_STYLES[ATTRIBUTES[origin]]
        if self.is_mono:
            return style + Style(dim=True) if tone is Tone.THINKING else style
        colour = Color.parse(self._colour(origin, level))
        if tone is Tone.THINKING:
            colour = _faded(colour, base)
        style += Style(color=colour)
        return style + self._markdown(look, with_colour=False)

    def _colour(self, source: Source, level: int) -> str:
        if self.mode is ColourMode.POSITION:
            return self.palette.by_position(level)
        if self.mode is ColourMode.CONFIDENCE:
            known = None if level == NO_CONFIDENCE else level / 254
            return self.palette.by_confidence(known)
        return self.palette.by_source(source)

    def _markdown(self, look: int, *, with_colour: bool) -> Style:
        """Attributes of a Markdown look; its colours only where provenance has none."""
        style = Style(
            bold=True if look & (Look.BOLD | Look.HEADING) else None,
            italic=True if look & Look.ITALIC else None,
            strike=True if look & Look.STRIKE else None,
            underline=True if look & Look.LINK else None,
        )
        if not with_colour or self.is_mono:
            return style
        for bit, name in (
            (Look.HEADING, "heading"),
            (Look.CODE, "code"),
            (Look.MARKER, "drawn"),
        ):
            if look & bit:
                style += Style(color=self._component(name).color)
        return style


_ATTRIBUTE_STYLES = {
    Attribute.NONE: Style(),
    Attribute.UNDERLINE: Style(underline=True),
    Attribute.BOLD: Style(bold=True),
    Attribute.ITALIC: Style(italic=True),
    Attribute.REVERSE: Style(reverse=True),
}


def _faded(colour: Color, base: Style) -> Color:
    if base.bgcolor is None or base.bgcolor.is_default:
        return colour
    front, back = colour.get_truecolor(), base.bgcolor.get_truecolor()
    return Color.from_triplet(blend(back, front, _THINKING_STRENGTH))
