"""Train the DSpark draft on replies that the frozen target wrote itself.

    python -m training.draft --target target.pt --mix mix.npz --out DIR --minutes 4

Loss for each drafted position k: exp(-k / 4) * (0.1 CE + 0.9 |q - p|_1) + 1.0 BCE(confidence,
1 - |q - p|_1 / 2), teacher-forced Markov input, confidence from the pre-norm state.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from training import batches, checkpoint, data, ops, tokenizer
from training.decode import Generator
from training.config import NANO
from training.dspark import Blocks, Draft
from training.layout import Rotary
from training.model import Target, Trace
from training.optim import Optimizer, Rates
from training.train import BIAS_RATE, Log

TARGET_ROWS = 36864
LENGTHS = (64, 96, 128, 192, 256, 384)
DECAY = 4.0
ROUND_FROM, FALL_FROM = 0.75, 0.4
MAX_PROMPT, MAX_NEW, GENERATE_BATCH = 160, 224, 6144


def prompts_of(tokens: data.Tokens, rng: np.random.Generator, n: int) -> list[list[int]]:
    """Conversations cut right before their last reply, as ids."""
    out = []
    for i in rng.permutation(len(tokens.lengths))[: n * 2].tolist():
        raw = tokens.flat[tokens.starts[i] : tokens.starts[i + 1]]
        ids = (raw & data.ID_MASK).tolist()
        heads = [j for j, t in enumerate(ids) if t == tokenizer.ASSISTANT_ID]
        if heads and heads[-1] + 2 <= min(MAX_PROMPT, len(ids)):
            out.append(ids[: heads[-1] + 2])
        if len(out) == n:
            break
    return out


def regenerate(
    model: Target, prompts: list[list[int]], seconds: float, dtype: torch.dtype, log: Log
) -> data.Tokens:
    """Let the target answer; half greedy, half at temperature 0.3 to 1. Stops at the time limit.

    The result is in the token format of `data`: role 2 on generated tokens.
    """
    rng = random.Random(3)
    prompts = sorted(prompts, key=len)
    groups = [prompts[i : i + GENERATE_BATCH] for i in range(0, len(prompts), GENERATE_BATCH)]
    rng.shuffle(groups)
    generator, rows, start = Generator(model, dtype), [], time.monotonic()
    for i, group in enumerate(groups):
        heat = torch.tensor(
            [0.0 if rng.random() < 0.5 else rng.uniform(0.3, 1.0) for _ in group]
        )
        for prompt, reply in zip(group, generator.run(group, heat, MAX_NEW, i), strict=True):
            ids = np.array(prompt + reply, np.uint16)
            ids[len(prompt) :] |= np.uint16(data.REPLY_ROLE << data.ROLE_SHIFT)
            rows.append(ids)
        if time.monotonic() - start > seconds:
            break
    n = sum(map(len, rows))
    log(
        event="regenerated",
        replies=len(rows),
        n_tokens=n,
        seconds=round(time.monotonic() - start, 1),
    )
    return data.Tokens.join(rows)


@dataclass(frozen=True, slots=True)
class DraftBatch:
    """A batch of blocks: `tokens (B, T)`, `anchors (B, A)`, and which anchors are real."""

    tokens: Tensor
    roles: Tensor
    anchors: Tensor
    is_real: Tensor


def draft_batches(
    tokens: data.Tokens, device: torch.device, seed: int, rows: int = TARGET_ROWS
) -> Iterator[DraftBatch]:
    """One pass: T / 4 random anchors of each sequence, among the reply's tokens."""
    rng = np.random.default_rng(seed)
    source = batches.Source({"all": tokens}, device, rows)
    flat = torch.from_numpy(tokens.flat.astype(np.int32)).to(device)
    jobs = []
    floor = 0
    for n_tok in LENGTHS:
        keep = np.flatnonzero((tokens.lengths > floor) & (tokens.lengths <= n_tok))
        floor = n_tok
        keep, n = rng.permutation(keep), rows // n_tok
        jobs += [(n_tok, keep[i : i + n]) for i in range(0, len(keep) - n + 1, n)]
    for j in rng.permutation(len(jobs)):
        n_tok, keep = jobs[j]
        plan = batches.Plan(
            n_tok, tokens.starts[:-1][keep][:, None], tokens.starts[1:][keep][:, None]
        )
        b = source._cut(flat, plan, slice(None))
        score = torch.rand(b.roles.shape, device=device) + 10 * (b.roles == data.REPLY_ROLE)
        score[:, -1] = -1.0
        score = score.masked_fill(b.tokens == tokenizer.EOS_ID, -1.0)
        best = score.topk(n_tok // 4, -1)
        yield DraftBatch(b.tokens, b.roles, best.indices, best.values >= 10.0)


def draft_loss(
    rows: Tensor, head: Tensor, e: Tensor, w2: Tensor, conf: Tensor, p_rows: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Losses of N drafted positions.

    Args:
        rows, p_rows: `(N, D)` normed states of draft and target; head `(V, D)`.
        e: `(N, r)` Markov embeddings of the previous tokens; w2 `(V, r)`.
        conf: `(N,)` confidence logits; y: `(N,)` the tokens that came.

    Returns:
        L1 distance, cross-entropy, confidence loss, and whether draft and target agree, each (N,).
    """
    u = (rows @ head.to(rows.dtype).T + e.to(rows.dtype) @ w2.to(rows.dtype).T).float()
    t = (p_rows @ head.to(rows.dtype).T).float()
    q, p = torch.softmax(u, -1), torch.softmax(t, -1)
    far = (q - p).abs().sum(-1)
    ce = torch.logsumexp(u, -1) - u.gather(1, y[:, None]).squeeze(1)
    bce = F.binary_cross_entropy_with_logits(conf, 1 - 0.5 * far.detach(), reduction="none")
    return far, ce, bce, (u.argmax(-1) == t.argmax(-1)).float()


class DraftTrainer:
    """Trains a draft against a frozen target."""

    loss = staticmethod(draft_loss)

    def __init__(
        self, target: Target, draft: Draft, minutes: float, log: Log, lr: tuple[float, float]
    ):
        self.target, self.draft, self.log, self.minutes, self.lr = (
            target,
            draft,
            log,
            minutes,
            lr,
        )
        self.opt = Optimizer(draft)
        self.device = target.token_embd.device
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self.rotary = Rotary(target.c, self.device)
        self.step = 0

    def forward(self, b: DraftBatch) -> tuple[Tensor, ...]:
        """Losses `(B, A, block)` and the mask of positions that exist."""
        c, draft, target = self.draft.c, self.draft, self.target
        with torch.no_grad():
            trace = Trace(want_captures=True)
            h = target.hidden(b.tokens, self.dtype, True, trace)
            captures = torch.cat(trace.captures, -1)
            p_all = ops.rms(h, target.output_norm, c.rms_eps).to(self.dtype)
        n_seq, n_tok = b.tokens.shape
        main = draft.main_rows(captures, self.dtype).view(n_seq, n_tok, -1)
        hidden = draft.hidden(
            target.token_embd, main, Blocks.at(b.tokens, b.anchors, c), self.rotary, True
        )
        at = b.anchors[..., None] + torch.arange(c.block_size, device=self.device)
        seq = torch.arange(n_seq, device=self.device)[:, None, None]
        inside = at.clamp(max=n_tok - 2)
        prev, y = b.tokens[seq, inside], b.tokens[seq, inside + 1]
        is_next = (b.roles[seq, inside + 1] == data.REPLY_ROLE) & (at < n_tok - 1)
        mask = is_next.cumprod(-1).bool() & b.is_real[..., None]
        heads = draft.mtp[-1]
        rows = ops.rms(hidden, heads.norm, c.rms_eps).to(self.dtype)
        e = heads.markov_head.markov_w1[prev.flatten()]
        p_rows = p_all.view(n_seq, n_tok, -1)[seq, inside].flatten(0, 2)
        conf = draft.confidence(hidden, e)
        out = self.loss(
            rows, target.output, e, heads.markov_head.markov_w2, conf, p_rows, y.flatten()
        )
        return *(x.view_as(mask) for x in out), mask

    def one(self, b: DraftBatch, progress: float) -> tuple[Tensor, Tensor]:
        """One step; returns the loss and agreement for each block position."""
        far, ce, bce, agree, mask = self.forward(b)
        k = torch.arange(mask.shape[-1], device=self.device)
        w = mask * torch.exp(-k / DECAY)
        total = (w * (0.1 * ce + 0.9 * far + bce)).sum() / w.sum().clamp_min(1.0)
        total.backward()
        fall = min(1.0, max(0.0, (1 - progress) / (1 - FALL_FROM)))
        warm = min(1.0, (self.step + 1) / 100)
        self.opt.step(Rates(muon=self.lr[0] * fall * warm, adam=self.lr[1] * fall * warm))
        with torch.no_grad():
            for stage in self.draft.mtp:
                stage.exp_probs_b += (
                    BIAS_RATE * fall * torch.sign(stage.load.mean() - stage.load)
                )
        self.step += 1
        return total.detach(), (
            (agree * mask).sum((0, 1)) / mask.sum((0, 1)).clamp_min(1)
        ).detach()

    def run(self, tokens: data.Tokens, out: Path, seed: int) -> None:
        begin, spent, epoch, recent = time.monotonic(), 0.0, 0, []
        saved = begin
        while spent < 1.0:
            for b in draft_batches(tokens, self.device, seed * 100 + epoch):
                spent = (time.monotonic() - begin) / (60 * self.minutes)
                if spent >= 1.0:
                    break
                self.opt.is_rounding = spent >= ROUND_FROM
                recent.append(self.one(b, spent))
                if self.step % 50 == 0:
                    loss = torch.stack([x for x, _ in recent]).mean().item()
                    agree = torch.stack([x for _, x in recent]).mean(0)
                    self.log(step=self.step, epoch=epoch, progress=round(spent, 4), loss=round(loss, 4),
                             agree=[round(x, 3) for x in agree.tolist()])  # fmt: skip
                    recent = []
                if time.monotonic() - saved > 60:
                    saved = time.monotonic()
                    checkpoint.save(out / "draft.pt", self.draft.c, self.draft, self.opt)
            if spent == 0.0:
                raise ValueError(f"{len(tokens.lengths)} replies are too few for one batch")
            epoch += 1
        self.opt.is_rounding = True
        self.opt.publish()
        checkpoint.save(out / "draft.pt", self.draft.c, self.draft, self.opt)
        self.log(event="done", step=self.step, epochs=epoch)


def compile_ahead(device: torch.device, log: Log) -> None:
    """Compile every graph with made-up weights and batches, and try generation."""
    torch.manual_seed(0)
    target = Target(NANO).to(device).requires_grad_(requires_grad=False)
    ops.use_compiled()
    Optimizer.use_compiled()
    DraftTrainer.loss = staticmethod(torch.compile(draft_loss, dynamic=False))
    trainer = DraftTrainer(target, Draft(NANO).to(device), 1.0, log, (0.0, 0.0))
    for n_tok in LENGTHS:
        shape = (TARGET_ROWS // n_tok, n_tok)
        tokens = torch.randint(8, NANO.n_vocab, shape, device=device)
        anchors = torch.randint(1, n_tok - 1, (shape[0], n_tok // 4), device=device)
        trainer.one(
            DraftBatch(tokens, torch.full_like(tokens, data.REPLY_ROLE), anchors, anchors > 0),
            0.0,
        )
    made = Generator(target, torch.bfloat16).run([[0, 3, 9, 4, 6]] * 64, torch.ones(64), 24)
    log(event="compiled", tried_tokens=sum(map(len, made)))


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--target", type=Path, required=True)
    p.add_argument("--mix", type=Path, required=True, help="mix.npz of the target's trainer")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--minutes", type=float, default=4.0)
    p.add_argument("--generate-seconds", type=float, default=80)
    p.add_argument("--replies", type=int, default=250_000)
    p.add_argument("--seed", type=int, default=2)
    p.add_argument("--muon", type=float, default=0.02)
    p.add_argument("--adam", type=float, default=3e-3)
    p.add_argument(
        "--wait-for", type=Path, help="compile first, then wait until this file exists"
    )
    a = p.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    log = Log(a.out / "draft.jsonl")
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        compile_ahead(device, log)
    while a.wait_for and not a.wait_for.exists():
        time.sleep(0.5)
    state = checkpoint.load(a.target, device)
    target = Target(state["config"]).to(device)
    target.load_state_dict(state["module"])
    target.requires_grad_(requires_grad=False)
    mix, rng, prompts = data.Mix.load(a.mix), np.random.default_rng(a.seed), []
    for name, part in (("corpus", 0.7), ("exact", 0.22), ("persona", 0.08)):
        prompts += prompts_of(mix.train[name], rng, int(a.replies * part))
    log(event="prompts", n=len(prompts))
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    tokens = regenerate(target, prompts, a.generate_seconds, dtype, log)
    torch.manual_seed(a.seed)
    trainer = DraftTrainer(
        target, Draft(state["config"]).to(device), a.minutes, log, (a.muon, a.adam)
    )
    trainer.run(tokens, a.out, a.seed)


if __name__ == "__main__":
    main()
