"""The chat without its widgets: what keys and commands ask for, and what the engine reports.

Runs on the screen's thread only. It talks to the engine through an `EngineLink` and to the
screen through a `ChatView`, so that every path can be tested without a terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from ds4chat.protocol.commands import Cancel, Load, SetSpeculation, StopThinking, Submit
from ds4chat.protocol.engine import EngineLink
from ds4chat.protocol.events import ModelLoading, PrefillProgress
from ds4chat.protocol.types import (
    Channel,
    ModelInfo,
    Sampling,
    SpecOptions,
    SpecState,
    ThinkMode,
)
from ds4chat.tui import units
from ds4chat.tui.figures import Figures
from ds4chat.tui.log_tail import Failure
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.sessions_hook import Keeper, NoKeeper
from ds4chat.tui.state import Conversation
from ds4chat.tui.view import ChatView

RESTART_HINT = "F8 or /restart starts it again."
_THINK_CYCLE = {
    ThinkMode.OFF: ThinkMode.HIGH,
    ThinkMode.LOW: ThinkMode.HIGH,
    ThinkMode.HIGH: ThinkMode.MAX,
    ThinkMode.MAX: ThinkMode.OFF,
}


class Phase(StrEnum):
    """Where the engine stands."""

    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    REFUSED = "refused"  # the model cannot be used; the engine runs
    STOPPED = "stopped"  # stopped by the user while loading
    DEAD = "dead"


@dataclass(slots=True, kw_only=True)
class Progress:
    """What the status line shows of loading and of reading the prompt."""

    loading: ModelLoading | None = None
    prefill: PrefillProgress | None = None
    n_cached: int = 0


class ChatController:
    """One chat with one engine: what is known of it, and what a person may ask of it."""

    def __init__(
        self, link: EngineLink, load: Load, options: ChatOptions, view: ChatView
    ) -> None:
        self.phase = Phase.STARTING
        self.info: ModelInfo | None = None
        self.conversation = Conversation(system=options.system)
        self.figures = Figures()
        self.progress = Progress()
        self.sampling: Sampling = options.sampling
        self.spec: SpecOptions = options.spec
        self.keeps_spec_on = False  # in the next reply, whatever the policy says
        self.max_tokens = options.max_tokens
        self.keep_reasoning = self.conversation.keeps_reasoning = options.keep_reasoning
        self._ignore_end = options.ignore_end
        self.tps: float | None = None
        self.n_context = 0
        self._think = options.think
        self.log_path = options.log_path
        self.link = link
        self.load = load
        self.choose_files = options.choose_files
        self.view = view
        self._n_requests = 0
        self.submits: dict[int, int] = {}  # request_id -> turn_id
        self.steering: set[int] = set()  # requests about a running reply, not answered yet
        self._when_idle: Callable[[], None] | None = None
        self.channel: Channel | None = None
        self.keeper: Keeper = NoKeeper()
        self.failure: Failure | None = None
        self.support_trouble = ""  # why the support file is not used, in full
        self.asked_ctx: int | None = None  # a context that one was asked to agree to
        self.owed: set[str] = set()  # settings that the running reply does not take up
        self.editing: int | None = None  # the turn that the next message replaces

    # What the screen asks.

    @property
    def is_busy(self) -> bool:
        """Whether a reply runs."""
        return self.conversation.active is not None

    @property
    def is_reasoning(self) -> bool:
        """Whether the running reply is in its reasoning."""
        return self.is_busy and self.channel is Channel.THINKING

    @property
    def think(self) -> ThinkMode:
        """The thinking mode of the next reply."""
        if self._think is not None:
            return self._think
        return self.info.think_default if self.info is not None else ThinkMode.OFF

    @property
    def can_restart(self) -> bool:
        """Whether a restart would help."""
        return self.phase in (Phase.DEAD, Phase.REFUSED, Phase.STOPPED)

    def say(self, text: str, level: str = "info") -> None:
        """Put a notice into the transcript."""
        self.view.transcript.add_notice(text, level)

    def send_text(self, text: str) -> None:
        """Ask, or let the message wait until the engine has time for it."""
        self.asked_ctx = None
        if self.editing is not None:
            edited, self.editing = self.editing, None
            self.when_idle(lambda: self._replace(edited, text))
            return
        if self.phase is Phase.READY and not self.is_busy and not self.conversation.queue:
            self._ask(text)
        else:
            self.conversation.queue.append(text)
            if self.can_restart:
                self.say(f"The engine is not running; your message waits. {RESTART_HINT}")
        self.view.show_now()

    def _replace(self, turn_id: int, text: str) -> None:
        self._rewind(turn_id)
        self.send_text(text)

    def stop(self) -> bool:
        """Stop the reply, else take back what waits, else stop the load; False: nothing to."""
        if self.is_busy:
            self.link.send(Cancel(request_id=self._steer()))
            return True
        if self.conversation.queue:
            self._take_back_all()
            return True
        if self.phase in (Phase.STARTING, Phase.LOADING):
            self.phase = Phase.STOPPED
            self.view.close_engine()
            self.say("Loading was stopped. F8 or /restart loads again, Ctrl+Q quits.")
            self.view.show_now()
            return True
        return False

    def when_idle(self, action: Callable[[], None]) -> None:
        """Do it now, or stop the reply first and do it then."""
        if self.is_busy:
            self._when_idle = action
            self.stop()
        else:
            action()
            self.view.show_now()

    def take_back_queued(self) -> str | None:
        """Remove the newest waiting message and return it."""
        queue = self.conversation.queue
        text = queue.pop() if queue else None
        self.view.show_now()
        return text

    def _take_back_all(self) -> None:
        """Put all waiting messages back into the prompt."""
        self.view.fill_prompt("\n\n".join(self.conversation.queue))
        self.conversation.queue.clear()
        self.view.show_now()

    def set_spec(self, spec: SpecOptions, *, keep_on: bool = False) -> None:
        """Speculate otherwise: from the next block of a running reply, and from now on.

        `keep_on`: without parking, in the running reply or else in the next one.
        """
        self.spec, self.keeps_spec_on = spec, keep_on and not self.is_busy
        if self.is_busy:
            request_id = self._steer()
            self.link.send(SetSpeculation(request_id=request_id, spec=spec, keep_on=keep_on))
        else:
            self.figures.ask(spec, keep_on=keep_on)
        self.view.show_now()

    def toggle_spec(self) -> None:
        """Speculation on or off; where it is parked: on, and no parking for a reply."""
        if self.spec.enabled and self.figures.state is SpecState.PARKED:
            self.set_spec(self.spec, keep_on=True)
        else:
            self.set_spec(replace(self.spec, enabled=not self.spec.enabled))

    def set_think(self, think: ThinkMode) -> None:
        """Reason this much from the next reply on; say what that costs."""
        changes_prefix = ThinkMode.MAX in (think, self.think) and think is not self.think
        self._think = think
        self.say(f"Thinking: {think}{self.next_reply()}.")
        if changes_prefix:
            self.warn_of_prefill("The maximal effort")
        self.view.show_now()

    def resume_think(self, think: ThinkMode) -> None:
        """Reason as a saved conversation did."""
        self._think = think

    def cycle_think(self) -> None:
        """Off, high, max; while the model reasons: answer now."""
        if self.is_reasoning:
            self.answer_now()
        else:
            self.set_think(_THINK_CYCLE[self.think])

    def answer_now(self) -> None:
        """End the reasoning and answer."""
        if self.is_reasoning:
            self.link.send(StopThinking(request_id=self._steer()))
        else:
            self.say("The model is not reasoning now.")

    def set_system(self, text: str) -> None:
        """Replace the system text from the next reply on."""
        self.conversation.system = text
        self.say(
            ("System text set" if text else "System text removed") + self.next_reply() + "."
        )
        self.warn_of_prefill("The system text")

    def next_reply(self) -> str:
        """Words for a setting that a running reply does not take up."""
        return ", from the next reply on" if self.is_busy else ""

    def warn_of_prefill(self, what: str) -> None:
        """Say that the whole conversation must be read again, and how long that takes."""
        if any(turn.usage for turn in self.conversation.turns):
            self.say(
                f"{what} stands at the start of the prompt: the next message reads all "
                f"{self.n_context:,} tokens again{self.prefill_cost()}. Change it back to keep "
                "what is held.",
                "warning",
            )

    def prefill_cost(self) -> str:
        """`, about 12 s`: for reading the conversation again; empty when not known."""
        seconds = self.conversation.reading_s(self.n_context)
        return f", about {units.seconds(seconds)}" if seconds is not None else ""

    def new_chat(self) -> None:
        """Forget the conversation; the engine keeps what the next one shares with it."""

        def begin() -> None:
            self.conversation.clear()
            self.editing = None
            self.reset_figures()
            self.view.transcript.clear()
            self.keeper.began_anew()

        self.when_idle(begin)

    def undo(self) -> None:
        """Take the last question back into the prompt, its reply away."""

        def take() -> None:
            question = self._rewind(None)
            if question is None:
                self.say("There is nothing to undo.")
                return
            self.view.fill_prompt(question)
            self.say("The last turn was taken back; your message is in the prompt.")

        self.when_idle(take)

    def retry(self, turn_id: int | None = None) -> None:
        """Answer a question again, the last one by default; later turns go."""

        def again() -> None:
            question = self._rewind(turn_id)
            if question is None:
                self.say("There is nothing to retry.")
            else:
                self.send_text(question)

        self.when_idle(again)

    def edit(self, turn_id: int) -> None:
        """Put a question into the prompt; what is sent next takes its place."""
        turn = self.conversation.find(turn_id)
        if turn is not None:
            self.editing = turn_id
            self.view.fill_prompt(turn.question)
            self.view.show_now()

    def stop_editing(self) -> bool:
        """Let the next message be a new one again; False if it was."""
        was_editing, self.editing = self.editing is not None, None
        self.view.show_now()
        return was_editing

    def _rewind(self, turn_id: int | None) -> str | None:
        """Remove a turn (None: the last) and all later ones; return its question."""
        turns = self.conversation.turns
        if turn_id is None and turns:
            turn_id = turns[-1].turn_id
        question = self.conversation.rewind(turn_id) if turn_id is not None else None
        if turn_id is not None and question is not None:
            self.n_context = self.conversation.n_context
            self.view.transcript.remove_from(turn_id)
            self.keeper.rewound(turn_id)
        return question

    def restart(self) -> None:
        """Start the engine again; the model is loaded when it says hello."""
        if not self.can_restart:
            self.say("The engine runs; there is no need to restart it.")
            return
        self.reload()

    def reload(self) -> None:
        """Start a fresh engine with `load`; the conversation stays."""
        self.phase = Phase.STARTING
        self.progress = Progress()
        self.view.restart_engine()
        self.view.show_now()

    # What the reports need.

    def turn_over(self, *, is_natural: bool) -> None:
        """Do what waited for the end of a turn."""
        self.channel = None
        self.owed.clear()
        self.progress = Progress()
        action, self._when_idle = self._when_idle, None
        if action is not None:
            action()
        elif is_natural:
            self.send_next()
        elif self.conversation.queue and self.phase is Phase.READY:
            self._take_back_all()

    def send_next(self) -> None:
        """Ask what has waited longest."""
        if self.conversation.queue and not self.is_busy:
            self._ask(self.conversation.queue.pop(0))

    def _ask(self, text: str) -> None:
        if not self.keeper.may_ask():
            self.view.fill_prompt(text)
            return
        turn = self.conversation.ask(text, self.think)
        request_id = self.request()
        self.submits[request_id] = turn.turn_id
        self.view.transcript.add_user(text, turn.turn_id)
        self.link.send(
            Submit(
                request_id=request_id,
                turn_id=turn.turn_id,
                messages=self.conversation.messages(),
                think=turn.think,
                sampling=self.sampling,
                spec=self.spec,
                max_tokens=self.max_tokens,
                ignore_end=self._ignore_end,
                keep_reasoning=self.keep_reasoning,
            )
        )
        if self.keeps_spec_on:
            self.set_spec(self.spec, keep_on=True)
        self.keeper.asked(turn)  # behind it: the engine need not wait for a disk

    def reset_figures(self) -> None:
        """Forget the figures of replies; what is known of the engine stays."""
        old, self.tps, self.n_context = self.figures, None, self.conversation.n_context
        self.figures = Figures(
            block_size=old.block_size,
            state=old.state,
            reason=old.reason,
            plain_step_s=old.plain_step_s,
        )

    def _steer(self) -> int:
        """A request id for a command about the running reply."""
        request_id = self.request()
        self.steering.add(request_id)
        return request_id

    def request(self) -> int:
        """A fresh request id."""
        self._n_requests += 1
        return self._n_requests
