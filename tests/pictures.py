"""`python -m tests.pictures [FOLDER [THEME]]`: the pictures of the README.

The scripted engine answers, so the pictures show the screen and not a model.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.pilot.driver import run_chat
from tests.scenes import SCENES, play, svg_of

FOLDER = Path(__file__).parent.parent / "docs"
SIZE = (120, 40)
SHOWN = ("chat", "ghosts", "round", "settings", "help", "search")


async def draw(name: str, folder: Path, theme: str = "") -> None:
    """Write one scene as `NAME.svg`, 120 x 40."""
    scene = SCENES[name]
    with tempfile.TemporaryDirectory() as scratch:
        options = scene.options(Path(scratch), theme=theme)
        async with run_chat(
            script=scene.script, size=SIZE, options=options, is_clock_stopped=True
        ) as chat:
            await play(scene, chat)
            (folder / f"{name}.svg").write_text(svg_of(chat), encoding="utf-8")


def main() -> None:
    """Draw what the README shows into the folder that was named, else into `docs/`."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    theme = sys.argv[2] if len(sys.argv) > 2 else ""
    for name in SHOWN:
        asyncio.run(draw(name, folder, theme))


if __name__ == "__main__":
    main()
