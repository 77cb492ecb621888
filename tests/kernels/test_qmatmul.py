"""The matrix product from GGUF blocks, as the host build of the dialect runs it."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from ds4chat.formats.quants.base import format_named
from ds4chat.ops import qmatmul
from ds4chat.paths import kernels_dir
from tests.kernels import host_build
from tests.kernels.blocks import nmse
from tests.kernels.cases import ALL_ROWS, Case, check, product

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)
FORMATS = tuple(qmatmul.STAGE_VALUES)
SUBSETS = (
    (0,),
    (7,),
    (2, 5),
    (6, 1, 0),
    (4, 3, 2, 1, 0),
    (1, 2, 3, 4, 5, 6),
    (0, 2, 3, 4, 5, 6, 7),
)

SLOW_HALVES = (
    "Q4_K",
    "Q2_K",
    "IQ2_XXS",
    "MXFP4",
    "F16",
    "BF16",
    "F32",
)  # to compile them all takes long
VARIANTS = [
    *((name, "float32") for name in FORMATS),
    *((name, "bfloat16") for name in FORMATS if name not in SLOW_HALVES),
    *(pytest.param(name, "bfloat16", marks=pytest.mark.slow) for name in SLOW_HALVES),
]


def many_stages(name: str) -> int:
    """A row length that all eight simdgroups share, with a part of a stage at its end."""
    stage = qmatmul.STAGE_VALUES[name]
    step = max(format_named(name).block_values, qmatmul.ROW_MULTIPLE)
    return 16 * stage + (step if step < stage else 0)


@pytest.mark.parametrize(("name", "kind"), VARIANTS)
@pytest.mark.parametrize("n_out", [16, 21])
def test_product_is_close_and_ignores_other_rows(name: str, kind: str, n_out: int) -> None:
    family = product("host", name, many_stages(name), n_out, kind)
    found = check(family, host_build.run, SUBSETS)
    assert found.nmse <= 1e-7
    assert found.is_invariant


@pytest.mark.parametrize("name", ["Q8_0", pytest.param("IQ2_XXS", marks=pytest.mark.slow)])
def test_short_rows_use_fewer_simdgroups_a_tile(name: str) -> None:
    n_in = qmatmul.STAGE_VALUES[name] // 2
    family = product("host", name, n_in, 150, "bfloat16", "bfloat16")
    found = check(family, host_build.run, SUBSETS[:2])
    assert found.is_close
    assert found.is_invariant


NARROW = qmatmul.Walk(simdgroups=16, split=16, columns=8)
WALKS = [
    qmatmul.Walk(simdgroups=4, split=2, columns=8, buffers=3),
    qmatmul.Walk(simdgroups=2, split=1, columns=16, buffers=4),
]


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("name", ["Q8_0", pytest.param("Q2_K", marks=pytest.mark.slow)])
def test_any_walk_is_close_and_ignores_other_rows(name: str, walk: qmatmul.Walk) -> None:
    family = product("host", name, many_stages(name), 21, "float32", walk=walk)
    found = check(family, host_build.run, SUBSETS[:4])
    assert found.is_close
    assert found.is_invariant


@pytest.mark.parametrize("kind", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["F16", "F32"])
def test_islands_of_few_outputs(name: str, kind: str) -> None:
    family = product("host", name, 32 * qmatmul.STAGE_VALUES[name] + 8, 21, kind, walk=NARROW)
    found = check(family, host_build.run, SUBSETS[:4])
    assert found.is_close
    assert found.is_invariant


def test_buffers_change_no_bit() -> None:
    one, more = (
        host_build.run(product("host", "Q8_0", 4096, 21, "float32", walk=w).make(ALL_ROWS))[0]
        for w in (WALKS[1], dataclasses.replace(WALKS[1], buffers=2))
    )
    np.testing.assert_array_equal(one, more)


@pytest.mark.parametrize("name", FORMATS)
def test_nan_stays_in_its_own_row_and_column(name: str) -> None:
    n_in = many_stages(name)
    case = product("host", name, n_in, 21, "float32").make(ALL_ROWS)
    (clean,) = host_build.run(case)
    x, w = case.inputs[0][0].copy(), case.inputs[1][0].copy()
    x[3, -1] = np.nan
    _poison_row(name, w[5])
    (dirty,) = host_build.run(_with_inputs(case, x, w))
    keep = np.ones(clean.shape, bool)
    keep[3], keep[:, 5] = False, False
    assert np.isnan(dirty[3]).all()
    assert np.isnan(dirty[:, 5]).any()
    np.testing.assert_array_equal(dirty[keep], clean[keep])


def _poison_row(name: str, row: np.ndarray) -> None:
    """Make the last scale (or value) of a row of weights NaN; E8M0 has none: the largest."""
    quant = format_named(name)
    at = {"Q2_K": 80}.get(name, 0) + (len(row) - quant.block_bytes)
    if name == "MXFP4":
        row[at:] = 0xFF
        row[at - quant.block_bytes] = 0xFF
    elif name == "F32":
        row[at : at + 4] = np.frombuffer(np.float32(np.nan).tobytes(), np.uint8)
    else:
        row[at : at + 2] = 0xFF


def _with_inputs(case: Case, x: np.ndarray, w: np.ndarray) -> Case:
    return dataclasses.replace(case, inputs=((x, case.inputs[0][1]), (w, "uint8")))


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e30])
def test_extreme_activations(scale: float) -> None:
    case = product("host", "Q8_0", 512, 16, "float32").make(ALL_ROWS)
    x = case.inputs[0][0] * np.float32(scale)
    (out,) = host_build.run(_with_inputs(case, x, case.inputs[1][0]))
    assert np.isfinite(out).all()
    assert nmse(out, case.exact[0] * np.float64(np.float32(scale))) <= 1e-7


@pytest.mark.parametrize("name", FORMATS)
def test_headers_agree_with_the_table(name: str) -> None:
    text = (kernels_dir() / "formats" / f"{name.lower()}.h").read_text()
    defined = dict(re.findall(r"#define (\w+) (\d+)", text))
    values, n_bytes, words = (int(defined[f"STAGE_{w}"]) for w in ("K", "BYTES", "WORDS"))
    quant = format_named(name)
    assert values == qmatmul.STAGE_VALUES[name]
    assert n_bytes == quant.row_bytes(values)
    assert qmatmul.stage_bytes(name) == qmatmul.TILE * 16 * (words | 1)
    # rows begin at any multiple of the block's largest power of two
    step = quant.block_bytes & -quant.block_bytes
    slack = 0 if int(defined.get("IS_ALIGNED", 0)) else 16 - min(step, 16)
    assert 16 * words >= n_bytes + slack


def test_few_outputs_are_shared_by_more_simdgroups() -> None:
    for name in ("Q8_0", "F16", "F32"):
        few, many = (qmatmul.walk_of(name, 4096, n_out, "cuda") for n_out in (1024, 2048))
        assert (few.split, few.columns) == (16, 8)
        assert (many.split, many.columns) == (8, 16)
    short = qmatmul.walk_of("F16", 1024, 256, "cuda")
    assert (short.split, short.columns) == (8, 16)


@pytest.mark.parametrize(
    ("name", "n_in", "n_out"), [("F16", 1024, 8192), ("Q8_0", 4096, 129280)]
)
def test_many_outputs_of_float_rows_are_shared_by_fewer_simdgroups(
    name: str, n_in: int, n_out: int
) -> None:
    wanted = qmatmul.Walk(simdgroups=4, split=4)
    assert qmatmul.walk_of(name, n_in, n_out, "cuda", is_float=True) == wanted
    for walk in (
        qmatmul.walk_of(name, n_in, n_out, "cuda"),
        qmatmul.walk_of(name, n_in, 4096, "cuda", is_float=True),
    ):
        assert walk == qmatmul.Walk(simdgroups=8, split=8)
    spec = qmatmul.make_spec(
        name, n_in, "float32", backend="cuda", is_bf16_out=False, n_out=n_out
    )
    assert {k: spec.constants[k] for k in wanted.constants} == wanted.constants


@pytest.mark.parametrize(("n_in", "split"), [(4096, 8), (2048, 8), (1024, 4), (128, 1)])
def test_split_gives_each_simdgroup_two_stages(n_in: int, split: int) -> None:
    assert qmatmul.split_of(n_in, 128, 8) == split
