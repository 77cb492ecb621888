"""The terminal's title."""

from __future__ import annotations

from textual.app import App

from ds4chat.tui.markdown.clean import clean_line

MAX_TITLE = 80


def title_sequence(text: str) -> str:
    """The control sequence (OSC 2) that sets the title; the text is made harmless."""
    return f"\x1b]2;{clean_line(text)[:MAX_TITLE]}\x1b\\"


def set_title(app: App[object], text: str) -> None:
    """Set the title, once for the same text; nothing where the driver cannot.

    Textual offers no way to write a sequence of one's own, so this uses its driver.
    """
    driver = app._driver
    if driver is None or app.is_headless or app.title == text:
        return
    app.title = text
    driver.write(title_sequence(text))
