"""The cached generator computes what the training form computes."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from training.config import NANO  # noqa: E402
from training.decode import Generator, new_cache  # noqa: E402
from training.model import Target, Trace  # noqa: E402

SMALL = replace(
    NANO, n_vocab=96, dim=64, n_layers=4, compress_ratios=(0, 4, 128, 4), q_lora=32, o_lora=16,
    n_experts=4, n_experts_used=2, expert_dim=32, n_hash_layers=1, target_layers=(1, 2, 3),
    markov_rank=32,
)  # fmt: skip


def small_target() -> Target:
    torch.manual_seed(0)
    model = Target(SMALL)
    model.blk[0].ffn_gate_tid2eid.copy_(torch.randint(0, 2, (96, 2)) * 2 + torch.tensor([0, 1]))
    with torch.no_grad():
        model.output.mul_(40)
    return model


@pytest.mark.parametrize("sim", [False, True])
def test_steps_equal_one_pass(sim: bool) -> None:
    model = small_target()
    tokens = torch.randint(8, 96, (2, 264))
    with torch.no_grad():
        h = model.hidden(tokens, torch.float32, sim, Trace())
        want = model.logits(h).view(2, 264, -1)
        generator = Generator(model, torch.float32, sim)
        caches = [new_cache(b, 2, 264, torch.float32) for b in model.blk]
        got = torch.stack([generator.step(tokens[:, p], p, caches) for p in range(264)], 1)
    error = (got - want).abs().amax(-1)
    if sim:  # a code at a rounding border may flip and move the rows behind it
        assert error.median() <= 1e-3
    else:
        assert error.max() <= 1e-4


def test_run_continues_prompts_greedily() -> None:
    model = small_target()
    prompts = [[0, 9, 10, 11], [0, 20, 21, 22, 23, 24]]
    out = Generator(model, torch.float32).run(prompts, torch.zeros(2), 10)
    for prompt, reply in zip(prompts, out, strict=True):
        ids = torch.tensor([prompt + reply])
        pad = torch.full((1, -ids.shape[1] % 4), 2)
        with torch.no_grad():
            h = model.hidden(torch.cat([ids, pad], 1), torch.float32, True, Trace())
            best = model.logits(h).argmax(-1)
        first = len(prompt) - 1
        assert reply == best[first : first + len(reply)].tolist()
        assert len(reply) == 10 or reply[-1] == 1
