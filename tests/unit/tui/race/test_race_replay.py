from __future__ import annotations

from ds4chat.tui.race.ask import Side
from ds4chat.tui.race.replay import Replay
from tests.unit.tui.race.made import make_race, play


def make_replay() -> Replay:
    race, _ = make_race()
    play(race, Side.PLAIN, step_s=0.2)
    play(race, Side.SPEC, step_s=0.1)
    return Replay(race.recorded, started_s=100.0)


def test_both_lanes_run_at_the_speed_of_their_clocks() -> None:
    replay = make_replay()
    assert replay.due(100.05) == []
    found = replay.due(100.45)
    assert sum(item.side is Side.PLAIN for item in found) == 2
    assert sum(item.side is Side.SPEC for item in found) == 4
    assert [item.at_s for item in found] == sorted(item.at_s for item in found)
    assert not replay.is_over
    assert len(replay.due(101.001)) == 4
    assert replay.is_over


def test_a_pause_costs_no_replay_time() -> None:
    replay = make_replay()
    replay.due(100.15)
    replay.toggle_pause(100.15)
    assert replay.due(150.0) == []
    assert replay.is_paused
    replay.toggle_pause(200.15)
    assert replay.clock_s(200.15) - 0.15 < 1e-9
    assert [item.at_s for item in replay.due(200.21)] == [0.2, 0.2]
