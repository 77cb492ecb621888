from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from ds4chat.protocol.types import ThinkMode
from ds4chat.text import prefixes
from ds4chat.text.prefixes import EffortPrefixes

HIGH = '{%- set reasoning_effort_high = "Think \\"hard\\".\\n\\n" -%}'
MAX = "{% set reasoning_effort_max = 'Think harder.\\n\\n' %}"


@pytest.mark.parametrize(
    ("think", "size", "digest"),
    [
        (
            ThinkMode.HIGH,
            476,
            "f7a24f3b3050d4a83781e9b755b316aae2ec1d9dc87562541d90bcb04d7350f7",
        ),
        (
            ThinkMode.MAX,
            528,
            "53fb31b8392ec5b4a926481943efc67636748f137c1a49d493a7af4d4fa55d2c",
        ),
    ],
)
def test_shipped_texts_are_the_published_bytes(
    think: ThinkMode, size: int, digest: str
) -> None:
    data = EffortPrefixes.shipped().text(think).encode()
    assert len(data) == size
    assert hashlib.sha256(data).hexdigest() == digest


def test_shipped_texts_begin_and_end_as_described() -> None:
    found = EffortPrefixes.shipped()
    assert found.high.startswith("Reasoning Effort: Absolute maximum")
    assert found.max.startswith("Reasoning Effort: Beyond maximum —")
    assert found.high.endswith("unchecked.\n\n")
    assert found.max.endswith("undiscovered.\n\n")
    assert (found.origin, found.note) == ("shipped", "")


@pytest.mark.parametrize("think", [ThinkMode.OFF, ThinkMode.LOW])
def test_off_and_low_have_no_prefix(think: ThinkMode) -> None:
    assert EffortPrefixes.shipped().text(think) == ""


def test_the_template_wins_over_the_shipped_files() -> None:
    found = EffortPrefixes.resolve("text " + HIGH + MAX)
    assert found.text(ThinkMode.HIGH) == 'Think "hard".\n\n'
    assert found.text(ThinkMode.MAX) == "Think harder.\n\n"
    assert (found.origin, found.note) == ("chat template", "")


def test_a_template_with_one_text_has_no_prefix_for_the_other() -> None:
    found = EffortPrefixes.resolve(MAX)
    assert (found.high, found.max) == ("", "Think harder.\n\n")
    assert "reasoning_effort_high" in found.note


@pytest.mark.parametrize(
    "template", [None, "", "{{ bos }}", "{% set reasoning_effort = 'x' %}"]
)
def test_other_templates_leave_the_shipped_files(template: str | None) -> None:
    assert EffortPrefixes.resolve(template) == EffortPrefixes.shipped()


def test_an_absurdly_long_text_does_not_count() -> None:
    long = "x" * (prefixes.MAX_PREFIX_CHARS + 1)
    assert EffortPrefixes.from_template(f'{{% set reasoning_effort_max = "{long}" %}}') is None


def test_missing_files_leave_none_with_a_note(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    found = EffortPrefixes.resolve(None)
    assert (found.high, found.max, found.origin) == ("", "", "none")
    assert "missing" in found.note


def test_none_has_no_texts() -> None:
    assert EffortPrefixes.none().text(ThinkMode.MAX) == ""
