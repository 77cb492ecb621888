"""The expert kernels, as the host build of the dialect runs them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.kernels import host_build
from tests.kernels.cases import ALL_ROWS, check
from tests.kernels.moe_cases import down_family, gate_up_family

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)
SUBSETS = ((0,), (7,), (2, 5), (6, 1, 0), (1, 2, 3, 4, 5, 6))
FORMATS = ("IQ2_XXS", "Q2_K", "Q8_0", "MXFP4")


def some(quick: str, n_in: int) -> list[object]:
    """All formats at two row lengths; all but one of them are slow to compile."""
    return [
        pytest.param(name, k, marks=() if (name, k) == (quick, n_in) else pytest.mark.slow)
        for name in FORMATS
        for k in (256, n_in)
    ]


@pytest.mark.parametrize(("name", "n_in"), some("IQ2_XXS", 768))
def test_gate_up(name: str, n_in: int) -> None:
    found = check(
        gate_up_family("host", name, n_in, 24, 10, "float32"), host_build.run, SUBSETS
    )
    assert found.is_close, found
    assert found.is_invariant


@pytest.mark.parametrize(("name", "n_in"), some("Q2_K", 1536))
def test_down(name: str, n_in: int) -> None:
    found = check(down_family("host", name, n_in, 24, 10, "float32"), host_build.run, SUBSETS)
    assert found.is_close, found
    assert found.is_invariant


def test_half_precision() -> None:
    for family in (gate_up_family, down_family):
        found = check(
            family("host", "Q8_0", 256, 16, 8, "bfloat16"), host_build.run, SUBSETS[:2]
        )
        assert found.is_close, found
        assert found.is_invariant


def test_a_pick_that_is_no_expert_adds_nothing() -> None:
    case = down_family("host", "Q8_0", 256, 24, 10, "float32").make(ALL_ROWS)
    (whole,) = host_build.run(case)
    picks, weights = case.inputs[2][0].copy(), case.inputs[3][0].copy()
    picks[2, 3], picks[4, 0], weights[2, 3], weights[4, 0] = -1, 10, 0.5, 0.5
    zeroed = case.inputs[3][0].copy()
    zeroed[2, 3] = zeroed[4, 0] = 0.0
    bad = (*case.inputs[:2], (picks, "int32"), (weights, "float32"))
    none = (*case.inputs[:3], (zeroed, "float32"))
    (out,) = host_build.run(dataclasses.replace(case, inputs=bad))
    (expected,) = host_build.run(dataclasses.replace(case, inputs=none))
    np.testing.assert_array_equal(out, expected)
    assert not np.array_equal(out, whole)


def test_an_expert_picked_twice_by_a_row_counts_twice() -> None:
    case = down_family("host", "Q8_0", 256, 24, 10, "float32").make((0,))
    hidden, picks = case.inputs[0][0].copy(), case.inputs[2][0].copy()
    picks[0, 5] = picks[0, 0]
    hidden[0, 5] = hidden[0, 0]
    weights = np.zeros_like(case.inputs[3][0])
    weights[0, 0], weights[0, 5] = 0.25, 0.5
    inputs = ((hidden, "float32"), case.inputs[1], (picks, "int32"), (weights, "float32"))
    (twice,) = host_build.run(dataclasses.replace(case, inputs=inputs))
    weights[0, 0], weights[0, 5] = 0.75, 0.0
    (once,) = host_build.run(dataclasses.replace(case, inputs=inputs))
    np.testing.assert_allclose(twice, once, rtol=1e-5, atol=1e-5)
