"""What the engine reports, taken into the chat. Runs on the screen's thread only."""

from __future__ import annotations

import shlex
from dataclasses import replace

from ds4chat.protocol.events import (
    Done,
    EngineFailed,
    Hello,
    ModelLoading,
    ModelReady,
    Notice,
    PlainStep,
    PolicyChanged,
    PrefillProgress,
    Refused,
    RoundVerified,
    StatsSnapshot,
    Tokenized,
    TokensCommitted,
    TurnFinished,
    TurnStarted,
)
from ds4chat.protocol.types import (
    PROTOCOL_VERSION,
    FinishReason,
    SpecState,
    Usage,
)
from ds4chat.tui import receipt
from ds4chat.tui.controller import ChatController, Phase, Progress
from ds4chat.tui.log_tail import Failure, log_end
from ds4chat.tui.problems import brief, sentence
from ds4chat.tui.state import Turn

_STOPPED = "The engine stopped here. What was written is kept."
MAX_PROBLEMS = 4  # of a refused file that are listed
_BROKEN = (FinishReason.ERROR, FinishReason.NONFINITE)


class EngineReports:
    """One method for each event of the protocol."""

    def __init__(self, chat: ChatController) -> None:
        self._chat = chat
        self._view = chat.view
        self._link = chat.link
        self._load_request = 0
        self._pid: int | None = None  # of the engine process

    def hello(self, event: Hello) -> None:
        """The engine runs: load the model."""
        self._pid = event.pid
        if self._chat.phase is not Phase.STARTING:
            return
        if event.protocol_version != PROTOCOL_VERSION:
            self._chat.phase = Phase.DEAD
            self._chat.say(
                f"The engine speaks protocol {event.protocol_version}, this program "
                f"{PROTOCOL_VERSION}: install ds4chat again.",
                "error",
            )
            return
        self._chat.phase = Phase.LOADING
        self._chat.support_trouble = ""
        self._load_request = self._chat.request()
        self._link.send(
            replace(self._chat.load, request_id=self._load_request, spec=self._chat.spec)
        )
        self._view.show_now()

    def done(self, event: Done) -> None:
        """A command was carried out."""
        self._chat.submits.pop(event.request_id, None)
        self._chat.steering.discard(event.request_id)

    def refused(self, event: Refused) -> None:
        """A command was not carried out: give a refused question back."""
        turn_id = self._chat.submits.pop(event.request_id, None)
        if event.request_id == self._load_request:
            self._load_refused(event.message, event.hint)
            return
        if event.request_id in self._chat.steering:
            self._chat.steering.discard(event.request_id)
            return  # the reply ended before the command came: nothing is left to steer
        self._chat.say(sentence(event.message, event.hint), "error")
        active = self._chat.conversation.active
        if turn_id is not None and active is not None and active.turn_id == turn_id:
            question = self._chat.conversation.take_back()
            self._chat.keeper.rewound(turn_id)
            self._view.fill_prompt(question or "")
            self._chat.turn_over(is_natural=False)
        self._view.show_now()

    def tokenized(self, event: Tokenized) -> None:
        """Nothing here asks for tokens; the answer needs no showing."""

    def model_loading(self, event: ModelLoading) -> None:
        """Loading goes on."""
        if self._chat.phase is not Phase.LOADING:
            return
        self._chat.progress.loading = event
        self._view.show_soon()

    def model_ready(self, event: ModelReady) -> None:
        """The model can answer: send what waits."""
        if self._chat.phase is not Phase.LOADING:
            return  # of an engine that was stopped meanwhile
        is_first, failure = self._chat.info is None, self._chat.failure
        self._chat.failure = None
        self._chat.phase = Phase.READY
        self._chat.info = event.info
        self._chat.progress = Progress()
        self._chat.figures.block_size = event.info.block_size
        if event.info.block_size == 0:
            self._chat.figures.state = SpecState.UNAVAILABLE
            trouble = self._chat.support_trouble
            why = self._chat.load.support_note or "no support file"
            self._chat.figures.reason = (
                "the support file does not fit, /why has more" if trouble else why
            )
        else:
            self._chat.figures.state = (
                SpecState.ON if self._chat.spec.enabled else SpecState.OFF
            )
            self._chat.figures.reason = ""
        for note in event.info.notes:
            self._chat.say(note)
        if failure is not None:
            self._chat.say(f"{failure.message} It runs again; the conversation goes on.")
        elif not is_first:
            self._chat.say("The engine runs again; the conversation goes on.")
        self._chat.send_next()
        self._view.show_now()

    def engine_failed(self, event: EngineFailed) -> None:
        """The engine is gone, or the model cannot be used. The conversation stays."""
        if self._chat.phase in (Phase.STOPPED, Phase.DEAD):
            return
        if not event.fatal:
            self._load_refused(event.message, event.hint)
            return
        self._chat.phase = Phase.DEAD
        self._chat.submits.clear()
        turn = self._chat.conversation.break_off()
        if turn is not None:
            self._view.transcript.finish_reply(
                turn.turn_id, f"broken off · {len(turn.ids)} tok kept"
            )
            self._chat.figures.finish_turn(None)
        log_path = event.log_path or self._chat.log_path
        self._chat.failure = Failure(
            message=sentence(event.message, ""),
            hint=sentence("", event.hint),
            log_path=log_path,
            log_end=tuple(log_end(log_path, self._pid, event.message)) if log_path else (),
        )
        self._chat.say(_STOPPED, "error")  # the box above the prompt has the facts
        self._chat.turn_over(is_natural=False)
        self._view.show_now()

    def turn_started(self, event: TurnStarted) -> None:
        """The reply begins."""
        turn = self._chat.conversation.active
        if turn is None or turn.turn_id != event.turn_id:
            return
        self._chat.progress = Progress(n_cached=event.n_cached)
        self._chat.n_context = event.n_prompt
        self._view.transcript.begin_reply(event.turn_id)
        self._view.show_now()

    def prefill_progress(self, event: PrefillProgress) -> None:
        """The prompt is being read."""
        self._chat.progress.prefill = event
        self._view.show_soon()

    def tokens_committed(self, event: TokensCommitted) -> None:
        """New text."""
        if not self._chat.conversation.add_spans(event.turn_id, event.channel, event.spans):
            return
        self._chat.channel = event.channel
        self._chat.progress.prefill = None
        self._chat.n_context += len(event.spans)
        self._view.transcript.append(event.turn_id, event.channel, event.spans, event.at_s)
        self._view.show_soon()

    def round_verified(self, event: RoundVerified) -> None:
        """A round, for the panel."""
        self._chat.figures.add_round(event)
        turn = self._chat.conversation.active
        if turn is not None and turn.turn_id == event.turn_id:
            turn.rounds[event.round] = event
        self._view.show_soon()

    def plain_step(self, event: PlainStep) -> None:
        """A plain step, for the panel."""
        self._chat.figures.add_plain(event)

    def policy_changed(self, event: PolicyChanged) -> None:
        """Speculation changed its state: visibly, with the reason."""
        self._chat.figures.set_policy(event)
        self._view.show_now()

    def stats_snapshot(self, event: StatsSnapshot) -> None:
        """Running figures."""
        self._chat.tps = event.tps
        self._view.show_soon()

    def notice(self, event: Notice) -> None:
        """Something to know; a support file's list of mismatches is kept for /why."""
        if self._chat.phase is Phase.LOADING and event.turn_id is None:
            self._chat.support_trouble = sentence(event.message, event.hint)
            more = "/why has all of it." if "\n" in event.message else event.hint
            self._chat.say(sentence(brief(event.message), more), event.level)
            return
        self._chat.say(sentence(event.message, event.hint), event.level)

    def turn_finished(self, event: TurnFinished) -> None:
        """The reply ended: keep its ids and show what it cost."""
        turn = self._chat.conversation.finish(
            event.turn_id, event.reason, event.usage, event.ids
        )
        if turn is None:
            return
        self._finish(turn, event.usage, event.reason)
        is_told_later = event.reason is FinishReason.ERROR and not self._link.is_alive
        if event.message and not is_told_later:  # by the EngineFailed of a dead engine
            level = "error" if event.reason in _BROKEN else "warning"
            self._chat.say(sentence(event.message, event.hint), level)
        self._view.reply_ended(event.usage.prefill_s + event.usage.decode_s)
        self._chat.turn_over(
            is_natural=event.reason in (FinishReason.STOP, FinishReason.LENGTH)
        )
        self._view.show_now()

    def _finish(self, turn: Turn, usage: Usage, reason: FinishReason) -> None:
        self._chat.n_context = usage.n_context or self._chat.n_context
        if usage.decode_s > 0:
            self._chat.tps = usage.n_tokens / usage.decode_s
        self._chat.figures.finish_turn(usage)
        self._view.transcript.finish_reply(turn.turn_id, receipt.receipt(usage, reason))

    def _load_refused(self, message: str, hint: str) -> None:
        if self._chat.phase is not Phase.LOADING:
            return  # said already: a failure comes as an answer and as an event
        self._chat.phase = Phase.REFUSED
        self._chat.say(refused_load(self._chat.load.model_path, message, hint), "error")
        self._view.show_now()


def refused_load(path: str, message: str, hint: str) -> str:
    """Why no model is loaded, which file it is about, and what can be done next."""
    if path not in message:
        message = f"{path}: {message}"
    is_long = message.count("\n") > MAX_PROBLEMS
    lines = [
        sentence(brief(message) if is_long else message, hint),
        "What next:",
        "  /model FILE opens another file; F8 tries this one again; Ctrl+Q quits",
    ]
    if path:
        lines.append(f"  in a shell: ds4chat inspect {shlex.quote(path)} checks the file")
    lines.append("  in a shell: ds4chat doctor checks the machine and says where files are")
    return "\n".join(lines)
