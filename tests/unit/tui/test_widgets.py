"""The pure parts of the small widgets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from textual.binding import Binding

from ds4chat.demo import TOUR, ScriptedEngine
from ds4chat.demo.script import default_info
from ds4chat.protocol.commands import Load
from ds4chat.protocol.events import ModelLoading, PrefillProgress, RoundVerified
from ds4chat.protocol.types import SpecState
from ds4chat.tui.command_host import Offer
from ds4chat.tui.controller import ChatController, Phase
from ds4chat.tui.keys import SCREEN_KEYS
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.title import title_sequence
from ds4chat.tui.view import ChatView
from ds4chat.tui.widgets import completion, header, keybar, panel, status
from ds4chat.tui.widgets.completion import CompletionList
from ds4chat.tui.widgets.prompt import PromptArea, safe


def test_bars_and_shares() -> None:
    assert panel.bars([0, 1, 2, 5, 9], 5) == "▁▂▄██"
    assert panel.bars([0, 0], 0) == "▁▁"
    shares = [panel.share(*pair) for pair in ((0, 0), (0, 4), (1, 3), (3, 3), (999, 1000))]
    assert shares == ["--", ".00", ".33", "1.0", "1.0"]


@pytest.mark.parametrize(
    ("n_tested", "n_accepted", "text"),
    [
        (5, 3, "[#][#][#][x][ ] 3/5"),
        (5, 5, "[#][#][#][#][#] 5/5"),
        (2, 0, "[x][ ][-][-][-] 0/2"),
        (3, 3, "[#][#][#][-][-] 3/3"),
    ],
)
def test_block(n_tested: int, n_accepted: int, text: str) -> None:
    event = RoundVerified(
        turn_id=1,
        round=1,
        proposal_ids=tuple(range(n_tested)),
        proposal_texts=("",) * n_tested,
        confidences=(0.5,) * n_tested,
        n_accepted=n_accepted,
        draft_s=0.1,
        verify_s=0.1,
    )
    assert panel.block(event, 5).plain == text
    assert panel.block(None, 3).plain == "[ ][ ][ ]"


def test_reading_estimates_what_is_left() -> None:
    event = PrefillProgress(turn_id=1, n_done=500, n_total=2_000, elapsed_s=2.0)
    assert status.reading(event).endswith("500 of 2,000 tokens · about 6.0 s left")
    done = PrefillProgress(turn_id=1, n_done=2_000, n_total=2_000, elapsed_s=8.0)
    assert "left" not in status.reading(done)
    assert status.reading(None) == "reading the prompt"


def test_loading_shows_amounts_only_where_known() -> None:
    event = ModelLoading(stage="probing", done_bytes=0, total_bytes=0, elapsed_s=1.5)
    assert status.loading(event) == "probing  1.5 s · Esc stops"
    assert status.bar(5, 10) == "████████░░░░░░░░"
    assert status.bar(99, 10) == "█" * 16


def test_waiting_messages_are_shortened_and_counted() -> None:
    lines = status.waiting(["a\nb\x1b", "x" * 200, "c", "d", "e"])
    assert lines[0] == "waits: a b␛"
    assert len(lines[1]) < 80
    assert lines[3].startswith("and 2 more")
    assert status.waiting([]) == []


def test_keybar_always_shows_how_to_quit() -> None:
    pairs = [("F1", "help"), ("F3", "spec"), ("^Q", "quit")]
    assert keybar.fit(pairs, 80) == pairs
    assert keybar.fit(pairs, 22) == [pairs[0], pairs[2]]
    assert keybar.fit(pairs, 5) == [pairs[2]]


def test_prompt_leaves_f6_and_f7_alone() -> None:
    keys = {b.key for b in PromptArea.BINDINGS if isinstance(b, Binding)}
    assert not keys & {"f6", "f7", "pageup", "pagedown"}
    assert {"left", "ctrl+k"} <= keys


def test_no_two_actions_share_a_key() -> None:
    keys = [key for row in SCREEN_KEYS for key in row.keys.split(",")]
    assert len(keys) == len(set(keys))


def test_completion_takes_the_common_beginning() -> None:
    offers = {"/t": ["/top-p ", "/top-k "], "/top-": ["/top-p ", "/top-k "]}
    offered = CompletionList(
        lambda typed: [Offer(text=text, shown="") for text in offers.get(typed, [])]
    )
    assert offered.choice("/x") is None
    assert offered.choice("/t") == "/top-"
    assert offered.choice("/top-") == "/top-p "
    assert offered.walk("/top-", -1)
    assert offered.choice("/top-") == "/top-k "
    assert offered.marked("/top-") == Offer(text="/top-k ", shown="")
    assert offered.marked("/t") is None


@pytest.mark.parametrize("height", range(1, 9))
def test_the_marked_row_is_always_in_the_window(height: int) -> None:
    for mark in (None, *range(11)):
        shown, tells = completion.window(11, mark, height)
        assert (mark or 0) in shown
        assert len(shown) + tells == height
        assert tells is (height > 2)
        assert set(shown) <= set(range(11))
    assert completion.window(height, 0, height) == (range(height), False)


def test_title_is_harmless_and_bounded() -> None:
    sequence = title_sequence("a\x07\x1b]2;b" + "x" * 500)
    assert sequence.startswith("\x1b]2;a␇␛]2;bx")
    assert sequence.endswith("x\x1b\\")
    assert len(sequence) < 100


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\r\nb\rc\u2028d\x85e", "a\nb\nc\nd\ne"),
        ("tab\tstays\n", "tab\tstays\n"),
        ("\x1b[2J\x07\x9b\x7f\x00", "␛[2J␇\ufffd␡␀"),
        ("lone \ud800", "lone \ufffd"),
        ("שלום\u200f!", "שלום\u200f!"),
        ("[/red]", "[/red]"),
    ],
)
def test_prompt_text_is_safe_and_otherwise_unchanged(text: str, shown: str) -> None:
    assert safe(text) == shown


class TestHeader:
    def chat(self, **changes: Any) -> ChatController:
        """A chat whose model is ready; only what the header reads is used."""
        options = ChatOptions()
        link = ScriptedEngine(TOUR, pace=0)
        view = cast(ChatView, None)
        chat = ChatController(link, Load(request_id=0, model_path=""), options, view)
        chat.phase = Phase.READY
        chat.info = replace(default_info(), **changes)
        chat.n_context = 4_100
        chat.tps = 41.23
        return chat

    def test_whole_line(self) -> None:
        chat = self.chat(name="flash-0731", quant="q2")
        assert header.fit(chat, 120) == (
            "flash-0731 q2 · DSpark 5 · speculative · temp 0 · ctx 4.1k/32k",
            "41.2 tok/s",
        )

    def test_narrow_lines_drop_the_least_important_and_always_fit(self) -> None:
        chat = self.chat(name="flash-0731", quant="q2")
        for width in range(40, 121):
            left, right = header.fit(chat, width)
            assert len(left) + len(right) + 11 <= width
            assert left.startswith("flash-0731 q2")
        assert header.fit(chat, 60)[0] == "flash-0731 q2 · speculative"

    def test_a_hostile_model_name_cannot_control_the_terminal(self) -> None:
        left, _ = header.fit(self.chat(name="\x1b[2Jx\n" + "y" * 500), 200)
        assert left.startswith("␛[2Jx y")
        assert len(left) < 120

    def test_a_parked_or_dead_engine_shows(self) -> None:
        chat = self.chat()
        chat.figures.state = SpecState.PARKED
        chat.phase = Phase.DEAD
        left, _ = header.fit(chat, 120)
        assert "parked" in left
        assert left.endswith("dead")
