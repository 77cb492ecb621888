"""Short thinking sections for corpus examples: what is asked, and how the reply will go."""

# ruff: noqa: E501  (tables of phrasings: one entry or one group a line)

from __future__ import annotations

import random

_PLANS: dict[str, tuple[str, ...]] = {
    "story": ("I need a beginning, a problem and a good ending.", "A short story with one hero is enough.",
              "I will keep it simple and end it well."),
    "poem": ("A few short lines are enough.", "I will write simple lines about it."),
    "howto": ("I will give the steps in order.", "A few clear steps will help.", "I start with what is needed, then the steps."),
    "list": ("I will number the points.", "Short points, one on each line."),
    "code": ("A small function and one example call.", "I keep the code short and explain it."),
    "code_explain": ("I explain it in simple words, with an example.", "First the idea, then a small example."),
    "chat": ("A friendly short reply is best.", "I should react to how the user feels.", "I answer kindly and ask back."),
    "child": ("I use easy words and a picture.", "A simple comparison will help a child."),
    "define": ("I give the meaning and an example.", "One clear sentence and an example."),
    "compare": ("I name what is different and what is alike.", "One point for each side."),
    "why": ("I give the main reason in simple words.", "A short cause and effect will do."),
    "rewrite": ("I keep the meaning and change the words.",),
}  # fmt: skip
_DEFAULT = (
    "I answer in one or two simple sentences.", "A short and clear answer is enough.", "I say what I know and keep it brief.",
)  # fmt: skip
_ASKS = (
    "The user says: {q}",
    "The question is: {q}",
    "The user asks: {q}",
    "They want to know: {q}",
    "Task: {q}",
)


def thought(rng: random.Random, kind: str, question: str) -> str:
    """One to two sentences that fit a question of this kind."""
    plan = rng.choice(_PLANS.get(kind.removeprefix("corpus:"), _DEFAULT))
    if len(question) > 120 or "\n" in question or rng.random() < 0.3:
        return plan
    return f"{rng.choice(_ASKS).format(q=question)} {plan}"
