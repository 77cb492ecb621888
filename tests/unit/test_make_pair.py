from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ds4chat.draft.binding import bind_draft
from ds4chat.draft.metadata import read_draft_config
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.vocab import read_tokenizer
from ds4chat.model.binding import bind_target
from ds4chat.model.metadata import read_target_config
from tests.make_pair import draw, main, make_pair
from tests.pair_layout import QUANTS, PairSpec, Part, base_parts, support_parts

# Of the golden vectors' configuration file.
GOLDEN_SHA256 = "8db89a1503040b9d13561228af40dd85589e2e704684ebd6a000ae947f0755cb"


def checkpoint(part: Part, values: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    if part.kind != "routed":
        return {part.drawn: values}
    stem, which = part.drawn.rsplit(".", 1)
    return {f"{stem}.ffn.experts.{e}.{which}.weight": rows for e, rows in enumerate(values)}


def test_seed_11_gives_the_golden_weights(tmp_path: Path) -> None:
    spec = PairSpec(seed=11)
    weights: dict[str, np.ndarray[Any, Any]] = {}
    for part, _ in [*base_parts(spec), *support_parts(spec)]:
        weights |= checkpoint(part, draw(part, spec.seed))
    with GgufFile.open(make_pair(tmp_path, seed=11).base) as gguf:
        for layer in range(3):
            entry = gguf.tensors[f"blk.{layer}.ffn_gate_tid2eid.weight"]
            weights[f"layers.{layer}.ffn.gate.tid2eid"] = np.array(gguf.integers(entry))
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode("ascii") + weights[name].tobytes())
    assert digest.hexdigest() == GOLDEN_SHA256


def blobs(folder: Path, **options: Any) -> tuple[bytes, bytes]:
    paths = make_pair(folder, **options)
    return paths.base.read_bytes(), paths.support.read_bytes()


def test_a_seed_decides_every_byte(tmp_path: Path) -> None:
    options = {"quant": "q2", "ratios": (0, 4)}
    first = blobs(tmp_path / "a", seed=5, **options)
    assert blobs(tmp_path / "b", seed=5, **options) == first
    other = blobs(tmp_path / "c", seed=6, **options)
    assert other[0] != first[0]
    assert other[1] != first[1]


@pytest.mark.parametrize("quant", QUANTS)
def test_every_format_holds_sane_weights(quant: str, tmp_path: Path) -> None:
    paths = make_pair(tmp_path, quant=quant, ratios=(0, 4, 128, 0, 4, 0), n_stages=3)
    gains = {"gate": 1.5, "up": 1.5, "down": 1.0}
    with GgufFile.open(paths.base) as base, GgufFile.open(paths.support) as support:
        target = read_target_config(base)
        config = read_draft_config(support, target, base).config
        bound = bind_target(base, target)
        for name, entry in bound.items():
            if "_exps" in name:
                gain = gains[name.split("_")[1]]
                spread = float(base.floats(entry).std()) * entry.shape[-1] ** 0.5 / gain
                assert 0.9 < spread < 1.1, (name, entry.type_name)
        assert len(bind_draft(support, config, target)) == 81


def test_a_moved_end_token(tmp_path: Path) -> None:
    with GgufFile.open(make_pair(tmp_path, end_id=40, ratios=(0,)).base) as gguf:
        tokenizer = read_tokenizer(gguf)
    assert tokenizer.specials.eos == 40
    assert tokenizer.decode(tokenizer.encode_plain("every byte: \x00\x25\xff")) == (
        "every byte: \x00\x25\xff"
    )


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tmp_path), "--seed", "2", "--ratios", "0,4", "--spelling", "llama"])
    assert "base.gguf" in capsys.readouterr().out
    with GgufFile.open(tmp_path / "support.gguf") as gguf:
        assert gguf.metadata["general.architecture"] == "dflash"
