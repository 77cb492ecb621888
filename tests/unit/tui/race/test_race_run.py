from __future__ import annotations

from dataclasses import replace

import pytest

from ds4chat.demo.script import default_info
from ds4chat.protocol.commands import Cancel, CloseSession, Pause, Resume
from ds4chat.protocol.events import (
    Done,
    EngineFailed,
    Event,
    Hello,
    ModelLoading,
    Notice,
    PolicyChanged,
    Refused,
    RoundVerified,
    TokensCommitted,
)
from ds4chat.protocol.types import Channel, FinishReason, SpecState
from ds4chat.tui.race.ask import LANES, Side, prompt_of
from ds4chat.tui.race.desk import RaceDesk
from ds4chat.tui.race.presets import BEST, PRESETS, TYPICAL, WORST
from ds4chat.tui.race.race import Phase
from tests.unit.tui.race.made import (
    IDS,
    committed,
    finished,
    make_race,
    phase_of,
    play,
    spans,
    submits,
    turn_of,
    verified,
)


def test_the_lanes_differ_in_nothing_but_speculation() -> None:
    _, sent = make_race()
    spec, plain = submits(sent)
    assert (spec.lane, plain.lane) == (LANES[Side.SPEC], LANES[Side.PLAIN])
    assert (spec.spec.enabled, plain.spec.enabled) == (True, False)
    assert spec.turn_id != plain.turn_id
    for name in ("messages", "think", "sampling", "max_tokens", "stop", "ignore_end"):
        assert getattr(spec, name) == getattr(plain, name)


def test_each_lane_keeps_its_own_clock_and_rate() -> None:
    race, _ = make_race()
    play(race, Side.PLAIN, step_s=0.1)
    lane = race.plain
    assert (lane.n_tokens, lane.clock_s, lane.tps) == (5, 0.5, 10.0)
    assert race.spec.tps is None
    assert race.ratio is None
    play(race, Side.SPEC, usage=race.plain.usage)
    assert race.ratio == 1.0


def test_the_clock_runs_with_the_tokens() -> None:
    race, _ = make_race()
    said = TokensCommitted(
        turn_id=turn_of(race, Side.SPEC), channel=Channel.ANSWER, spans=spans((1, 2)), at_s=0.25
    )
    race.report(said)
    race.report(verified(turn_of(race, Side.SPEC)))
    assert race.spec.clock_s == 0.25
    assert race.spec.tps == 8.0
    assert race.spec.accept_len == 4.0
    assert phase_of(race) is Phase.RUNNING
    assert [item.at_s for item in race.recorded] == [0.25]


def test_it_is_over_when_both_ended() -> None:
    race, _ = make_race()
    play(race, Side.SPEC)
    assert race._open
    play(race, Side.PLAIN)
    assert race.is_over
    assert phase_of(race) is Phase.FINISHED


def test_pause_and_resume_go_to_the_lanes_that_still_run() -> None:
    race, sent = make_race()
    play(race, Side.SPEC)
    sent.clear()
    race.toggle_pause()
    assert phase_of(race) is Phase.PAUSED
    race.toggle_pause()
    assert phase_of(race) is Phase.RUNNING
    kinds = [(type(c), c.lane) for c in sent if isinstance(c, Pause | Resume)]
    assert kinds == [(Pause, LANES[Side.PLAIN]), (Resume, LANES[Side.PLAIN])]


def test_restart_waits_for_the_end_of_both_lanes() -> None:
    race, sent = make_race()
    first = {side: turn_of(race, side) for side in Side}
    race.restart()
    assert sum(isinstance(command, Cancel) for command in sent) == 2
    assert race.n_starts == 1
    for side in Side:
        race.report(finished(first[side], (), reason=FinishReason.CANCELLED))
    assert race.n_starts == 2
    assert len(submits(sent)) == 4
    assert not set(first.values()) & {turn_of(race, side) for side in Side}
    race.report(finished(first[Side.PLAIN], (1, 2)))  # a straggler
    assert race.plain.end is None


def test_close_frees_the_lanes_once_they_ended() -> None:
    race, sent = make_race()
    race.close()
    assert not any(isinstance(command, CloseSession) for command in sent)
    for side in Side:
        race.report(finished(turn_of(race, side), (), reason=FinishReason.CANCELLED))
    closed = [command.lane for command in sent if isinstance(command, CloseSession)]
    assert sorted(closed) == sorted(LANES.values())


