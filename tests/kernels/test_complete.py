"""Compressed rows made in one launch, as the host build runs it."""

from __future__ import annotations

import numpy as np
import pytest

from ds4chat.ops import attention_kernels, cache_kernels, index_kernels
from tests.kernels import host_build
from tests.kernels.attention_cases import EPS
from tests.kernels.blocks import nmse
from tests.kernels.cases import Case, from_bf16
from tests.kernels.complete_cases import AT, F32, cases

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)
CASES = list(cases())


def values(found: np.ndarray) -> np.ndarray:
    return from_bf16(found) if found.dtype == np.uint16 else found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.spec.name)
def test_rows_are_those_of_the_reference(case: Case) -> None:
    for found, exact in zip(host_build.run(case), case.exact, strict=True):
        made = values(found)
        assert nmse(made[AT : AT + 1], exact[AT : AT + 1]) <= case.spec.tolerance.nmse
        others = np.arange(len(exact)) != AT
        np.testing.assert_array_equal(made[others], exact[others])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.spec.name)
def test_a_row_may_be_put_in_place(case: Case) -> None:
    names = case.spec.inputs
    at = [names.index(name) for name in ("rows", "index_rows") if name in names]
    made = host_build.run(case, in_place=dict(enumerate(at)))
    for found, wanted in zip(made, host_build.run(case), strict=True):
        np.testing.assert_array_equal(found, wanted)


def pooled(case: Case, raw: int) -> np.ndarray:
    """The row before its norm, by the launch of its own."""
    constants = case.spec.constants
    is_overlapping, is_first = (bool(constants[n]) for n in ("IS_OVERLAPPING", "IS_FIRST"))
    width = case.inputs[raw][0].shape[2] // (2 if is_overlapping else 1)
    (found,) = host_build.run(
        Case(
            spec=cache_kernels.pool_spec(is_overlapping=is_overlapping, is_first=is_first),
            inputs=(case.inputs[raw], case.inputs[2]),
            n_blocks=-(-width // cache_kernels.NARROW),
            outputs=(((1, width), F32),),
            exact=(),
        )
    )
    return np.asarray(found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.spec.name)
def test_rows_have_the_bits_of_launches_one_by_one(case: Case) -> None:
    made = host_build.run(case)
    norm, cos, sin = case.inputs[4:7]
    row = pooled(case, 1)
    spec = attention_kernels.rows_spec(
        row.shape[1], EPS, has_latent=False, has_wide=False, is_rounded=True
    )
    inputs, outputs = ((row, F32), norm, cos, sin), ((row.shape, case.outputs[0][1]),)
    (wanted,) = host_build.run(
        Case(spec=spec, inputs=inputs, n_blocks=1, outputs=outputs, exact=())
    )
    np.testing.assert_array_equal(made[0][AT], wanted[0])
    if len(made) == 1:
        return
    row = pooled(case, 8)
    spec = index_kernels.index_rows_spec(row.shape[1], EPS, 1, is_normed=True, is_rounded=True)
    inputs, outputs = ((row, F32), case.inputs[9], cos, sin), ((row.shape, F32),)
    (wanted,) = host_build.run(
        Case(spec=spec, inputs=inputs, n_blocks=1, outputs=outputs, exact=())
    )
    np.testing.assert_array_equal(made[1][AT], wanted[0])
