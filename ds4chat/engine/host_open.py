"""What the host wants from an engine, and how it opens the real one.

MLX is imported here, on first use, on the thread that will own every array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ds4chat import settings
from ds4chat.engine.api import EngineApi
from ds4chat.errors import Ds4Error
from ds4chat.paths import UserDirs, kernels_dir, native_dir
from ds4chat.protocol.commands import Load
from ds4chat.text.tokenizer import Tokenizer


class LoadProgress(Protocol):
    """Called while a model loads: the stage, and what is read of all that will be."""

    def __call__(
        self,
        stage: str,
        done_bytes: int,
        total_bytes: int,
        done_tensors: int = 0,
        total_tensors: int = 0,
    ) -> None:
        """Take it in; may raise to cancel."""


class HostedEngine(EngineApi, Protocol):
    """An engine with the tokenizer that its replies are split by."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary of the model."""


OpenEngine = Callable[[Load, LoadProgress], HostedEngine]


def open_engine(load: Load, progress: LoadProgress) -> HostedEngine:
    """Open the model and support file that `load` names."""
    if load.cpu_blas and load.backend in ("auto", "cpu"):
        progress("preparing the fast matrix product", 0, 0)
        use_fast_products()
    from ds4chat.engine.engine import Engine  # noqa: PLC0415
    from ds4chat.engine.policy_window import WindowKnobs  # noqa: PLC0415

    return Engine.open(
        load.model_path,
        load.support_path or None,
        backend=load.backend,
        ctx=load.ctx,
        confidence_threshold=load.spec.confidence_threshold,
        policy=load.spec.policy,
        draft_max=load.spec.draft_max,
        kv_fp8=load.kv_fp8,
        knobs=WindowKnobs.from_mapping(settings.dspark_knobs()),
        progress=progress,
    )


def use_fast_products() -> None:
    """Give MLX the row-invariant matrix product; whatever fails, its own stays.

    Must run before the first import of MLX. The environment may forbid it.
    """
    from ds4chat.ops import cpu_blas  # noqa: PLC0415

    if settings.load().cpu_blas:
        dirs = UserDirs.from_variables(settings.path_variables())
        try:
            folder = dirs.build_dir()
        except Ds4Error:  # nothing is kept there; what the installation brings may still do
            folder = dirs.data_root / "build"
        cpu_blas.enable(folder, kernels_dir() / "cpu_sgemm.c", native_dir())
