"""Train the target: a language stage, then a chat stage, for a number of minutes.

    python -m training.train --corpus C.jsonl.zst --prepared DIR --out DIR --minutes 13

The schedule follows the clock: constant rates, then a linear fall to zero over the last 45 %;
from 75 % on weights are rounded as stored and the FP8 / FP4 round trips are on; from 85 % on
the target's own loops are among the data, to be unlearned.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
from torch import Tensor

from training import batches, checkpoint, data, loops, ops, tokenizer
from training.batches import Batch
from training.config import NANO, ModelConfig
from training.hashing import balanced_tables
from training.model import Target, Trace
from training.optim import Optimizer, Rates
from training.runlog import Log

ROUND_FROM, CHAT_FROM, FALL_FROM = 0.75, 0.5, 0.5
USER_WEIGHT = {"language": 0.5, "chat": 0.1}
SHARES = {
    "language": {"corpus": 1.0, "story": 0.8, "code": 1.5, "exact": 1.0, "persona": 1.0},
    "chat": {"corpus": 1.0, "story": 0.6, "code": 2.0, "exact": 1.5, "persona": 1.5},
}
INDEX_FROM_TOKENS = 512
BIAS_RATE = 1e-3
LOOPS_FROM, LOOPS_SECONDS, UNLIKELY_WEIGHT = (0.72, 0.87), 10.0, 1.0
LOOPS_SHARE = 0.06
"""Part of the tokens of the last stage that lies in looping replies."""


def shifted(b: Batch) -> tuple[Tensor, Tensor]:
    """Next-token targets and their roles, flat; the last column learns nothing."""
    targets = torch.cat([b.tokens[:, 1:], b.tokens[:, :1]], 1).reshape(-1)
    roles = b.roles.clone()
    roles[:, 0] = 0
    return targets, torch.cat([roles[:, 1:], roles[:, :1]], 1).reshape(-1)


def losses(
    model: Target, b: Batch, dtype: torch.dtype, sim: bool, trace: Trace
) -> tuple[Tensor, Tensor]:
    """Cross-entropy `(N,)` of every position and the targets' roles."""
    targets, roles = shifted(b)
    h = model.hidden(b.tokens, dtype, sim, trace)
    return ops.token_loss(h, model.output_norm, model.output, targets, model.c.rms_eps), roles


def weighted(loss: Tensor, roles: Tensor, user_weight: float) -> Tensor:
    """Mean loss with replies at 1 and the user's text at `user_weight`.

    Marked repeats add the mean of -log(1 - p), weighted by their share of the learned tokens.
    """
    w = (roles == data.REPLY_ROLE).float() + user_weight * (roles == data.USER_ROLE).float()
    is_bad = (roles == data.UNLIKELY_ROLE).float()
    unlikely = -torch.log1p(-torch.exp(-loss).clamp(max=0.9999)) * is_bad
    return (loss * w + UNLIKELY_WEIGHT * unlikely).sum() / (w + is_bad).sum().clamp_min(1.0)


@torch.no_grad()
def rebalance(model: Target, loads: dict[int, Tensor], rate: float) -> None:
    """Auxiliary-loss-free balancing: move each bias against its expert's load."""
    for i, load in loads.items():
        model.blk[i].exp_probs_b += rate * torch.sign(load.mean() - load)


@torch.no_grad()
def validate(
    model: Target, held: list[Batch], dtype: torch.dtype, sim: bool
) -> dict[str, float]:
    """Reply loss and accuracy on held-out prompts."""
    total = n = 0.0
    for b in held:
        loss, roles = losses(model, b, dtype, sim, Trace())
        is_reply = roles == data.REPLY_ROLE
        total += loss[is_reply].sum().item()
        n += is_reply.sum().item()
    return {"val_loss": round(total / max(n, 1), 4)}


def build_model(
    c: ModelConfig, source: dict[str, data.Tokens], device: torch.device, seed: int
) -> Target:
    """Fresh weights and frequency-balanced hash tables."""
    torch.manual_seed(seed)
    model = Target(c)
    flat = torch.cat(
        [torch.from_numpy((t.flat & data.ID_MASK).astype("int64")) for t in source.values()]
    )
    counts = torch.bincount(flat, minlength=c.n_vocab)
    for block, table in zip(model.blk, balanced_tables(c, counts, seed), strict=False):
        block.ffn_gate_tid2eid.copy_(table)
    return model.to(device)