def test_a_refused_question_fails_the_race() -> None:
    race, sent = make_race()
    spec, plain = submits(sent)
    race.report(Done(request_id=spec.request_id))
    race.report(Refused(request_id=plain.request_id, message="no room", hint="Make some."))
    assert (race.phase, race.trouble) == (Phase.FAILED, "no room. Make some.")
    assert [c.lane for c in sent if isinstance(c, Cancel)] == [LANES[Side.SPEC]]
    race.report(finished(turn_of(race, Side.SPEC), (), reason=FinishReason.CANCELLED))
    assert race.is_over
    assert phase_of(race) is Phase.FAILED


def test_a_refused_pause_is_no_trouble() -> None:
    race, sent = make_race()
    race.toggle_pause()
    request = next(c.request_id for c in sent if isinstance(c, Pause))
    race.report(Refused(request_id=request, message="no reply is running"))
    assert race.trouble == ""


def test_a_lane_that_fails_fails_the_race() -> None:
    race, _ = make_race()
    play(race, Side.SPEC)
    play(race, Side.PLAIN, IDS[:2], reason=FinishReason.NONFINITE, message="NaN in layer 3")
    assert (race.phase, race.trouble) == (Phase.FAILED, "NaN in layer 3")


@pytest.mark.parametrize(
    ("event", "is_owned"),
    [
        (Hello(protocol_version=1, build="b", pid=1), False),
        (ModelLoading(stage="s", done_bytes=0, total_bytes=1), False),
        (Notice(turn_id=None, level="info", message="m"), False),
        (Done(request_id=1), True),
        (Done(request_id=99), False),
        (finished(5, ()), False),
    ],
)
def test_what_belongs_to_a_race(event: Event, is_owned: bool) -> None:
    race, _ = make_race()
    assert race.owns(event) is is_owned


def test_the_desk_hands_out_events_and_forgets_ended_races() -> None:
    desk = RaceDesk()
    first, _ = make_race()
    desk.add(first, default_info(), "")
    turn_id = turn_of(first, Side.PLAIN)
    assert desk.report(finished(3, ())) is None
    assert desk.report(finished(turn_id, IDS)) is first
    assert desk.report(finished(turn_of(first, Side.SPEC), IDS)) is first
    assert desk.card(first).measured_at == first.ended_at != ""
    second, _ = make_race()
    desk.add(second, default_info(), "")
    assert desk.races == [second]


def test_a_dead_engine_is_told_to_every_race_and_to_the_chat() -> None:
    desk = RaceDesk()
    race, _ = make_race()
    desk.add(race, default_info(), "")
    assert desk.report(EngineFailed(message="killed")) is None
    assert (race.phase, race.trouble, race.is_over) == (Phase.FAILED, "killed", True)


def test_presets_are_labelled_honestly() -> None:
    assert set(PRESETS) == {"code", "list", "prose", "json", "count"}
    assert {preset.case for preset in PRESETS.values()} == {BEST, TYPICAL, WORST}
    assert PRESETS["prose"].case == WORST
    assert prompt_of(" JSON ") == (PRESETS["json"].label, PRESETS["json"].prompt)
    assert prompt_of("Tell me a tale") == ("own prompt", "Tell me a tale")


def test_rounds_and_states_are_recorded_with_the_tokens_that_they_brought() -> None:
    race, _ = make_race()
    turn_id = turn_of(race, Side.SPEC)
    race.report(verified(turn_id))
    race.report(committed(turn_id, IDS))
    race.report(PolicyChanged(turn_id=turn_id, state=SpecState.PARKED, reason="it loses"))
    race.report(finished(turn_id, IDS))
    found = [(type(item.event), item.at_s) for item in race.recorded]
    assert found == [(RoundVerified, 0.1), (TokensCommitted, 0.1), (PolicyChanged, 0.5)]


def test_the_card_tells_what_was_open_at_the_race_also_when_races_follow() -> None:
    desk = RaceDesk()
    for ctx in (4096, 8192):
        race, _ = make_race()
        desk.add(race, replace(default_info(), ctx=ctx), f"/x/{ctx}.gguf")
        play(race, Side.PLAIN)
        play(race, Side.SPEC)
        card = desk.card(race)
        assert (card.settings.ctx, card.files.support) == (ctx, f"{ctx}.gguf")
