from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from ds4chat.draft.binding import bind_draft
from ds4chat.draft.metadata import read_draft_config
from ds4chat.engine.engine import Engine
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.vocab import read_tokenizer
from ds4chat.model.binding import bind_target
from ds4chat.model.metadata import read_target_config
from tests import make_flash_shapes as made
from tests.make_flash_shapes import FLASH, TINY, with_layers
from tests.make_flash_shapes_data import Span, fill, pool, spans
from tests.make_pair import PairPaths


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    folder = tmp_path_factory.mktemp("flash")
    paths = PairPaths(base=folder / "base.gguf", support=folder / "support.gguf")
    made.write(paths.base, with_layers(TINY, 6))
    made.write(paths.support, with_layers(TINY, 6), is_support=True)
    return paths


@pytest.fixture(scope="module")
def engine(tiny: PairPaths) -> Iterator[Engine]:
    with Engine.open(tiny.base, tiny.support, backend="cpu", policy="fixed", ctx=512) as opened:
        yield opened


def test_the_whole_model_has_the_published_layout(tmp_path: Path) -> None:
    items = made.base_items(FLASH)
    made.start_base(tmp_path / "f.gguf", FLASH, items)  # without the data
    with GgufFile.open(tmp_path / "f.gguf") as file:
        config = read_target_config(file)
        assert len(bind_target(file, config)) == len(file.tensors) == 1328
        assert f"{file.file_bytes / 2**30:.2f}" == "80.77"  # as published
        types = Counter(entry.type_name for entry in file.tensors.values())
        specials = read_tokenizer(file).specials
    assert config.compress_ratios[:4] == (0, 0, 4, 128)
    assert Counter(config.compress_ratios) == {0: 2, 4: 21, 128: 20}
    assert (types["IQ2_XXS"], types["Q2_K"], types["I32"]) == (86, 43, 3)
    assert (specials.bos, specials.eos, specials.user, specials.assistant) == (
        0, 1, 128_803, 128_804,
    )  # fmt: skip
    assert (specials.think_open, specials.think_close) == (128_821, 128_822)


def test_the_draft_module_has_the_published_layout(tmp_path: Path) -> None:
    items = made.support_items(FLASH)
    made.start_support(tmp_path / "s.gguf", FLASH, items)
    with GgufFile.open(tmp_path / "s.gguf") as file:
        types = Counter(entry.type_name for entry in file.tensors.values())
        assert f"{file.file_bytes / 2**30:.2f}" == "5.58"  # as published
    assert types == {"F32": 34, "F16": 7, "Q8_0": 31, "IQ2_XXS": 6, "Q2_K": 3}


def test_a_dry_run_writes_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made.main([str(tmp_path / "f.gguf"), "--dry-run"])
    said = capsys.readouterr().out
    assert "1,328 tensors, 86.71 GB" in said
    assert "81 tensors, 5.99 GB" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("n", [3, 6, 12, 43])
def test_fewer_layers_keep_the_mix(n: int) -> None:
    ratios = with_layers(FLASH, n).ratios
    assert len(ratios) == n
    counts = Counter(ratios)
    assert counts[0] == (2 if n == 43 else 1)
    assert 0 <= counts[4] - counts[128] <= 1


def test_our_reader_and_the_gguf_package_decode_every_tensor_alike(tiny: PairPaths) -> None:
    seen = set()
    for path in (tiny.base, tiny.support):
        reader = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
        with GgufFile.open(path) as file:
            assert reader.keys() == file.tensors.keys()
            for name, entry in file.tensors.items():
                seen.add(entry.type_name)
                if entry.type_name == "I32":
                    continue
                values = file.floats(entry)
                assert np.isfinite(values).all(), name
                theirs = gguf.quants.dequantize(reader[name].data, reader[name].tensor_type)
                np.testing.assert_array_equal(values, theirs, err_msg=name)
    assert seen == {"F16", "F32", "I32", "IQ2_XXS", "Q2_K", "Q8_0"}


def test_values_have_the_wanted_spread_and_rows_differ(tiny: PairPaths) -> None:
    with GgufFile.open(tiny.base) as file:
        for name, gain in (("ffn_up_exps", 1.5), ("ffn_down_exps", 1.0), ("attn_q_b", 1.0)):
            values = file.floats(file.tensors[f"blk.2.{name}.weight"])
            rows = values.reshape(-1, values.shape[-1])
            assert 0.9 < rows.std() * rows.shape[1] ** 0.5 / gain < 1.1, name
            assert len(np.unique(rows, axis=0)) == len(rows)
        ids = file.integers(file.tensors["blk.2.ffn_gate_tid2eid.weight"])
    assert all(len(set(row)) == TINY.topk for row in ids.tolist())
    assert set(ids.ravel().tolist()) == set(range(TINY.n_experts))


def test_both_files_belong_together(tiny: PairPaths) -> None:
    with GgufFile.open(tiny.base) as base, GgufFile.open(tiny.support) as support:
        target = read_target_config(base)
        reading = read_draft_config(support, target, base)
        assert not reading.warnings
        assert reading.config.target_layers == (3, 4, 5)
        assert len(bind_draft(support, reading.config, target)) == 81


def test_the_model_runs_and_its_logits_tell_tokens_apart(engine: Engine) -> None:
    session = engine.session()
    session.sync(list(range(20, 180)))
    chosen = []
    for _ in range(8):
        logits = session.logits()
        assert np.isfinite(logits).all()
        assert 0.3 < logits.std() < 30.0
        chosen.append(session.choose())
        session.step(chosen[-1])
    assert len(set(chosen)) > 2
    drafted = engine.runner.propose(session.timeline, session.choose())
    assert len(drafted.tokens) == 5
    assert all(0.0 <= c <= 1.0 for c in drafted.confidences)
    session.close()


def span(path: Path, n_blocks: int) -> Span:
    return Span(
        path=str(path),
        offset=96,
        n_bytes=n_blocks * 34,
        kind=int(Type.Q8_0),
        std=0.5,
        first=131_000,
        seed=3,
    )


def test_spans_join_without_a_seam(tmp_path: Path) -> None:
    n_blocks = 300_000  # goes round the pool more than twice
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for path in (whole, cut):
        with path.open("wb") as file:
            file.truncate(96 + n_blocks * 34)
    fill(span(whole, n_blocks))
    pieces = list(spans(span(cut, n_blocks), n_bytes=1 << 20))
    assert len(pieces) == 10
    for piece in reversed(pieces):
        fill(piece)
    data = whole.read_bytes()
    assert cut.read_bytes() == data
    assert data[:96] == bytes(96)
    blocks = pool(int(Type.Q8_0), 0.5, 3)
    assert data[96 : 96 + 34] == blocks[131_000].tobytes()
    assert data[-34:] == blocks[(131_000 + n_blocks - 1) % len(blocks)].tobytes()


@pytest.mark.slow
def test_several_processes_write_the_same_file(tiny: PairPaths, tmp_path: Path) -> None:
    made.write(tmp_path / "base.gguf", with_layers(TINY, 6), n_processes=2)
    assert (tmp_path / "base.gguf").read_bytes() == tiny.base.read_bytes()


def test_too_little_room_is_said_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(SystemExit, match=r"wanted, 1\.0 MB free"):
        made.write(tmp_path / "f.gguf", TINY)
    assert not list(tmp_path.iterdir())


def test_a_failure_leaves_no_half_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(made, "fill_all", fail)
    with pytest.raises(KeyboardInterrupt):
        made.write(tmp_path / "f.gguf", TINY)
    assert not list(tmp_path.iterdir())