class Trainer:
    """The loop. `progress` runs from 0 to 1 over the minutes."""

    def __init__(self, model: Target, a: argparse.Namespace, log: Log):
        self.model, self.a, self.log = model, a, log
        self.opt = Optimizer(model)
        self.device = model.token_embd.device
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self.step, self.n_tokens, self.sim = 0, 0, False
        self.n_loop_times = 0
        self.shares = {stage: dict(share) for stage, share in SHARES.items()}
        self.begin = self.saved = 0.0

    def rates(self, progress: float) -> Rates:
        fall = min(1.0, max(0.0, (1 - progress) / (1 - FALL_FROM)))
        warm = min(1.0, (self.step + 1) / 100)
        return Rates(muon=self.a.muon * fall * warm, adam=self.a.adam * fall * warm)

    def one(self, b: Batch, stage: str, progress: float) -> tuple[Tensor, Tensor]:
        """One optimizer step; returns loss and indexer loss (tensors, not synchronised)."""
        trace = Trace(want_index_loss=b.shape[1] >= INDEX_FROM_TOKENS)
        loss, roles = losses(self.model, b, self.dtype, self.sim, trace)
        loss = weighted(loss, roles, USER_WEIGHT[stage])
        index = loss.new_zeros(())
        if trace.index_losses:
            index = torch.stack([x.mean() for x in trace.index_losses]).mean()
        (loss + index).backward()
        rates = self.rates(progress)
        self.opt.step(rates)
        rebalance(self.model, trace.loads, BIAS_RATE * min(1.0, 2 * rates.adam / self.a.adam))
        self.step += 1
        self.n_tokens += b.tokens.numel()
        return loss.detach(), index.detach()

    def run(self, source: batches.Source, held: list[Batch], warmup: list[Batch]) -> None:
        for b in warmup:
            self.one(b, "language", 0.0)
        if warmup:
            self.compile_rounded(warmup, held)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.log(event="compiled", steps=self.step)
        self.begin = self.saved = time.monotonic()
        epoch = 0
        while self.spent() < 1.0:
            stage = "chat" if self.spent() >= CHAT_FROM else "language"
            if self.is_loop_time():
                source = self.with_loops(source)
            self.one_epoch(source, held, epoch, stage)
            epoch += 1
        self.sim = self.opt.is_rounding = True
        self.opt.publish()
        figures = validate(self.model, held, self.dtype, self.sim)
        self.log(event="done", step=self.step, epochs=epoch, n_tokens=self.n_tokens, **figures)
        self.save()

    def is_loop_time(self) -> bool:
        """Whether looping replies are to be looked for now."""
        n = self.n_loop_times
        return n < len(LOOPS_FROM) and self.spent() >= LOOPS_FROM[n]

    def with_loops(self, source: batches.Source) -> batches.Source:
        """The same data with the target's own looping replies of now among it."""
        self.n_loop_times += 1
        seed = 10 + self.n_loop_times
        found = loops.collect(
            self.model, source.sets, LOOPS_SECONDS, self.dtype, self.log, seed
        )
        if not len(found.lengths):
            return source
        total = sum(len(t.flat) for name, t in source.sets.items() if name != "loops")
        self.shares["chat"]["loops"] = LOOPS_SHARE * total / len(found.flat)
        return source.also("loops", found)

    def spent(self) -> float:
        """Part of the minutes that has passed."""
        return (time.monotonic() - self.begin) / (60 * self.a.minutes)

    def one_epoch(
        self, source: batches.Source, held: list[Batch], epoch: int, stage: str
    ) -> None:
        """Steps until the data, the stage or the time ends."""
        recent = []
        for b in source.epoch(self.a.seed * 100 + epoch, self.shares[stage]):
            spent = self.spent()
            is_next = stage == "language" and spent >= CHAT_FROM
            if spent >= 1.0 or is_next or self.is_loop_time():
                return
            if spent >= ROUND_FROM and not self.sim:
                self.sim = self.opt.is_rounding = True
                self.log(event="rounding on", step=self.step)
            recent.append(self.one(b, stage, spent))
            if self.step % self.a.log_every == 0:
                self.report(recent, spent, epoch, stage)
                recent = []
            if self.step % self.a.validate_every == 0:
                self.log(step=self.step, **validate(self.model, held, self.dtype, self.sim))
            if time.monotonic() - self.saved > self.a.save_seconds:
                self.save()

    def compile_rounded(self, warmup: list[Batch], held: list[Batch]) -> None:
        """Compile the graphs of the last quarter and of validation, without a step."""
        for b in warmup:
            trace = Trace(want_index_loss=b.shape[1] >= INDEX_FROM_TOKENS)
            loss, _ = losses(self.model, b, self.dtype, True, trace)
            (loss.mean() + sum(x.mean() for x in trace.index_losses)).backward()
        for p in self.model.parameters():
            p.grad = None
        for sim in (False, True):
            validate(self.model, held[:1], self.dtype, sim)

    def report(self, recent: list, spent: float, epoch: int, stage: str) -> None:
        loss = torch.stack([x for x, _ in recent]).mean().item()
        index = torch.stack([x for _, x in recent])
        index = (index.sum() / (index > 0).sum().clamp_min(1)).item()
        tps = self.n_tokens / (time.monotonic() - self.begin)
        self.log(
            step=self.step,
            epoch=epoch,
            stage=stage,
            progress=round(spent, 4),
            loss=round(loss, 4),
            index_kl=round(index, 4),
            dropped=int(self.opt.n_dropped),
            ktok_s=round(tps / 1e3, 1),
        )
        if loss != loss:
            raise FloatingPointError(f"the loss is not a number at step {self.step}")

    def save(self) -> None:
        self.saved = time.monotonic()
        checkpoint.save(
            Path(self.a.out) / "target.pt", self.model.c, self.model, self.opt, step=self.step
        )


