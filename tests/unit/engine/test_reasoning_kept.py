"""Whether later turns read earlier reasoning, and what either way costs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ds4chat.engine.engine import Engine
from ds4chat.engine.session import Session
from ds4chat.protocol.types import Message, Role, ThinkMode
from tests.engines import SMALL, open_pair, plain_tokens

FIRST = Message(role=Role.USER, text="a question")
SECOND = Message(role=Role.USER, text="another")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("pair")
    with open_pair(folder, options={"end_ids": []}, seed=31, **SMALL) as opened:
        yield opened


def answered(engine: Engine) -> tuple[Session, list[int], Message]:
    """A session after a first reply: reasoning, its end, an answer."""
    prompt = engine.render([FIRST], ThinkMode.HIGH)
    session = engine.session()
    session.sync(prompt)
    close = engine.tokenizer.specials.think_close
    assert close is not None
    thought = plain_tokens(session, 12)
    session.step(close)
    answer = plain_tokens(session, 5)
    ids = (*thought, close, *answer)
    return session, prompt, Message(role=Role.ASSISTANT, text="", ids=ids, think=ThinkMode.HIGH)


def test_by_default_only_the_answer_stays_and_little_is_read_again(engine: Engine) -> None:
    session, prompt, reply = answered(engine)
    specials = engine.tokenizer.specials
    following = engine.render([FIRST, reply, SECOND], ThinkMode.HIGH)
    wanted = [*prompt[:-1], specials.think_close, *reply.ids[-5:], specials.eos]
    assert following[: len(wanted)] == wanted
    assert session.sync(following) == len(prompt) - 1


def test_kept_reasoning_extends_what_is_held(engine: Engine) -> None:
    session, prompt, reply = answered(engine)
    following = engine.render([FIRST, reply, SECOND], ThinkMode.HIGH, keep_reasoning=True)
    assert following[: len(prompt) + len(reply.ids)] == [*prompt, *reply.ids]
    assert session.sync(following) == len(prompt) + len(reply.ids)
