"""The probe of single operations: right ones pass, loose and wrong ones do not."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.engine import op_probe
from ds4chat.engine.op_probe import SMALL, StockOp, probe, stock_ops

OPS = list(stock_ops(SMALL[:1]))


@pytest.mark.parametrize("op", OPS, ids=[op.name for op in OPS])
def test_the_stock_is_right_on_this_cpu(op: StockOp) -> None:
    result = probe(op)
    assert result.is_right, result
    assert result.is_row_exact, result


def test_names_differ() -> None:
    names = [op.name for op in stock_ops(SMALL)]
    assert len(set(names)) == len(names) > 15


def test_a_row_that_depends_on_its_neighbours_is_found() -> None:
    op = StockOp(
        name="mean taken off",
        width=8,
        run=lambda x: x - mx.mean(x, axis=0),
        reference=lambda x: x,
    )
    assert not probe(op).is_row_exact


def test_a_dependence_in_the_last_bit_is_found() -> None:
    op = StockOp(
        name="nearly the same", width=8,
        run=lambda x: x * (1 + 2e-7 * (x.shape[0] > 6)), reference=lambda x: x,
    )  # fmt: skip
    result = probe(op)
    assert result.is_right
    assert not result.is_row_exact


def test_wrong_values_are_found() -> None:
    op = StockOp(name="x", width=8, run=lambda x: x * 1.001, reference=lambda x: x)
    result = probe(op)
    assert result.is_row_exact
    assert not result.is_right


def test_a_value_that_is_not_finite_is_an_infinite_error() -> None:
    values = np.array([[1.0, np.nan]], np.float32)
    assert op_probe.error(values, np.ones((1, 2))) == float("inf")
    assert op_probe.error(np.ones((1, 2), np.float32), np.ones((1, 2))) == 0
