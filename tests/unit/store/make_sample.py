"""Writes the golden sample of the session format: `python -m tests.unit.store.make_sample`.

A sample of a version is written once and kept for ever; a new one is made only when the
version changes.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from ds4chat.demo.script import Reply
from ds4chat.demo.turn import Drafting
from ds4chat.protocol.events import Notice
from ds4chat.protocol.types import SpecOptions, SpecState, ThinkMode
from ds4chat.store.library import Library
from ds4chat.store.records import OptionsSet
from tests.unit.store import build

NAME = "v1-scripted"
SAMPLES = Path(__file__).parents[3] / "sessions" / "samples"
_POEM = Reply(
    answer="Two apples lay beside two pears,\nand four of them went down the stairs.\n",
    accepts=(0, 1, 0, 0, 1),
)


def write(root: Path) -> Path:
    """Make the sample in the folder `root`; returns its folder."""
    library = Library(root, clock=build.clock(), build="0.1.0", new_id=lambda: "0" * 32)
    session = library.create(NAME)
    drafting = Drafting(state=SpecState.ON)
    session.set_options(
        OptionsSet(model=build.SCRIPT.info, engine_build="scripted", spec=SpecOptions())
    )
    session.set_system("Answer briefly.")
    build.talk(session, "What is 2 + 2?", ThinkMode.HIGH, drafting=drafting, answer_after=3)
    build.talk(session, "Put it in a poem, 世界.", drafting=drafting, reply=_POEM)
    session.append(Notice(turn_id=None, level="info", message="Speculation parked."))
    session.fork(1, "in code")
    build.talk(session, "Again, with reasons.", ThinkMode.HIGH, drafting=drafting)
    session.goto("main")
    build.talk(session, "Once more.", drafting=drafting, reply=_POEM, stop_after=4)
    session.undo()
    session.goto("in code")
    session.close()
    return session.folder


if __name__ == "__main__":
    target = SAMPLES / NAME
    if target.exists():
        sys.exit(f"{target} is there; samples are kept for ever")
    SAMPLES.mkdir(exist_ok=True)
    made = write(SAMPLES / ".making")
    shutil.move(made, target)
    shutil.rmtree(SAMPLES / ".making")
