"""The chat without a terminal: what happens when the engine does not behave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ds4chat.demo.script import default_info
from ds4chat.protocol.commands import Cancel, Load, SetSpeculation
from ds4chat.protocol.events import (
    EngineFailed,
    ModelLoading,
    ModelReady,
    Notice,
    PolicyChanged,
    PrefillProgress,
    Refused,
    RoundVerified,
    StatsSnapshot,
    Tokenized,
)
from ds4chat.protocol.types import (
    PROTOCOL_VERSION,
    Channel,
    FinishReason,
    SpecState,
    ThinkMode,
    Usage,
)
from ds4chat.tui.bridge import EngineReported
from ds4chat.tui.controller import Phase
from ds4chat.tui.reports import refused_load
from tests.unit.tui.desk import Desk, finished, hello, started, tokens


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_death_without_an_end_of_the_turn_keeps_the_text(desk: Desk) -> None:
    desk.ready()
    desk.chat.send_text("go")
    desk.report(started(1), tokens(1, "partial"), EngineFailed(message="gone"))
    turn = desk.chat.conversation.turns[0]
    assert turn.answer_text == "partial"
    assert turn.ids == [7]
    assert turn.reason is FinishReason.ERROR
    assert desk.view.receipts == ["broken off · 1 tok kept"]
    level, words = desk.view.said[-1]
    assert level == "error"
    assert words == "The engine stopped here. What was written is kept."
    desk.report(finished(1), tokens(1, "late"))
    assert turn.reason is FinishReason.ERROR
    assert turn.answer_text == "partial"
    assert len(desk.view.receipts) == 1


def test_death_after_an_end_of_the_turn_says_it_once(desk: Desk) -> None:
    desk.ready()
    desk.chat.send_text("go")
    desk.link.is_alive = False
    desk.report(started(1), finished(1, FinishReason.ERROR, "gone"))
    desk.report(
        EngineFailed(message="gone", log_path="/other.log"), EngineFailed(message="gone")
    )
    assert len(desk.view.receipts) == 1
    assert sum("stopped here" in text for _, text in desk.view.said) == 1
    assert desk.chat.failure is not None
    assert desk.chat.failure.message == "Gone."
    assert desk.chat.failure.log_path == "/other.log"


def test_an_error_of_a_living_engine_is_told(desk: Desk) -> None:
    desk.ready()
    desk.chat.send_text("go")
    desk.report(started(1), finished(1, FinishReason.ERROR, "a kernel failed"))
    assert desk.view.said[-1] == ("error", "A kernel failed.")
    assert desk.chat.phase is Phase.READY


def test_restart_loads_again_with_the_present_settings(desk: Desk) -> None:
    desk.ready()
    desk.chat.toggle_spec()
    desk.report(EngineFailed(message="gone"))
    desk.chat.restart()
    desk.chat.restart()
    assert desk.view.n_restarts == 1
    desk.report(ModelReady(info=default_info()))
    phases = [desk.chat.phase]  # that was the old engine
    desk.ready()
    assert [*phases, desk.chat.phase] == [Phase.STARTING, Phase.READY]
    loads = [c for c in desk.link.commands if isinstance(c, Load)]
    assert [load.spec.enabled for load in loads] == [True, False]
    assert len({load.request_id for load in loads} | {0}) == 3
    assert "goes on" in desk.view.said[-1][1]


def test_a_restarted_engine_does_not_start_parked(desk: Desk) -> None:
    desk.ready()
    desk.report(PolicyChanged(turn_id=1, state=SpecState.PARKED, reason="loses"))
    desk.report(EngineFailed(message="gone"))
    desk.chat.restart()
    desk.ready()
    assert (desk.chat.figures.state, desk.chat.figures.reason) == (SpecState.ON, "")


def test_another_protocol_is_refused(desk: Desk) -> None:
    desk.report(hello(PROTOCOL_VERSION + 1))
    assert desk.chat.phase is Phase.DEAD
    assert desk.link.commands == []
    assert "install ds4chat again" in desk.view.said[0][1]


MISMATCHES = "s.gguf: 3 problems\n  - layers: 1, wanted 2\n  - second\n  - third"


def test_a_list_of_mismatches_is_one_line_and_kept(desk: Desk) -> None:
    message = f"no speculation: {MISMATCHES}"
    notice = Notice(turn_id=None, level="warning", message=message, hint="use another")
    info = replace(default_info(), block_size=0)
    desk.report(hello(), notice, ModelReady(info=info))
    assert desk.view.said == [
        (
            "warning",
            "No speculation: s.gguf: layers: 1, wanted 2 (and 2 more). /why has all of it.",
        )
    ]
    assert "third" in desk.chat.support_trouble
    assert desk.chat.figures.reason == "the support file does not fit, /why has more"
    desk.report(EngineFailed(message="gone"))
    desk.chat.restart()
    desk.ready()
    assert desk.chat.support_trouble == ""


def test_a_refused_model_says_file_reason_and_ways_on(desk: Desk) -> None:
    desk.report(hello(), Refused(request_id=1, message="not a GGUF file", hint="name one"))
    assert desk.chat.phase is Phase.REFUSED
    level, words = desk.view.said[-1]
    assert level == "error"
    reason, *ways = words.splitlines()
    assert reason == "m.gguf: not a GGUF file. Name one."
    assert [part for part in ("/model FILE", "F8", "Ctrl+Q") if part in ways[1]] == [
        "/model FILE", "F8", "Ctrl+Q",
    ]  # fmt: skip
    assert "ds4chat inspect m.gguf" in ways[2]
    assert "ds4chat doctor" in ways[3]


def test_a_long_list_about_a_refused_model_is_cut() -> None:
    long = "m.gguf: 9 problems" + "".join(f"\n  - problem {n}" for n in range(9))
    words = refused_load("m.gguf", long, "")
    assert words.splitlines()[0] == "m.gguf: problem 0 (and 8 more)."
    short = "m.gguf: 2 problems\n  - a\n  - b"
    assert refused_load("m.gguf", short, "").startswith(f"{short}.\nWhat next:")


def test_a_stopped_load_ignores_what_still_comes(desk: Desk) -> None:
    desk.report(hello())
    assert desk.chat.stop()
    loading = ModelLoading(stage="x", done_bytes=1, total_bytes=2)
    desk.report(loading, ModelReady(info=default_info()), EngineFailed(message="killed"))
    assert desk.chat.phase is Phase.STOPPED
    assert desk.view.n_closes == 1
    assert not any("killed" in text.casefold() for _, text in desk.view.said)


def test_refusal_of_something_else_does_not_touch_the_turn(desk: Desk) -> None:
    desk.ready()
    desk.chat.send_text("go")
    desk.report(Refused(request_id=999, message="no such thing"))
    assert desk.chat.is_busy
    assert desk.view.said[-1] == ("error", "No such thing.")


def test_a_command_that_came_too_late_is_no_error(desk: Desk) -> None:
    desk.ready()
    desk.chat.send_text("go")
    desk.report(started(1))
    desk.chat.toggle_spec()
    desk.chat.stop()
    desk.report(tokens(1, "x"), finished(1))
    late = [c for c in desk.link.commands if isinstance(c, Cancel | SetSpeculation)]
    n_said = len(desk.view.said)
    desk.report(*(Refused(request_id=c.request_id, message="no reply") for c in late))
    assert len(late) == 2
    assert len(desk.view.said) == n_said
    assert desk.chat.steering == set()


def test_what_is_taken_back_no_longer_counts_as_context(desk: Desk) -> None:
    desk.ready()
    for turn_id, n_context in ((1, 71), (2, 140)):
        desk.chat.send_text("go")
        end = finished(turn_id)
        usage = replace(end.usage, n_context=n_context)
        desk.report(started(turn_id), tokens(turn_id, "x"), replace(end, usage=usage))
    desk.chat.undo()
    assert desk.chat.n_context == 71
    desk.chat.undo()
    assert desk.chat.n_context == 0


def test_messages_wait_in_order(desk: Desk) -> None:
    for text in ("one", "two"):
        desk.chat.send_text(text)
    assert desk.submits() == []
    desk.ready()
    assert [s.messages[-1].text for s in desk.submits()] == ["one"]
    desk.report(started(1), tokens(1, "x"), finished(1))
    assert [s.messages[-1].text for s in desk.submits()] == ["one", "two"]
    assert len({s.request_id for s in desk.submits()}) == 2


def test_thinking_follows_the_model_until_it_is_chosen(desk: Desk) -> None:
    assert desk.chat.think is ThinkMode.OFF
    desk.ready()
    desk.chat.cycle_think()
    desk.chat.send_text("go")
    assert desk.submits()[0].think is ThinkMode.HIGH
    seen = [desk.chat.is_reasoning]
    for event in (started(1), tokens(1, "hm", Channel.THINKING), tokens(1, "yes")):
        desk.report(event)
        seen.append(desk.chat.is_reasoning)
    assert seen == [False, False, True, False]


def test_context_meter_follows_prompt_tokens_and_end(desk: Desk) -> None:
    desk.ready()
    desk.chat.send_text("go")
    seen = []
    for event in (started(1), tokens(1, "a"), finished(1)):
        desk.report(event)
        seen.append(desk.chat.n_context)
    assert seen == [5, 6, 9]
    assert desk.view.rung == [20.0]


def test_notices_and_figures(desk: Desk) -> None:
    desk.ready()
    desk.chat.send_text("go")
    desk.report(
        started(1),
        Notice(turn_id=None, level="warning", message="repeating", hint="try /temp 1"),
        StatsSnapshot(turn_id=1, tps=12.5, usage=Usage()),
        Tokenized(request_id=3, ids=(), texts=()),
    )
    assert desk.view.said[-1] == ("warning", "Repeating. Try /temp 1.")
    assert desk.chat.tps == 12.5


def test_only_figures_replace_each_other() -> None:
    def progress(n: int) -> EngineReported:
        event = PrefillProgress(turn_id=1, n_done=n, n_total=9, elapsed_s=0.1)
        return EngineReported(event)

    verified = RoundVerified(
        turn_id=1,
        round=1,
        proposal_ids=(),
        proposal_texts=(),
        confidences=(),
        n_accepted=0,
        draft_s=0.1,
        verify_s=0.1,
    )
    assert progress(1).can_replace(progress(2))
    assert not progress(1).can_replace(EngineReported(verified))
    assert not EngineReported(verified).can_replace(EngineReported(verified))
    assert not EngineReported(tokens(1, "a")).can_replace(EngineReported(tokens(1, "b")))
