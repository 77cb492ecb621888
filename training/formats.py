"""How each tensor is stored in the files, and rounding weights to that in place."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from training import quant

_F16 = ("hc_attn_fn", "hc_ffn_fn", "output_hc_fn", "hc_head_fn", "ffn_gate_inp", "indexer.proj")
_NORMS = ("norm", "scale", "base", "sinks", "ape", "probs_b", "confidence_head.proj")


def stored_type(name: str) -> str:
    """`Q8_0`, `F16`, `F32` or `I32` for a tensor by its name (less `.weight`)."""
    if name.endswith("tid2eid"):
        return "I32"
    if name.endswith(_NORMS):
        return "F32"
    if name.endswith(_F16) or "compressor_" in name:
        return "F16"
    return "Q8_0"


@torch.no_grad()
def copy_rounded(params: Mapping[str, nn.Parameter], masters: Mapping[str, Tensor]) -> None:
    """Set every parameter to its master as the file would store it."""
    for kind, rounding in (("Q8_0", quant.q8_0_round), ("F16", quant.f16_round)):
        names = [n for n in params if stored_type(n) == kind]
        if not names:
            continue
        flat = torch.cat([masters[n].reshape(-1) for n in names])
        flat = rounding(flat.view(-1, 32)).view(-1)
        parts = flat.split([masters[n].numel() for n in names])
        for n, part in zip(names, parts, strict=True):
            params[n].copy_(part.view_as(params[n]))
    for n, p in params.items():
        if stored_type(n) == "F32":
            p.copy_(masters[n])