def warmup_batches(source: batches.Source, seed: int) -> list[Batch]:
    """One batch of each length, so that every graph is compiled before the clock starts."""
    seen: dict[int, Batch] = {}
    for b in source.epoch(seed, {}):
        seen.setdefault(b.shape[1], b)
        if len(seen) == len({*batches.BUCKETS, *batches.PACKED}):
            break
    return list(seen.values())


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--corpus", type=Path, required=True)
    p.add_argument("--prepared", type=Path, required=True, help="vocab.json and words.json")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--minutes", type=float, default=13.0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--muon", type=float, default=0.02)
    p.add_argument("--adam", type=float, default=3e-3)
    p.add_argument("--rows", type=int, default=batches.ROWS)
    p.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    p.add_argument("--log-every", type=int, default=50)
    p.add_argument("--validate-every", type=int, default=500)
    p.add_argument("--save-seconds", type=float, default=150)
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--resume", type=Path)
    return p.parse_args()


def main() -> None:
    a = arguments()
    a.out.mkdir(parents=True, exist_ok=True)
    log = Log(a.out / "train.jsonl")
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    vocab = tokenizer.Vocabulary.load(a.prepared / "vocab.json")
    words = data.read_words(a.prepared / "words.json")
    mix = data.build(a.corpus, vocab, words, a.seed, a.workers)
    mix.save(a.out / "mix.npz")
    sizes = {k: [len(t.lengths), len(t.flat)] for k, t in mix.train.items()}
    log(event="data", seed=a.seed, conversations_and_tokens=sizes, torch=torch.__version__)
    model = build_model(NANO, mix.train, device, a.seed)
    trainer = Trainer(model, a, log)
    if a.resume:
        checkpoint.restore(checkpoint.load(a.resume, device), model, trainer.opt)
    source = batches.Source(mix.train, device, a.rows)
    held = batches.validation_batches(mix.validation, device, a.rows)
    if not a.no_compile and device.type == "cuda":
        ops.use_compiled()
        Optimizer.use_compiled()
    warm = warmup_batches(source, a.seed) if device.type == "cuda" else []
    trainer.run(source, held, warm)
    (a.out / "target.done").touch()


if __name__ == "__main__":
    main()
