"""A deterministic engine without a model, for the host and the turn loop.

The target says what `reply_to` returns for the last user message; the drafter says the same but
is wrong at every `MISS_EVERY`-th token. `python -m tests.scripted_engine` is a real engine
process around it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ds4chat.engine import host
from ds4chat.engine.api import Progress, RoundReport
from ds4chat.engine.host_open import LoadProgress
from ds4chat.engine.policy_base import PolicyEvent
from ds4chat.errors import ModelFileError, NonFiniteError
from ds4chat.protocol.commands import Load
from ds4chat.protocol.types import (
    Message,
    ModelInfo,
    Sampling,
    Source,
    SpecOptions,
    ThinkMode,
    Token,
)
from ds4chat.text import prompt
from ds4chat.text.prefixes import EffortPrefixes
from ds4chat.text.tokenizer import Tokenizer
from tests.unit.text import vocab

BLOCK = 5
MISS_EVERY = 7
CHUNK = 8
CTX = 1 << 20  # `endless` lasts for minutes: who stops it may have to wait for the machine
HASTY, PACE_S = 2048, 0.005
"""A long reply slows down to a model's pace: its reader must not fall behind more and more."""
TALE = "The quick brown fox sees 98,765 naïve cafés — 你好 😀 — and goes home.\n"


def reply_to(text: str, think: ThinkMode) -> tuple[str, str]:
    """(reasoning, answer) for a user's text."""
    reasoning = "" if think is ThinkMode.OFF else "Hm, let me think about it."
    if text.startswith("loop"):
        return reasoning * 12, TALE
    if text.startswith("say "):
        return reasoning, text.removeprefix("say ")
    return reasoning, TALE


@dataclass
class Plan:
    """What the session does at a prompt."""

    reply: list[int]  # the end id included; empty beyond it
    cycle: list[int] = field(default_factory=list)  # repeated for ever after `reply`
    at: dict[int, Callable[[], None]] = field(default_factory=dict)  # before token i

    def token(self, index: int) -> int:
        if index < len(self.reply):
            return self.reply[index]
        if not self.cycle:
            return self.reply[-1]
        return self.cycle[(index - len(self.reply)) % len(self.cycle)]


