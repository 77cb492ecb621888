"""One training conversation, and how topics and phrasings are held out."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

ALWAYS_HELD = "held:"
"""Prefix of a skeleton or topic that is for the evaluation whatever its hash."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A question, the optional thinking, and the answer."""

    user: str
    answer: str
    think: str | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A conversation. `skeleton` names the phrasing, `topic` the content."""

    kind: str
    skeleton: str
    topic: str
    turns: tuple[Turn, ...]
    want: str | None = None  # the exact answer that an evaluation looks for

    @property
    def is_held(self) -> bool:
        """Kept out of training: 4 % of the topics and 4 % of the phrasings, by hash."""
        if self.skeleton.startswith(ALWAYS_HELD) or self.topic.startswith(ALWAYS_HELD):
            return True
        is_held_topic = self.topic not in ("", "words") and held("topic:" + self.topic)
        return is_held_topic or held("skeleton:" + self.skeleton)


def digest(text: str) -> int:
    """Stable 32-bit hash."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)


def held(key: str) -> bool:
    """Whether a topic or phrasing belongs to the evaluation only."""
    return digest(key) % 25 == 0


_OPENERS = (
    "Please", "Hey,", "Hi!", "Hello!", "Quick question:", "Okay,", "Can you help me?",
    "One more thing:", "Question:", "Hi there.", "Now", "Well,", "I need help.", "So,",
)  # fmt: skip


def casual(rng: random.Random, text: str) -> str:
    """Type the same question as people do: without capitals or full stop, with an opener."""
    roll = rng.random()
    if roll < 0.45:
        return text
    if roll < 0.6 and text[-1] in ".?!":
        text = text[:-1]
    if roll > 0.8:
        opener = rng.choice(_OPENERS)
        joined = opener[-1] in ",:" or opener[-1].isalpha()
        return f"{opener} {lower_first(text) if joined else text}"
    return lower_first(text)


def lower_first(text: str) -> str:
    """Lower the first letter, unless the word is `I` or an abbreviation."""
    head = text.split(" ", 1)[0]
    if head in ("I", "I'm", "I've") or head[1:2].isupper():
        return text
    return text[0].lower() + text[1:]
