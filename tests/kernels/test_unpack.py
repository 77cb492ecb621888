"""Blocks to bf16 as the host build of the kernel makes them: the decoder's values, rounded."""

from __future__ import annotations

import numpy as np
import pytest

from ds4chat.formats.quants.base import decode, format_named
from ds4chat.ops.unpack_kernels import STAGE_VALUES, unpack_blocks, unpack_spec
from tests.kernels import host_build
from tests.kernels.blocks import random_blocks
from tests.kernels.cases import Case, from_bf16, to_bf16

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)


@pytest.mark.parametrize("name", STAGE_VALUES)
@pytest.mark.parametrize("n_rows", [16, 21])
def test_values_are_the_decoders_rounded_once(name: str, n_rows: int) -> None:
    quant = format_named(name)
    n_in = 3 * STAGE_VALUES[name] - quant.block_values * (
        STAGE_VALUES[name] > quant.block_values
    )
    raw = random_blocks(np.random.default_rng(n_rows), name, n_rows, n_in)
    case = Case(
        spec=unpack_spec(name, n_in),
        inputs=((raw, "uint8"),),
        n_blocks=unpack_blocks(name, n_rows, n_in),
        outputs=(((n_rows, n_in), "bfloat16"),),
        exact=(),
    )
    (found,) = host_build.run(case)
    wanted = from_bf16(to_bf16(decode(quant, raw, (n_rows, n_in))))
    np.testing.assert_array_equal(found, wanted)
