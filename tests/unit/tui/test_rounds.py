from __future__ import annotations

from ds4chat.protocol.events import RoundVerified
from ds4chat.protocol.types import Source, SpecState
from ds4chat.tui.rounds import (
    RejectedTexts,
    TokenFacts,
    quoted,
    round_lines,
    token_lines,
    why_no_ghosts,
)


def round_of(n_accepted: int, texts: tuple[str, ...] = ("a", "b\n", "c")) -> RoundVerified:
    return RoundVerified(
        turn_id=1,
        round=4,
        proposal_ids=tuple(range(len(texts))),
        proposal_texts=texts,
        confidences=(0.9, 0.8, 0.7)[: len(texts)],
        n_accepted=n_accepted,
        draft_s=0.0031,
        verify_s=0.0218,
        decision="all of 3\x1b[2J",
    )


def test_each_draft_has_its_fate() -> None:
    lines = round_lines(round_of(1), "x")
    assert [line.kind for line in lines] == [
        "",
        "accepted",
        "ghost",
        "ghost",
        "fallback",
        "",
        "",
    ]
    assert lines[0].text == "round 4 · 1 of 3 accepted"
    assert lines[2].text == "  2  0.80  wrong        'b↵'"
    assert lines[3].text.startswith("  3  0.70  not reached")
    assert lines[5].text == "draft 3.1 ms · verify 22 ms"
    assert lines[6].text == "all of 3␛[2J"


def test_a_full_block_ends_in_a_bonus_unless_the_reply_ended() -> None:
    assert round_lines(round_of(3), "x")[4].kind == "bonus"
    assert len(round_lines(round_of(3), None)) == 6


def test_a_token_in_lines() -> None:
    facts = TokenFacts(
        text=" [/red]\x1b", id=7, source=Source.ACCEPTED, round=4, position=2, confidence=0.91,
        margin=3.2, at_s=1.24,
    )  # fmt: skip
    first, second, third = token_lines(facts)
    assert first.text == "token ' [/red]␛' · id 7"
    assert second.text.endswith("place 2 in its block")
    assert third.text == "margin of the target 3.20 · confidence 0.91 · after 1.2 s of decoding"


def test_long_texts_are_cut() -> None:
    assert quoted("x" * 40) == f"'{'x' * 24}…'"


def test_why_there_is_no_ghost() -> None:
    assert why_no_ghosts({1: round_of(3)}, SpecState.ON, "").endswith("all 3 were accepted")
    wanted = {
        SpecState.OFF: "speculation is off (F3)",
        SpecState.PARKED: "speculation is parked: it ␛lost",
        SpecState.UNAVAILABLE: "speculation is unavailable: it ␛lost",
        SpecState.ON: "every step was plain",
    }
    for state, words in wanted.items():
        assert why_no_ghosts({}, state, "it \x1blost").endswith(f"; {words}")


def test_rejected_texts() -> None:
    rounds = {1: round_of(3), 2: round_of(0), 3: round_of(2)}
    assert dict(RejectedTexts(rounds)) == {2: "ab\nc", 3: "c"}
