"""Damaged snapshots are refused with a reason, whatever is damaged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ds4chat.engine.engine import Engine
from ds4chat.engine.snapshot_chain import encode_manifest
from ds4chat.engine.snapshot_files import (
    read_manifest,
    write_snapshot,
)
from ds4chat.engine.snapshots import restore
from ds4chat.errors import SnapshotError
from ds4chat.formats.safetensors import Tensor, decode, encode
from ds4chat.protocol.types import Sampling
from tests.engines import (
    SMALL,
    open_pair,
    spec_tokens,
)
from tests.unit.engine.saving import DISK, prompted, restored, saved


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_pair(tmp_path_factory.mktemp("pair"), seed=31, **SMALL) as opened:
        yield opened


@pytest.fixture(scope="module")
def chain(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two snapshots, `old` and `new`, the second one continuing the first."""
    folder = tmp_path_factory.mktemp("chain") / "snapshots"
    session = prompted(engine)
    saved(engine, session, folder, "old")
    spec_tokens(session, 15)
    saved(engine, session, folder, "new")
    return folder


@pytest.fixture
def copied(chain: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "snapshots"
    shutil.copytree(chain, folder)
    return folder


def test_flipped_bits_in_data_are_found(engine: Engine, copied: Path) -> None:
    rng = np.random.default_rng(1)
    files = [link.file for link in read_manifest(copied, "new").links]
    assert len(files) == 2
    for file in files:
        raw = (copied / file).read_bytes()
        places = [0, 7, 8, len(raw) - 1, *rng.integers(0, len(raw), 12)]
        for at in places:
            flipped = bytearray(raw)
            flipped[at] ^= 1 << rng.integers(8)
            (copied / file).write_bytes(flipped)
            with pytest.raises(SnapshotError, match="damaged"):
                restore(engine, copied, "new")
        (copied / file).write_bytes(raw)
    restored(engine, copied, "new")


@pytest.mark.parametrize("what", ["cut", "longer", "missing", "folder", "link"])
def test_broken_data_files(engine: Engine, copied: Path, what: str) -> None:
    path = copied / read_manifest(copied, "new").links[0].file
    raw = path.read_bytes()
    path.unlink()
    if what == "folder":
        path.mkdir()
    elif what == "link":
        (copied / "real").write_bytes(raw)
        path.symlink_to(copied / "real")
    elif what != "missing":
        path.write_bytes(raw[:-1] if what == "cut" else raw + b"x")
    with pytest.raises(SnapshotError, match=r"damaged|cannot be read") as caught:
        restore(engine, copied, "new")
    assert caught.value.hint


def test_names_of_snapshots_that_are_not_there(engine: Engine, copied: Path) -> None:
    for name in ("none", "../snapshots/old"):
        with pytest.raises(SnapshotError):
            restore(engine, copied, name)


def changed(folder: Path, name: str, **tensors: Tensor | None) -> None:
    """Replace tensors of the newest link, with all hashes made right again."""
    manifest = read_manifest(folder, name)
    path = folder / manifest.links[-1].file
    found = dict(decode(path.read_bytes(), "x").tensors)
    for key, tensor in tensors.items():
        found.pop(key)
        if tensor is not None:
            found[key] = tensor
    chunks = encode(found)
    write_snapshot(
        DISK,
        folder,
        name,
        chunks,
        lambda link: replace(manifest, links=(*manifest.links[:-1], link)),
        manifest.n,
    )


def f32(*shape: int) -> Tensor:
    return Tensor(dtype="F32", data=np.zeros(shape, np.float32))


def u8(*shape: int) -> Tensor:
    return Tensor(dtype="U8", data=np.zeros(shape, np.uint8))


def i32(*values: int) -> Tensor:
    return Tensor(dtype="I32", data=np.array(values, np.int32))


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("logits", None),
        ("logits", f32(7)),
        ("ids", None),
        ("ids", i32(1, 2)),
        ("ids", i32(*[5] * 15)),
        ("layers.0.window.fp8", None),
        ("layers.0.window.fp8", u8(127)),
        ("layers.0.window.fp8", u8(127, 32)),
        ("layers.0.window.fp8", f32(127, 64)),
        ("layers.0.window.e8m0", u8(127, 2)),
        ("layers.0.window.rope", f32(127, 63)),
        ("layers.1.rows.fp8", u8(1, 64)),
        ("layers.1.index_rows.fp4", f32(3, 64)),
        ("layers.1.index_rows.fp4", u8(3)),
        ("layers.1.raw", f32(7, 2, 3)),
        ("draft.1.window.e8m0", None),
    ],
)
def test_well_hashed_nonsense_is_refused(
    engine: Engine, copied: Path, name: str, tensor: Tensor | None
) -> None:
    changed(copied, "new", **{name: tensor})
    with pytest.raises(SnapshotError, match="damaged"):
        restore(engine, copied, "new")
    restored(engine, copied, "old")


@pytest.mark.parametrize(
    "name",
    [
        "layers.1.raw",
        "layers.1.index_raw",
        "logits",
        "ids",
        "layers.0.window",
        "draft.1.window",
    ],
)
def test_a_row_too_few_is_refused(engine: Engine, copied: Path, name: str) -> None:
    file = copied / read_manifest(copied, "new").links[-1].file
    tensors = decode(file.read_bytes(), "x").tensors
    names = [key for key in tensors if key == name or key.startswith(f"{name}.")]
    shorter = {k: replace(tensors[k], data=tensors[k].data[:-1]) for k in names}
    changed(copied, "new", **shorter)
    with pytest.raises(SnapshotError, match="wanted"):
        restore(engine, copied, "new")


def test_unusable_sampling_is_refused(engine: Engine, copied: Path) -> None:
    manifest = replace(read_manifest(copied, "new"), sampling=Sampling(temperature=-1.0))
    (copied / "new.json").write_bytes(encode_manifest(manifest))
    with pytest.raises(SnapshotError, match="temperature is -1"):
        restore(engine, copied, "new")
