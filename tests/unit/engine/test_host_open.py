"""What the host hands to the engine besides the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from ds4chat.engine.engine import Engine
from ds4chat.engine.host_open import open_engine
from ds4chat.engine.policy_window import WindowScheduler
from ds4chat.protocol.commands import Load
from ds4chat.protocol.types import Policy, SpecOptions
from tests.make_pair import make_pair


def test_ds4s_knobs_reach_the_window_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DS4_DSPARK_SCHEDULER_WINDOW", "9")
    monkeypatch.setenv("DS4_DSPARK_SCHEDULER_SKIP", "5")
    pair = make_pair(tmp_path, seed=3)
    load = Load(
        request_id=1, model_path=str(pair.base), support_path=str(pair.support),
        backend="cpu", ctx=64, spec=SpecOptions(policy=Policy.WINDOW),
    )  # fmt: skip
    engine = open_engine(load, lambda *_: None)
    assert isinstance(engine, Engine)
    with engine:
        scheduler = engine.session().scheduler
        assert isinstance(scheduler, WindowScheduler)
        assert (scheduler.knobs.window, scheduler.knobs.low_skip) == (9, 5)
