"""The host loop in this process: commands in, events out, no pipe."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from ds4chat.engine.host import EXIT_OK, Host, LoadingReport
from ds4chat.engine.host_inbox import UNKNOWN_REQUEST, Inbox
from ds4chat.engine.host_open import HostedEngine, LoadProgress
from ds4chat.protocol.codec import decode_event, encode
from ds4chat.protocol.commands import (
    Cancel,
    CloseSession,
    Command,
    Load,
    SetSpeculation,
    Shutdown,
    StopThinking,
    Submit,
    Tokenize,
)
from ds4chat.protocol.events import (
    Done,
    EngineFailed,
    Event,
    ModelLoading,
    ModelReady,
    Notice,
    Refused,
    Tokenized,
    TokensCommitted,
    TurnFinished,
    TurnStarted,
)
from ds4chat.protocol.types import FinishReason, Message, Role, SpecOptions, ThinkMode
from tests.grammar import read_turns
from tests.scripted_engine import TALE, ScriptedEngine, open_scripted

LOAD = Load(request_id=100, model_path="scripted.gguf")


def submit(text: str = "tell", *, turn_id: int = 1, lane: int = 0, **rest: object) -> Submit:
    message = Message(role=Role.USER, text=text)
    return Submit(request_id=turn_id, turn_id=turn_id, messages=(message,), lane=lane, **rest)  # type: ignore[arg-type]


class Hosting:
    """A host on this thread. `when` puts further lines in as events come out."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.when: list[tuple[Callable[[Event], bool], list[Command]]] = []
        self.engines: list[ScriptedEngine] = []
        self.n_ended = 0
        self.inbox = Inbox(self.emit, self._end)
        ticks = itertools.count()
        self.host = Host(self.inbox, self.emit, self.open, clock=lambda: next(ticks) * 0.01)

    def open(self, load: Load, progress: LoadProgress) -> HostedEngine:
        self.engines.append(open_scripted(load, progress))
        return self.engines[-1]

    def emit(self, event: Event) -> None:
        self.events.append(decode_event(encode(event)))
        for place, (wanted, commands) in enumerate(self.when):
            if wanted(event):
                del self.when[place]
                self.put(*commands)
                break

    def put(self, *commands: Command) -> None:
        for command in commands:
            self.inbox._take(encode(command).encode())

    def run(self, *commands: Command, end: bool = True) -> list[Event]:
        if end:
            self.when.append((self._all_finished(commands), [Shutdown(request_id=999)]))
        self.put(*commands)
        if end and not any(isinstance(command, Submit) for command in commands):
            self.put(Shutdown(request_id=999))
        assert self.host.run() == EXIT_OK
        return self.events

    def _all_finished(self, commands: tuple[Command, ...]) -> Callable[[Event], bool]:
        n_turns = sum(isinstance(command, Submit) for command in commands)
        todo = {command.turn_id for command in commands if isinstance(command, Submit)}

        def wanted(event: Event) -> bool:
            if not isinstance(event, TurnFinished | Refused):
                return False
            if isinstance(event, TurnFinished):
                todo.discard(event.turn_id)
            else:
                todo.discard(event.request_id)
            return bool(n_turns) and not todo

        return wanted

    def _end(self) -> None:
        self.n_ended += 1

    def answer(self, request_id: int) -> Event:
        answers = [
            event
            for event in self.events
            if isinstance(event, Done | Refused) and event.request_id == request_id
        ]
        assert len(answers) == 1, f"request {request_id} was answered {len(answers)} times"
        return answers[0]

    def refusal(self, request_id: int) -> Refused:
        answer = self.answer(request_id)
        assert isinstance(answer, Refused), answer
        return answer


@pytest.fixture
def hosting() -> Hosting:
    return Hosting()


def test_load_reports_progress_then_ready_then_done(hosting: Hosting) -> None:
    events = hosting.run(LOAD)
    kinds = [type(event) for event in events]
    assert kinds == [ModelLoading, ModelReady, Done, Done]
    assert hosting.n_ended == 1


def test_loading_is_told_by_stage_and_ten_times_a_second() -> None:
    events: list[Event] = []
    now = [0.0]
    report = LoadingReport(events.append, lambda: now[0])
    for step in range(100):
        now[0] = step * 0.01
        report("reading" if step < 50 else "reading drafts", step * 3, 150, step, 100)
    stages = [(e.stage, e.done_bytes) for e in events if isinstance(e, ModelLoading)]
    assert stages[0] == ("reading", 0)
    assert ("reading drafts", 150) in stages
    assert max(done for _, done in stages) == 150
    assert 10 <= len(stages) <= 12
    tensors = {(e.done_tensors, e.total_tensors) for e in events if isinstance(e, ModelLoading)}
    assert (50, 100) in tensors


def test_a_reply_obeys_the_grammar(hosting: Hosting) -> None:
    log = read_turns(hosting.run(LOAD, submit()))[1]
    assert log.answer == TALE
    assert hosting.answer(1) == Done(request_id=1)
    accepted = hosting.events.index(Done(request_id=1))
    started = hosting.events.index(cast(Event, log.started))
    assert accepted < started


