"""Target and draft learn a handful of replies by heart, and the draft is then accepted."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("zstandard")

from training import data, rounds  # noqa: E402
from training import tokenizer as tok  # noqa: E402
from training.batches import Batch  # noqa: E402
from training.config import NANO  # noqa: E402
from training.decode import Generator  # noqa: E402
from training.draft import DraftBatch, DraftTrainer  # noqa: E402
from training.dspark import Draft  # noqa: E402
from training.hashing import balanced_tables  # noqa: E402
from training.model import Target  # noqa: E402
from training.runlog import Log  # noqa: E402
from training.train import Trainer  # noqa: E402

SMALL = replace(
    NANO, n_vocab=64, dim=64, n_layers=3, compress_ratios=(0, 4, 0), q_lora=32, o_lora=32,
    n_experts=4, n_experts_used=2, expert_dim=32, n_hash_layers=1, target_layers=(0, 1, 2),
    markov_rank=32, n_stages=1, sinkhorn_rounds=2,
)  # fmt: skip
N_STEPS = 220
N_SEQ, N_TOK, N_PROMPT = 6, 24, 8


def rows() -> Batch:
    """Eight short conversations with random replies that end at the last token but one."""
    rng = torch.Generator().manual_seed(4)
    tokens = torch.randint(8, 64, (N_SEQ, N_TOK), generator=rng)
    head = [tok.BOS_ID, tok.USER_ID]
    tokens[:, :2] = torch.tensor(head)
    tokens[:, N_PROMPT - 2] = tok.ASSISTANT_ID
    tokens[:, N_PROMPT - 1] = tok.CLOSE_ID
    tokens[:, -1] = tok.EOS_ID
    roles = torch.zeros_like(tokens)
    roles[:, N_PROMPT:] = data.REPLY_ROLE
    return Batch(tokens, roles)


@pytest.mark.slow
def test_overfit(tmp_path: Path) -> None:
    torch.manual_seed(3)
    torch.set_num_threads(1)
    b = rows()
    model = Target(SMALL)
    table = balanced_tables(SMALL, torch.ones(64), 1)[0]
    model.blk[0].ffn_gate_tid2eid.copy_(table)
    a = argparse.Namespace(muon=0.02, adam=3e-3)
    trainer = Trainer(model, a, Log(tmp_path / "log.jsonl"))
    first, _ = trainer.one(b, "chat", 0.0)
    for i in range(N_STEPS):
        trainer.sim = trainer.opt.is_rounding = i > 0.75 * N_STEPS
        loss, _ = trainer.one(b, "chat", i / N_STEPS)
    assert first > 3.5
    assert loss < 0.2
    prompts = b.tokens[:, :N_PROMPT].tolist()
    replies = Generator(model, torch.float32).run(prompts, torch.zeros(N_SEQ), N_TOK)
    want = b.tokens[:, N_PROMPT:].tolist()
    assert np.mean([r == w for r, w in zip(replies, want, strict=True)]) >= 0.75

    model.requires_grad_(requires_grad=False)
    draft = Draft(SMALL)
    fit = DraftTrainer(model, draft, 1.0, Log(tmp_path / "d.jsonl"), (0.02, 3e-3))
    anchors = torch.arange(N_PROMPT, N_TOK - 1).repeat(N_SEQ, 1)
    block = DraftBatch(b.tokens, b.roles, anchors, torch.ones_like(anchors, dtype=torch.bool))
    before = fit.one(block, 0.0)[1]
    for i in range(N_STEPS):
        fit.opt.is_rounding = i > 0.75 * N_STEPS
        agree = fit.one(block, i / N_STEPS)[1]
    assert before.mean() < 0.3
    assert agree.mean() > 0.8
    full = [(row, N_PROMPT) for row in b.tokens.tolist()]
    made = rounds.proposals(model, draft, full, torch.float32)
    tallies = [
        rounds.tally(row[N_PROMPT:], drafted, conf)
        for (row, _), (drafted, conf) in zip(full, made, strict=True)
    ]
    assert sum(t.n_tokens for t in tallies) / sum(t.n_rounds for t in tallies) > 2.5
