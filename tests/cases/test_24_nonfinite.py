"""Weights that hold NaN or infinity: nothing is answered with them, and the turn says so.

A spoiled number is written into the file; what is said before it is met must be the sound
model's text, in both modes, and then the reply ends. In the draft module it costs speculation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ds4chat.engine.engine import Engine
from ds4chat.engine.session import Session
from ds4chat.engine.snapshots import take
from ds4chat.errors import NonFiniteError, SnapshotError
from tests.engines import (
    SMALL,
    WIDE,
    differing,
    open_half_files,
    plain_tokens,
    random_ids,
    spec_tokens,
)
from tests.make_pair import PairPaths, make_pair
from tests.spoil import spoil

NAN, INF = float("nan"), float("inf")
N_PROMPT = 20
WARM: dict[str, Any] = {"temperature": 0.9, "top_p": 0.95, "seed": 5}
DECODERS: dict[str, Callable[[Session, int], list[int]]] = {
    "plain": plain_tokens,
    "speculative": spec_tokens,
}


def open_files(paths: PairPaths, *, is_half: bool = False) -> Engine:
    if is_half:
        return open_half_files(paths)
    return Engine.open(paths.base, paths.support, policy="fixed", backend="cpu", end_ids=[])


def prompted(engine: Engine, n: int = N_PROMPT, **sampling: Any) -> Session:
    session = engine.session(**sampling)
    session.sync(random_ids(engine, n))
    return session


def pair_of(folder: Path, quant: str) -> PairPaths:
    return make_pair(
        folder, seed=31, quant=quant, **(WIDE if quant in ("mixed", "q4_k") else SMALL)
    )


class Sound:
    """What the sound pair says, by format and sampling; computed when first asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._texts: dict[tuple[object, ...], list[int]] = {}

    def text(
        self, quant: str, n_prompt: int = N_PROMPT, *, is_warm: bool, is_half: bool = False
    ) -> list[int]:
        key = (quant, n_prompt, is_warm, is_half)
        if key not in self._texts:
            with open_files(pair_of(self._root / quant, quant), is_half=is_half) as engine:
                session = prompted(engine, n_prompt, **(WARM if is_warm else {}))
                self._texts[key] = plain_tokens(session, SOON)
        return self._texts[key]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    return Sound(tmp_path_factory.mktemp("sound"))


def broken_off(
    engine: Engine, decoder: str, n_prompt: int = N_PROMPT, **sampling: Any
) -> list[int]:
    """What is said until the reply ends as it must."""
    session = prompted(engine, n_prompt, **sampling)
    with pytest.raises(NonFiniteError):
        DECODERS[decoder](session, SOON)
    return list(session.ids[n_prompt:])


def check_target(
    sound: Sound,
    engine: Engine,
    quant: str,
    n_prompt: int = N_PROMPT,
    *,
    temperatures: tuple[bool, ...] = (False, True),
    is_half: bool = False,
) -> None:
    """Both modes and temperatures end alike, after nothing but the sound model's text."""
    for is_warm in temperatures:
        sampling = WARM if is_warm else {}
        wanted = sound.text(quant, n_prompt, is_warm=is_warm, is_half=is_half)
        said = [broken_off(engine, decoder, n_prompt, **sampling) for decoder in DECODERS]
        assert said[0] == said[1]
        assert len(said[0]) < SOON
        assert said[0] == wanted[: len(said[0])], "something was said with a spoiled number"


