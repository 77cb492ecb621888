"""The attention kernels, as the host build of the dialect runs them."""

from __future__ import annotations

import dataclasses

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.ops.quantsim import fp8_round_trip
from tests.kernels import attention_cases as cases
from tests.kernels import host_build
from tests.kernels.cases import ALL_ROWS, activations, check

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)
SUBSETS = ((0,), (7,), (2, 5), (6, 1, 0), (1, 2, 3, 4, 5, 6))


FORMS = [(4, "float32"), (8, "bfloat16")]  # heads and type: keys one by one, heads in eights

SLOW = (1, 4)  # variants that say little more
FAMILIES = [pytest.param(i, marks=pytest.mark.slow) if i in SLOW else i for i in range(9)]


@pytest.mark.parametrize("at", FAMILIES)
def test_kernels_are_close_and_ignore_other_rows(at: int) -> None:
    family = list(cases.families("host", 128, 4, 70))[at]()
    found = check(family, host_build.run, SUBSETS[:4])
    assert found.is_close, found
    assert found.is_invariant


@pytest.mark.parametrize(("width", "n_keys", "window"), [(128, 40, 136), (64, 100, 20)])
def test_heads_in_eights(width: int, n_keys: int, window: int) -> None:
    family = cases.decode_family("host", width, 16, n_keys, "bfloat16", window)
    found = check(family, host_build.run, SUBSETS)
    assert found.is_close, found
    assert found.is_invariant
    assert family.make((0,)).spec.source == "attn_tiles.kernel"


@pytest.mark.slow
@pytest.mark.parametrize("at", range(9))
def test_wide_heads(at: int) -> None:
    family = list(cases.families("host", 512, 3, 300))[at]()
    found = check(family, host_build.run, SUBSETS)
    assert found.is_close, found
    assert found.is_invariant


@pytest.mark.parametrize(("n_heads", "kind"), FORMS)
def test_capacity_changes_no_bit(n_heads: int, kind: str) -> None:
    case = cases.decode_family("host", 128, n_heads, 40, kind).make(ALL_ROWS[:2])
    (wanted,) = host_build.run(case)
    q, window, keys, mask, *rest = case.inputs
    more, _ = activations(np.full((640, 128), np.nan, np.float32), kind)
    hidden = np.full((2, 640), -np.inf, np.float32)
    grown = dataclasses.replace(
        case,
        inputs=(
            q, window, (np.concatenate([keys[0], more]), kind),
            (np.concatenate([mask[0], hidden], axis=1), "float32"), *rest,
        ),
    )  # fmt: skip
    (found,) = host_build.run(grown)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("n_heads", "kind"), FORMS)
def test_a_choice_that_is_no_number_spoils_its_row_alone(n_heads: int, kind: str) -> None:
    case = cases.decode_family("host", 128, n_heads, 40, kind).make(ALL_ROWS[:2])
    (clean,) = host_build.run(case)
    mask = case.inputs[3][0].copy()
    mask[1, -5:] = np.nan
    inputs = (*case.inputs[:3], (mask, "float32"), *case.inputs[4:])
    (found,) = host_build.run(dataclasses.replace(case, inputs=inputs))
    np.testing.assert_array_equal(found[0], clean[0])
    assert np.isnan(found[1]).all()


@pytest.mark.parametrize(("n_heads", "kind"), FORMS)
def test_without_keys_the_sink_takes_all(n_heads: int, kind: str) -> None:
    case = cases.decode_family("host", 128, n_heads, 40, kind).make((0,))
    mask = case.inputs[3][0].copy()
    mask[:, 1:] = -np.inf
    inputs = (*case.inputs[:3], (mask, "float32"), *case.inputs[4:])
    (found,) = host_build.run(dataclasses.replace(case, inputs=inputs))
    np.testing.assert_array_equal(found, 0.0)


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
