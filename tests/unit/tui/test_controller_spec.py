"""Speculation as the key steers it: kept on where it is parked, off, or not to be had."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ds4chat.demo.script import default_info
from ds4chat.protocol.commands import SetSpeculation, Submit
from ds4chat.protocol.events import (
    ModelReady,
    PolicyChanged,
)
from ds4chat.protocol.types import (
    SpecState,
)
from tests.unit.tui.desk import Desk, finished, hello, started, tokens


@pytest.fixture
def desk() -> Desk:
    return Desk()


def parked(turn_id: int) -> PolicyChanged:
    return PolicyChanged(turn_id=turn_id, state=SpecState.PARKED, reason="it loses")


def steered(desk: Desk) -> list[tuple[bool, bool]]:
    """(enabled, keep_on) of each change of speculation."""
    found = [c for c in desk.link.commands if isinstance(c, SetSpeculation)]
    return [(c.spec.enabled, c.keep_on) for c in found]


def test_where_it_is_parked_the_key_keeps_speculation_on_for_the_reply(desk: Desk) -> None:
    desk.ready()
    desk.chat.send_text("go")
    desk.report(started(1), parked(1))
    desk.chat.toggle_spec()
    assert steered(desk) == [(True, True)]
    assert desk.chat.spec.enabled
    desk.report(PolicyChanged(turn_id=1, state=SpecState.ON, reason="kept on"))
    desk.chat.toggle_spec()
    assert steered(desk)[1:] == [(False, False)]


def test_between_replies_the_key_keeps_it_on_in_the_next_reply_only(desk: Desk) -> None:
    desk.ready()
    desk.chat.send_text("go")
    desk.report(started(1), parked(1), tokens(1, "x"), finished(1))
    desk.chat.toggle_spec()
    assert desk.chat.figures.state is SpecState.ON
    assert desk.chat.figures.reason == "on: you keep it on for the next reply"
    assert steered(desk) == []
    desk.chat.send_text("more")
    assert isinstance(desk.link.commands[-2], Submit)
    assert steered(desk) == [(True, True)]
    desk.report(started(2), tokens(2, "y"), finished(2))
    desk.chat.send_text("last")
    assert steered(desk) == [(True, True)]


def test_the_panel_says_why_no_support_file_beside_the_model_is_used(desk: Desk) -> None:
    desk.chat.load = replace(desk.chat.load, support_note="2 support files: name one")
    desk.report(hello(), ModelReady(info=replace(default_info(), block_size=0)))
    assert desk.chat.figures.state is SpecState.UNAVAILABLE
    assert desk.chat.figures.reason == "2 support files: name one"


def test_the_key_twice_between_replies_switches_off(desk: Desk) -> None:
    desk.ready()
    desk.chat.send_text("go")
    desk.report(started(1), parked(1), tokens(1, "x"), finished(1))
    desk.chat.toggle_spec()
    desk.chat.toggle_spec()
    assert desk.chat.figures.state is SpecState.OFF
    desk.chat.send_text("more")
    assert steered(desk) == []
