"""The start-up probe believes nothing, and what it refuses stays exact row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.engine import engine as engine_module
from ds4chat.engine.backend import choose_backend
from ds4chat.engine.engine import Engine
from ds4chat.engine.probe import is_row_exact
from ds4chat.engine.runner import Runner, Timeline
from tests.engines import SMALL, differing, open_pair, plain_tokens, random_ids, spec_tokens


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_pair(tmp_path_factory.mktemp("pair"), seed=41, **SMALL) as opened:
        yield opened


class _LastBit(Runner):
    """Passes of several rows differ from single rows in the last bit of one logit."""

    def _pass(
        self, timeline: Timeline, ids: Sequence[int], n: int, **options: Any
    ) -> NDArray[np.float32]:
        logits = super()._pass(timeline, ids, n, **options)
        if len(ids) > 1:
            logits[-1, 7] = np.nextafter(logits[-1, 7], np.float32(np.inf))
        return logits


def test_one_bit_is_enough(engine: Engine) -> None:
    runner = engine.runner
    assert is_row_exact(Runner(runner.target, runner.drafter, is_row_exact=True))
    assert not is_row_exact(_LastBit(runner.target, runner.drafter, is_row_exact=True))


def test_row_by_row_where_no_order_is_promised(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gpu_like(name: str) -> object:
        return replace(choose_backend("cpu"), is_order_fixed=False)

    monkeypatch.setattr(engine_module, "choose_backend", gpu_like)
    with open_pair(tmp_path, seed=41, **SMALL) as careful:
        assert not careful.runner.is_row_exact
        assert "one by one" in careful.info.exact_note
        prompt = random_ids(careful, 30)
        spec, plain = careful.session(), careful.session()
        for session in (spec, plain):
            session.sync(prompt)
        wanted = plain_tokens(plain, 12)
        assert spec_tokens(spec, 12, [wanted[1:4], [5, 6]]) == wanted
        assert differing(spec, plain) == []
