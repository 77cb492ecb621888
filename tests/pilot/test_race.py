"""The race as a person meets it: keys, lanes, verdict, card."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from ds4chat.demo import Reply, Script
from ds4chat.demo.script import default_info
from ds4chat.protocol.commands import (
    Cancel,
    CloseSession,
    Pause,
    Resume,
    Submit,
    Tokenize,
)
from ds4chat.protocol.types import FinishReason, Role
from ds4chat.tui.controller import Phase as ChatPhase
from ds4chat.tui.palette import ColourMode
from ds4chat.tui.race.ask import LANES, Side
from ds4chat.tui.race.race import Phase, Race
from ds4chat.tui.screens.chat import ChatScreen
from ds4chat.tui.screens.race import RaceScreen
from ds4chat.tui.widgets.lane import LaneView
from tests.pilot.conftest import OpenChat
from tests.pilot.driver import Chat

TEXT = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20. " * 3
HELD = Reply(answer=TEXT, holds=(3,))
SIZES = [(80, 24), (120, 40)]


def on_race(chat: Chat) -> RaceScreen:
    return cast(RaceScreen, chat.app.screen)


def race_of(chat: Chat) -> Race:
    return on_race(chat).race


async def open_race(chat: Chat, words: str = "count") -> RaceScreen:
    await chat.send(f"/race {words}")
    await chat.until(lambda: isinstance(chat.app.screen, RaceScreen))
    return on_race(chat)


async def let_go(chat: Chat) -> None:
    """Let a held script go on: any command does."""
    race = race_of(chat)

    def go() -> bool:
        if not race.is_over:
            chat.engine.send(Tokenize(request_id=1_000_000, text="."))
        return race.phase is Phase.FINISHED

    await chat.until(go)


async def test_a_small_window_shows_text_and_the_way_back(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=TEXT), size=(40, 10)) as chat:
        await open_race(chat)
        await finished(chat)
        rows = chat.picture().splitlines()
        assert rows[0].startswith(" PLAIN ")
        assert " SPECULATIVE " in rows[3]
        assert "tok/s" in rows[0]
        assert any("18, 19, 20" in row for row in rows[1:3])
        assert any("18, 19, 20" in row for row in rows[4:6])
        assert rows[-1].endswith("Esc back")
        await chat.pilot.resize_terminal(29, 6)
        await chat.pilot.pause()
        words = " ".join(chat.picture().split())
        assert "The race needs 30 x 7 characters; this window has 29 x 6." in words
        assert "PLAIN" not in words
        assert words.endswith("Esc back")
        await chat.press("escape")
        assert isinstance(chat.app.screen, ChatScreen)


async def finished(chat: Chat) -> Race:
    race = race_of(chat)
    await chat.until(lambda: race.phase is Phase.FINISHED)
    await chat.until(lambda: "identical" in chat.picture())
    return race


@pytest.mark.parametrize("size", SIZES)
async def test_both_lanes_fill_and_agree(open_chat: OpenChat, size: tuple[int, int]) -> None:
    async with open_chat(Reply(answer=TEXT), size=size) as chat:
        await open_race(chat)
        race = await finished(chat)
        shown = chat.picture()
        assert "race  count (best case)" in shown
        assert "identical: all" in shown
        assert race.ratio is not None
        assert f"ratio {race.ratio:.2f}x" in shown
        for lane in race.lanes.values():
            assert lane.text == TEXT
            assert f"{lane.n_tokens} tok" in shown
        assert race.spec.counts.n_rounds > 3
        assert race.plain.counts.n_rounds == 0
        assert f"accept {race.spec.accept_len:.2f}" in shown
        texts = [view.transcript.plain_text() for view in chat.app.screen.query(LaneView)]
        assert all("19, 20." in text for text in texts)


@pytest.mark.parametrize(("size", "is_beside"), [((80, 24), False), ((120, 40), True)])
async def test_lanes_are_stacked_or_side_by_side(
    open_chat: OpenChat, size: tuple[int, int], is_beside: bool
) -> None:
    async with open_chat(Reply(answer=TEXT), size=size) as chat:
        await open_race(chat)
        await finished(chat)
        plain, spec = (view.region for view in chat.app.screen.query(LaneView))
        assert (plain.y == spec.y, plain.x == spec.x) == (is_beside, not is_beside)
        for view in chat.app.screen.query(LaneView):
            assert view.transcript.size.height >= 4


async def test_f5_races_the_last_prompt_with_its_context(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=TEXT)) as chat:
        await chat.ask("first")
        await chat.ask("second")
        await chat.press("f5")
        await chat.until(lambda: isinstance(chat.app.screen, RaceScreen))
        await finished(chat)
        lanes = [submit for submit in chat.engine.sent(Submit) if submit.lane]
        assert {submit.lane: submit.spec.enabled for submit in lanes} == {
            LANES[Side.PLAIN]: False,
            LANES[Side.SPEC]: True,
        }
        for submit in lanes:
            assert [m.role for m in submit.messages] == [Role.USER, Role.ASSISTANT, Role.USER]
            assert submit.messages[-1].text == "second"
            assert submit.max_tokens == 256


async def test_a_race_leaves_the_chat_as_it_was(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer="Yes.")) as chat:
        await chat.ask("first")
        before = chat.transcript()
        await open_race(chat)
        await finished(chat)
        await chat.press("escape")
        assert isinstance(chat.app.screen, ChatScreen)
        assert chat.transcript() == before
        await chat.until(lambda: len(chat.engine.sent(CloseSession)) == 2)
        await chat.ask("second")
        assert len(chat.chat.conversation.turns) == 2
        assert chat.chat.conversation.turns[-1].answer_text == "Yes."


async def test_pause_and_go_on(open_chat: OpenChat) -> None:
    async with open_chat(HELD) as chat:
        await open_race(chat)
        race = race_of(chat)
        await chat.until(lambda: race.phase is Phase.RUNNING)
        await chat.press("space")
        assert race.phase is Phase.PAUSED
        await chat.until(lambda: "paused" in chat.picture())
        await chat.until(lambda: chat.engine.has_answered(Pause))
        n_before = len(race.recorded)
        await chat.press("f4")
        assert len(race.recorded) == n_before
        await chat.press("space")
        await let_go(chat)
        await finished(chat)
        assert len(chat.engine.sent(Pause)) == len(chat.engine.sent(Resume)) == 2


async def test_leaving_stops_both_lanes(open_chat: OpenChat) -> None:
    async with open_chat(HELD) as chat:
        await open_race(chat)
        race = race_of(chat)
        await chat.until(lambda: race.recorded)
        await chat.press("escape")
        await chat.until(lambda: race.is_over)
        assert {c.lane for c in chat.engine.sent(Cancel)} == set(LANES.values())
        assert isinstance(chat.app.screen, ChatScreen)
        await chat.until(lambda: len(chat.engine.sent(CloseSession)) == 2)
        assert "no reply is running" not in chat.transcript()


async def test_again_starts_afresh_even_while_it_runs(open_chat: OpenChat) -> None:
    async with open_chat(HELD) as chat:
        await open_race(chat)
        race = race_of(chat)
        await chat.until(lambda: race.recorded)
        await chat.press("r")
        await chat.until(lambda: race.n_starts == 2)
        await chat.until(lambda: race.recorded)
        await let_go(chat)
        await finished(chat)
        text = chat.app.screen.query(LaneView).first().transcript.plain_text()
        assert text.count("19, 20.") == 3


async def test_the_replay_shows_the_same_text_again(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=TEXT)) as chat:
        screen = await open_race(chat)
        await finished(chat)
        now = [0.0]
        object.__setattr__(screen._look, "clock", lambda: now[0])
        await chat.press("p")
        assert screen.replay is not None
        await chat.until(lambda: "replay at true speed" in chat.picture())
        views = {view.id: view for view in screen.query(LaneView)}
        race = screen.race
        now[0] = race.spec.clock_s / 2
        await chat.until(lambda: f"{now[0]:.2f} s" in chat.picture())
        for side in Side:
            wanted = sum(p.at_s <= now[0] for p in race.lanes[side].tokens)
            assert len(screen._replayed[side].tokens) == wanted > 0
        rounds = screen._replayed[Side.SPEC].counts.n_rounds
        assert 0 < rounds < race.spec.counts.n_rounds
        assert f"blocks {rounds} " in chat.picture()
        await chat.press("space")
        now[0] += 100
        await chat.until(lambda: "replay paused" in chat.picture())
        assert screen.replay is not None
        await chat.press("space")
        now[0] += 100
        await chat.until(lambda: screen.replay is None)
        await chat.until(lambda: "identical" in chat.picture())
        assert all(v.transcript.plain_text().count("19, 20.") == 3 for v in views.values())


async def test_a_race_that_is_over_is_not_drawn_again(
    open_chat: OpenChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_chat(Reply(answer=TEXT)) as chat:
        screen = await open_race(chat)
        await finished(chat)
        drawn: list[bool] = []
        screen._frame()
        monkeypatch.setattr(screen, "_draw_standing", lambda: drawn.append(True))
        screen._frame()
        assert not drawn
        screen.action_replay()
        screen._frame()
        assert drawn


async def test_a_difference_is_called_a_defect(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=TEXT)) as chat:
        screen = await open_race(chat)
        race = await finished(chat)
        other = race.plain.tokens[4]
        end = race.spec.end
        assert end is not None
        ids = list(end.ids)
        ids[4] += 1
        race.spec.end = type(end)(
            turn_id=end.turn_id, reason=end.reason, usage=end.usage, ids=tuple(ids)
        )
        screen._drawn = None  # it ended otherwise than it was drawn
        await chat.until(lambda: "DIFFERENT at token 5" in chat.picture())
        assert repr(other.text) in chat.picture()
        assert "defect" in chat.picture()


async def test_card_and_report_are_saved(
    open_chat: OpenChat, isolated_environment: Path
) -> None:
    async with open_chat(Reply(answer=TEXT), size=(120, 40)) as chat:
        await open_race(chat)
        await finished(chat)
        await chat.press("s")
        await chat.press("w")
        saved = {p.name.partition(".")[2]: p for p in isolated_environment.rglob("race-*")}
        assert set(saved) == {"report.json", "svg", "txt"}
        found = json.loads(saved["report.json"].read_text())
        assert len(found["lanes"]["plain"]) == race_of(chat).plain.n_tokens
        assert "identical" in saved["txt"].read_text()
        assert any("Saved" in hint for hint in chat.hints())


async def test_the_letters_work_as_the_line_of_keys_prints_them(
    open_chat: OpenChat, isolated_environment: Path
) -> None:
    async with open_chat(Reply(answer=TEXT), size=(120, 40)) as chat:
        screen = await open_race(chat)
        await finished(chat)
        await chat.press("S", "W")
        saved = {p.name.partition(".")[2] for p in isolated_environment.rglob("race-*")}
        assert saved == {"report.json", "svg", "txt"}
        object.__setattr__(screen._look, "clock", lambda: 0.0)
        await chat.press("P")
        assert screen.replay is not None
        await chat.press("R")
        await chat.until(lambda: race_of(chat).n_starts == 2)
        await finished(chat)
        await chat.press("Q")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))


async def test_slash_card_shows_and_writes(open_chat: OpenChat, tmp_path: Path) -> None:
    async with open_chat(Reply(answer=TEXT)) as chat:
        await chat.send("/card")
        assert (
            "There was no race yet" in chat.transcript() or "no race yet" in chat.transcript()
        )
        await open_race(chat)
        await finished(chat)
        await chat.press("escape")
        await chat.send("/card")
        assert "ds4chat speed card" in chat.transcript()
        assert "count (best case)" in chat.transcript()
        await chat.send(f"/card {tmp_path / 'card.json'}")
        card = json.loads((tmp_path / "card.json").read_text())
        assert card["verdict"]["outcome"] == "identical"
        await chat.send(f"/card {tmp_path / 'card.png'}")
        assert "must be one of" in chat.transcript()


async def test_slash_card_replaces_nothing(open_chat: OpenChat, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("precious")
    async with open_chat(Reply(answer=TEXT), size=(200, 40)) as chat:
        await open_race(chat)
        await finished(chat)
        await chat.press("escape")
        await chat.send(f"/card {notes}")
        assert "it is there already" in chat.transcript()
        assert "notes-2.txt" in chat.transcript()
        assert notes.read_text() == "precious"


async def test_a_mistyped_preset_is_not_raced_as_a_prompt(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=TEXT)) as chat:
        await chat.send("/race cuont")
        assert "did you mean count?" in chat.transcript()
        assert isinstance(chat.app.screen, ChatScreen)


async def test_what_cannot_be_raced_is_said(open_chat: OpenChat) -> None:
    async with open_chat(HELD) as chat:
        await chat.press("f5")
        assert "no prompt to race yet" in chat.transcript()
        await chat.send("hold on")
        await chat.until(lambda: chat.chat.figures.counts.n_rounds >= 3)
        await chat.press("f5")
        assert "reply is running" in chat.transcript()
        await chat.press("escape")
        await chat.until(lambda: not chat.chat.is_busy)


async def test_without_a_drafter_there_is_no_race(open_chat: OpenChat) -> None:
    info = replace(default_info(), block_size=0, support_name="")
    script = Script(replies=(Reply(answer="Yes."),), info=info)
    async with open_chat(script=script) as chat:
        await chat.send("/race code")
        assert "no support file" in chat.transcript()
        assert isinstance(chat.app.screen, ChatScreen)


async def test_a_dead_engine_ends_the_race(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=TEXT, crash_after=4)) as chat:
        await open_race(chat)
        race = race_of(chat)
        await chat.until(lambda: race.phase is Phase.FAILED)
        await chat.until(lambda: "failed" in chat.picture())
        await chat.phase(ChatPhase.DEAD)  # told behind the ends of the lanes
        await chat.press("escape")
        assert "restart" in chat.picture()


async def test_colours_change_in_both_lanes(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=TEXT)) as chat:
        await open_race(chat)
        await finished(chat)
        await chat.press("f4")
        modes = {view.transcript.colour_mode for view in chat.app.screen.query(LaneView)}
        assert modes == {ColourMode.POSITION}


async def test_a_lanes_limit_is_the_chats(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=TEXT)) as chat:
        await chat.send("/max-tokens 20")
        await open_race(chat, "say it again")
        race = await finished(chat)
        assert race.ask.label == "own prompt"
        assert [lane.n_tokens for lane in race.lanes.values()] == [20, 20]
        assert race.plain.end is not None
        assert race.plain.end.reason is FinishReason.LENGTH
