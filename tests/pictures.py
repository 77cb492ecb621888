"""`python -m tests.pictures [FOLDER]`: the README's pictures, drawn by the program itself.

The scripted engine answers, so the pictures show the screen and not a model.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from ds4chat import paths
from ds4chat.demo import TOUR
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.widgets.hint_line import HintLine
from tests.pilot.driver import Chat, run_chat

FOLDER = Path(__file__).parent.parent / "docs"
SIZE = (120, 40)

Scene = Callable[[Chat], Awaitable[None]]


async def chat_scene(chat: Chat) -> None:
    """One reply with code."""
    await chat.ask("Write quicksort in Python")


async def ghosts_scene(chat: Chat) -> None:
    """A reply in prose with its rejected drafts, its turn marked."""
    await chat.ask("Write a poem about rain")
    await chat.press("alt+up", "g")


async def round_scene(chat: Chat) -> None:
    """The round of a fallback token."""
    await chat.ask("Write a poem about rain")
    await chat.press("alt+up", "enter", *["right"] * 9)


async def settings_scene(chat: Chat) -> None:
    """The settings screen."""
    await chat.press("f2", *["down"] * 10)


async def help_scene(chat: Chat) -> None:
    """The words of the screen."""
    await chat.press("f1")


async def search_scene(chat: Chat) -> None:
    """A search in progress."""
    await chat.ask("Write quicksort in Python")
    await chat.press("ctrl+f", *"items", "enter")


SCENES: dict[str, Scene] = {
    "chat": chat_scene,
    "ghosts": ghosts_scene,
    "round": round_scene,
    "settings": settings_scene,
    "help": help_scene,
    "search": search_scene,
}


async def play(name: str, chat: Chat) -> None:
    """Bring a chat to a scene, without the remarks that pass by."""
    await SCENES[name](chat)
    for hints in chat.app.screen.query(HintLine):
        hints.clear()
    await chat.pilot.pause()


async def draw(name: str, folder: Path, theme: str = "") -> None:
    """Write one scene as `NAME.svg`, 120 x 40."""
    options = ChatOptions(is_animated=False, theme=theme, themes_dirs=(paths.themes_dir(),))
    async with run_chat(script=TOUR, size=SIZE, options=options) as chat:
        await play(name, chat)
        svg = chat.app.export_screenshot(title="ds4chat")
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")


def main() -> None:
    """Draw all scenes into the folder that was named, else into `docs/`."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    theme = sys.argv[2] if len(sys.argv) > 2 else ""
    for name in SCENES:
        asyncio.run(draw(name, folder, theme))


if __name__ == "__main__":
    main()
