"""The conversation as the screen keeps it. Pure: no widget, no engine, no clock.

The engine remembers nothing but its KV cache, so this is where a conversation lives; a stopped
reply or a dead engine loses none of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ds4chat.protocol.events import RoundVerified
from ds4chat.protocol.types import (
    Channel,
    FinishReason,
    Message,
    Role,
    Span,
    ThinkMode,
    Usage,
)


@dataclass(slots=True, kw_only=True)
class Turn:
    """A question and what was answered so far. `reason` is None while the reply runs.

    `rounds` holds the reply's rounds by number: drafts, confidences, outcome and times.
    """

    turn_id: int
    question: str
    think: ThinkMode
    answer: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    reason: FinishReason | None = None
    usage: Usage | None = None
    rounds: dict[int, RoundVerified] = field(default_factory=dict)

    @property
    def answer_text(self) -> str:
        """The visible answer."""
        return "".join(self.answer)

    @property
    def reasoning_text(self) -> str:
        """The reasoning."""
        return "".join(self.reasoning)

    def messages(self) -> list[Message]:
        """The user's message, and the reply if there is any of it."""
        found = [Message(role=Role.USER, text=self.question)]
        if self.ids or self.answer:
            found.append(
                Message(
                    role=Role.ASSISTANT,
                    text=self.answer_text,
                    reasoning=self.reasoning_text,
                    ids=tuple(self.ids),
                    think=self.think,
                )
            )
        return found


@dataclass(slots=True, kw_only=True)
class Conversation:
    """All turns in order, the one that runs, and the messages that wait.

    The first `n_dropped` turns are kept but not sent (`/compact`). What the engine holds begins
    without the first `n_dropped_held`.
    """

    system: str = ""
    turns: list[Turn] = field(default_factory=list)
    queue: list[str] = field(default_factory=list)
    n_turns_ever: int = 0
    n_dropped: int = 0
    n_dropped_held: int = 0

    @property
    def active(self) -> Turn | None:
        """The turn whose reply runs."""
        last = self.turns[-1] if self.turns else None
        return last if last is not None and last.reason is None else None

    @property
    def last_answered(self) -> Turn | None:
        """The newest turn with an answer."""
        return next((turn for turn in reversed(self.turns) if turn.answer_text), None)

    @property
    def last_finished(self) -> Turn | None:
        """The newest turn whose figures are known."""
        return next((turn for turn in reversed(self.turns) if turn.usage is not None), None)

    @property
    def n_context(self) -> int:
        """Tokens of the context behind the newest turn whose figures are known; 0: none."""
        last = self.last_finished
        return last.usage.n_context if last is not None and last.usage is not None else 0

    def reading_s(self, n_tokens: int) -> float | None:
        """About how long reading so many tokens takes; None: nothing was read yet.

        Measured where most was read: a short prompt takes longer for each token.
        """
        usages = (turn.usage for turn in self.turns if turn.usage is not None)
        found = [(u.n_prompt - u.n_cached, u.prefill_s) for u in usages if u.prefill_s > 0]
        n_read, seconds = max(found, default=(0, 0.0))
        return seconds / n_read * n_tokens if n_read > 0 else None

    def ask(self, question: str, think: ThinkMode) -> Turn:
        """Begin a turn.

        Raises:
            ValueError: a reply still runs.
        """
        if self.active is not None:
            raise ValueError("a reply is running")
        self.n_dropped = min(self.n_dropped, len(self.turns))  # some may have been taken back
        self.n_dropped_held = self.n_dropped
        self.n_turns_ever += 1
        turn = Turn(turn_id=self.n_turns_ever, question=question, think=think)
        self.turns.append(turn)
        return turn

    def messages(self) -> tuple[Message, ...]:
        """What to send: the system text and every turn not dropped, partial replies too."""
        head = [Message(role=Role.SYSTEM, text=self.system)] if self.system else []
        sent = self.turns[self.n_dropped :]
        return (*head, *(message for turn in sent for message in turn.messages()))

    def add_spans(self, turn_id: int, channel: Channel, spans: Iterable[Span]) -> bool:
        """Append committed tokens; False if the turn is not the one that runs."""
        turn = self.active
        if turn is None or turn.turn_id != turn_id:
            return False
        texts = turn.reasoning if channel is Channel.THINKING else turn.answer
        for span in spans:
            texts.append(span.text)
            turn.ids.append(span.token.id)
        return True

    def finish(
        self, turn_id: int, reason: FinishReason, usage: Usage, ids: tuple[int, ...]
    ) -> Turn | None:
        """End the running turn; the engine's ids are the last word. None: not that turn."""
        turn = self.active
        if turn is None or turn.turn_id != turn_id:
            return None
        turn.reason, turn.usage = reason, usage
        if ids:
            turn.ids = list(ids)
        return turn

    def break_off(self) -> Turn | None:
        """End the running turn because the engine is gone; what was written stays."""
        turn = self.active
        if turn is not None:
            turn.reason = FinishReason.ERROR
        return turn

    def find(self, turn_id: int) -> Turn | None:
        """The turn of that id."""
        return next((turn for turn in self.turns if turn.turn_id == turn_id), None)

    def n_after(self, turn_id: int) -> int:
        """How many turns follow a turn."""
        return sum(turn.turn_id > turn_id for turn in self.turns)

    def rewind(self, turn_id: int) -> str | None:
        """Remove a turn and all that follow; return its question. None: there is none."""
        turn = self.find(turn_id)
        if turn is None:
            return None
        del self.turns[self.turns.index(turn) :]
        return turn.question

    def take_back(self) -> str | None:
        """Remove the newest turn and return its question (undo, retry, a refused message)."""
        return self.turns.pop().question if self.turns else None

    def clear(self) -> None:
        """Forget the turns and what waits; the system text stays."""
        self.turns.clear()
        self.n_turns_ever = 0  # each session counts from 1
        self.n_dropped = self.n_dropped_held = 0
        self.queue.clear()
