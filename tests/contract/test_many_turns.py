"""Two hundred turns of one session in a terminal, forked, resumed, killed and resumed."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ds4chat.errors import SessionFileError
from ds4chat.protocol.types import FinishReason, Message, Role
from ds4chat.store.library import Library
from ds4chat.store.tree import Tree, Turn
from tests.cycles.engine_cycle import Engine
from tests.cycles.screen_cycle import CTRL_Q, Screen
from tests.engines import SMALL
from tests.make_pair import PairPaths, make_pair

N_TURNS, N_TOKENS, LONGEST = 200, 8, 50
N_COMPARED = 12


class Chat:
    """The program over one session, and what that session must hold."""

    def __init__(self, pair: PairPaths, root: Path) -> None:
        self._pair = pair
        self._root = root
        self._n_asked = 0
        self.path: list[int] = []
        self.kept: dict[int, tuple[str, list[int]]] = {}
        self.branches: dict[str, list[int]] = {}
        self.screen = self._start()

    def _start(self, *argv: str) -> Screen:
        screen = Screen(
            "ds4chat", str(self._pair.base), "--support", str(self._pair.support), "--cpu",
            "--ctx", "4096", "-n", str(N_TOKENS), "--ignore-eos", "--sessions",
            str(self._root), *argv,
        )  # fmt: skip
        screen.wait(lambda: "/4k" in screen.plain, "the model")
        return screen

    def tree(self) -> Tree:
        library = Library(self._root)
        try:
            names = library.names()
            return library.read(names[0]).tree if names else Tree()
        except SessionFileError:
            return Tree()  # it is being made

    def ids(self) -> list[int]:
        return [turn.id for turn in self.tree().path()]

    def ask(self) -> None:
        self._n_asked += 1
        question = f"question {self._n_asked}"
        self.screen.write(question + "\r")
        self.screen.wait(lambda: self._last_is(question), question)
        turn = self.tree().path()[-1]
        assert turn.reason is FinishReason.LENGTH
        assert len(turn.ids) == N_TOKENS
        self.path.append(turn.id)
        self.kept[turn.id] = (question, turn.ids)
        self.check_path()

    def _last_is(self, question: str) -> bool:
        path = self.tree().path()
        return bool(path) and path[-1].question == question and path[-1].finished is not None

    def fork(self, at: int) -> None:
        self.screen.write(f"/fork {self.path[at]}\r")
        self.path = self.path[: at + 1]
        self.screen.wait(lambda: self.ids() == self.path, f"the fork after {self.path[-1]}")

    def goto(self, branch: str) -> None:
        path = self.branches[branch]
        self.screen.write(f"/goto {branch}\r")
        self.path = list(path)
        self.screen.wait(lambda: self.ids() == path, f"the branch {branch}")

    def resume(self, *, is_kill: bool) -> None:
        if is_kill:
            os.kill(self.screen.pid, signal.SIGKILL)
        else:
            self.screen.write(CTRL_Q)
        assert self.screen.status_within(20) == (-signal.SIGKILL if is_kill else 0)
        self.screen.kill()
        self.check()
        self.screen = self._start("--continue")

    def check_path(self) -> None:
        tree = self.tree()
        assert [turn.id for turn in tree.path()] == self.path
        self.branches[tree.current] = list(self.path)

    def check(self) -> None:
        """Everything that was ever said is there, unchanged, on its branch."""
        tree = self.tree()
        assert {t.id: (t.question, t.ids) for t in tree.turns.values()} == self.kept
        assert not any(turn.damage for turn in tree.turns.values())
        for name, path in self.branches.items():
            assert [turn.id for turn in tree.path(name)] == path, name

    def step(self, rng: random.Random) -> None:
        self.ask()
        dice = rng.random()
        if len(self.path) > LONGEST or dice < 0.12:
            self.fork(rng.randrange(len(self.path)))
        elif dice < 0.18:
            self.goto(rng.choice(sorted(self.branches)))
        elif dice < 0.24:
            self.resume(is_kill=dice < 0.21)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    return make_pair(tmp_path_factory.mktemp("pair"), seed=31, **SMALL)


@pytest.fixture
def chat(pair: PairPaths, tmp_path: Path) -> Iterator[Chat]:
    made = Chat(pair, tmp_path / "sessions")
    yield made
    made.screen.kill()


@pytest.fixture
def engine(pair: PairPaths) -> Iterator[Engine]:
    """Another engine, which never saw the chat."""
    made = Engine(pair)
    made.start()
    made.load()
    yield made
    made.close()


def asked(tree: Tree, turn: Turn) -> list[Message]:
    """The conversation that ends with a turn's question."""
    before = tree.path_to(turn.id)[:-1]
    messages = [message for earlier in before for message in earlier.messages()]
    return [*messages, Message(role=Role.USER, text=turn.question)]


@pytest.mark.slow
def test_two_hundred_turns_with_forks_and_resumes(chat: Chat, engine: Engine) -> None:
    rng = random.Random(5)
    while len(chat.kept) < N_TURNS:
        chat.step(rng)
    chat.resume(is_kill=False)
    chat.check()
    assert len(chat.branches) > 10
    tree = chat.tree()
    for turn_id in rng.sample(sorted(chat.kept), N_COMPARED):
        turn = tree.turns[turn_id]
        fresh = engine.until_end(engine.ask(asked(tree, turn)))
        assert list(fresh.ids[:N_TOKENS]) == turn.ids, f"turn {turn_id}"
