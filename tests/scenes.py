"""The screens of the program, each brought about by keys and a script."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from textual.command import CommandList
from textual.widgets import Input

from ds4chat import paths
from ds4chat.demo import TOUR, Failure, Reply, Script
from ds4chat.tui.app import TOUR_BANNER
from ds4chat.tui.controller import Phase
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.screens.race import RaceScreen
from ds4chat.tui.screens.sessions import SessionsScreen
from ds4chat.tui.sessions_hook import SessionsPlan
from ds4chat.tui.widgets.crash import CrashBox
from ds4chat.tui.widgets.hint_line import HintLine
from tests.pilot.driver import Chat

_FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
NOW_S = 1_785_499_200.0  # seconds since 1970: the clock of the list of sessions
_SAMPLE = Path(__file__).parent.parent / "sessions" / "samples" / "v1-scripted"
_KEPT = (
    ("a-poem-about-rain", 900),
    ("quicksort-in-python", 7_300),
    ("why-is-the-sky-blue", 260_000),
)

Play = Callable[[Chat], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A screen.

    Attributes:
        play: Brings it about.
        script: What the engine says.
        is_ready: Whether the model is loaded before it is played.
        keeps: The chat is kept among saved sessions.
        resume: The one that it goes on with.
        banner: What stands above the transcript.
    """

    play: Play
    script: Script = TOUR
    is_ready: bool = True
    keeps: bool = False
    resume: str = ""
    banner: str = ""

    def options(self, folder: Path, **looks: object) -> ChatOptions:
        """How its chat starts; saved sessions go into the folder."""
        options = ChatOptions(
            is_animated=False,
            themes_dirs=(paths.themes_dir(),),
            banner=self.banner,
            log_path="/state/log/engine.log",
            config_file=Path("/home/you/.config/ds4chat/config.toml"),  # named, not written
        )
        if self.keeps:
            plan = SessionsPlan(root=_sessions(folder), is_usual=False, resume=self.resume)
            options = replace(options, sessions=plan)
        return replace(options, **looks)  # type: ignore[arg-type]


def _sessions(folder: Path) -> Path:
    """Saved sessions of fixed names and ages."""
    root = folder / "sessions"
    for name, age_s in _KEPT:
        shutil.copytree(_SAMPLE, root / name)
        for path in (root / name).iterdir():
            os.utime(path, (NOW_S - age_s, NOW_S - age_s))
    return root


def svg_of(chat: Chat) -> str:
    """The screen as an SVG that is the same each time, and asks for no font of the net."""
    picture = chat.app.export_screenshot(title="ds4chat")
    picture = _FONT_FACE.sub("", picture)
    return picture.replace("<svg ", '<svg xml:space="preserve" ', 1)


async def play(scene: Scene, chat: Chat) -> None:
    """Bring a chat to a scene, without the remarks that pass by."""
    await scene.play(chat)
    chat.screen.transcript.flush()  # what timers would do soon
    chat.screen.show_now()
    for line in chat.app.screen.query(Input):
        line.cursor_blink = False
    for hints in chat.app.screen.query(HintLine):
        hints.clear()
    await chat.pilot.pause()


# The scenes.


async def _welcome(chat: Chat) -> None:
    await chat.pilot.pause()


async def _chat(chat: Chat) -> None:
    await chat.ask("Write quicksort in Python")


async def _ghosts(chat: Chat) -> None:
    await chat.ask("Write a poem about rain")
    await chat.press("alt+up", "g")


async def _round(chat: Chat) -> None:
    await chat.ask("Write a poem about rain")
    await chat.press("alt+up", "enter", *["right"] * 9)


async def _settings(chat: Chat) -> None:
    await chat.press("f2", *["down"] * 10)


async def _help(chat: Chat) -> None:
    await chat.press("f1")


async def _keys(chat: Chat) -> None:
    await chat.send("/keys")


