"""Rings, pooled rows and the choice of rows, as the host build of the dialect runs them."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.ops.indexer import choose_rows
from tests.kernels import cache_cases, host_build
from tests.kernels.blocks import nmse
from tests.kernels.cases import Case, from_bf16

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)


@pytest.mark.parametrize("case", list(cache_cases.cases()), ids=lambda case: case.spec.name)
def test_values_are_those_of_the_reference(case: Case) -> None:
    made = host_build.run(case)
    for found, exact, (_, kind) in zip(made, case.exact, case.outputs, strict=True):
        if case.spec.tolerance.nmse == 0:
            values = from_bf16(found) if found.dtype == np.uint16 else found
            np.testing.assert_array_equal(values, exact, err_msg=kind)
        else:
            assert nmse(found, exact) <= case.spec.tolerance.nmse


@pytest.mark.parametrize("spoiled", [np.nan, np.inf])
def test_a_visible_score_that_is_no_number_spoils_its_row_alone(spoiled: float) -> None:
    rng = np.random.default_rng(3)
    scores = rng.standard_normal((2, 90)).astype(np.float32)
    mask = np.zeros((2, 91), np.float32)
    mask[:, 80:] = -np.inf
    scores[:, 85] = np.nan  # not visible
    scores[1, 7] = spoiled
    wanted = np.array(choose_rows(mx.array(scores), mx.array(mask[:, 1:]), 10))
    (found,) = host_build.run(cache_cases.choose_case(scores, mask, 10, wanted))
    assert np.isfinite(found[0]).sum() == 11
    np.testing.assert_array_equal(found[0, 1:], wanted[0])
    assert np.isnan(wanted[1]).any()
    assert np.isnan(found[1]).any()
