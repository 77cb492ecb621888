"""Where MLX runs, and what that means for types and storage."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import version

import mlx.core as mx

from ds4chat.errors import EngineError
from ds4chat.model.source import Storage
from ds4chat.ops import dispatch
from ds4chat.settings import prepare_mlx_gpu

NAMES = ("auto", "metal", "cuda", "cpu")
_AUTO = "use --backend auto"
_ADVICE = {
    "cuda": "install mlx[cuda13] for NVIDIA on Linux, or use --backend auto",
    "metal": "it needs a Mac with Apple silicon and MLX for it, or use --backend auto",
    "": "metal is for Macs with Apple silicon: use --backend auto",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A usable backend: `name` metal, cuda or cpu; `device` in words.

    `is_order_fixed`: sums run in one order whatever the shape of a product or reduction, as
    MLX's reference BLAS and ours do on Linux. Elsewhere a block is verified in one pass only if
    the sums over the context are our kernels and a probe passes (`engine/probe.py`).
    """

    name: str
    device: str
    storage: Storage
    is_order_fixed: bool = False


def choose_backend(name: str) -> Backend:
    """Make a backend MLX's default device, and its kernels those that the operations ask.

    Raises:
        EngineError: unknown, or this machine (or this build of MLX) has none.
    """
    if name not in NAMES:
        raise EngineError(f"backend {name!r} is not known", f"use one of {', '.join(NAMES)}")
    usable = _usable()
    if name == "auto":
        name = usable[0]
    if name not in usable:
        raise EngineError(
            f"backend {name} is not available here; MLX {version('mlx')} offers "
            f"{', '.join(usable)}",
            _ADVICE.get(name if name != "metal" or sys.platform == "darwin" else "", _AUTO),
        )
    dispatch.use(dispatch.choose(name))
    if name == "cpu":
        mx.set_default_device(mx.Device(mx.cpu))
        storage = Storage(dtype=mx.float32, keeps_blocks=False)
        return Backend(
            name=name,
            device=_cpu_words(),
            storage=storage,
            is_order_fixed=sys.platform == "linux",
        )
    prepare_mlx_gpu()
    mx.set_default_device(mx.Device(mx.gpu))
    storage = Storage(dtype=mx.bfloat16, keeps_blocks=True)
    return Backend(name=name, device=_gpu_words(), storage=storage)


def _usable() -> list[str]:
    gpus = [n for n, m in (("metal", mx.metal), ("cuda", mx.cuda)) if m.is_available()]
    return [*gpus, "cpu"]


def _cpu_words() -> str:
    return f"{platform.machine()} cpu, {os.cpu_count()} cores"


def _gpu_words() -> str:
    return str(mx.device_info().get("device_name", "gpu"))