def test_a_bad_model_is_refused_and_not_fatal(hosting: Hosting) -> None:
    hosting.run(Load(request_id=5, model_path="broken.gguf"), LOAD, submit())
    assert hosting.refusal(5).message == "broken.gguf: not a GGUF file"
    (failed,) = [event for event in hosting.events if isinstance(event, EngineFailed)]
    assert not failed.fatal
    assert read_turns(hosting.events)[1].answer == TALE


def test_a_bad_support_file_costs_speculation_only(hosting: Hosting) -> None:
    load = Load(request_id=100, model_path="scripted.gguf", support_path="broken.gguf")
    log = read_turns(hosting.run(load, submit()))[1]
    (notice,) = [event for event in hosting.events if isinstance(event, Notice)]
    assert notice.message == "no speculation: broken.gguf: not a GGUF file"
    assert log.answer == TALE


def test_what_is_known_of_files_beside_the_model_is_said_with_it(hosting: Hosting) -> None:
    hosting.run(replace(LOAD, support_note="2 support files lie beside the model"))
    ready = [event for event in hosting.events if isinstance(event, ModelReady)]
    assert ready[0].info.notes[0] == "2 support files lie beside the model"


def test_a_bad_support_file_that_is_needed_is_refused(hosting: Hosting) -> None:
    load = Load(
        request_id=100,
        model_path="scripted.gguf",
        support_path="broken.gguf",
        needs_support=True,
    )
    hosting.run(load, submit())
    assert hosting.refusal(100).message == "broken.gguf: not a GGUF file"
    assert not any(isinstance(event, Notice | ModelReady) for event in hosting.events)


def test_without_a_model_work_is_refused(hosting: Hosting) -> None:
    hosting.run(submit(turn_id=1), Tokenize(request_id=2, text="x"))
    assert "no model is loaded" in hosting.refusal(1).message
    assert "no model is loaded" in hosting.refusal(2).message


def test_a_lane_is_free_again_after_a_refusal(hosting: Hosting) -> None:
    hosting.when.append((lambda event: isinstance(event, Refused), [LOAD, submit(turn_id=2)]))
    hosting.when.append(
        (lambda event: isinstance(event, TurnFinished), [Shutdown(request_id=9)])
    )
    hosting.run(submit(turn_id=1), end=False)
    assert read_turns(hosting.events)[2].answer == TALE


def test_tokenize_gives_ids_and_pieces(hosting: Hosting) -> None:
    text = "naïve 你好"
    events = hosting.run(LOAD, Tokenize(request_id=2, text=text))
    (found,) = [event for event in events if isinstance(event, Tokenized)]
    assert list(found.ids) == hosting.engines[0].tokenize(text)
    assert len(found.texts) == len(found.ids)


def test_tokenize_is_answered_during_a_reply(hosting: Hosting) -> None:
    hosting.when.append(
        (
            lambda event: isinstance(event, TokensCommitted),
            [Tokenize(request_id=2, text="x"), Cancel(request_id=3)],
        )
    )
    hosting.run(LOAD, submit("endless"))
    order = [type(event) for event in hosting.events]
    assert order.index(Tokenized) < order.index(TurnFinished)


def test_cancel_is_answered_and_ends_the_turn(hosting: Hosting) -> None:
    hosting.when.append(
        (lambda event: isinstance(event, TokensCommitted), [Cancel(request_id=3)])
    )
    hosting.run(LOAD, submit("endless"))
    assert hosting.answer(3) == Done(request_id=3)
    assert read_turns(hosting.events)[1].end.reason is FinishReason.CANCELLED


def test_cancel_of_a_reply_that_still_waits(hosting: Hosting) -> None:
    hosting.run(LOAD, submit("endless"), Cancel(request_id=3))
    log = read_turns(hosting.events)[1]
    assert log.end.reason is FinishReason.CANCELLED
    assert not log.tokens


@pytest.mark.parametrize(
    "command",
    [
        Cancel(request_id=3),
        StopThinking(request_id=3),
        SetSpeculation(request_id=3, spec=SpecOptions()),
    ],
)
def test_steering_nothing_is_refused(hosting: Hosting, command: Command) -> None:
    hosting.run(LOAD, command)
    assert hosting.refusal(3).message == "no reply is running in lane 0"


def test_steering_a_running_reply(hosting: Hosting) -> None:
    hosting.when.append(
        (
            lambda event: isinstance(event, TokensCommitted),
            [
                SetSpeculation(request_id=3, spec=SpecOptions(enabled=False)),
                StopThinking(request_id=4),
            ],
        )
    )
    hosting.run(LOAD, submit(think=ThinkMode.HIGH))
    log = read_turns(hosting.events)[1]
    assert log.plain
    assert len(log.rounds) == 1
    assert "about it" not in log.thinking
    assert hosting.answer(4) == Done(request_id=4)


