"""The lines above the prompt: loading, reading the prompt, messages that wait."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.content import Content
from textual.widgets import Static

from ds4chat.protocol.events import ModelLoading, PrefillProgress
from ds4chat.tui import units
from ds4chat.tui.controller import ChatController, Phase
from ds4chat.tui.loading import progress, stage
from ds4chat.tui.markdown.clean import clean_line

MAX_WAITING = 3  # messages shown; more are counted
FULL_SHARE = 0.9  # of the context, from which on the person is warned
QUIET_S = 5.0  # without news of a load, from which on the seconds are counted here
_BAR = 16


def bar(done: int, total: int) -> str:
    """A progress bar of fixed width."""
    n = min(_BAR, max(0, done * _BAR // total)) if total > 0 else 0
    return "█" * n + "░" * (_BAR - n)


def loading(
    event: ModelLoading | None, quiet_s: float = 0.0, *, has_waiting: bool = False
) -> str:
    """What loading does now and what Esc does; `quiet_s` is how long nothing new came."""
    escape = "Esc takes the message back" if has_waiting else "Esc stops"
    if event is None:
        return f"starting the engine · {escape}"
    share = f"{bar(event.done_bytes, event.total_bytes)}  " if event.total_bytes else ""
    return f"{stage(event)}  {share}{progress(event, quiet_s)} · {escape}"


def reading(event: PrefillProgress | None) -> str:
    """How far the prompt is read and what is left."""
    if event is None:
        return "reading the prompt"
    left = ""
    if 0 < event.n_done < event.n_total and event.elapsed_s > 0:
        rest = (event.n_total - event.n_done) * event.elapsed_s / event.n_done
        left = f" · about {units.seconds(rest)} left"
    return (
        f"reading the prompt  {bar(event.n_done, event.n_total)}  "
        f"{event.n_done:,} of {event.n_total:,} tokens{left}"
    )


def state(chat: ChatController, quiet_s: float = 0.0) -> str:
    """One line about the engine, or nothing."""
    active = chat.conversation.active
    if chat.phase in (Phase.STARTING, Phase.LOADING):
        has_waiting = bool(chat.conversation.queue)
        return loading(chat.progress.loading, quiet_s, has_waiting=has_waiting)
    if chat.phase is Phase.DEAD:
        return ""  # the crash box says it
    if chat.phase in (Phase.REFUSED, Phase.STOPPED):
        return "no model is loaded · F8 or /restart tries again"
    if chat.editing is not None:
        n = chat.conversation.n_after(chat.editing)
        later = f" and the {n} after it" if n else ""
        return f"editing: Enter replaces this turn{later} · Esc leaves it as it is"
    if active is not None and not active.ids:
        return reading(chat.progress.prefill)
    return nearly_full(chat.n_context, chat.info.ctx) if chat.info is not None else ""


def nearly_full(n_context: int, ctx: int) -> str:
    """A warning from nine tenths of the context on."""
    if n_context < FULL_SHARE * ctx:
        return ""
    return (
        f"the context is nearly full: {n_context:,} of {ctx:,} tokens · "
        "/compact drops the oldest turns, /new starts anew"
    )


def waiting(queue: list[str]) -> list[str]:
    """The messages that wait, shortened."""
    if not queue:
        return []
    shown = [f"waits: {clean_line(text)[:60]}" for text in queue[:MAX_WAITING]]
    if len(queue) > MAX_WAITING:
        shown.append(f"and {len(queue) - MAX_WAITING} more")
    shown[-1] += "   (Up in an empty prompt takes it back)"
    return shown


class StatusLines(Static):
    """As high as it has something to say."""

    DEFAULT_CSS = """
    StatusLines { height: auto; padding: 0 1; color: $accent; display: none; }
    StatusLines.-shown { display: block; }
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(id="status", markup=False)
        self._shown: list[str] = []
        self._clock = clock
        self._loading: ModelLoading | None = None
        self._since = clock()

    def show(self, chat: ChatController) -> None:
        """Redraw from the chat's state; a load that is silent for long goes on counting."""
        if chat.progress.loading is not self._loading:
            self._loading, self._since = chat.progress.loading, self._clock()
        quiet_s = self._clock() - self._since
        line = state(chat, quiet_s if quiet_s >= QUIET_S else 0.0)
        found = [line for line in (line, *waiting(chat.conversation.queue)) if line]
        if found == self._shown:
            return
        self._shown = found
        self.set_class(bool(found), "-shown")
        self.update(Content("\n".join(found)))
