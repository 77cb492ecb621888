"""From a chat to a race: what is raced, and whether it can be."""

from __future__ import annotations

from ds4chat.errors import SettingsError
from ds4chat.protocol.types import Message, ModelInfo, Role, ThinkMode
from ds4chat.tui.controller import ChatController, Phase
from ds4chat.tui.race.ask import (
    DEFAULT_MAX_TOKENS,
    OWN_LABEL,
    RaceAsk,
    check_preset,
    conversation,
    prompt_of,
)
from ds4chat.tui.race.card import SpeedCard
from ds4chat.tui.race.desk import RaceDesk
from ds4chat.tui.race.presets import PRESETS
from ds4chat.tui.race.race import Race

LAST_LABEL = "last prompt"


def begin(chat: ChatController, desk: RaceDesk, words: str) -> Race:
    """Start a race in the engine of a chat.

    Args:
        chat: its settings, and its last prompt with what came before it.
        desk: hears of the new race.
        words: a preset's name, a prompt, or nothing for the last prompt.

    Raises:
        SettingsError: there is nothing to race, or the engine is not free.
    """
    info = _check(chat, desk)
    race = Race(chat.link.send, chat.request, ask_of(chat, words))
    desk.add(race, info, chat.load.support_path)
    race.start()
    return race


def card_of(desk: RaceDesk) -> SpeedCard:
    """The card of the last race. Raises SettingsError while there is none."""
    race = desk.last
    if race is None:
        raise SettingsError("there was no race yet", "F5 races the last prompt.")
    if not race.is_over:
        raise SettingsError("the race still runs", "Its card comes when it is over.")
    return desk.card(race)


def ask_of(chat: ChatController, words: str) -> RaceAsk:
    """What is raced. Presets do not reason: their labels are about the answer.

    Raises:
        SettingsError: nothing was asked yet, or a preset's name is mistyped.
    """
    if words.strip():
        check_preset(words)
        label, prompt = prompt_of(words)
        messages = conversation(chat.conversation.system, prompt)
    else:
        label, messages = LAST_LABEL, _last_question(chat)
    is_preset = label not in (OWN_LABEL, LAST_LABEL)
    return RaceAsk(
        label=label,
        messages=messages,
        think=ThinkMode.OFF if is_preset else chat.think,
        sampling=chat.sampling,
        spec=chat.spec,
        max_tokens=chat.max_tokens or DEFAULT_MAX_TOKENS,
    )


def _last_question(chat: ChatController) -> tuple[Message, ...]:
    messages = list(chat.conversation.messages())
    while messages and messages[-1].role is not Role.USER:
        messages.pop()
    if not messages:
        raise SettingsError(
            "there is no prompt to race yet",
            f"Ask something, or name a preset: /race {'|'.join(PRESETS)}",
        )
    return tuple(messages)


def _check(chat: ChatController, desk: RaceDesk) -> ModelInfo:
    """What is raced on. Raises SettingsError: no race can begin."""
    if chat.phase is not Phase.READY or chat.info is None:
        raise SettingsError("no model is ready to race", "Wait until it is loaded.")
    if chat.is_busy:
        raise SettingsError("a reply is running", "Esc stops it; then F5 races.")
    if chat.info.block_size == 0:
        raise SettingsError(
            "there is no support file, so there is nothing to race against plain decoding",
            "Name one with --support FILE.",
        )
    if desk.last is not None and not desk.last.is_over:
        raise SettingsError("the last race is still ending", "Try again.")
    return chat.info
