"""Which kernels run, decided once: `metal`, `cuda` or `reference`.

Kernels are built at their first use, never at import. A kernel that cannot be built, or fails
when it first runs, is given up for the rest of the process: callers ask `run` and get None,
use their reference op, and `fallbacks` says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mlx.core as mx

from ds4chat.errors import KernelError
from ds4chat.ops.cuda_build import Launcher, Signature, build
from ds4chat.ops.spec import KernelSpec, KernelText, grid_of, read_text
from ds4chat.paths import kernels_dir

BACKENDS = ("metal", "cuda", "reference")
_log = logging.getLogger("ds4chat.kernels")

Built = Callable[..., Any]


class UnprovenError(Exception):
    """A kernel that has never run stands in a graph that is being traced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Shape and type of one output."""

    shape: tuple[int, ...]
    dtype: mx.Dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A launch of a pass that is being recorded, for `ops/step_graph.py`.

    `function` is what launches it through MLX; a device may find its machine code there.
    """

    spec: KernelSpec
    function: Built | None
    inputs: list[mx.array]
    outputs: list[mx.array]
    n_blocks: int


@dataclass(slots=True)
class _Entry:
    """A built kernel; `is_proven` once a launch of it has been evaluated."""

    text: KernelText
    call: Built
    is_proven: bool = False


@dataclass(slots=True)
class Dispatcher:
    """Builds and launches kernels for one backend.

    Args:
        backend: one of `BACKENDS`; `reference` builds nothing.
        folder: where the sources lie; the installation's own by default.
        is_replayed: whether `ops/replay.py` replays graphs; where MLX runs on a GPU.
    """

    backend: str
    folder: Path | None = None
    is_replayed: bool = False
    fallbacks: dict[str, str] = field(default_factory=dict)
    _entries: dict[tuple[Any, ...], _Entry] = field(default_factory=dict)
    _is_tracing: bool = False
    _launches: list[Launch] | None = None

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """While a graph is traced nothing can be evaluated: `run` raises `UnprovenError`."""
        self._is_tracing = True
        try:
            yield
        finally:
            self._is_tracing = False

    @contextmanager
    def recording(self) -> Iterator[list[Launch]]:
        """Launches as they are made, in order; meanwhile nothing is replayed."""
        kept, self.is_replayed = self.is_replayed, False
        launches: list[Launch] = []
        self._launches = launches
        try:
            yield launches
        finally:
            self._launches, self.is_replayed = None, kept

    def record(self, launch: Launch) -> None:
        """Keep a launch if launches are recorded."""
        if self._launches is not None:
            self._launches.append(launch)

    @property
    def is_reference(self) -> bool:
        """Whether every op runs its reference."""
        return self.backend == "reference"

    def run(
        self,
        spec: KernelSpec,
        inputs: Sequence[mx.array],
        n_blocks: int,
        outputs: Sequence[Output],
    ) -> list[mx.array] | None:
        """Launch `spec`, or None where its reference must run.

        The first launch of a variant is evaluated at once: MLX compiles when it evaluates.
        """
        if self.is_reference or spec.name in self.fallbacks:
            return None
        try:
            return self._launch(spec, inputs, n_blocks, outputs)
        except (KernelError, RuntimeError, ValueError) as error:
            self._give_up(spec, str(error))
            return None

    def launch(
        self,
        spec: KernelSpec,
        inputs: Sequence[mx.array],
        n_blocks: int,
        outputs: Sequence[Output],
    ) -> list[mx.array]:
        """As `run`, but failures are raised: for checks that want to see them.

        Raises:
            KernelError: this backend has no kernels, or a source is missing.
            RuntimeError: MLX could not compile or launch it.
        """
        if self.is_reference:
            raise KernelError("the reference backend has no kernels", "use metal or cuda")
        return self._launch(spec, inputs, n_blocks, outputs)

    def _launch(
        self,
        spec: KernelSpec,
        inputs: Sequence[mx.array],
        n_blocks: int,
        outputs: Sequence[Output],
    ) -> list[mx.array]:
        entry = self._built(spec, inputs, outputs)
        if self._is_tracing and not entry.is_proven:
            raise UnprovenError(spec.name)
        arguments = {
            "inputs": list(inputs),
            "grid": grid_of(n_blocks, spec.threads),
            "threadgroup": (spec.threads, 1, 1),
            "output_shapes": [o.shape for o in outputs],
            "output_dtypes": [o.dtype for o in outputs],
        }
        made: list[mx.array] = (
            entry.call(**arguments) if entry.is_proven else self._prove(spec, entry, arguments)
        )
        self.record(
            Launch(
                spec=spec,
                function=entry.call,
                inputs=list(inputs),
                outputs=made,
                n_blocks=n_blocks,
            )
        )
        return made

    def _prove(
        self, spec: KernelSpec, entry: _Entry, arguments: dict[str, Any]
    ) -> list[mx.array]:
        """Launch for the first time and wait, so that a failure to compile is seen here."""
        try:
            made: list[mx.array] = entry.call(**arguments)
            mx.eval(made)  # sync: once a variant
        except (RuntimeError, ValueError) as error:
            if not isinstance(entry.call, Launcher):
                raise
            _log.warning("kernel %s is compiled by MLX: %s", spec.name, error)
            entry.call = _by_mlx(self.backend, spec, entry.text)
            made = entry.call(**arguments)
            mx.eval(made)  # sync: as above
        entry.is_proven = True
        return made

    def _built(
        self, spec: KernelSpec, inputs: Sequence[mx.array], outputs: Sequence[Output]
    ) -> _Entry:
        key = (spec, *(a.dtype for a in inputs), *(o.dtype for o in outputs))
        entry = self._entries.get(key)
        if entry is None:
            types = "_".join(str(t).removeprefix("mlx.core.") for t in key[1:])
            text = read_text(spec, self.backend, self.folder or kernels_dir())
            _log.info("building kernel %s (%s)", text.name, types)
            signature = Signature(
                inputs=tuple(a.dtype for a in inputs),
                ranks=tuple(a.ndim for a in inputs),
                outputs=tuple(o.dtype for o in outputs),
            )
            text = replace(text, name=f"{text.name}_{types}")
            entry = _Entry(text=text, call=_make(self.backend, spec, text, signature))
            self._entries[key] = entry
        return entry

    def _give_up(self, spec: KernelSpec, reason: str) -> None:
        self.fallbacks[spec.name] = reason
        _log.warning("kernel %s is not used: %s", spec.name, reason)


