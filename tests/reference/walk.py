"""Drive a session over given text in every way there is, and keep the logits it shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ds4chat.engine.engine import Engine
from ds4chat.engine.session import Session
from tests.engines import other_id, random_ids

Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Token ids, and which positions hold the model's own greedy choice."""

    ids: list[int]
    is_greedy: list[bool]

    def greedy_run(self, position: int) -> int:
        """How many positions from `position` on hold greedy choices."""
        rest = self.is_greedy[position:]
        return next((i for i, greedy in enumerate(rest) if not greedy), len(rest))


@dataclass(slots=True)
class Walk:
    """Logits of the last token at every n that a session came by, and how it went on there."""

    logits: dict[int, Logits] = field(default_factory=dict)
    by: dict[int, str] = field(default_factory=dict)
    accepted: set[int] = field(default_factory=set)

    def note(self, session: Session, how: str) -> None:
        self.logits[session.n] = session.logits()
        self.by[session.n] = how


def make_text(engine: Engine, spans: list[tuple[str, int]], seed: int) -> tuple[Text, Walk]:
    """Text of spans, `("random" | "greedy", length)`, and the logits of plain decoding."""
    session, walk = engine.session(), Walk()
    drawn = random_ids(engine, sum(length for _, length in spans), seed)
    ids: list[int] = []
    is_greedy: list[bool] = []
    for kind, length in spans:
        if kind == "random":
            ids += drawn[len(ids) : len(ids) + length]
            session.sync(ids)
            walk.note(session, "prefill")
        else:
            for _ in range(length):
                ids.append(session.choose())
                session.step(ids[-1])
                walk.note(session, "step")
        is_greedy += [kind == "greedy"] * length
    return Text(ids=ids, is_greedy=is_greedy), walk


def wander(
    engine: Engine,
    text: Text,
    seed: int,
    visit: Callable[[Session, int], None] | None = None,
) -> Walk:
    """Hold `text` by prefills, steps and rounds of random sizes.

    `visit(session, n)` is called now and then with the token at n not yet evaluated.
    """
    rng, session, walk = np.random.default_rng(seed), engine.session(), Walk()
    session.sync(text.ids[: int(rng.integers(1, 40))])
    walk.note(session, "prefill")
    while session.n < len(text.ids):
        n, greedy = session.n, text.greedy_run(session.n)
        if visit is not None and (rng.random() < 0.15 or len(walk.logits) == 1):
            visit(session, n)
        if greedy:
            how = _round(engine, session, text, min(greedy, int(rng.integers(1, 9))))
            walk.accepted.add(session.n - n - 1)
        elif rng.random() < 0.4:
            session.step(text.ids[n])
            how = "step"
        else:
            size = _to_greedy(text, n, int(rng.choice([1, 2, 7, 8, 9, 40, 130])))
            session.sync(text.ids[: n + size])
            how = f"prefill of {size}"
        walk.note(session, how)
    assert list(session.ids) == text.ids
    return walk


def _to_greedy(text: Text, n: int, size: int) -> int:
    """Shorten a prefill so that it ends where greedy text begins."""
    rest = text.is_greedy[n : n + size]
    return rest.index(True) if True in rest else len(rest)


def _round(engine: Engine, session: Session, text: Text, wanted: int) -> str:
    """A round that has to commit `wanted` tokens: right drafts, then wrong ones."""
    n = session.n
    right = text.ids[n + 1 : n + wanted]
    wrong = []
    if len(right) < 7:
        own = text.ids[n + wanted] if n + wanted < len(text.ids) else 0
        has_next = text.greedy_run(n) > wanted
        wrong = [other_id(engine, own), 5, 6][: 7 - len(right)] if has_next else []
    tokens = session.speculate(text.ids[n], 8, proposal=right + wrong)
    assert [t.id for t in tokens] == text.ids[n : n + wanted]
    return f"round of {1 + len(right)}+{len(wrong)}"
