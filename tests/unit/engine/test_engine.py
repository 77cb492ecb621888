"""What an engine promises: options, what it tells of the model and of loading it, its ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ds4chat.engine.engine import Engine
from ds4chat.errors import EngineError, SettingsError
from tests.engines import SMALL, open_pair, random_ids


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_pair(tmp_path_factory.mktemp("pair"), seed=31, **SMALL) as opened:
        yield opened


def test_another_thread_is_refused(engine: Engine) -> None:
    session, errors = engine.session(), []
    session.sync(random_ids(engine, 20))

    def call() -> None:
        for use in (session.choose, lambda: engine.tokenize("a"), session.state):
            try:
                use()
            except EngineError as error:
                errors.append(error.message)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert len(errors) == 3
    assert all("another thread" in e for e in errors)


def test_closed_things_say_so(tmp_path: Path) -> None:
    engine = open_pair(tmp_path, seed=31, **SMALL)
    session = engine.session()
    session.close()
    with pytest.raises(EngineError, match="closed"):
        session.choose()
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.session()


def test_options_are_checked(engine: Engine) -> None:
    path = engine.info.path
    with pytest.raises(SettingsError, match="ctx"):
        Engine.open(path, ctx=0)
    with pytest.raises(SettingsError, match="policy"):
        Engine.open(path, policy="greedy")
    with pytest.raises(EngineError, match="backend"):
        Engine.open(path, backend="npu")
    with pytest.raises(SettingsError, match="threshold"):
        Engine.open(path, confidence_threshold=1.5)
    with pytest.raises(SettingsError, match="temperature"):
        engine.session(temperature=-1.0)


def test_a_context_beyond_the_files_is_noted(engine: Engine) -> None:
    with Engine.open(engine.info.path, backend="cpu", ctx=10**6) as wide:
        assert any("1,000,000" in note for note in wide.info.notes)


def test_info_and_stats(engine: Engine) -> None:
    info = engine.info
    assert (info.backend, info.activation_dtype, info.block_size) == ("cpu", "float32", 5)
    assert info.is_exact
    assert info.exact_note == ""
    assert engine.stats()["weight_bytes"] == info.weight_bytes > 0
    assert engine.session().kv_bytes() > 0


def test_loading_reports_every_byte(engine: Engine) -> None:
    seen: list[tuple[str, int, int, int, int]] = []
    with Engine.open(
        engine.info.path, backend="cpu", progress=lambda *args: seen.append(args)
    ) as again:
        reading = [s for s in seen if s[0] == "reading weights"]
        assert [s[1] for s in reading] == sorted(s[1] for s in reading)
        assert reading[-1][1] == reading[-1][2] == again.info.weight_bytes
        assert [s[3] for s in reading] == list(range(1, reading[-1][4] + 1))


def test_the_bytes_of_a_pair_add_up(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int, int, int]] = []
    options = {"progress": lambda *args: seen.append(args)}
    with open_pair(tmp_path, seed=31, options=options, **SMALL) as engine:
        last = [s for s in seen if s[0] == "reading draft weights"][-1]
        assert last[1] == last[2] == engine.info.weight_bytes
        assert last[3] == last[4] > 0
