"""Repeats are marked from the third time on, and what is marked becomes unlikely."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.unit.training.test_overfit import SMALL  # noqa: E402
from training import batches, data, loops  # noqa: E402
from training import train as train_  # noqa: E402
from training.batches import Batch  # noqa: E402
from training.model import Target, Trace  # noqa: E402
from training.runlog import Log  # noqa: E402


def test_the_third_time_is_a_repeat() -> None:
    once = [1, 2, 3, 4]
    assert not any(loops.repeats(once + once, 2))
    assert loops.repeats(once * 3, 2) == [False] * 11 + [True]
    assert not any(loops.repeats(list(range(100)), 2))
    assert not any(loops.repeats(once * 3, loops.SEEN["code"]))


def test_only_loops_are_kept_and_only_their_repeats_learned() -> None:
    assert loops.marked([9, 9, 9, 9, 9, 9, 9], [1, 2, 3], 2) is None
    row = loops.marked([7, 8], [5] * 8, 2)
    assert row is not None
    assert (row & data.ID_MASK).tolist() == [7, 8] + [5] * 8
    roles = (row >> data.ROLE_SHIFT).tolist()
    assert roles == [0] * 7 + [data.UNLIKELY_ROLE] * 3


@pytest.mark.slow
def test_marked_tokens_become_unlikely(tmp_path: Path) -> None:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Target(SMALL)
    a = argparse.Namespace(muon=0.02, adam=3e-3)
    trainer = train_.Trainer(model, a, Log(tmp_path / "log.jsonl"))
    tokens = torch.randint(4, 60, (4, 16))
    liked = Batch(tokens, torch.full_like(tokens, data.REPLY_ROLE))
    for _ in range(160):
        trainer.one(liked, "chat", 0.0)
    before, _ = probability(model, liked)
    roles = torch.full_like(tokens, data.REPLY_ROLE)
    roles[:, 12:] = data.UNLIKELY_ROLE
    for _ in range(40):
        trainer.one(Batch(tokens, roles), "chat", 0.0)
    after, kept = probability(model, liked)
    assert before > 0.5
    assert after < 0.2
    assert kept > 0.5


def probability(model: Target, b: Batch) -> tuple[float, float]:
    """Mean probability of the tokens from place 12 on, and of those before."""
    with torch.no_grad():
        loss, _ = train_.losses(model, b, torch.float32, False, Trace())
    p = torch.exp(-loss).view(b.shape)[:, :-1]
    return p[:, 11:].mean().item(), p[:, :11].mean().item()


def test_loops_join_the_data_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [np.array([4, 5, 6, 7] * 8, np.uint16) | (data.REPLY_ROLE << data.ROLE_SHIFT)] * 64
    source = batches.Source({"corpus": data.Tokens.join(rows)}, torch.device("cpu"), 256)
    trainer = train_.Trainer(
        Target(SMALL), argparse.Namespace(minutes=1.0), Log(tmp_path / "log.jsonl")
    )
    found = data.Tokens.join([rows[0]])
    monkeypatch.setattr(loops, "collect", lambda *_: found)
    for n, begin in enumerate(train_.LOOPS_FROM):
        monkeypatch.setattr(trainer, "spent", lambda at=begin: at - 0.01)
        assert not trainer.is_loop_time()
        monkeypatch.setattr(trainer, "spent", lambda at=begin: at)
        assert trainer.is_loop_time()
        source = trainer.with_loops(source)
        assert set(source.sets) == {"corpus", "loops"}
        assert trainer.shares["chat"]["loops"] == pytest.approx(train_.LOOPS_SHARE * 64)
        assert trainer.n_loop_times == n + 1
    assert not trainer.is_loop_time()
