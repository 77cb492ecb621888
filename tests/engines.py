"""Engines over tiny pairs for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from ds4chat.engine.backend import choose_backend
from ds4chat.engine.engine import Engine, EngineOptions
from ds4chat.engine.load import load
from ds4chat.engine.session import Session
from ds4chat.model.source import Storage
from ds4chat.protocol.types import Policy, SpecOptions
from tests.make_pair import PairPaths, make_pair

GOLDEN_SEED = 11

SMALL: dict[str, Any] = {
    "ratios": (0, 4, 128, 4),
    "n_hash": 2,
    "index_topk": 16,
    "sinkhorn_rounds": 4,
    "n_stages": 2,
}
"""Options of `make_pair` for a model of four layers in which the indexer really selects."""

WIDE: dict[str, Any] = {**SMALL, "dim": 256, "expert_dim": 256}
"""The same with rows of 256, so that every block format fits."""


def open_pair(folder: Path, *, options: dict[str, Any] | None = None, **pair: Any) -> Engine:
    """Make a pair in `folder` and open it; policy fixed, so that no clock decides anything."""
    paths = make_pair(folder, **pair)
    settings: dict[str, Any] = {"policy": "fixed", "backend": "cpu", **(options or {})}
    return Engine.open(paths.base, paths.support, **settings)


def open_half(folder: Path, **pair: Any) -> Engine:
    """Open a pair as a GPU would hold it: bf16 activations, blocks multiplied as they are.

    Nothing ends its text.
    """
    return open_half_files(make_pair(folder, **pair))


def open_half_files(paths: PairPaths) -> Engine:
    """The same of a pair that is there."""
    cpu = choose_backend("cpu")
    storage = Storage(dtype=mx.bfloat16, keeps_blocks=True)
    backend = replace(cpu, storage=storage)
    loaded = load(
        paths.base, paths.support, backend=backend, kv_fp8=True, on_loading=lambda *_: None
    )
    options = EngineOptions(
        path=str(paths.base),
        ctx=4096,
        kv_fp8=True,
        spec=SpecOptions(policy=Policy.FIXED),
        end_ids=frozenset(),
        knobs=None,
    )
    return Engine(loaded, backend, options)


def random_ids(engine: Engine, n: int, seed: int = 0) -> list[int]:
    """Token ids that end nothing."""
    draw = np.random.default_rng(seed).integers(0, engine.info.n_vocab, 2 * n + 16)
    return [int(t) for t in draw if int(t) not in engine.end_ids][:n]


def other_id(engine: Engine, token: int) -> int:
    """An id that differs from `token` and ends nothing."""
    n_vocab = engine.info.n_vocab
    return next(i % n_vocab for i in range(token + 1, token + 99) if i not in engine.end_ids)


def differing(one: Session, two: Session) -> list[str]:
    """Names of the parts of the logical state that are not equal bit for bit."""
    a, b = one.state(), two.state()
    assert a.keys() == b.keys()
    return [name for name in a if not _equal_bits(a[name], b[name])]


def differing_states(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """The same for two states that were taken earlier."""
    assert a.keys() == b.keys()
    return [name for name in a if not _equal_bits(a[name], b[name])]


def _equal_bits(a: Any, b: Any) -> bool:
    return bool(a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes())


def plain_tokens(session: Session, n: int) -> list[int]:
    """Decode up to `n` tokens plainly; the end id, if it comes, is the last."""
    out: list[int] = []
    while len(out) < n:
        token = session.choose()
        out.append(token)
        if token in session.end_ids:
            break
        session.step(token)
    return out


def spec_tokens(session: Session, n: int, proposals: Sequence[Sequence[int]] = ()) -> list[int]:
    """Decode up to `n` tokens speculatively, with the given proposals first."""
    out: list[int] = []
    given = list(proposals)
    while len(out) < n:
        token = session.choose()
        if token in session.end_ids:
            out.append(token)
            break
        proposal = given.pop(0) if given else None
        out += [t.id for t in session.speculate(token, n - len(out), proposal=proposal)]
    return out
