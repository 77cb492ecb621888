"""The probe of our own kernels, on the stock operations that stand in for them here."""

from __future__ import annotations

import numpy as np
import pytest

from ds4chat.engine import kernel_probe
from ds4chat.engine.op_probe import StockOp, probe
from ds4chat.formats.quants.base import decode, format_named
from ds4chat.ops import qmatmul

OPS = list(kernel_probe.kernel_ops())


@pytest.mark.parametrize("op", OPS, ids=[op.name for op in OPS])
def test_what_stands_in_is_right_and_exact(op: StockOp) -> None:
    result = probe(op)
    assert result.is_right, result
    assert result.is_row_exact, result


def test_every_format_with_a_kernel_is_tried() -> None:
    names = " ".join(op.name for op in OPS)
    assert all(f" {name} " in names for name in qmatmul.STAGE_VALUES)


@pytest.mark.parametrize("name", sorted(qmatmul.STAGE_VALUES))
def test_random_blocks_stand_for_usable_values(name: str) -> None:
    quant = format_named(name)
    raw = kernel_probe.random_blocks(quant, 500)
    values = decode(quant, raw, (500, quant.block_values))
    assert np.isfinite(values).all()
    assert np.abs(values).max() <= 4
    assert np.abs(values).max() > 0


def test_both_ends_of_a_pass_are_tried() -> None:
    names = {op.name.removeprefix("kernel: ") for op in OPS}
    wanted = ("embedding of bfloat16", "embedding of float16", "means for the draft")
    assert names.issuperset(wanted)


def test_kernels_of_a_draft_are_tried() -> None:
    names = {op.name.removeprefix("kernel: ") for op in OPS}
    assert names.issuperset(("norm of rows", "what a draft tells"))


def test_only_gpus_have_kernels() -> None:
    assert kernel_probe.dispatcher_of("cpu").is_reference
    assert not kernel_probe.dispatcher_of("metal").is_reference
    assert not kernel_probe.dispatcher_of("cuda").is_reference
