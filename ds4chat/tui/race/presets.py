"""Prompts to race on, each labelled with how well it suits speculation."""

from __future__ import annotations

from dataclasses import dataclass

BEST, TYPICAL, WORST = "best case", "typical", "worst case"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One prompt. `case` says honestly what it shows, `why` the reason."""

    name: str
    case: str
    why: str
    prompt: str

    @property
    def label(self) -> str:
        """For headings and cards: `code (typical)`."""
        return f"{self.name} ({self.case})"


_ALL = (
    Preset(
        name="code",
        case=TYPICAL,
        why="names and indentation repeat, ideas do not",
        prompt="Write a Python function that merges two sorted lists. Then write a few tests.",
    ),
    Preset(
        name="list",
        case=TYPICAL,
        why="a fixed form around new words",
        prompt="List fifteen animals as a numbered list, with one short sentence on each.",
    ),
    Preset(
        name="prose",
        case=WORST,
        why="every word is a choice",
        prompt="Tell a short story about a lighthouse keeper who finds a letter in the sea.",
    ),
    Preset(
        name="json",
        case=BEST,
        why="most tokens are punctuation and keys that repeat",
        prompt="Give the twelve months as a JSON array of objects with the keys "
        "number, name and days. Answer with JSON only.",
    ),
    Preset(
        name="count",
        case=BEST,
        why="what follows is certain; real text is never like this",
        prompt="Count from 1 to 100, separated by commas.",
    ),
)
PRESETS = {preset.name: preset for preset in _ALL}
