"""`python -m tests.pictures [FOLDER]`: the README's pictures, drawn by the program itself.

The scripted engine answers, so the picture shows the screen and not a model.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from ds4chat.demo import TOUR
from tests.pilot.driver import run_chat

FOLDER = Path(__file__).parent.parent / "docs"


async def draw(folder: Path) -> None:
    """Write `chat.svg`: one reply with code, at 120 x 40."""
    async with run_chat(script=TOUR, size=(120, 40)) as chat:
        await chat.ask("Write quicksort in Python")
        svg = chat.app.export_screenshot(title="ds4chat")
        (folder / "chat.svg").write_text(svg, encoding="utf-8")


def main() -> None:
    """Draw into the folder that was named, else into `docs/`."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    asyncio.run(draw(folder))


if __name__ == "__main__":
    main()
