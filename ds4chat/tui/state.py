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

_CHARS_PER_TOKEN = 3
_MARKERS = 4  # tokens around the texts of a turn


@dataclass(slots=True, kw_only=True)
class Turn:
    """A question and what was answered so far. `reason` is None while the reply runs.

    `rounds` holds the reply's rounds by number: drafts, confidences, outcome and times. So many
    turns as `n_dropped` were not sent with the question.
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
    n_dropped: int = 0

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
    without the first `n_dropped_held`. `keeps_reasoning`: later prompts have it.
    """

    system: str = ""
    turns: list[Turn] = field(default_factory=list)
    queue: list[str] = field(default_factory=list)
    n_turns_ever: int = 0
    keeps_reasoning: bool = False
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
        """Tokens of the context behind the newest turn whose figures are known; 0: none.

        Where other turns are sent now than with that one, about so many.
        """
        last = self.last_finished
        known = last.usage.n_context if last is not None and last.usage is not None else 0
        if last is None or not known:
            return 0
        sizes = self.sizes()
        gone = sum(sizes[last.n_dropped : self.n_dropped])
        back = sum(sizes[self.n_dropped : last.n_dropped])
        return max(0, known - gone + back)

    def sizes(self) -> list[int]:
        """About how many tokens each turn takes in later prompts.

        Known from how the context grew; of the first turn that was sent only the reply's.
        """
        found: list[int] = []
        before: Turn | None = None
        for turn in self.turns:
            found.append(_size(turn, before, keeps_reasoning=self.keeps_reasoning))
            before = turn
        return found

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
        turn = Turn(
            turn_id=self.n_turns_ever,
            question=question,
            think=think,
            n_dropped=self.n_dropped,
        )
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


def turn_size(turn: Turn, *, keeps_reasoning: bool) -> int:
    """About how many tokens a turn takes in later prompts; a reply's are known."""
    return _n_reply(turn, keeps_reasoning) + len(turn.question) // _CHARS_PER_TOKEN + _MARKERS


def _n_reply(turn: Turn, keeps_reasoning: bool) -> int:
    is_cut = turn.usage is not None and not keeps_reasoning
    return len(turn.ids) - (turn.usage.n_thinking if is_cut and turn.usage is not None else 0)


def _size(turn: Turn, before: Turn | None, *, keeps_reasoning: bool) -> int:
    """By how much a turn made the context grow, if that is known, else `turn_size`."""
    about = turn_size(turn, keeps_reasoning=keeps_reasoning)
    behind = _n_behind(turn, keeps_reasoning)
    if not behind:
        return about
    start = _n_behind(before, keeps_reasoning) if before is not None else 0
    if before is None or not start or before.n_dropped != turn.n_dropped:
        return min(about, behind)
    grown = behind - start
    return grown if grown > _n_reply(turn, keeps_reasoning) else about


def _n_behind(turn: Turn, keeps_reasoning: bool) -> int:
    """Tokens of the context behind a turn, as the next prompt has it; 0: not known."""
    if turn.usage is None or not turn.usage.n_context:
        return 0
    return turn.usage.n_context - (0 if keeps_reasoning else turn.usage.n_thinking)
