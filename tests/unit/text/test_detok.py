from __future__ import annotations

import pytest

from ds4chat.errors import ModelFileError
from ds4chat.text.detok import Detokenizer
from tests.unit.text import reference, vocab


def byte_ids(data: bytes) -> list[int]:
    made = vocab.tokenizer()
    ids = [made.id_of(reference.SYMBOLS[byte]) for byte in data]
    return [i for i in ids if i is not None]


def test_a_character_appears_with_the_token_that_completes_it() -> None:
    detok = Detokenizer(vocab.tokenizer())
    assert [detok.push(i) for i in byte_ids("é中😀a".encode())] == [
        *("", "é"), *("", "", "中"), *("", "", "", "😀"), "a",
    ]  # fmt: skip
    assert detok.flush() == ""


def test_flush_replaces_an_unfinished_character_once() -> None:
    detok = Detokenizer(vocab.tokenizer())
    assert [detok.push(i) for i in byte_ids("😀".encode()[:3])] == ["", "", ""]
    assert detok.flush() == "\ufffd"
    assert detok.flush() == ""
    assert [detok.push(i) for i in byte_ids(b"\x98\x80")] == ["\ufffd", "\ufffd"]


def test_broken_bytes_show_as_soon_as_they_are_known_to_be_broken() -> None:
    detok = Detokenizer(vocab.tokenizer())
    assert [detok.push(i) for i in byte_ids(b"\xf0\x9fa")] == ["", "", "\ufffda"]


def test_a_copy_goes_its_own_way() -> None:
    detok = Detokenizer(vocab.tokenizer())
    first, second = byte_ids("é".encode())
    detok.push(first)
    twin = detok.copy()
    assert twin.push(second) == "é"
    assert detok.flush() == "\ufffd"
    assert twin.flush() == ""


def test_an_unknown_id_is_refused() -> None:
    with pytest.raises(ModelFileError):
        Detokenizer(vocab.tokenizer()).push(10**6)
