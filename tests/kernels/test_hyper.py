"""The hyper-connection kernels, as the host build of the dialect runs them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels import host_build, hyper_cases
from tests.kernels.cases import ALL_ROWS, Family, check

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)
SUBSETS = ((0,), (7,), (2, 5), (6, 1, 0), (1, 2, 3, 4, 5, 6))


@pytest.mark.parametrize("dim", [96, 544])
@pytest.mark.parametrize("at", range(6))
def test_kernels_are_close_and_ignore_other_rows(dim: int, at: int) -> None:
    family: Family = list(hyper_cases.families(dim))[at]()
    found = check(family, host_build.run, SUBSETS)
    assert found.is_close, found
    assert found.is_invariant


def test_columns_of_the_carry_are_balanced_last() -> None:
    family = hyper_cases.pre_family(96, 24, "float32", is_normed=True)
    _, _, carry = host_build.run(family.make(ALL_ROWS))
    np.testing.assert_allclose(carry.sum(axis=1), 1.0, atol=1e-5)
    assert np.abs(carry.sum(axis=2) - 1.0).max() > 1e-4