SOON = 24
INDEXED = 60  # the indexer chooses once there are more than 16 rows of ratio 4
SPOILED = [
    ("f32", "output.weight", -INF, 5, 1, N_PROMPT),
    ("f32", "blk.2.ffn_up_exps.weight", INF, 40, 1, N_PROMPT),
    ("f32", "blk.3.ffn_gate_inp.weight", NAN, 2, 1, N_PROMPT),
    ("f32", "blk.2.exp_probs_b.bias", -INF, 0, 1, N_PROMPT),
    ("f32", "blk.0.hc_ffn_base.weight", INF, 0, 1, N_PROMPT),
    ("f32", "blk.1.indexer.attn_q_b.weight", NAN, 3, 1, INDEXED),
    ("q8_0", "blk.2.ffn_down_exps.weight", INF, 70, 1, N_PROMPT),
]
MORE_SPOILED = [
    ("f32", "blk.1.attn_norm.weight", INF, 0, 1, N_PROMPT),
    ("f32", "output.weight", INF, 5, 1, N_PROMPT),
    ("q8_0", "output.weight", NAN, 9, 0, N_PROMPT),
    ("q4_k", "blk.2.ffn_gate_exps.weight", NAN, 0, 1, N_PROMPT),
    ("f32", "output_norm.weight", NAN, 0, 1, N_PROMPT),
    ("f32", "blk.3.indexer_compressor_kv.weight", NAN, 7, 0, INDEXED),
    ("f16", "blk.1.ffn_up_exps.weight", -INF, 0, 1, N_PROMPT),
    ("mixed", "blk.0.ffn_gate_exps.weight", NAN, 0, 1, N_PROMPT),
    ("f32", "output.weight", NAN, 9, 0, N_PROMPT),
    ("f32", "blk.2.ffn_gate_exps.weight", INF, 40, 1, N_PROMPT),
    ("f32", "blk.2.ffn_gate_exps.weight", -INF, 40, 1, N_PROMPT),
    ("f32", "blk.2.ffn_up_shexp.weight", INF, 4, 1, N_PROMPT),
    ("f32", "blk.2.ffn_down_exps.weight", NAN, 40, 0, N_PROMPT),
    ("f32", "blk.2.exp_probs_b.bias", INF, 0, 1, N_PROMPT),
    ("f32", "blk.2.exp_probs_b.bias", NAN, 0, 1, N_PROMPT),
    ("f32", "blk.0.ffn_gate_inp.weight", INF, 1, 1, N_PROMPT),
    ("f32", "blk.0.hc_attn_fn.weight", -INF, 2, 1, N_PROMPT),
    ("f32", "output_hc_base.weight", INF, 0, 1, N_PROMPT),
    ("f32", "blk.0.attn_sinks.weight", -INF, 0, 1, N_PROMPT),
    ("f32", "blk.3.attn_kv.weight", NAN, 3, 1, N_PROMPT),
    ("f32", "blk.3.attn_q_b.weight", -INF, 3, 1, N_PROMPT),
    ("f32", "blk.1.attn_compressor_ape.weight", -INF, 0, 1, N_PROMPT),
    ("f32", "blk.1.attn_compressor_gate.weight", INF, 2, 1, N_PROMPT),
    ("f32", "blk.1.indexer.proj.weight", INF, 0, 1, INDEXED),
    ("f32", "blk.3.indexer_compressor_gate.weight", -INF, 7, 1, INDEXED),
    ("f32", "blk.1.indexer_compressor_norm.weight", NAN, 0, 1, INDEXED),
    ("f16", "output.weight", INF, 3, 1, N_PROMPT),
    ("bf16", "blk.2.ffn_up_exps.weight", INF, 40, 1, N_PROMPT),
    ("q8_0", "blk.1.attn_q_a.weight", NAN, 0, 1, N_PROMPT),
    ("mixed", "blk.0.ffn_down_exps.weight", INF, 0, 1, N_PROMPT),
    ("mixed", "blk.1.ffn_up_exps.weight", INF, 0, 1, N_PROMPT),
    ("mixed", "blk.2.ffn_down_exps.weight", NAN, 0, 1, N_PROMPT),
    ("mixed", "blk.3.ffn_gate_exps.weight", -INF, 0, 1, N_PROMPT),
]
Spoiled = tuple[str, str, float, int, int, int]


def label(case: Spoiled) -> str:
    return f"{case[0]}-{case[1]}-{case[2]}"


def check_spoiled(
    sound: Sound, folder: Path, case: Spoiled, temperatures: tuple[bool, ...]
) -> None:
    quant, tensor, value, row, n_blocks, n_prompt = case
    paths = pair_of(folder, quant)
    spoil(paths.base, tensor, value, row=row, n_blocks=n_blocks)
    with open_files(paths) as engine:
        assert any(tensor in note and "NaN" in note for note in engine.info.notes)
        check_target(sound, engine, quant, n_prompt, temperatures=temperatures)


@pytest.mark.parametrize("case", SPOILED, ids=label)
def test_a_spoiled_weight_ends_the_reply(sound: Sound, tmp_path: Path, case: Spoiled) -> None:
    check_spoiled(sound, tmp_path, case, (case[0] == "f32" and case[5] == N_PROMPT,))


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE_SPOILED, ids=label)
def test_any_spoiled_weight_ends_the_reply(sound: Sound, tmp_path: Path, case: Spoiled) -> None:
    check_spoiled(sound, tmp_path, case, (False, True))


@pytest.mark.parametrize("value", [NAN, INF])
def test_a_token_with_a_spoiled_embedding_ends_the_reply_that_meets_it(
    sound: Sound, tmp_path: Path, value: float
) -> None:
    wanted = sound.text("f32", is_warm=False)
    paths = pair_of(tmp_path, "f32")
    spoil(paths.base, "token_embd.weight", value, row=wanted[4])
    with open_files(paths) as engine:
        for decoder in DECODERS:
            assert broken_off(engine, decoder) == wanted[:5]


@pytest.mark.parametrize("value", [NAN, pytest.param(INF, marks=pytest.mark.slow)])
def test_blocks_that_stay_packed_end_the_reply(
    sound: Sound, tmp_path: Path, value: float
) -> None:
    paths = pair_of(tmp_path, "q8_0")
    spoil(paths.base, "blk.2.ffn_up_exps.weight", value, row=40, n_blocks=2)
    with open_files(paths, is_half=True) as engine:
        assert any("ffn_up_exps" in note for note in engine.info.notes)
        check_target(sound, engine, "q8_0", temperatures=(False,), is_half=True)


