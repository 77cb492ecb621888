"""A rejected proposal leaves nothing behind, wherever it is rejected."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ds4chat.engine.engine import Engine
from ds4chat.engine.session import Session
from tests.cases.replies import BLOCK, open_small
from tests.engines import differing_states, other_id, random_ids

N_PROMPT = 3
N_TOKENS = 310  # crosses multiples of 4 and 128


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_small(tmp_path_factory.mktemp("pair")) as opened:
        yield opened


class Plain:
    """A session that never speculated: its tokens, and its state after every one."""

    def __init__(self, engine: Engine) -> None:
        session = engine.session()
        session.sync(random_ids(engine, N_PROMPT))
        self.tokens: list[int] = []
        self.states = [session.state()]
        while len(self.tokens) < N_TOKENS + BLOCK + 2:
            self.tokens.append(session.choose())
            session.step(self.tokens[-1])
            self.states.append(session.state())


@pytest.fixture(scope="module")
def plain(engine: Engine) -> Plain:
    return Plain(engine)


def rejecting(
    engine: Engine,
    plain: Plain,
    n_right: Callable[[int], int],
    wrong: Callable[[int], int],
    n_tokens: int = N_TOKENS,
) -> Session:
    """Rounds to the end, with NaN in all that is no state; the state is checked after each.

    `n_right(number of the round)` drafts are right, then come `wrong(the right token)`.
    """
    session = engine.session()
    session.sync(random_ids(engine, N_PROMPT))
    number = 0
    while (at := session.n - N_PROMPT) < n_tokens:
        right = n_right(number)
        drafts = [
            token if i < right else wrong(token)
            for i, token in enumerate(plain.tokens[at + 1 : at + 1 + BLOCK])
        ]
        session.poison()
        out = session.speculate(session.choose(), BLOCK + 1, proposal=drafts)
        assert [t.id for t in out] == plain.tokens[at : at + right + 1]
        assert differing_states(session.state(), plain.states[session.n - N_PROMPT]) == []
        number += 1
    return session


def test_a_drafter_rejected_at_every_place_over_300_tokens(
    engine: Engine, plain: Plain
) -> None:
    session = rejecting(engine, plain, lambda i: i % BLOCK, lambda t: other_id(engine, t))
    assert session.n > 300


def test_a_drafter_that_is_always_wrong(engine: Engine, plain: Plain) -> None:
    rejecting(engine, plain, lambda i: 0, lambda t: other_id(engine, t), 70)


def test_wrong_drafts_that_are_all_one_token(engine: Engine, plain: Plain) -> None:
    """Equal drafts write equal rows: what stays of them would not stand out."""
    unused = next(i for i in range(2, 500) if i not in plain.tokens)
    rejecting(engine, plain, lambda i: i % 3, lambda t: unused, 70)


def test_full_blocks_and_misses_in_turn(engine: Engine, plain: Plain) -> None:
    rejecting(engine, plain, lambda i: BLOCK * (i % 2), lambda t: other_id(engine, t), 70)
