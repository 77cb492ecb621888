"""What the host does over several replies of one session."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ds4chat.engine.host import EXIT_OK
from ds4chat.protocol.commands import CloseSession, Command, Shutdown, Submit
from ds4chat.protocol.events import Event, TurnFinished
from ds4chat.protocol.types import Message, Role, ThinkMode
from tests.grammar import TurnLog, read_turns
from tests.scripted_engine import ScriptedEngine
from tests.unit.engine.test_host import LOAD, Hosting, submit

REASONING = "hm, hm, hm, hm"


@pytest.fixture
def hosting() -> Hosting:
    return Hosting()


def run_in_turn(hosting: Hosting, *steps: list[Command]) -> list[TurnLog]:
    """Each step's last command is a `Submit`; the next step comes when its reply ends."""

    def ended(turn_id: int) -> Callable[[Event], bool]:
        return lambda event: isinstance(event, TurnFinished) and event.turn_id == turn_id

    end: list[Command] = [Shutdown(request_id=999)]
    for step, following in zip(steps, [*steps[1:], end], strict=True):
        last = step[-1]
        assert isinstance(last, Submit)
        hosting.when.append((ended(last.turn_id), list(following)))
    hosting.put(LOAD, *steps[0])
    assert hosting.host.run() == EXIT_OK
    return list(read_turns(hosting.events).values())


def test_earlier_reasoning_is_left_out_unless_asked_for(hosting: Hosting) -> None:
    question = Message(role=Role.USER, text="tell")
    reply = Message(role=Role.ASSISTANT, text="yes", reasoning=REASONING, think=ThinkMode.HIGH)

    def again(turn_id: int, *, keep: bool) -> Submit:
        return Submit(
            request_id=turn_id, turn_id=turn_id, messages=(question, reply, question),
            keep_reasoning=keep, max_tokens=1,
        )  # fmt: skip

    without, kept = run_in_turn(hosting, [again(1, keep=False)], [again(2, keep=True)])
    n_more = kept.started.n_prompt - without.started.n_prompt
    assert n_more == len(ScriptedEngine().tokenize(REASONING)) + 1


def test_the_statistics_line_comes_when_a_session_ends(hosting: Hosting) -> None:
    lines: list[str] = []
    hosting.host._stats_log = lines.append
    again: list[Command] = [CloseSession(request_id=7), submit(turn_id=2, max_tokens=9)]
    logs = run_in_turn(hosting, [submit(turn_id=1)], again)
    assert len(lines) == 2
    for line, log in zip(lines, logs, strict=True):
        usage = log.end.usage
        assert f"proposed={usage.n_drafted} accepted_draft={usage.n_accepted} " in line
