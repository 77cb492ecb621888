"""Manifests: read back whole, refused when anything about them is wrong; names; identities."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ds4chat.engine.snapshot_chain import (
    MAX_LINKS,
    OLDER_BUILD,
    Identity,
    Link,
    Manifest,
    check_name,
    compare,
    data_file,
    decode_manifest,
    encode_manifest,
    token_hash,
)
from ds4chat.errors import SnapshotError
from ds4chat.protocol.types import Sampling, Source

IDENTITY = Identity(
    model="ab" * 32,
    support="",
    kv_fp8=True,
    activation_dtype="float32",
    prefill_chunk=256,
    build="1.2.3",
    backend="cpu",
    device="some cpu",
)


def link(n: int) -> Link:
    sha256 = f"{n:064x}"
    return Link(file=data_file(sha256), n_bytes=100 + n, sha256=sha256, n=n)


def manifest(*counts: int) -> Manifest:
    return Manifest(
        identity=IDENTITY,
        ctx=4096,
        n=counts[-1],
        token_hash=token_hash(range(counts[-1])),
        sampling=Sampling(temperature=0.7, seed=2**63 + 1),
        next_source=Source.BONUS,
        n_rounds=3,
        parent="turn-1",
        links=tuple(link(n) for n in counts),
    )


def test_round_trip() -> None:
    wanted = manifest(4, 9, 9, 130)
    assert decode_manifest(encode_manifest(wanted), "x") == wanted


def test_every_flipped_bit_and_every_cut_is_found() -> None:
    raw = encode_manifest(manifest(4))
    for at in range(len(raw)):
        for bit in range(8):
            flipped = bytearray(raw)
            flipped[at] ^= 1 << bit
            with pytest.raises(SnapshotError):
                decode_manifest(bytes(flipped), "x")
    for size in range(0, len(raw), 7):
        with pytest.raises(SnapshotError, match="damaged"):
            decode_manifest(raw[:size], "x")


def rewritten(**changes: Any) -> bytes:
    """A manifest with changed fields; its hash is not that of the content."""
    return json.dumps({**json.loads(encode_manifest(manifest(4))), **changes}).encode()


def test_a_later_version_is_refused_by_name() -> None:
    with pytest.raises(SnapshotError, match="format 2; this version of ds4chat reads 1 to 1"):
        decode_manifest(rewritten(format=2, links="something new"), "x")


@pytest.mark.parametrize(
    "changes",
    [
        {"n": "4"},
        {"n": True},
        {"n": 4.0},
        {"extra": 1},
        {"sampling": {"temperature": "hot"}},
        {"sampling": []},
        {"next_source": "nowhere"},
        {"links": None},
        {"links": [1]},
        {"identity": {"model": "a"}},
        {"format": None},
    ],
)
def test_wrong_fields_are_damage(changes: dict[str, Any]) -> None:
    with pytest.raises(SnapshotError, match="damaged"):
        decode_manifest(rewritten(**changes), "x")


@pytest.mark.parametrize(
    "wrong",
    [
        replace(manifest(4, 9), links=()),
        replace(manifest(4, 9), n=10),
        replace(manifest(4, 9), links=(link(12), link(9))),
        replace(manifest(4), n=0, links=(link(0),)),
        manifest(*range(1, MAX_LINKS + 2)),
        replace(manifest(4), links=(replace(link(4), file="../../x"),)),
        replace(manifest(4), links=(replace(link(4), n_bytes=-1),)),
        replace(manifest(4), links=(replace(link(4), sha256="x" * 64),)),
    ],
)
def test_unsound_chains_are_refused_even_with_the_right_hash(wrong: Manifest) -> None:
    with pytest.raises(SnapshotError, match="list of files"):
        decode_manifest(encode_manifest(wrong), "x")


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"null", b"7", b'{"format": 1}', b"[" * 100_000, b"\xff", b'{"format":']
)
def test_other_files_are_refused(raw: bytes) -> None:
    with pytest.raises(SnapshotError, match="damaged"):
        decode_manifest(raw, "x")


@pytest.mark.parametrize("name", ["turn-1", "a", "0_b", "x" * 64])
def test_usable_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "/x", "a/b", "a\\b", "-x", "a.b", "x" * 65, "a\n", "a\0", "ä",
     "con", "NUL", "com1", "Lpt9"],
)  # fmt: skip
def test_unusable_names(name: str) -> None:
    with pytest.raises(SnapshotError, match="cannot be used") as caught:
        check_name(name)
    assert caught.value.message.isprintable()


def test_equal_identities_need_no_words() -> None:
    assert compare(IDENTITY, IDENTITY) == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "cd" * 32}, "the model is abababababab in the snapshot, cdcdcdcdcdcd here"),
        ({"support": "cd" * 32}, "the support file is none in the snapshot, cdcd"),
        ({"kv_fp8": False}, "kv_fp8 is True in the snapshot, False here"),
        ({"activation_dtype": "bfloat16"}, "float32 in the snapshot, bfloat16 here"),
        ({"prefill_chunk": 512}, "the prefill chunk is 256 in the snapshot, 512 here"),
        ({"model": "cd" * 32, "kv_fp8": False}, "cdcd.* here; kv_fp8 is True"),
    ],
)
def test_another_engine_is_refused_with_both_values(change: dict[str, Any], words: str) -> None:
    with pytest.raises(SnapshotError, match=words) as caught:
        compare(IDENTITY, replace(IDENTITY, **change))
    assert caught.value.hint


def other(field: str) -> Identity:
    changes: dict[str, Any] = {field: "new"}
    return replace(IDENTITY, **changes)


@pytest.mark.parametrize("field", ["build", "backend", "device"])
def test_another_build_is_a_notice(field: str) -> None:
    (notice,) = compare(IDENTITY, other(field))
    assert notice.startswith(OLDER_BUILD)
    assert f"{field} {getattr(IDENTITY, field)}, now new" in notice
