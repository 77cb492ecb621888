"""`/compact`: which turns go, what is sent then, and how they come back."""

from __future__ import annotations

import pytest

from ds4chat.demo.script import default_info
from ds4chat.errors import SettingsError
from ds4chat.protocol.commands import Load, Submit
from ds4chat.protocol.events import Hello, ModelReady, TurnFinished
from ds4chat.protocol.types import PROTOCOL_VERSION, FinishReason, Role, ThinkMode, Usage
from ds4chat.tui.compact import compact, n_to_drop
from ds4chat.tui.controller import ChatController
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.reports import EngineReports
from ds4chat.tui.state import Turn, turn_size
from ds4chat.tui.widgets import header
from tests.unit.tui.desk import Link, View


class Chat:
    """A chat of finished turns over an engine that never answers by itself."""

    def __init__(self, n_turns: int, n_reply: int = 1000) -> None:
        self.link, self.view = Link(), View()
        options = ChatOptions(system="Be kind.", think=ThinkMode.OFF)
        self.chat = ChatController(
            self.link, Load(request_id=0, model_path="m"), options, self.view
        )
        self.reports = EngineReports(self.chat)
        self.reports.hello(Hello(protocol_version=PROTOCOL_VERSION, build="", pid=1))
        self.reports.model_ready(ModelReady(info=default_info()))
        for place in range(n_turns):
            self.ask(f"q{place}", n_reply)

    def ask(
        self,
        text: str,
        n_reply: int,
        *,
        n_read: int = 100,
        prefill_s: float = 0.5,
        n_context: int = 0,
    ) -> None:
        self.chat.send_text(text)
        turn = self.chat.conversation.active
        assert turn is not None
        usage = Usage(
            n_prompt=n_read,
            n_tokens=n_reply,
            prefill_s=prefill_s,
            n_context=n_context or n_reply,
        )
        self.reports.turn_finished(
            TurnFinished(
                turn_id=turn.turn_id, reason=FinishReason.STOP, usage=usage,
                ids=tuple(range(n_reply)),
            )
        )  # fmt: skip

    def run(self, args: str = "") -> str:
        compact(self.chat, args)
        return self.view.said[-1][1]

    def context(self) -> str:
        """What the header says of the context."""
        return next(text for _, text in header.parts(self.chat) if text.startswith("ctx "))

    def sent(self) -> list[str]:
        """Questions of the next prompt."""
        self.ask("next", 1)
        last = self.link.commands[-1]
        assert isinstance(last, Submit)
        assert last.messages[0].text == "Be kind."
        return [message.text for message in last.messages if message.role is Role.USER]


def test_the_oldest_turns_go_until_half_the_context_is_free() -> None:
    ctx = default_info().ctx
    chat = Chat(4, n_reply=ctx // 4)
    words = chat.run()
    assert words.startswith("3 turns at the beginning will not be sent")
    assert "about 8,196 tokens again, about 41 s" in words
    assert chat.sent() == ["q3", "next"]


def test_nothing_goes_where_nothing_must() -> None:
    chat = Chat(3, n_reply=10)
    assert "no turn must go" in chat.run()
    assert chat.sent() == ["q0", "q1", "q2", "next"]


def test_a_number_of_turns_is_kept_and_all_come_back() -> None:
    chat = Chat(5, n_reply=10)
    chat.run("2")
    assert chat.sent() == ["q3", "q4", "next"]
    assert chat.run("undo").startswith("3 turns")
    assert chat.sent() == ["q0", "q1", "q2", "q3", "q4", "next", "next"]
    assert "nothing to undo" in chat.run("undo")


def test_what_was_never_read_without_the_turns_costs_nothing_to_undo() -> None:
    chat = Chat(5, n_reply=10)
    assert "reads about 28 tokens again" in chat.run("2")
    words = chat.run("undo")
    assert words == (
        "3 turns at the beginning will be sent again. The engine still holds that: only the "
        "next message is read."
    )
    chat.run("2")
    chat.sent()
    assert "reads about" in chat.run("undo")
    words = chat.run("3")  # what is held now
    assert "still holds that" in words
    assert words.endswith("/compact undo takes that back.")


def test_the_header_follows_at_once() -> None:
    chat = Chat(0)
    for place in range(4):
        chat.ask(f"q{place}", 96, n_context=100 * (place + 1))
    assert chat.context() == "ctx 400/32k"
    chat.run("1")
    assert chat.context() == "ctx 100/32k"
    chat.run("undo")
    assert chat.context() == "ctx 400/32k"
    chat.run("2")
    chat.ask("next", 96, n_context=310)
    assert chat.context() == "ctx 310/32k"
    chat.run("undo")
    assert chat.context() == "ctx 510/32k"
    chat.run("2")
    assert chat.context() == "ctx 210/32k"
    chat.chat.undo()
    assert chat.context() == "ctx 100/32k"


def test_the_time_is_that_of_the_longest_reading() -> None:
    chat = Chat(1, n_reply=100)
    chat.ask("long", 100, n_read=10_000, prefill_s=10.0)
    chat.ask("short", 100, n_read=4, prefill_s=0.4)
    assert "about 210 tokens again, about 0.2 s" in chat.run("2")


def test_turns_that_were_taken_back_do_not_drop_later_ones() -> None:
    chat = Chat(5, n_reply=10)
    chat.run("1")
    for _ in range(4):
        chat.chat.undo()
    assert chat.sent() == ["next"]
    assert chat.sent() == ["next", "next"]


def test_a_new_chat_drops_nothing() -> None:
    chat = Chat(3, n_reply=10)
    chat.run("1")
    chat.chat.new_chat()
    assert chat.sent() == ["next"]
    assert chat.chat.conversation.n_dropped == 0


@pytest.mark.parametrize("args", ["0", "-1", "x", "1.5", "²"])
def test_nonsense_is_refused(args: str) -> None:
    with pytest.raises(SettingsError, match="not a number of turns"):
        compact(Chat(2).chat, args)


def test_not_while_a_reply_runs() -> None:
    chat = Chat(1)
    chat.chat.send_text("more")
    with pytest.raises(SettingsError, match="a reply is running"):
        compact(chat.chat, "1")


def test_reasoning_counts_only_where_it_is_kept() -> None:
    turn = Turn(
        turn_id=1, question="abc", think=ThinkMode.HIGH, ids=[0] * 50,
        usage=Usage(n_thinking=30),
    )  # fmt: skip
    with_it = turn_size(turn, keeps_reasoning=True)
    assert with_it - turn_size(turn, keeps_reasoning=False) == 30


def test_the_newest_turn_always_stays() -> None:
    assert n_to_drop([5, 5, 500], 10) == 2
    assert n_to_drop([5, 5, 5], 10) == 1
    assert n_to_drop([], 10) == 0
