"""Train the DSpark draft on the target's distributions and on replies that it wrote itself.

    python -m training.draft --target target.pt --mix mix.npz --out DIR --minutes 4

Loss for each drafted position k: exp(-k / 4) * (0.1 CE + 0.9 |q - p|_1) + 1.0 BCE(confidence,
1 - |q - p|_1 / 2), teacher-forced Markov input, confidence from the pre-norm state.

p is always the frozen target's own distribution. The target writes only a few million tokens in
the time there is, and a draft that sees nothing else learns them by heart (agreement 0.82 on
them, 0.56 on held-out prompts). So it begins with the corpus, of which it sees little twice,
and then takes every third batch from the target's replies.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from training import batches, checkpoint, data, export, ops, tokenizer
from training.config import NANO
from training.decode import Generator
from training.dspark import Blocks, Draft
from training.layout import Rotary
from training.model import Target, Trace
from training.optim import Optimizer, Rates
from training.replies import prompts_of, regenerate
from training.runlog import Log
from training.train import BIAS_RATE

TARGET_ROWS = 36864
LENGTHS = (64, 96, 128, 192, 256, 384)
DECAY = 4.0
MANY_BATCHES = 96  # hold one of every length
ROUND_FROM, FALL_FROM = 0.75, 0.4
OWN_FROM, OWN_EVERY = 0.35, 3
PROMPTS = {"corpus": 0.44, "story": 0.06, "code": 0.22, "exact": 0.2, "persona": 0.08}
TEXTS = ("corpus", "code", "code", "exact", "persona")
STORY_SHARE = 0.15
"""Stories are a third of the corpus and the easiest to draft; chat and code need the time."""


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


def endless(tokens: data.Tokens, device: torch.device, seed: int) -> Iterator[DraftBatch]:
    """Pass after pass, each with other anchors and another order."""
    for epoch in itertools.count():
        yield from nonempty(draft_batches(tokens, device, seed * 100 + epoch), tokens)


def nonempty(some: Iterator[DraftBatch], tokens: data.Tokens) -> Iterator[DraftBatch]:
    """The same batches. Raises ValueError if there is none, instead of searching forever."""
    first = next(some, None)
    if first is None:
        raise ValueError(f"{len(tokens.lengths)} replies are too few for one batch")
    yield first
    yield from some


def draft_loss(
    rows: Tensor, head: Tensor, e: Tensor, w2: Tensor, conf: Tensor, p_rows: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Losses of N drafted positions.

    Args:
        rows, p_rows: `(N, D)` normed states of draft and target; head `(V, D)`.
        e: `(N, r)` Markov embeddings of the previous tokens; w2 `(V, r)`.
        conf: `(N,)` confidence logits; y: `(N,)` the tokens that came.

    Returns:
        L1 distance, cross-entropy, confidence loss, whether draft and target agree: each (N,).
    """
    u = (rows @ head.to(rows.dtype).T + e.to(rows.dtype) @ w2.to(rows.dtype).T).float()
    t = (p_rows @ head.to(rows.dtype).T).float()
    q, p = torch.softmax(u, -1), torch.softmax(t, -1)
    far = (q - p).abs().sum(-1)
    ce = torch.logsumexp(u, -1) - u.gather(1, y[:, None]).squeeze(1)
    bce = F.binary_cross_entropy_with_logits(conf, 1 - 0.5 * far.detach(), reduction="none")
    return far, ce, bce, (u.argmax(-1) == t.argmax(-1)).float()


def relative_gap(got: Tensor, want: Tensor) -> float:
    """Mean difference over mean size; nan if anything is nan."""
    return ((got - want).abs().mean() / want.abs().mean()).item()