DRAFT = [
    ("f32", "mtp.0.main_proj.weight", NAN, 0, 1),
    ("f32", "mtp.1.ffn_up_exps.weight", INF, 0, 0),
    ("f32", "mtp.1.markov_head.markov_w2.weight", NAN, 7, 1),
    ("f32", "mtp.1.confidence_head.proj.weight", INF, 0, 1),
]
MORE_DRAFT = [
    ("q8_0", "mtp.0.attn_kv.weight", INF, 3, 1),
    ("f32", "mtp.0.exp_probs_b.bias", NAN, 0, 1),
    ("f32", "mtp.0.ffn_gate_inp.weight", NAN, 1, 1),
    ("f32", "mtp.1.norm.weight", INF, 0, 1),
    ("f16", "mtp.0.attn_sinks.weight", -INF, 0, 1),
    ("mixed", "mtp.0.ffn_gate_exps.weight", NAN, 0, 0),
    ("q8_0", "mtp.1.markov_head.markov_w2.weight", INF, 7, 1),
]
SpoiledDraft = tuple[str, str, float, int, int]


def check_draft(sound: Sound, folder: Path, case: SpoiledDraft) -> None:
    """The text is the target's own, and it is said why nothing is drafted any more."""
    quant, tensor, value, row, n_blocks = case
    paths = pair_of(folder, quant)
    spoil(paths.support, tensor, value, row=row, n_blocks=n_blocks)
    with open_files(paths) as engine:
        assert any(
            tensor in note and "without speculation" in note for note in engine.info.notes
        )
        for is_warm in (False, True):
            session = prompted(engine, **(WARM if is_warm else {}))
            assert spec_tokens(session, SOON) == sound.text(quant, is_warm=is_warm)
            assert "not a number" in session.draft_error


@pytest.mark.parametrize("case", DRAFT, ids=lambda case: f"{case[0]}-{case[1]}-{case[2]}")
def test_a_spoiled_draft_module_costs_speculation_only(
    sound: Sound, tmp_path: Path, case: SpoiledDraft
) -> None:
    check_draft(sound, tmp_path, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE_DRAFT, ids=lambda case: f"{case[0]}-{case[1]}-{case[2]}")
def test_any_spoiled_draft_module_costs_speculation_only(
    sound: Sound, tmp_path: Path, case: SpoiledDraft
) -> None:
    check_draft(sound, tmp_path, case)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_files(pair_of(tmp_path_factory.mktemp("whole"), "f32")) as engine:
        yield engine


def spoil_next_row(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, value: float, at: int
) -> None:
    """As if the device computed one wrong number, once, in the row of position `at`."""
    evaluate = engine.runner.evaluate_rows

    def once(timeline: Any, ids: Any, **more: Any) -> Any:
        n = timeline.log.n
        rows = evaluate(timeline, ids, **more)
        if n <= at < n + len(ids):
            rows = rows.copy()
            rows[at - n, 17] = value
            for layer in timeline.log.layers:
                layer.window[at % layer.window.shape[0]] = value
        return rows

    monkeypatch.setattr(engine.runner, "evaluate_rows", once)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_state_that_nan_has_touched_is_not_used_again(
    whole: Engine, monkeypatch: pytest.MonkeyPatch, value: float, decoder: str, tmp_path: Path
) -> None:
    """Asked again, the engine reads everything again and says what it should have said."""
    wanted = plain_tokens(prompted(whole), SOON)
    session = prompted(whole)
    with monkeypatch.context() as patch:
        spoil_next_row(patch, whole, value, N_PROMPT + 6)
        with pytest.raises(NonFiniteError):
            DECODERS[decoder](session, SOON)
    assert list(session.ids[N_PROMPT:]) == wanted[:7]
    with pytest.raises(SnapshotError, match="NaN"):
        take(whole, session, tmp_path)
    longer = [*session.ids, *random_ids(whole, 5, seed=2)]
    fresh = whole.session()
    fresh.sync(longer)
    assert session.sync(longer) == 0, "rows were reused after NaN"
    assert differing(session, fresh) == []
    assert DECODERS[decoder](session, 10) == plain_tokens(fresh, 10)


def test_nothing_but_minus_infinity_or_nan_rows_never_gives_a_token(whole: Engine) -> None:
    for value in (NAN, INF, -INF):
        for sampling in ({}, WARM):
            session = prompted(whole, **sampling)
            session._row = np.full(whole.info.n_vocab, value, np.float32)
            with pytest.raises(NonFiniteError):
                session.choose()
            with pytest.raises(NonFiniteError):
                session.speculate(3, 8)
            with pytest.raises(NonFiniteError):
                session.step(3)
            assert session.n == N_PROMPT
