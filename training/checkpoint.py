"""Checkpoints: configuration, weights as the file stores them, and the training state.

The exported GGUF is what leaves the machine; a checkpoint here is for resuming.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from training.config import ModelConfig, from_json
from training.optim import Optimizer


def save(
    path: Path, c: ModelConfig, module: nn.Module, opt: Optimizer | None, **more: Any
) -> None:
    """Write atomically."""
    state = {"config": c.to_json(), "module": module.state_dict(), **more}
    if opt is not None:
        state["masters"] = opt.masters
        state["optimizer"] = (opt._m, opt._v, opt._step)
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


def load(path: Path, device: torch.device) -> dict[str, Any]:
    """Read a checkpoint (tensors and plain values only)."""
    state = torch.load(path, map_location=device, weights_only=True)
    state["config"] = from_json(state["config"])
    return state


def restore(state: dict[str, Any], module: nn.Module, opt: Optimizer | None) -> None:
    """Put weights (and the optimizer's state) back."""
    module.load_state_dict(state["module"])
    if opt is None:
        return
    if "masters" in state:
        opt.masters = state["masters"]
        opt._m, opt._v, opt._step = state["optimizer"]
    else:
        opt.masters = {n: p.detach().clone() for n, p in opt.params.items()}