class ScriptedSession:
    """`SessionApi` over a `Plan` for each prompt."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine = engine
        self._ids: list[int] = []
        self._prompt: tuple[int, ...] = ()
        self._spec = SpecOptions()
        self._filter: Callable[[Sequence[int]], int] = len
        self._rounds = 0
        self.sampling = Sampling()
        self.end_ids = engine.end_ids
        self.next_source = Source.PLAIN
        self.last_report: RoundReport | None = None
        self.draft_error = ""
        self.policy_events: list[PolicyEvent] = []
        self.max_seen = 0  # highest n ever reached, verified drafts included
        self.is_closed = False

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self._ids)

    @property
    def n(self) -> int:
        return len(self._ids)

    @property
    def _index(self) -> int:
        return self.n - len(self._prompt)

    @property
    def _plan(self) -> Plan:
        return self._engine.plans[self._prompt]

    def sync(self, ids: Sequence[int], *, progress: Progress | None = None) -> int:
        n_kept = 0
        for mine, theirs in zip(self._ids, ids, strict=False):
            if mine != theirs:
                break
            n_kept += 1
        n_kept = min(n_kept, len(ids) - 1)
        del self._ids[n_kept:]
        n_todo = len(ids) - n_kept
        for done in range(0, n_todo, CHUNK):
            if progress is not None:
                progress(done, n_todo)
            self._engine.during_prefill(ids)
            self._ids += ids[n_kept + done : n_kept + done + CHUNK]
        if progress is not None:
            progress(n_todo, n_todo)
        self._prompt = tuple(ids)
        self.next_source = Source.PLAIN
        return n_kept

    def logits(self) -> NDArray[np.float32]:
        logits = np.zeros(self._engine.tokenizer.n_vocab, np.float32)
        logits[self.choose()] = 1.0
        return logits

    def choose(self) -> int:
        if (act := self._plan.at.pop(self._index, None)) is not None:
            act()
        return self._plan.token(self._index)

    def margin(self) -> float:
        return 1.0

    def set_sampling(self, sampling: Sampling) -> None:
        self.sampling = sampling

    def set_spec(self, spec: SpecOptions, *, keep_on: bool = False) -> None:
        self._spec = spec

    def set_end_ids(self, end_ids: frozenset[int]) -> None:
        self.end_ids = end_ids

    def begin_request(self) -> None:
        pass

    def drain_policy_events(self) -> list[PolicyEvent]:
        events, self.policy_events = self.policy_events, []
        return events

    def set_commit_filter(self, accept: Callable[[Sequence[int]], int] | None) -> None:
        self._filter = accept or len

    def step(self, token: int) -> Token:
        made = Token(
            id=token, source=self.next_source, round=0, position=0, confidence=None, margin=1.0
        )
        self._append([token])
        self.next_source = Source.PLAIN
        self.last_report = RoundReport(
            round=0, proposal=(), confidences=(), n_accepted=0,
            draft_s=0.0, verify_s=0.02, reason="plain: scripted",
        )  # fmt: skip
        return made

    def speculate(
        self, first_token: int, max_tokens: int, *, proposal: Sequence[int] | None = None
    ) -> list[Token]:
        drafts = list(proposal) if proposal is not None else self._drafts()
        drafts = drafts[: max_tokens - 1]
        if not drafts or not self._spec.enabled or self.draft_error:
            return [self.step(first_token)]
        start = self._index + 1
        n_accepted = 0
        while n_accepted < len(drafts) and drafts[n_accepted] == self._truth(
            start + n_accepted
        ):
            n_accepted += 1
        wanted = [first_token, *drafts[:n_accepted]]
        kept = wanted[: self._filter(wanted)]
        self.max_seen = max(self.max_seen, self.n + 1 + len(drafts))
        self._rounds += 1
        tokens = [
            Token(
                id=token, source=Source.ACCEPTED if place else self.next_source,
                round=self._rounds, position=place,
                confidence=0.9 if place else None, margin=1.0,
            )
            for place, token in enumerate(kept)
        ]  # fmt: skip
        self._append(kept)
        is_full = len(kept) - 1 == len(drafts)
        self.next_source = Source.BONUS if is_full else Source.FALLBACK
        self.last_report = RoundReport(
            round=self._rounds, proposal=tuple(drafts), confidences=(0.9,) * len(drafts),
            n_accepted=len(kept) - 1, draft_s=0.003, verify_s=0.025, reason="on: scripted",
        )  # fmt: skip
        return tokens

    def state(self) -> dict[str, NDArray[Any]]:
        return {"ids": np.array(self._ids)}

    def kv_bytes(self) -> int:
        return 64 * self.n

    def close(self) -> None:
        self.is_closed = True

    def _append(self, ids: Sequence[int]) -> None:
        assert self.n + len(ids) <= self._engine.info.ctx, "evaluated past the context"
        self._ids += ids
        self.max_seen = max(self.max_seen, self.n)
        if self._index > HASTY:
            time.sleep(PACE_S)

    def _truth(self, index: int) -> int | None:
        plan = self._plan
        return plan.token(index) if plan.cycle or index < len(plan.reply) else None

    def _drafts(self) -> list[int]:
        drafts: list[int] = []
        for index in range(self._index + 1, self._index + 1 + BLOCK):
            truth = self._truth(index)
            if truth is None or truth in self.end_ids:
                break
            drafts.append(truth if index % MISS_EVERY else (truth + 1) % 256 + 2)
        return drafts


class ScriptedEngine:
    """`HostedEngine` without a model.

    What a user's text makes happen: `endless` never ends; `crash`, `raise`, `nan` fail at the
    tenth token; `hang` never returns from prefill; `print` writes to standard output.
    """

    def __init__(self, *, ctx: int = CTX, block_size: int = BLOCK) -> None:
        self.tokenizer: Tokenizer = vocab.tokenizer()
        self.plans: dict[tuple[int, ...], Plan] = {}
        self.hanging: set[tuple[int, ...]] = set()
        self.info = ModelInfo(
            name="scripted", path="/nowhere/scripted.gguf", quant="none", n_layers=1,
            n_vocab=self.tokenizer.n_vocab, ctx=ctx, ctx_trained=ctx,
            support_name="scripted-dspark" if block_size else "", block_size=block_size,
            backend="cpu", device="none", activation_dtype="float32", weight_bytes=1 << 20,
            load_s=0.0, kv_fp8=True, is_exact=True,
        )  # fmt: skip
        self.end_ids = frozenset({self.tokenizer.specials.eos})

    def tokenize(self, text: str) -> list[int]:
        return self.tokenizer.encode_plain(text)

    def detokenize(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids)

    def render(
        self,
        messages: Sequence[Message | Mapping[str, str]],
        think: object = None,
        *,
        keep_reasoning: bool = False,
    ) -> list[int]:
        mode = prompt.parse_think(think)
        values = prompt.messages_from(messages)
        ids = prompt.render(
            self.tokenizer,
            values,
            mode,
            effort=EffortPrefixes.none(),
            keep_reasoning=keep_reasoning,
        )
        self.plans[tuple(ids)] = self._plan(values[-1].text, mode)
        if values[-1].text.startswith("hang"):
            self.hanging.add(tuple(ids))
        return ids

    def during_prefill(self, ids: Sequence[int]) -> None:
        if tuple(ids) in self.hanging:
            threading.Event().wait()

    def session(
        self,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int = 0,
        drafts: bool = True,
    ) -> ScriptedSession:
        return ScriptedSession(self)

    def stats(self) -> dict[str, Any]:
        return {"pass_s": {1: 0.02}}

    def close(self) -> None:
        self.plans.clear()

    def _plan(self, text: str, think: ThinkMode) -> Plan:
        reasoning, answer = reply_to(text, think)
        specials = self.tokenizer.specials
        ids = self.tokenize(reasoning)
        if think is not ThinkMode.OFF:
            assert specials.think_close is not None
            ids.append(specials.think_close)
        ids += self.tokenize(answer)
        if text.startswith("endless"):
            return Plan(reply=ids, cycle=self.tokenize(answer))
        acts: dict[str, Callable[[], None]] = {
            "crash": lambda: os.kill(os.getpid(), signal.SIGKILL),
            "raise": _raise(RuntimeError("the device is lost")),
            "nan": _raise(NonFiniteError("layer 3 computed NaN", "Check the file.")),
            "print": lambda: print("a library says hello", flush=True),  # noqa: T201 - a library would
        }
        act = next((act for word, act in acts.items() if text.startswith(word)), None)
        # Ten tokens: reached between two rounds, whatever was drafted before.
        return Plan(reply=[*ids, specials.eos], at={7: act} if act else {})


def _raise(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def open_scripted(load: Load, progress: LoadProgress) -> ScriptedEngine:
    """Open it; a path that holds `broken` is refused."""
    for path in (load.model_path, load.support_path):
        if "broken" in path:
            raise ModelFileError(f"{path}: not a GGUF file", "Download it again.")
    for done in range(3):
        progress("reading weights", done << 19, 1 << 20)
    return ScriptedEngine(
        ctx=load.ctx or CTX, block_size=BLOCK if load.support_path != "none" else 0
    )


if __name__ == "__main__":
    host.end(host.main(sys.argv[1:], open_scripted))
