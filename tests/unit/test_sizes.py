"""Amounts of bytes in words: one unit system everywhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ds4chat
from ds4chat import sizes

BINARY_UNITS = re.compile(r"\b[KMGT]iB\b|\bGIB\b")
PACKAGE = Path(ds4chat.__file__).parent


@pytest.mark.parametrize(
    ("n", "text", "fine"),
    [
        (0, "0 B", "0 bytes"),
        (999, "999 B", "999 bytes"),
        (1_500, "2 kB", "1.50 kB"),
        (3_400_000, "3.4 MB", "3.40 MB"),
        (86_726_000_000, "86.7 GB", "86.73 GB"),
        (4_000_000_000_000, "4000.0 GB", "4000.00 GB"),
    ],
)
def test_a_size(n: int, text: str, fine: str) -> None:
    assert (sizes.size(n), sizes.fine_size(n)) == (text, fine)


@pytest.mark.parametrize(
    ("done", "total", "text"),
    [
        (0, 512, "0 of 512 B"),
        (1_000, 2_000, "1 of 2 kB"),
        (1_500_000, 5_000_000, "1.5 of 5.0 MB"),
        (21_000_000_000, 86_700_000_000, "21.0 of 86.7 GB"),
    ],
)
def test_a_part_of_a_size(done: int, total: int, text: str) -> None:
    assert sizes.part(done, total) == text


def test_no_other_unit_is_shown_anywhere() -> None:
    pages = [
        *PACKAGE.rglob("*.py"),
        *PACKAGE.parent.glob("docs/*.md"),
        PACKAGE.parent / "README.md",
    ]
    found = [page.name for page in pages if BINARY_UNITS.search(page.read_text("utf-8"))]
    assert not found
