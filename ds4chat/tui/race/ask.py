"""What is raced: one conversation, asked in two lanes with the same settings."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ds4chat.errors import SettingsError
from ds4chat.protocol.commands import Submit
from ds4chat.protocol.types import Message, Role, Sampling, SpecOptions, ThinkMode
from ds4chat.tui.race.presets import PRESETS

DEFAULT_MAX_TOKENS = 256
OWN_LABEL = "own prompt"


class Side(StrEnum):
    """The two lanes; the value is what the screen calls them."""

    PLAIN = "plain"
    SPEC = "speculative"


LANES = {Side.PLAIN: 1, Side.SPEC: 2}
"""The engine's lanes; lane 0 is the chat's, which a race leaves as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceAsk:
    """One race. `label` says where the prompt comes from, with the case of a preset."""

    label: str
    messages: tuple[Message, ...]
    think: ThinkMode = ThinkMode.OFF
    sampling: Sampling = field(default_factory=Sampling)
    spec: SpecOptions = field(default_factory=SpecOptions)
    max_tokens: int = DEFAULT_MAX_TOKENS

    def submit(self, side: Side, *, request_id: int, turn_id: int) -> Submit:
        """The request of one lane: nothing differs but whether it speculates.

        The plain lane keeps no rows for the drafter: plain is raced on its fastest path.
        """
        return Submit(
            request_id=request_id,
            turn_id=turn_id,
            messages=self.messages,
            lane=LANES[side],
            think=self.think,
            sampling=self.sampling,
            spec=replace(self.spec, enabled=side is Side.SPEC),
            drafts=side is Side.SPEC,
            max_tokens=self.max_tokens,
        )

    @property
    def prompt(self) -> str:
        """The last message."""
        return self.messages[-1].text


def prompt_of(words: str) -> tuple[str, str]:
    """Label and prompt for what was typed: a preset's name, or a prompt."""
    preset = PRESETS.get(words.strip().casefold())
    return (preset.label, preset.prompt) if preset is not None else (OWN_LABEL, words)


def check_preset(words: str) -> None:
    """Refuse a single word that is nearly a preset's name: it is meant to be one.

    Raises:
        SettingsError: with the name, and how to race the word all the same.
    """
    word = words.strip().casefold()
    if word in PRESETS or not word.isalpha():
        return
    near = difflib.get_close_matches(word, PRESETS, n=1, cutoff=0.7)
    if near:
        raise SettingsError(
            f"there is no preset {word!r:.60}: did you mean {near[0]}?",
            f"As a prompt: {word[:60]!r} with a full stop behind it.",
        )


def conversation(system: str, prompt: str) -> tuple[Message, ...]:
    """A conversation of one question."""
    head = (Message(role=Role.SYSTEM, text=system),) if system else ()
    return (*head, Message(role=Role.USER, text=prompt))
