"""Muon for matrices, AdamW for the rest, over float32 masters.

Muon: momentum, then the nearest semi-orthogonal matrix by five Newton-Schulz rounds (Jordan et
al. 2024); matrices of one shape go through the rounds as one batch.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training import formats

_COEFFICIENTS = (
    (4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046), (2.8366, -3.0525, 1.2012),
)  # fmt: skip


def orthogonal(g: Tensor) -> Tensor:
    """Approximate polar factor of each `(..., m, n)`, in bf16 on the GPU."""
    x = g.to(torch.bfloat16 if g.is_cuda else torch.float32)
    is_tall = x.shape[-2] > x.shape[-1]
    if is_tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) * 1.02 + 1e-7)
    for a, b, c in _COEFFICIENTS:
        s = x @ x.mT
        x = a * x + (b * s + c * (s @ s)) @ x
    return x.mT if is_tall else x


@dataclass(slots=True)
class Rates:
    """Learning rates of one step."""

    muon: float
    adam: float


def is_matrix(name: str, p: Tensor) -> bool:
    """Whether Muon takes it: weights between activations; not tables, mixers or routers."""
    if p.ndim < 2 or min(p.shape[-2:]) < 64:
        return False
    tables = ("token_embd", "markov_w1", "markov_w2", "ape")
    return name != "output" and not name.endswith(tables)


class Optimizer:
    """Both methods, the masters, and the rounding of the shipped values."""

    _orthogonal = staticmethod(orthogonal)

    def __init__(self, module: nn.Module, weight_decay: float = 0.01):
        self.params = dict(module.named_parameters())
        self.masters = {n: p.detach().clone() for n, p in self.params.items()}
        self.is_rounding = False
        self.n_dropped = torch.zeros((), device=next(iter(self.masters.values())).device)
        self._decay = weight_decay
        self._step = 0
        self._muon: dict[tuple[int, int], list[str]] = defaultdict(list)
        self._adam = []
        for n, p in self.params.items():
            if is_matrix(n, p):
                self._muon[(p.shape[-2], p.shape[-1])].append(n)
            else:
                self._adam.append(n)
        self._m = {n: torch.zeros_like(p) for n, p in self.params.items()}
        self._v = {n: torch.zeros_like(self.params[n]) for n in self._adam}

    @classmethod
    def use_compiled(cls) -> None:
        """Compile the Newton-Schulz rounds (once per process)."""
        cls._orthogonal = staticmethod(torch.compile(orthogonal, dynamic=False))

    @torch.no_grad()
    def step(self, rates: Rates) -> None:
        """Update masters from the gradients, refresh the parameters, clear the gradients."""
        self._step += 1
        self._drop_if_not_finite()
        for shape, names in self._muon.items():
            self._muon_step(shape, names, rates.muon)
        self._adam_step(rates.adam)
        self.publish()
        for p in self.params.values():
            p.grad = None

    def _drop_if_not_finite(self) -> None:
        """Zero all gradients of a step in which any is not finite; counts such steps."""
        grads = [p.grad for p in self.params.values() if p.grad is not None]
        sums = torch.stack(torch._foreach_norm(grads))
        is_bad = ~torch.isfinite(sums).all()
        self.n_dropped += is_bad
        for g in grads:
            g.masked_fill_(is_bad, 0.0)

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the masters into the parameters, rounded if rounding is on."""
        if self.is_rounding:
            formats.copy_rounded(self.params, self.masters)
        else:
            torch._foreach_copy_(list(self.params.values()), list(self.masters.values()))

    def _muon_step(self, shape: tuple[int, int], names: list[str], lr: float) -> None:
        names = [n for n in names if self.params[n].grad is not None]
        if not names:
            return
        grads = [self.params[n].grad for n in names]
        moments = [self._m[n] for n in names]
        torch._foreach_lerp_(moments, grads, 0.05)
        mixed = torch._foreach_lerp(grads, moments, 0.95)
        batch = torch.cat([g.reshape(-1, *shape) for g in mixed])
        update = self._orthogonal(batch).float() * max(1.0, shape[0] / shape[1]) ** 0.5
        masters = [self.masters[n] for n in names]
        parts = update.split([m.numel() // (shape[0] * shape[1]) for m in masters])
        torch._foreach_mul_(masters, 1 - lr * self._decay)
        for m, part in zip(masters, parts, strict=True):
            m.add_(part.reshape(m.shape), alpha=-lr)

    def _adam_step(self, lr: float, b1: float = 0.9, b2: float = 0.98) -> None:
        names = [n for n in self._adam if self.params[n].grad is not None]
        if not names:
            return
        grads = [self.params[n].grad for n in names]
        m, v = [self._m[n] for n in names], [self._v[n] for n in names]
        torch._foreach_lerp_(m, grads, 1 - b1)
        torch._foreach_mul_(v, b2)
        torch._foreach_addcmul_(v, grads, grads, 1 - b2)
        root = torch._foreach_sqrt(v)
        torch._foreach_div_(root, (1 - b2**self._step) ** 0.5)
        torch._foreach_add_(root, 1e-10)
        masters = [self.masters[n] for n in names]
        torch._foreach_addcdiv_(masters, m, root, -lr / (1 - b1**self._step))
