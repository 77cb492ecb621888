"""How long the passes of a prompt are on each backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ds4chat.engine.runner import PREFILL_CHUNK, prefill_chunk
from ds4chat.ops import dispatch
from ds4chat.ops.dispatch import Dispatcher


@pytest.fixture(autouse=True)
def _same_dispatcher() -> Iterator[None]:
    before = dispatch.current()
    yield
    dispatch.use(before)


@pytest.mark.parametrize(
    ("backend", "size"), [("reference", PREFILL_CHUNK), ("metal", 512), ("cuda", 2048)]
)
def test_kernels_take_longer_chunks(backend: str, size: int) -> None:
    dispatch.use(Dispatcher(backend=backend))
    assert prefill_chunk() == size