def plain(trainer: DraftTrainer) -> DraftTrainer:
    """A view of a trainer that uses the uncompiled loss."""
    other = copy(trainer)
    other.loss = draft_loss
    return other


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
        self.compiled_lengths: set[int] = set()

    @torch.no_grad()
    def read_target(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Captures `(N, 3 D)` and collapsed states `(N, D)` of the frozen target."""
        trace = Trace(want_captures=True)
        is_eager = tokens.shape[1] not in self.compiled_lengths
        with ops.eager() if is_eager else nullcontext():
            h = self.target.hidden(tokens, self.dtype, True, trace)
        return torch.cat(trace.captures, -1), h

    @torch.no_grad()
    def check_compiled(self, samples: Iterable[DraftBatch]) -> None:
        """Compare compiled and eager results on real batches; run uncompiled what differs.

        One compiled graph that yields values that are not finite would spoil a whole run.
        """
        for b in samples:
            n_tok = b.tokens.shape[1]
            self.compiled_lengths.add(n_tok)
            fast = self.read_target(b.tokens)
            with ops.eager():
                slow = self.read_target(b.tokens)
                want = torch.stack([x.mean() for x in plain(self).forward(b)[:3]])
            gap = max(relative_gap(x, y) for x, y in zip(fast, slow, strict=True))
            if not gap < 0.1:
                self.compiled_lengths.discard(n_tok)
            got = torch.stack([x.mean() for x in self.forward(b)[:3]])
            is_draft_bad = not relative_gap(got, want) < 0.1
            rows = [int((~torch.isfinite(x)).any(-1).sum()) for x in (*fast, *slow)]
            self.log(
                event="checked",
                shape=list(b.tokens.shape),
                target_gap=gap,
                not_finite_rows=rows,
                losses=got.tolist(),
                eager_losses=want.tolist(),
                target_eager=n_tok not in self.compiled_lengths,
            )
            if is_draft_bad:
                self.log(event="the draft runs uncompiled")
                self.loss = draft_loss
                ops.use_eager()
                return

    def forward(self, b: DraftBatch) -> tuple[Tensor, ...]:
        """Losses `(B, A, block)` and the mask of positions that exist."""
        c, draft, target = self.draft.c, self.draft, self.target
        n_seq, n_tok = b.tokens.shape
        captures, h = self.read_target(b.tokens)
        p_all = ops.rms(h, target.output_norm, c.rms_eps).to(self.dtype)
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

    def report(self, recent: list[tuple[Tensor, Tensor]], spent: float) -> None:
        """Log means; a run that is not finite ends here."""
        loss = torch.stack([x for x, _ in recent]).mean().item()
        agree = torch.stack([x for _, x in recent]).mean(0).tolist()
        dropped = int(self.opt.n_dropped)
        self.log(
            step=self.step,
            progress=round(spent, 4),
            loss=round(loss, 4),
            dropped=dropped,
            agree=[round(x, 3) for x in agree],
        )
        if dropped > self.step // 2:
            raise FloatingPointError(f"{dropped} of {self.step} steps were not finite")

    def run(self, own: data.Tokens, texts: data.Tokens, out: Path, seed: int) -> None:
        """Train for the minutes: on `texts`, later also on the target's `own` replies."""
        if self.device.type == "cuda":
            some = itertools.islice(draft_batches(texts, self.device, seed), MANY_BATCHES)
            self.check_compiled({b.tokens.shape[1]: b for b in some}.values())
        begin, spent, recent = time.monotonic(), 0.0, []
        saved = begin
        replies, known = endless(own, self.device, seed), endless(texts, self.device, seed + 50)
        while spent < 1.0:
            is_own = spent >= OWN_FROM and self.step % OWN_EVERY == 0
            b = next(replies if is_own else known)
            self.opt.is_rounding = spent >= ROUND_FROM
            recent.append(self.one(b, spent))
            if self.step % 50 == 0:
                self.report(recent, spent)
                recent = []
            if time.monotonic() - saved > 60:
                saved = time.monotonic()
                checkpoint.save(out / "draft.pt", self.draft.c, self.draft, self.opt)
            spent = (time.monotonic() - begin) / (60 * self.minutes)
        self.opt.is_rounding = True
        self.opt.publish()
        checkpoint.save(out / "draft.pt", self.draft.c, self.draft, self.opt)
        self.log(event="done", step=self.step)


def compile_ahead(device: torch.device, log: Log) -> None:
    """Compile every graph with made-up weights and batches, and try generation."""
    torch.manual_seed(0)
    target = Target(NANO).to(device).requires_grad_(requires_grad=False)
    ops.use_compiled(is_softmax_dynamic=False)
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


def load_target(path: Path, device: torch.device) -> Target:
    """The frozen target at its shipped weights."""
    if path.suffix == ".gguf":
        target = Target(NANO)
        export.fill(target, path)
    else:
        state = checkpoint.load(path, device)
        target = Target(state["config"])
        target.load_state_dict(state["module"])
    return target.to(device).requires_grad_(requires_grad=False)


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument(
        "--target", type=Path, required=True, help="target.pt or an exported base.gguf"
    )
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
    target = load_target(a.target, device)
    mix, rng, prompts = data.Mix.load(a.mix), np.random.default_rng(a.seed), []
    for name, part in PROMPTS.items():
        prompts += prompts_of(mix.train[name], rng, int(a.replies * part))
    log(event="prompts", n=len(prompts))
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    tokens = regenerate(target, prompts, a.generate_seconds, dtype, log)
    torch.manual_seed(a.seed)
    draft = Draft(target.c).to(device)
    draft.start_from(target)
    trainer = DraftTrainer(target, draft, a.minutes, log, (a.muon, a.adam))
    stories = mix.train["story"].some(STORY_SHARE, rng)
    texts = data.Tokens.chain([*(mix.train[name] for name in TEXTS), stories])
    trainer.run(tokens, texts, a.out, a.seed)


if __name__ == "__main__":
    main()
