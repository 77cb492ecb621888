"""A conversation to token ids, as the model was trained to read it.

With B, E, U, A for the start, end, user and assistant markers, T for `<think>` and /T for
`</think>`, and nothing between markers and texts:

    B [effort prefix] system  U user  A T|/T reply E  U user  A T|/T

What a person typed never becomes a marker. Replies keep exactly the tokens that were generated,
so that the KV cache of a conversation stays a prefix of its next prompt.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from ds4chat.errors import SettingsError
from ds4chat.protocol.types import Message, Role, ThinkMode
from ds4chat.text.prefixes import EffortPrefixes
from ds4chat.text.tokenizer import Tokenizer

_THINK_WORDS = {**{mode.value: mode for mode in ThinkMode}, "on": ThinkMode.HIGH}
_KEYS = ("role", "content", "reasoning")


def render(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    think: ThinkMode,
    *,
    effort: EffortPrefixes,
    keep_reasoning: bool = True,
) -> list[int]:
    """The ids of a conversation, the opener of the next reply included.

    Args:
        tokenizer: the model's.
        messages: system messages first, then turns; the last one is the user's.
        think: how the next reply thinks; its effort prefix stands at the very beginning.
        effort: the model's effort prefixes.
        keep_reasoning: False renders earlier replies without their reasoning, which changes
            tokens that the KV cache may hold.

    Raises:
        SettingsError: the order of roles makes no conversation, or the model cannot think.
        ModelFileError: ids of a message are outside the vocabulary.
    """
    check_order(messages)
    specials = tokenizer.specials
    if think is not ThinkMode.OFF and not specials.has_thinking:
        raise SettingsError(
            f"thinking is {think.value!r}, but this model has no think markers",
            "switch thinking off (--nothink)",
        )
    system = "\n\n".join(m.text for m in messages if m.role is Role.SYSTEM and m.text)
    ids = [specials.bos, *tokenizer.encode_plain(effort.text(think) + system)]
    for message in messages:
        if message.role is Role.USER:
            ids += [specials.user, *tokenizer.encode_plain(message.text)]
        elif message.role is Role.ASSISTANT:
            ids += _reply(tokenizer, message, keep_reasoning=keep_reasoning)
    return [*ids, specials.assistant, *opener(tokenizer, think)]


def opener(tokenizer: Tokenizer, think: ThinkMode) -> list[int]:
    """The marker after the assistant marker; nothing if the vocabulary has no think markers."""
    specials = tokenizer.specials
    marker = specials.think_close if think is ThinkMode.OFF else specials.think_open
    return [marker] if specials.has_thinking and marker is not None else []


def check_order(messages: Sequence[Message]) -> None:
    """Refuse what is no conversation.

    System messages stand first, a reply follows a user message, the last message is the
    user's. Two user messages in a row are allowed: the first got no reply.

    Raises:
        SettingsError: with the place (from 1) of the first message that is wrong.
    """
    before = Role.SYSTEM
    for place, message in enumerate(messages, start=1):
        if message.role is Role.SYSTEM and before is not Role.SYSTEM:
            raise SettingsError(
                f"message {place} has the role 'system' but follows other messages",
                "put system messages first",
            )
        if message.role is Role.ASSISTANT and before is not Role.USER:
            raise SettingsError(
                f"message {place} has the role 'assistant' but follows no user message",
                "a reply stands directly after the message that it answers",
            )
        before = message.role
    if not messages or before is not Role.USER:
        last = (
            f"the last of {len(messages)} is '{before.value}'" if messages else "there is none"
        )
        raise SettingsError(
            f"a conversation must end with a user message; {last}", "add the question to answer"
        )


def messages_from(values: Sequence[Message | Mapping[str, str]]) -> list[Message]:
    """Messages from `{"role", "content"}` mappings (or messages, kept as they are).

    A reply may also have `reasoning`.

    Raises:
        SettingsError: a role or key is unknown, a value is no text, or the order is wrong.
    """
    messages = [
        value if isinstance(value, Message) else _message(value, place)
        for place, value in enumerate(values, start=1)
    ]
    check_order(messages)
    return messages


def parse_think(value: object, default: ThinkMode = ThinkMode.OFF) -> ThinkMode:
    """A thinking mode from None (the default), a bool (True = high), a word or a mode.

    Raises:
        SettingsError: it is none of these.
    """
    if value is None:
        return default
    if isinstance(value, bool):
        return ThinkMode.HIGH if value else ThinkMode.OFF
    mode = _THINK_WORDS.get(value.strip().lower()) if isinstance(value, str) else None
    if mode is None:
        raise SettingsError(
            f"thinking mode {value!r} is not known", f"use one of {', '.join(_THINK_WORDS)}"
        )
    return mode


def _reply(tokenizer: Tokenizer, message: Message, *, keep_reasoning: bool) -> list[int]:
    """`A T|/T reply E` of one earlier reply."""
    think = message.think if keep_reasoning else ThinkMode.OFF
    body = _exact(tokenizer, message) if keep_reasoning else _answer(tokenizer, message)
    specials = tokenizer.specials
    return [specials.assistant, *opener(tokenizer, think), *body, specials.eos]


def _exact(tokenizer: Tokenizer, message: Message) -> list[int]:
    """The tokens of a reply after its opener, as generated if they are known."""
    if message.ids:
        return _checked(tokenizer, message.ids)
    text = tokenizer.encode_plain(message.text)
    close = tokenizer.specials.think_close
    if message.think is ThinkMode.OFF or not tokenizer.specials.has_thinking or close is None:
        return text
    return [*tokenizer.encode_plain(message.reasoning), close, *text]


def _answer(tokenizer: Tokenizer, message: Message) -> list[int]:
    """The tokens of a reply's answer alone."""
    if not message.ids:
        return tokenizer.encode_plain(message.text)
    ids = _checked(tokenizer, message.ids)
    if message.think is ThinkMode.OFF:
        return ids
    close = tokenizer.specials.think_close
    return ids[ids.index(close) + 1 :] if close in ids else []


def _checked(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """The ids, each in the vocabulary."""
    for token_id in ids:
        if not 0 <= token_id < tokenizer.n_vocab:
            tokenizer.token_bytes(token_id)  # raises, with the words for it
    return list(ids)


def _message(value: Mapping[str, str], place: int) -> Message:
    """One mapping, checked. `place` counts from 1."""
    if not isinstance(value, Mapping):
        raise SettingsError(f"message {place} is a {type(value).__name__}; wanted: a mapping")
    for key in value:
        if key not in _KEYS:
            near = difflib.get_close_matches(str(key), _KEYS, n=1, cutoff=0.0)[0]
            raise SettingsError(
                f"message {place} has the unknown key {key!r}", f"did you mean {near!r}?"
            )
    role, text = value.get("role"), value.get("content")
    reasoning = value.get("reasoning", "")
    roles = [r.value for r in Role]
    if role not in roles:
        raise SettingsError(
            f"message {place} has the role {role!r}", f"use one of {', '.join(roles)}"
        )
    if not isinstance(text, str) or not isinstance(reasoning, str):
        raise SettingsError(f"message {place}: 'content' and 'reasoning' must be texts")
    if reasoning and role != Role.ASSISTANT:
        raise SettingsError(f"message {place}: only a reply can have 'reasoning'")
    think = ThinkMode.HIGH if reasoning else ThinkMode.OFF
    return Message(role=Role(role), text=text, reasoning=reasoning, think=think)
