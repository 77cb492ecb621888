from __future__ import annotations

import pytest

from ds4chat.tui import units


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0"),
        (999, "999"),
        (4_096, "4k"),
        (4_100, "4.1k"),
        (12_345, "12k"),
        (32_768, "32k"),
        (999_999, "1.0M"),
        (1_048_576, "1.0M"),
    ],
)
def test_tokens(n: int, text: str) -> None:
    assert units.tokens(n) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.004, "0.00 s"),
        (0.03, "0.03 s"),
        (0.34, "0.3 s"),
        (12.4, "12 s"),
        (59.7, "1 min 00 s"),
        (125.0, "2 min 05 s"),
    ],
)
def test_seconds(value: float, text: str) -> None:
    assert units.seconds(value) == text


def test_milliseconds() -> None:
    assert [units.milliseconds(value) for value in (0.0031, 0.0218)] == ["3.1", "22"]
