"""Ids and splits of the vendor's own tokenizer, for texts that use every rule."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ds4chat.protocol.types import ThinkMode
from ds4chat.text.detok import Detokenizer
from ds4chat.text.prefixes import EffortPrefixes
from ds4chat.text.tokenizer import Tokenizer
from tests.unit.text import reference

DATA: dict[str, Any] = json.loads(
    Path(__file__).with_name("official.json").read_text(encoding="utf-8")
)
CASES: list[dict[str, Any]] = DATA["cases"]


@cache
def tokens() -> list[str]:
    listed = [f"<unused {i}>" for i in range(DATA["n_vocab"])]
    for token, i in DATA["tokens"].items():
        listed[i] = token
    return listed


@cache
def official() -> Tokenizer:
    return Tokenizer.from_vocab(tokens(), DATA["merges"], pre="joyai-llm")


@pytest.mark.parametrize("case", CASES, ids=lambda case: ascii(case["text"][:20]))
def test_encode_gives_the_official_ids(case: dict[str, Any]) -> None:
    assert official().encode_plain(case["text"]) == case["ids"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: ascii(case["text"][:20]))
def test_decode_and_streaming_give_the_text_back(case: dict[str, Any]) -> None:
    assert official().decode(case["ids"]) == case["text"]
    detok = Detokenizer(official())
    assert "".join(detok.push(i) for i in case["ids"]) + detok.flush() == case["text"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: ascii(case["text"][:20]))
def test_the_reference_gives_the_official_ids(case: dict[str, Any]) -> None:
    assert reference.encode(case["text"], tokens(), DATA["merges"]) == case["ids"]


def test_marker_ids_are_the_published_ones() -> None:
    s = official().specials
    assert (s.bos, s.eos, s.user, s.assistant) == (0, 1, 128803, 128804)
    assert (s.think_open, s.think_close) == (128821, 128822)
    assert official().id_of("｜DSML｜") == 128825


@pytest.mark.parametrize(("think", "n_tokens"), [(ThinkMode.HIGH, 79), (ThinkMode.MAX, 92)])
def test_prefixes_have_the_published_token_counts(think: ThinkMode, n_tokens: int) -> None:
    prefix = EffortPrefixes.shipped().text(think)
    assert len(official().encode_plain(prefix)) == n_tokens
