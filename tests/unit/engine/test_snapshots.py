"""Snapshots of sessions: exact continuation, chains, forks, other engines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ds4chat.engine import snapshots
from ds4chat.engine.api import RoundReport
from ds4chat.engine.engine import Engine
from ds4chat.engine.snapshot_chain import MAX_LINKS
from ds4chat.engine.snapshot_files import read_manifest, scan
from ds4chat.engine.snapshots import candidates, restore, take, write
from ds4chat.errors import SnapshotError
from ds4chat.formats.safetensors import decode
from tests.engines import (
    SMALL,
    differing,
    differing_states,
    open_half,
    open_pair,
    random_ids,
    spec_tokens,
)
from tests.unit.engine.saving import DISK, assert_continues, prompted, restored, saved


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_pair(tmp_path_factory.mktemp("pair"), seed=31, **SMALL) as opened:
        yield opened


def open_no_round_trips(folder: Path, **pair: Any) -> Engine:
    return open_pair(folder, options={"kv_fp8": False}, **pair)


@pytest.mark.parametrize("opener", [open_pair, open_half, open_no_round_trips])
def test_chain_fork_and_continuation(tmp_path: Path, opener: Any) -> None:
    with opener(tmp_path / "pair", seed=32, **SMALL) as engine:
        folder = tmp_path / "snapshots"
        session = prompted(engine, temperature=0.9, seed=7)
        states = []
        for turn in range(3):
            spec_tokens(session, 21)
            states.append(session.state())
            saved(engine, session, folder, f"turn-{turn}")
        for turn in range(3):
            back = restored(engine, folder, f"turn-{turn}")
            assert differing_states(back.state(), states[turn]) == []
        middle = restored(engine, folder, "turn-1")
        spec_tokens(middle, 9)
        assert saved(engine, middle, folder, "fork").parent == "turn-1"
        assert_continues(middle, restored(engine, folder, "fork"))
        assert_continues(session, restored(engine, folder, "turn-2"))


def test_a_resumed_session_reports_the_same_rounds(engine: Engine, tmp_path: Path) -> None:
    one = prompted(engine, temperature=1.1, seed=3)
    for _ in range(4):
        one.speculate(one.choose(), 64)
    saved(engine, one, tmp_path, "a")
    two = restored(engine, tmp_path, "a")
    assert two.next_source is one.next_source
    for _ in range(6):
        assert one.speculate(one.choose(), 64) == two.speculate(two.choose(), 64)
        assert one.last_report is not None
        assert two.last_report is not None
        assert untimed(one.last_report) == untimed(two.last_report)


def untimed(report: RoundReport) -> RoundReport:
    return replace(report, draft_s=0.0, verify_s=0.0)


def test_restoring_does_not_prefill(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = prompted(engine)
    saved(engine, session, tmp_path, "a")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a pass was run")

    with monkeypatch.context() as patch:
        patch.setattr(type(engine.runner), "_pass", refuse)
        back = restored(engine, tmp_path, "a")
        assert back.sync(session.ids) == session.n
    more = [*session.ids, *random_ids(engine, 5, seed=9)]
    assert back.sync(more) == session.sync(more) == session.n - 5
    assert_continues(session, back)


def test_the_saved_session_is_not_disturbed(engine: Engine, tmp_path: Path) -> None:
    one, two = prompted(engine), prompted(engine)
    other = prompted(engine, 33)
    out = []
    for turn in range(3):
        saved(engine, one, tmp_path, f"a{turn}")
        restored(engine, tmp_path, f"a{turn}").speculate(one.choose(), 64)
        spec_tokens(other, 5)
        out += spec_tokens(one, 11)
    assert out == spec_tokens(two, 33)
    assert differing(one, two) == []


def test_links_hold_new_rows_only_and_are_merged_in_time(
    engine: Engine, tmp_path: Path
) -> None:
    session = prompted(engine)
    lengths = []
    for turn in range(MAX_LINKS + 2):
        spec_tokens(session, 9)
        lengths.append(len(saved(engine, session, tmp_path, f"t{turn}").links))
    assert lengths == [*range(1, MAX_LINKS + 1), 1, 2]
    chain = read_manifest(tmp_path, f"t{MAX_LINKS - 1}").links
    for before, link in pairwise(chain):
        tensors = decode((tmp_path / link.file).read_bytes(), "x").tensors
        assert len(tensors["ids"].data) == link.n - before.n
        assert len(tensors["layers.1.rows.fp8"].data) == link.n // 4 - before.n // 4
    for turn in (0, MAX_LINKS - 1, MAX_LINKS, MAX_LINKS + 1):
        back = restored(engine, tmp_path, f"t{turn}")
        assert back.ids == session.ids[: back.n]
    assert_continues(session, back)


def test_a_session_that_began_anew_does_not_continue_the_chain(
    engine: Engine, tmp_path: Path
) -> None:
    session = prompted(engine)
    saved(engine, session, tmp_path, "a")
    ids = list(session.ids)
    session.sync(random_ids(engine, 30, seed=5))
    session.sync(ids[:100])
    session.sync(ids)  # the same tokens, but evaluated in other passes
    assert saved(engine, session, tmp_path, "b").parent == ""
    assert_continues(session, restored(engine, tmp_path, "b"))


def test_a_timeline_that_went_back_continues_an_earlier_link(
    engine: Engine, tmp_path: Path
) -> None:
    session, counts = prompted(engine), []
    for turn in range(3):
        counts.append(saved(engine, session, tmp_path, f"t{turn}").n)
        spec_tokens(session, 12)
    lineage = session.timeline.lineage
    for n, n_links in ((counts[0] - 1, 0), (counts[1] - 1, 1), (counts[1], 2), (session.n, 3)):
        rest = lineage.back_to(n)
        assert rest is not lineage
        assert len(rest.base.links) == n_links
        assert rest.base.name == ("t2" if n_links == 3 else "")
        session.timeline.lineage = rest  # the rows of an earlier link are those of the session
        name = f"back-{n_links}"
        made = write(take(engine, session, tmp_path), name, DISK)
        assert len(made.links) == n_links + 1
        assert differing(session, restored(engine, tmp_path, name)) == []


def test_another_folder_or_a_lost_file_begins_a_new_chain(
    engine: Engine, tmp_path: Path
) -> None:
    session = prompted(engine)
    first = saved(engine, session, tmp_path / "one", "a")
    assert saved(engine, session, tmp_path / "two", "a").parent == ""
    spec_tokens(session, 5)
    (tmp_path / "two" / first.links[0].file).unlink()
    assert saved(engine, session, tmp_path / "two", "b").parent == ""
    assert_continues(session, restored(engine, tmp_path / "two", "b"))


def test_size_is_that_of_the_packed_state(engine: Engine, tmp_path: Path) -> None:
    session = prompted(engine, 600)
    data = take(engine, session, tmp_path)
    write(data, "a", DISK)
    assert not [name for name in data.tensors() if name.endswith(("window", "rows"))]
    own = sum(tensor.data.nbytes for tensor in data.tensors().values())
    on_disk = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert own < on_disk < 1.05 * own


def test_nothing_to_save(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="nothing to save"):
        take(engine, engine.session(), tmp_path)


def test_candidates_are_the_prefixes_of_a_text(engine: Engine, tmp_path: Path) -> None:
    session = prompted(engine, 20)
    for name in ("a", "b"):
        spec_tokens(session, 8)
        saved(engine, session, tmp_path, name)
    saved(engine, prompted(engine, 19), tmp_path, "c")
    found = scan(tmp_path)
    assert candidates(found, session.ids) == ("b", "a", "c")
    assert candidates(found, session.ids[:-1]) == ("a", "c")
    assert candidates(found, session.ids[:18]) == ()


def test_other_engines_are_refused(engine: Engine, tmp_path: Path) -> None:
    saved(engine, prompted(engine), tmp_path, "a")
    before = sorted(tmp_path.iterdir())
    pair = {"seed": 31, **SMALL}
    others: dict[str, tuple[dict[str, Any], str]] = {
        "model": ({**pair, "seed": 33}, "the model is .* here; the support file"),
        "quantisation": ({**pair, "quant": "f16"}, "the model is"),
        "option": ({**pair, "options": {"kv_fp8": False}}, "kv_fp8 is True .* False here"),
        "context": ({**pair, "options": {"ctx": 139}}, "140 tokens; the context is 139"),
    }
    for name, (options, words) in others.items():
        with (
            open_pair(tmp_path / ".." / f"other-{name}", **options) as other,
            pytest.raises(SnapshotError, match=words) as caught,
        ):
            restore(other, tmp_path, "a")
        assert caught.value.hint
    with (
        Engine.open(engine.info.path, backend="cpu") as alone,
        pytest.raises(SnapshotError, match=r"support file is [0-9a-f]{12} .* none here"),
    ):
        restore(alone, tmp_path, "a")
    assert sorted(tmp_path.iterdir()) == before


def test_the_half_precision_engine_refuses_full_precision(tmp_path: Path) -> None:
    with open_pair(tmp_path / "pair", seed=34, **SMALL) as full:
        saved(full, prompted(full), tmp_path / "s", "a")
    with (
        open_half(tmp_path / "pair", seed=34, **SMALL) as half,
        pytest.raises(SnapshotError, match=r"activation type is float32 .* bfloat16 here"),
    ):
        restore(half, tmp_path / "s", "a")


def test_another_build_goes_on_with_a_notice(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = prompted(engine)
    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "__version__", "0.0.1")
        saved(engine, session, tmp_path, "a")
    found = restore(engine, tmp_path, "a")
    (notice,) = found.notices
    assert "not bit-identical to the older build (build 0.0.1, now" in notice
    assert_continues(session, found.session)
