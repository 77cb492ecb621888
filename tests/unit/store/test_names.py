from __future__ import annotations

import unicodedata

import pytest

from ds4chat.errors import SessionFileError
from ds4chat.store.names import MAX_BYTES, check_name, safe_name

HOSTILE = [
    "../x", "/etc/passwd", ".", "..", "", " ", "x" * 300, "世" * 70, "a\nb", "a\x00b", "-rf",
    "CON", "nul", "com1", "LPT9.txt", "aux.", "a/b", "a\\b", "C:", "x|y", "~root", ".hidden",
    "a ", " a", "a.", "a\x1b[31m", "a\u202eb", "\ufffd",
    "\u200d", "a\ud800", "a\u2028b", "a\ufeff",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_refused_and_a_safe_one_is_offered(name: str) -> None:
    with pytest.raises(SessionFileError, match="cannot name a session") as caught:
        check_name(name)
    assert caught.value.message.isprintable()
    assert check_name(safe_name(name))
    assert safe_name(name) in caught.value.hint


@pytest.mark.parametrize(
    "name", ["a", "Größe", "2026-07-31 notes", "世界", "a.b", "🚀", "x" * 80]
)
def test_ordinary_names_are_taken(name: str) -> None:
    assert check_name(name) == name


def test_names_are_composed() -> None:
    assert check_name(unicodedata.normalize("NFD", "Größe")) == "Größe"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Write quicksort in Python!", "write-quicksort-in-python"),
        ("../../etc/passwd", "etc-passwd"),
        ("CON", "chat-con"),
        ("\n\t", "chat"),
        ("a" * 300, "a" * 40),
        ("one " * 50, "-".join(["one"] * 10)),
    ],
)
def test_a_name_is_made_of_any_text(text: str, name: str) -> None:
    assert safe_name(text) == name


def test_a_made_name_leaves_room_for_the_date() -> None:
    assert len(safe_name("世" * 300).encode()) <= MAX_BYTES // 2
