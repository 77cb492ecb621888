"""The attention kernels, as the host build of the dialect runs them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.ops import attention_kernels as kernels
from ds4chat.ops.dispatch import current, use
from ds4chat.ops.index_kernels import scores_blocks
from ds4chat.ops.quantsim import fp8_round_trip
from ds4chat.ops.rope import RopeTable
from tests.kernels import attention_cases as cases
from tests.kernels import host_build
from tests.kernels.blocks import nmse
from tests.kernels.cases import Case, check, to_bf16
from tests.kernels.host_dispatch import HostDispatcher

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)
SUBSETS = ((0,), (7,), (2, 5), (6, 1, 0), (1, 2, 3, 4, 5, 6))


SLOW = (1, 7)  # variants that say little more
FAMILIES = [pytest.param(i, marks=pytest.mark.slow) if i in SLOW else i for i in range(12)]


@pytest.mark.parametrize("at", FAMILIES)
def test_kernels_are_close_and_ignore_other_rows(at: int) -> None:
    family = list(cases.families("host", 128, 4, 70))[at]()
    found = check(family, host_build.run, SUBSETS[:4])
    assert found.is_close, found
    assert found.is_invariant


@pytest.mark.parametrize(("width", "n_keys", "window"), [(512, 300, 136), (64, 100, 20)])
def test_tiles_of_other_shapes(width: int, n_keys: int, window: int) -> None:
    family = cases.tiles_family("host", width, 16, n_keys, window)
    found = check(family, host_build.run, SUBSETS[:4])
    assert found.is_close, found
    assert found.is_invariant


@pytest.mark.slow
@pytest.mark.parametrize("at", range(12))
def test_wide_heads(at: int) -> None:
    family = list(cases.families("host", 512, 3, 300))[at]()
    found = check(family, host_build.run, SUBSETS)
    assert found.is_close, found
    assert found.is_invariant


FORMS = [(4, mx.float32, "attn_decode"), (8, mx.bfloat16, "attn_tiles")]


def attend(n_heads: int, dtype: mx.Dtype, mask: np.ndarray, more: int = 0) -> np.ndarray:
    """Attention of two rows over 136 window rows and 40 keys, and `more` that are hidden."""
    rng = np.random.default_rng(n_heads)
    drawn = rng.standard_normal((2 * n_heads + 176 + more, 128)).astype(np.float32)
    drawn[2 * n_heads + 176 :] = np.nan
    q, window, keys = np.split(drawn, [2 * n_heads, 2 * n_heads + 136])
    hidden = np.full((2, more), -np.inf, np.float32)
    made = kernels.decode(
        mx.array(q.reshape(2, -1)).astype(dtype),
        mx.array(window).astype(dtype),
        mx.array(keys).astype(dtype),
        mx.array(np.concatenate([mask, hidden], axis=1)),
        mx.zeros(n_heads),
        RopeTable(cos=mx.ones((2, 32)), sin=mx.zeros((2, 32))),
        eps=1e-6,
        dtype=dtype,
    )
    assert made is not None
    return np.array(made.astype(mx.float32))


@pytest.fixture(params=FORMS, ids=["one by one", "tiles"])
def form(request: pytest.FixtureRequest) -> Iterator[tuple[int, mx.Dtype]]:
    n_heads, dtype, name = request.param
    before, dispatcher = current(), HostDispatcher()
    use(dispatcher)
    yield n_heads, dtype
    use(before)
    assert name in dispatcher.launched


def test_capacity_changes_no_bit(form: tuple[int, mx.Dtype]) -> None:
    mask = np.zeros((2, 177), np.float32)
    mask[0, 3:9] = mask[1, 150:] = -np.inf
    wanted = attend(*form, mask)
    assert np.isfinite(wanted).all()
    np.testing.assert_array_equal(attend(*form, mask, more=640), wanted)


def test_a_choice_that_is_no_number_spoils_its_row_alone(form: tuple[int, mx.Dtype]) -> None:
    mask = np.zeros((2, 177), np.float32)
    clean = attend(*form, mask)
    mask[1, -5:] = np.nan
    found = attend(*form, mask)
    np.testing.assert_array_equal(found[0], clean[0])
    assert np.isnan(found[1]).all()


def test_without_keys_the_sink_takes_all(form: tuple[int, mx.Dtype]) -> None:
    np.testing.assert_array_equal(attend(*form, np.full((2, 177), -np.inf, np.float32)), 0.0)


def grown(case: Case, axis_of: dict[int, int], more: int, fill: dict[int, float]) -> Case:
    """A case whose inputs `axis_of` have `more` entries behind an axis, of a value each."""
    inputs = list(case.inputs)
    for i, axis in axis_of.items():
        array, kind = inputs[i]
        shape = [more if a == axis else n for a, n in enumerate(array.shape)]
        value = np.full(shape, fill[i], np.float32)
        added = to_bf16(value) if kind == "bfloat16" else value
        inputs[i] = (np.concatenate([array, added], axis=axis), kind)
    return dataclasses.replace(case, inputs=tuple(inputs))


def test_more_chunks_change_no_bit_of_the_sums_before_rounding() -> None:
    case = cases.join_family(64, 4, 7, "float32").make((0, 3))
    longer = grown(case, {0: 1, 1: 1, 2: 1}, 5, {0: np.nan, 1: -np.inf, 2: 0.0})
    (found,), (wanted,) = host_build.run(longer), host_build.run(case)
    np.testing.assert_array_equal(found, wanted)


def test_a_chunk_has_the_same_sums_at_any_capacity() -> None:
    family = cases.tiles_family("host", 64, 8, 200)
    case = family.make((0, 3))
    n_chunks, n_more = kernels.n_chunks_of(136, 200), kernels.n_chunks_of(136, 500)
    longer = grown(case, {2: 0, 3: 1}, 300, {2: np.nan, 3: -np.inf})
    outputs = tuple(((s[0], n_more, *s[2:]), kind) for s, kind in case.outputs)
    longer = dataclasses.replace(longer, outputs=outputs, n_blocks=2 * n_more)
    for wanted, found in zip(host_build.run(case), host_build.run(longer), strict=True):
        np.testing.assert_array_equal(found[:, :n_chunks], wanted)
    *_, totals = host_build.run(longer)
    assert (totals[:, n_chunks:] == 0).all()


def test_scores_of_codes_are_exact_and_ignore_other_keys() -> None:
    case = cases.scores_family(128, 4, 70).make((0, 3))
    (q, _), (w, _), (keys, _), (mask, _) = case.inputs
    codes = (cases.hadamard_fp4(a.astype(np.float64)).astype(np.float32) for a in (q, keys))
    q, keys = codes
    inputs = tuple((a, "float32") for a in (q, w, keys, mask))
    case = dataclasses.replace(case, inputs=inputs)
    longer = grown(case, {2: 0, 3: 1}, 90, {2: np.nan, 3: -np.inf})
    longer = dataclasses.replace(
        longer, outputs=(((2, 160), "float32"),), n_blocks=2 * scores_blocks(160)
    )
    (wanted,), (found,) = host_build.run(case), host_build.run(longer)
    np.testing.assert_array_equal(found[:, :70], wanted)
    dots = np.maximum(np.einsum("lhd,cd->lhc", q, keys, dtype=np.float64), 0)
    exact = np.einsum("lh,lhc->lc", w.astype(np.float64), dots) * (128 * 4) ** -0.5
    assert nmse(wanted, exact) < 1e-13  # queries and keys lose nothing, sums are float32


def test_ties_and_small_values_round_as_the_stock_round_trip() -> None:
    case = cases.rows_family(192, 0, "float32", "float32").make((0,))
    steps = np.arange(64) / 2  # every other one is a tie
    tiny, wide = steps * 2.0**-9, (steps / 16 + 1) * 16
    tiny[63] = wide[63] = 448  # the scale of both blocks is one
    norm = np.concatenate([tiny, -wide, np.ones(64)]).astype(np.float32)
    kv = np.full((1, 192), 1024, np.float32)  # its norm is exactly one everywhere
    inputs = ((kv, "float32"), (norm, "float32"), *case.inputs[2:])
    (found,) = host_build.run(dataclasses.replace(case, inputs=inputs))
    wanted = np.array(fp8_round_trip(mx.array(norm[:128])))
    assert len(np.unique(np.abs(wanted))) > 30
    np.testing.assert_array_equal(found[0, :128], wanted)
    np.testing.assert_array_equal(cases.fp8(norm[:128].astype(np.float64)), wanted)
