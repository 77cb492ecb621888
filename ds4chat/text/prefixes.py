"""The effort prefixes: texts right after the start token that tell a model how hard to think.

In the 0731 release no prefix means *low*, one text *high* and another *max*.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

from ds4chat.protocol.types import ThinkMode
from ds4chat.text.template import string_variables

MAX_PREFIX_CHARS = 16_384

_VARIABLES = {
    ThinkMode.HIGH: "reasoning_effort_high",
    ThinkMode.MAX: "reasoning_effort_max",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EffortPrefixes:
    """Prefix texts, where they came from, and what to tell the person about it."""

    high: str = ""
    max: str = ""
    origin: str = "none"  # "chat template", "shipped" or "none"
    note: str = ""

    def text(self, think: ThinkMode) -> str:
        """The prefix of a mode; empty for off and low."""
        return {ThinkMode.HIGH: self.high, ThinkMode.MAX: self.max}.get(think, "")

    @classmethod
    def none(cls, note: str = "") -> EffortPrefixes:
        """No prefixes, for models that were not trained with them."""
        return cls(note=note)

    @classmethod
    def shipped(cls) -> EffortPrefixes:
        """The texts of DeepSeek-V4-Flash-0731 that come with the package.

        Raises:
            OSError: the files are not there.
        """
        folder = resources.files("ds4chat.text") / "effort"
        return cls(
            high=(folder / "high.txt").read_bytes().decode("utf-8"),
            max=(folder / "max.txt").read_bytes().decode("utf-8"),
            origin="shipped",
        )

    @classmethod
    def from_template(cls, template: str) -> EffortPrefixes | None:
        """The texts that a file's chat template defines; None if it defines neither.

        A template that defines only one of them has no prefix for the other mode.
        """
        found = string_variables(template, set(_VARIABLES.values()))
        usable = {
            mode: found[name]
            for mode, name in _VARIABLES.items()
            if len(found.get(name, "")) <= MAX_PREFIX_CHARS and name in found
        }
        if not usable:
            return None
        missing = [name for mode, name in _VARIABLES.items() if mode not in usable]
        note = f"the file's chat template does not define {missing[0]}" if missing else ""
        return cls(
            high=usable.get(ThinkMode.HIGH, ""),
            max=usable.get(ThinkMode.MAX, ""),
            origin="chat template",
            note=note,
        )

    @classmethod
    def resolve(cls, template: str | None) -> EffortPrefixes:
        """The prefixes of a Flash file: its chat template's, else the shipped, else none."""
        found = cls.from_template(template) if template else None
        if found is not None:
            return found
        try:
            return cls.shipped()
        except OSError:
            return cls.none(
                "the effort prefixes of this installation are missing: "
                "high and max think as low; reinstall ds4chat"
            )