async def _search(chat: Chat) -> None:
    await chat.ask("Write quicksort in Python")
    await chat.press("ctrl+f", *"items", "enter")


async def _palette(chat: Chat) -> None:
    await chat.press("ctrl+p", *"sp")
    found = chat.app.screen
    shown = found.query_one(CommandList)
    await chat.until(lambda: "/spec" in chat.picture() and shown.highlighted == 0)
    await chat.until(lambda: all(w.is_finished for w in chat.app.workers if w.node is found))


async def _completion(chat: Chat) -> None:
    await chat.press(*"/th")


async def _reasoning(chat: Chat) -> None:
    await chat.send("/think on")
    await chat.send("Explain")
    await chat.steps(9)


async def _folded(chat: Chat) -> None:
    await chat.send("/think on")
    await chat.ask("Explain")


async def _loading(chat: Chat) -> None:
    await chat.until(lambda: "1,328 of 1,328" in " ".join(chat.picture().split()))


async def _refused(chat: Chat) -> None:
    await chat.phase(Phase.REFUSED)


async def _prefill(chat: Chat) -> None:
    await chat.send("go " * 3_000)
    await chat.until(lambda: re.search(r"█  ([\d,]+) of \1 tokens", chat.picture()))
    await chat.press("home")


async def _crash(chat: Chat) -> None:
    await chat.send("crash")
    await chat.phase(Phase.DEAD)
    await chat.until(lambda: chat.screen.query_one(CrashBox).display)


async def _race(chat: Chat) -> None:
    await chat.send("/race code")
    await chat.until(lambda: isinstance(chat.app.screen, RaceScreen))
    await chat.until(lambda: "identical" in chat.picture())


async def _sessions_list(chat: Chat) -> None:
    desk = chat.screen.sessions
    assert desk is not None
    await chat.app.push_screen(SessionsScreen(desk, lambda: NOW_S))
    await chat.press("down")


async def _resumed(chat: Chat) -> None:
    await chat.until(lambda: len(chat.chat.conversation.turns) >= 1)
    await chat.until(lambda: chat.chat.phase is Phase.READY)
    desk = chat.screen.sessions
    assert desk is not None
    await chat.until(lambda: not desk.kv._restores)


_HELD = replace(TOUR, replies=tuple(replace(reply, holds=(9,)) for reply in TOUR.replies))
_READS = Script(replies=(Reply(answer="Yes.", holds=(0,)),))
_LOADS = Script(
    replies=(),
    load_stages=(("reading weights", 86_700_000_000),),
    load_tensors=1_328,
    is_load_held=True,
)
_REFUSES = Script(
    replies=(),
    load_failure=Failure(
        message="model.gguf: blk.0.attn_q_a.weight is 4096 x 1024; 4096 x 1536 is wanted",
        hint="The file is damaged or of another model: fetch it again.",
    ),
)

SCENES: dict[str, Scene] = {
    "welcome": Scene(play=_welcome, banner=TOUR_BANNER),
    "chat": Scene(play=_chat),
    "ghosts": Scene(play=_ghosts),
    "round": Scene(play=_round),
    "settings": Scene(play=_settings),
    "help": Scene(play=_help),
    "keys": Scene(play=_keys),
    "search": Scene(play=_search),
    "palette": Scene(play=_palette),
    "completion": Scene(play=_completion),
    "reasoning": Scene(play=_reasoning, script=_HELD),
    "folded": Scene(play=_folded),
    "loading": Scene(play=_loading, script=_LOADS, is_ready=False),
    "refused": Scene(play=_refused, script=_REFUSES, is_ready=False),
    "prefill": Scene(play=_prefill, script=_READS),
    "crash": Scene(play=_crash),
    "race": Scene(play=_race),
    "sessions": Scene(play=_sessions_list, keeps=True),
    "resumed": Scene(play=_resumed, keeps=True, resume="quicksort-in-python"),
}
