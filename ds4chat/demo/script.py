"""What a scripted engine says and how fast: values only, so that tests can write their own."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from ds4chat.protocol.types import Channel, Message, ModelInfo, Role, ThinkMode

END_THINK = "</think>"

_PIECE = re.compile(r" ?[^\W_]{1,5}|\n+| +|.", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Words of a failure: what happened and what to do next."""

    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One scripted reply.

    A step is one round or one plain step; steps of a reply count from 1.

    Attributes:
        answer: the text, Markdown.
        thinking: reasoning, produced only when the turn asks for it.
        triggers: words that pick this reply when the user's message contains one.
        accepts: accepted drafts of each round, repeated from the start when used up.
        holds: after these steps the engine waits until any command arrives, or came since the
            step was told; 0 is before the first step, with the prompt read.
        crash_after: the engine dies after this step, in its first life only.
        nonfinite_after: the turn ends after this step as if the model had computed NaN.
        refusal: the turn is refused with these words.
        warning: a notice sent after the first step.
    """

    answer: str
    thinking: str = ""
    triggers: tuple[str, ...] = ()
    accepts: tuple[int, ...] = (5, 3, 4, 5, 2, 5, 1, 4)
    holds: tuple[int, ...] = ()
    crash_after: int | None = None
    nonfinite_after: int | None = None
    refusal: Failure | None = None
    warning: Failure | None = None


def default_info(*, ctx: int = 32_768) -> ModelInfo:
    """The identity under which the scripted engine answers: plainly not a model."""
    return ModelInfo(
        name="scripted",
        path="",
        quant="none",
        n_layers=0,
        n_vocab=129_280,
        ctx=ctx,
        ctx_trained=ctx,
        support_name="scripted drafts",
        block_size=5,
        backend="script",
        device="no device",
        activation_dtype="none",
        weight_bytes=0,
        load_s=0.0,
        kv_fp8=True,
        is_exact=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Everything that a scripted engine does. Times in seconds, sizes in bytes.

    A reply is chosen by the last user message: the first reply with a matching trigger, else
    the replies in turn. The choice depends on the conversation only, so that a restarted engine
    goes on as the first would have. With `is_load_held` the first load waits, before it ends,
    until any command arrives.
    """

    replies: tuple[Reply, ...]
    info: ModelInfo = field(default_factory=default_info)
    load_stages: tuple[tuple[str, int], ...] = (("reading the script", 4_096),)
    load_tensors: int = 0  # in each stage; 0: not said
    load_failure: Failure | None = None
    is_load_held: bool = False
    draft_s: float = 0.0042
    verify_s: float = 0.0300
    plain_step_s: float = 0.0180
    prefill_tps: float = 900.0

    def choose(self, messages: Sequence[Message]) -> Reply:
        """Return the reply to a conversation that ends with a user message."""
        asked = messages[-1].text.casefold()
        for reply in self.replies:
            if any(trigger in asked for trigger in reply.triggers):
                return reply
        in_turn = [reply for reply in self.replies if not reply.triggers] or list(self.replies)
        n_user = sum(message.role is Role.USER for message in messages)
        return in_turn[(n_user - 1) % len(in_turn)]

    def token_id(self, data: bytes) -> int:
        """A stable made-up token id for some bytes."""
        return zlib.crc32(data) % self.info.n_vocab


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One token to come. `text` is empty where it only begins a character, or is not shown."""

    id: int
    text: str
    channel: Channel
    is_forced: bool = False


def split_text(text: str) -> list[str]:
    """Split text into pieces of about four characters; joined they give the text."""
    return _PIECE.findall(text)


def pieces_of(script: Script, text: str, channel: Channel) -> list[Piece]:
    """Tokens of a text. A character beyond the BMP takes two tokens, as real ones do."""
    pieces: list[Piece] = []
    for part in split_text(text):
        data = part.encode("utf-8", "surrogatepass")
        if len(part) == 1 and len(data) == 4:
            pieces.append(Piece(id=script.token_id(data[:2]), text="", channel=channel))
        pieces.append(Piece(id=script.token_id(data), text=part, channel=channel))
    return pieces


def end_think_piece(script: Script, *, is_forced: bool = False) -> Piece:
    """The marker that ends the reasoning; it counts and is not shown."""
    marker = script.token_id(END_THINK.encode())
    return Piece(id=marker, text="", channel=Channel.THINKING, is_forced=is_forced)


def plan(script: Script, reply: Reply, think: ThinkMode) -> list[Piece]:
    """All tokens of a reply, in order."""
    pieces: list[Piece] = []
    if think is not ThinkMode.OFF and reply.thinking:
        pieces += pieces_of(script, reply.thinking, Channel.THINKING)
        pieces.append(end_think_piece(script))
    return pieces + pieces_of(script, reply.answer, Channel.ANSWER)


def prompt_ids(script: Script, messages: Sequence[Message], think: ThinkMode) -> list[int]:
    """Token ids of a conversation and the opener of the reply: a marker and text a message.

    A reply with `ids` is taken as it was generated, so that what the engine holds is reused.
    """

    def marker(role: Role, mode: ThinkMode) -> int:
        return script.token_id(f"<{role}:{mode}>".encode())

    ids: list[int] = []
    for message in messages:
        ids.append(marker(message.role, message.think))
        ids += message.ids or [
            piece.id for piece in pieces_of(script, message.text, Channel.ANSWER)
        ]
    return [*ids, marker(Role.ASSISTANT, think)]


def common(held: Sequence[int], prompt: Sequence[int]) -> int:
    """How many ids two lists begin with in common."""
    for n, (a, b) in enumerate(zip(held, prompt, strict=False)):
        if a != b:
            return n
    return min(len(held), len(prompt))