def _make(backend: str, spec: KernelSpec, text: KernelText, signature: Signature) -> Built:
    launcher = build(spec, text, signature) if backend == "cuda" else None
    return launcher or _by_mlx(backend, spec, text)


def _by_mlx(backend: str, spec: KernelSpec, text: KernelText) -> Built:
    arguments: Mapping[str, Any] = {
        "name": text.name,
        "input_names": list(spec.inputs),
        "output_names": list(spec.outputs),
        "source": text.body,
        "header": text.header,
    }
    if backend == "cuda":
        return mx.fast.cuda_kernel(**arguments)  # type: ignore[return-value]
    return mx.fast.metal_kernel(**arguments)  # type: ignore[return-value]


def choose(backend: str, *, is_wanted: bool = True) -> Dispatcher:
    """The dispatcher for an engine's backend (`metal`, `cuda` or `cpu`).

    `is_wanted` is the user's setting; on cpu every op runs its reference in any case.
    """
    has_kernels = is_wanted and backend in ("metal", "cuda")
    return Dispatcher(backend=backend if has_kernels else "reference", is_replayed=has_kernels)


_current = Dispatcher(backend="reference")


def use(dispatcher: Dispatcher) -> None:
    """Make `dispatcher` the one that the ops ask; the engine does so when it opens a model."""
    global _current  # noqa: PLW0603  one decision a process
    _current = dispatcher


def current() -> Dispatcher:
    """The dispatcher in use; `reference` until the engine chooses another."""
    return _current
