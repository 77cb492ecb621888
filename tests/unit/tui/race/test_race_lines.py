from __future__ import annotations

from ds4chat.protocol.events import PolicyChanged, PrefillProgress
from ds4chat.protocol.types import SpecState
from ds4chat.tui.race import lines
from ds4chat.tui.race.ask import Side
from ds4chat.tui.race.lines import Shown
from tests.unit.tui.race.made import (
    IDS,
    committed,
    finished,
    make_race,
    play,
    turn_of,
    verified,
)


def test_title_shows_the_lanes_own_clock_and_rate() -> None:
    race, _ = make_race()
    play(race, Side.PLAIN)
    title = lines.title(race.plain, lines.now(race.plain))
    assert title.split() == ["PLAIN", "0.50", "s", "5", "tok", "10.0", "tok/s", "stop"]
    half = lines.title(race.plain, Shown(n_tokens=2, clock_s=0.25))
    assert half.split() == ["PLAIN", "0.25", "s", "2", "tok", "8.0", "tok/s"]


def test_the_bar_is_as_long_as_the_share_of_the_limit() -> None:
    assert lines.track(Shown(n_tokens=25, clock_s=1.0), 100, 8) == "██░░░░░░"
    assert lines.track(Shown(n_tokens=0, clock_s=0.0), 100, 4) == "░░░░"
    assert lines.track(Shown(n_tokens=200, clock_s=1.0), 100, 4) == "████"


def test_a_bar_is_full_where_both_lanes_end() -> None:
    race, _ = make_race()
    plain, spec = turn_of(race, Side.PLAIN), turn_of(race, Side.SPEC)
    race.report(committed(spec, IDS))
    assert lines.goal(race) == race.ask.max_tokens
    race.report(finished(spec, IDS))
    race.report(committed(plain, IDS[:2]))
    assert lines.goal(race) == 5
    assert lines.track(lines.now(race.spec), lines.goal(race), 10) == "█" * 10
    assert lines.track(lines.now(race.plain), lines.goal(race), 10) == "████░░░░░░"
    race.report(committed(plain, IDS[2:] + IDS[:1]))  # it goes on where the other ended
    assert lines.goal(race) == 6


def test_detail_tells_how_a_lane_decodes() -> None:
    race, _ = make_race()
    spec = turn_of(race, Side.SPEC)
    assert lines.detail(race.plain) == "one target pass a token"
    race.report(PrefillProgress(turn_id=spec, n_done=256, n_total=2000, elapsed_s=1.0))
    assert lines.detail(race.spec) == "reading the prompt: 256 of 2,000 tokens"
    race.spec.prefill = None
    assert lines.detail(race.spec) == "no block yet"
    race.report(verified(spec))
    assert lines.detail(race.spec) == "accept 4.00 · blocks 1 · last ■■■× 3/4"
    parked = PolicyChanged(turn_id=spec, state=SpecState.PARKED, reason="1.1 a block\x1b")
    race.report(parked)
    assert lines.detail(race.spec).endswith("1.1 a block␛")


def test_a_block_shows_what_was_right_wrong_and_unseen() -> None:
    assert lines.block(3, 5) == "■■■×□ 3/5"
    assert lines.block(5, 5) == "■■■■■ 5/5"
    assert lines.block(0, 1) == "× 0/1"


def test_standing_goes_from_ratio_to_verdict() -> None:
    race, _ = make_race()
    assert lines.standing(race) == "reading the prompt · ratio so far -"
    play(race, Side.SPEC)
    play(race, Side.PLAIN)
    standing = lines.standing(race)
    assert "ratio 1.00x · identical: all 5 tokens" in standing
    assert race.plain.text_sha256[:12] in standing
