"""Rounding as stored, the exported files, and the arithmetic around them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("zstandard")

import gguf  # noqa: E402

from training import batches, data, export, formats, quant, rounds  # noqa: E402
from training import tokenizer as tok  # noqa: E402
from training.config import NANO  # noqa: E402
from training.dspark import Draft  # noqa: E402
from training.model import Target  # noqa: E402
from training.optim import Optimizer, Rates, orthogonal  # noqa: E402

SMALL = replace(
    NANO, n_vocab=300, dim=64, n_layers=3, compress_ratios=(0, 4, 128), q_lora=32, o_lora=32,
    n_experts=4, n_experts_used=2, expert_dim=32, n_hash_layers=1, target_layers=(0, 1, 2),
    markov_rank=32,
)  # fmt: skip


def small_vocabulary() -> tok.Vocabulary:
    return tok.train(iter(["the cat and the dog and the cow"] * 9), SMALL.n_vocab)


def test_q8_0_equals_the_file_format() -> None:
    w = torch.randn(8, 64)
    packed = gguf.quants.quantize(w.numpy(), gguf.GGMLQuantizationType.Q8_0)
    want = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.Q8_0)
    assert np.array_equal(quant.q8_0_round(w).numpy(), want)


def test_fp4_grid_and_ties() -> None:
    x = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -6.0] + [0.0] * 24)
    got = quant.fp4_round(x)[:8].tolist()
    assert got == [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, -6.0]


def test_files_hold_the_rounded_parameters(tmp_path: Path) -> None:
    torch.manual_seed(1)
    target, draft = Target(SMALL), Draft(SMALL)
    for module in (target, draft):
        opt = Optimizer(module)
        opt.is_rounding = True
        opt.publish()
    vocab = small_vocabulary()
    vocab = tok.Vocabulary(
        (*vocab.tokens, *(f"f{i}" for i in range(300 - len(vocab.tokens)))), vocab.merges
    )
    export.write_base(tmp_path / "base.gguf", SMALL, target, vocab)
    export.write_support(tmp_path / "support.gguf", SMALL, draft)
    for module, again, name in (
        (target, Target(SMALL), "base"),
        (draft, Draft(SMALL), "support"),
    ):
        export.fill(again, tmp_path / f"{name}.gguf")
        for key, value in module.state_dict().items():
            assert torch.equal(again.state_dict()[key], value), key
    assert export.read_vocabulary(tmp_path / "base.gguf") == vocab


def test_every_parameter_has_a_fitting_type() -> None:
    for module in (Target(NANO), Draft(NANO)):
        for name, p in module.named_parameters():
            kind = formats.stored_type(name)
            assert kind in ("F32", "F16", "Q8_0")
            assert kind != "Q8_0" or p.shape[-1] % 32 == 0
            assert (
                p.ndim == 1 or kind != "F32" or name.endswith(("ape", "confidence_head.proj"))
            )


def test_muon_makes_orthogonal_updates() -> None:
    torch.manual_seed(0)
    u = orthogonal(torch.randn(3, 64, 128))
    values = torch.linalg.svdvals(u)
    assert values.min() > 0.5
    assert values.max() < 1.3


def test_a_step_with_a_bad_gradient_changes_nothing() -> None:
    module = torch.nn.Linear(64, 64)
    opt = Optimizer(module, weight_decay=0.0)
    before = module.weight.detach().clone()
    module.weight.grad = torch.full_like(module.weight, float("nan"))
    module.bias.grad = torch.ones_like(module.bias)
    opt.step(Rates(muon=0.1, adam=0.1))
    assert torch.equal(module.weight, before)
    assert int(opt.n_dropped) == 1
    module.weight.grad = torch.randn_like(module.weight)
    opt.step(Rates(muon=0.1, adam=0.1))
    assert not torch.equal(module.weight, before)


def test_rounds_count_what_is_committed() -> None:
    reply = [5, 6, 7, 8, 9, 1]
    drafts = [[6, 7, 0, 0, 0], [0] * 5, [0] * 5, [9, 1, 0, 0, 0], [0] * 5, [0] * 5]
    t = rounds.tally(reply, drafts, [[0.0] * 5] * 6)
    assert (t.n_tokens, t.n_rounds) == (5, 2)
    assert [ok for _, ok, _ in t.outcomes] == [True, True, False, True, True]
    assert rounds.auc([(0.9, True, 0), (0.1, False, 0), (0.5, True, 1)]) == 1.0


def test_batches_cut_rows_and_pad() -> None:
    rng = np.random.default_rng(0)
    rows = []
    for i in range(40):
        ids = np.full(20 + i, 9, np.uint16)
        ids[0], ids[-1] = tok.BOS_ID, tok.EOS_ID | (data.REPLY_ROLE << data.ROLE_SHIFT)
        rows.append(ids)
    source = batches.Source({"corpus": data.Tokens.join(rows)}, torch.device("cpu"), 256)
    n_single = 0
    for b in source.epoch(int(rng.integers(9)), {}):
        assert b.shape[0] == 256 // b.shape[1]
        assert (b.tokens[:, 0] == tok.BOS_ID).all()
        if b.shape[1] < 256:
            n_single += 1
            assert ((b.tokens == tok.EOS_ID).sum(1) == 1).all()
            assert (b.roles[b.tokens == tok.NOISE_ID] == 0).all()
        else:  # a chat of several conversations: one start, many ends
            assert (b.tokens == tok.BOS_ID).sum() == 1
            assert (b.tokens == tok.EOS_ID).sum() > 1
    assert n_single > 0