def test_one_reply_a_lane(hosting: Hosting) -> None:
    hosting.run(LOAD, submit(turn_id=1), submit(turn_id=2))
    assert hosting.refusal(2).message == "a reply is running in lane 0"
    assert set(read_turns(hosting.events)) == {1}


def test_two_lanes_take_turns_by_engine_time(hosting: Hosting) -> None:
    hosting.run(LOAD, submit(turn_id=1), submit(turn_id=2, lane=1))
    logs = read_turns(hosting.events)
    assert logs[1].answer == logs[2].answer == TALE
    order = [event.turn_id for event in hosting.events if isinstance(event, TokensCommitted)]
    longest = max(len(list(run)) for _, run in itertools.groupby(order))
    assert longest <= 2


def test_load_and_close_wait_for_the_reply(hosting: Hosting) -> None:
    hosting.when.append(
        (
            lambda event: isinstance(event, TokensCommitted),
            [Load(request_id=5, model_path="x"), CloseSession(request_id=6)],
        )
    )
    hosting.run(LOAD, submit())
    assert "a reply is running" in hosting.refusal(5).message
    assert "a reply is running in lane 0" in hosting.refusal(6).message


def test_close_session_forgets_the_cache(hosting: Hosting) -> None:
    hosting.when.append(
        (
            lambda event: isinstance(event, TurnFinished),
            [CloseSession(request_id=6), submit(turn_id=2)],
        )
    )
    hosting.when.append(
        (
            lambda event: isinstance(event, TurnFinished) and event.turn_id == 2,
            [Shutdown(request_id=9)],
        )
    )
    hosting.run(LOAD, submit(turn_id=1), end=False)
    assert read_turns(hosting.events)[2].started.n_cached == 0


def test_a_failing_round_ends_the_turn_and_drops_the_session(hosting: Hosting) -> None:
    hosting.when.append((lambda event: isinstance(event, TurnFinished), [submit(turn_id=2)]))
    hosting.when.append(
        (
            lambda event: isinstance(event, TurnFinished) and event.turn_id == 2,
            [Shutdown(request_id=9)],
        )
    )
    hosting.run(LOAD, submit("raise"), end=False)
    first, second = read_turns(hosting.events).values()
    assert first.end.reason is FinishReason.ERROR
    assert "RuntimeError: the device is lost" in first.end.message
    assert first.end.ids
    assert second.answer == TALE
    assert second.started.n_cached == 0


def test_a_session_that_cannot_even_be_closed_ends_the_host(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(self: object) -> None:
        raise OSError("the device is gone")

    monkeypatch.setattr("tests.scripted_engine.ScriptedSession.close", close)
    hosting.put(LOAD, submit("raise", turn_id=1), submit("endless", turn_id=2, lane=1))
    with pytest.raises(OSError, match="device is gone"):
        hosting.host.run()
    logs = read_turns(hosting.events)
    assert {log.end.reason for log in logs.values()} == {FinishReason.ERROR}


def test_nonfinite_numbers_end_the_turn_and_not_the_host(hosting: Hosting) -> None:
    hosting.run(LOAD, submit("nan"))
    end = read_turns(hosting.events)[1].end
    assert (end.reason, end.hint) == (FinishReason.NONFINITE, "Check the file.")


def test_a_bad_stop_text_is_refused(hosting: Hosting) -> None:
    hosting.run(LOAD, submit(stop=("",)))
    assert "stop text" in hosting.refusal(1).message


def test_end_tokens_do_not_end_a_reply_that_ignores_them(hosting: Hosting) -> None:
    n = len(ScriptedEngine().tokenize(TALE)) + 7
    hosting.run(LOAD, submit(ignore_end=True, max_tokens=n))
    end = read_turns(hosting.events)[1].end
    assert (end.reason, len(end.ids)) == (FinishReason.LENGTH, n)


def test_a_conversation_without_a_question_is_refused(hosting: Hosting) -> None:
    hosting.run(LOAD, Submit(request_id=1, turn_id=1, messages=()))
    hosting.refusal(1)
    assert not [event for event in hosting.events if isinstance(event, TurnStarted)]


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe\n", b"{}\n", b"[]\n", b"null\n", b'{"type": "Load"}\n', b"{" * 5000 + b"\n",
        b'{"type": "Cancel", "request_id": "1"}\n', None,
    ],
    ids=range(8),
)  # fmt: skip
def test_garbage_is_answered_and_not_fatal(hosting: Hosting, line: bytes | None) -> None:
    hosting.inbox._take(line)
    (answer,) = hosting.events
    assert isinstance(answer, Refused)
    assert answer.request_id == UNKNOWN_REQUEST
    assert answer.message
    assert read_turns(hosting.run(LOAD, submit()))[1].answer == TALE


def test_the_end_of_input_cancels_and_ends(hosting: Hosting) -> None:
    lines = [encode(LOAD).encode(), b"\n", encode(submit("endless")).encode()]
    hosting.inbox.read(lines)
    assert hosting.host.run() == EXIT_OK
    assert read_turns(hosting.events)[1].end.reason is FinishReason.CANCELLED
    assert hosting.n_ended == 1
