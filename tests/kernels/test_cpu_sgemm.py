"""`kernels/cpu_sgemm.c` against float64, and its promise: rows do not know each other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ds4chat.ops.cpu_blas import Library
from ds4chat.ops.cpu_blas_build import HEADERS, BlasError, compile_sources, find_compiler
from ds4chat.paths import kernels_dir

F32 = NDArray[np.float32]
ROW_MAJOR, COL_MAJOR, NO_TRANS, TRANS, CONJ_TRANS = 101, 102, 111, 112, 113
LEVELS = ("base", "avx2", "avx512")
FILL = np.float32(-777.0)  # what stands between the rows, and must stay


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    try:
        compiler = find_compiler()
    except BlasError as error:
        pytest.skip(str(error))
    names = ("cpu_sgemm.c", *HEADERS)
    texts = {name: (kernels_dir() / name).read_bytes() for name in names}
    made = compile_sources(texts, compiler, tmp_path_factory.mktemp("sgemm"))
    return Library(made, is_global=False)


@pytest.fixture(params=LEVELS)
def at_level(library: Library, request: pytest.FixtureRequest) -> Iterator[Library]:
    best = library.level
    if not library.use(request.param):
        pytest.skip(f"this CPU or build has no {request.param}")
    yield library
    assert library.use(best)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A product of row-major `a` `(m, k)` and `b` `(k, n)` into `c` `(m, n)`."""

    a: F32
    b: F32
    c: F32
    order: int = ROW_MAJOR
    trans_a: int = NO_TRANS
    trans_b: int = NO_TRANS
    alpha: float = 1.0
    beta: float = 0.0
    gaps: tuple[int, int, int] = (0, 0, 0)  # leading dimension beyond the least, for a, b, c

    def run(self, library: Library) -> F32:
        """Lay the operands out as the call wants them; the result, row-major.

        Also checks that nothing between the rows of `c` was written.
        """
        is_col = self.order == COL_MAJOR
        a, lda = _lay_out(self.a, (self.trans_a != NO_TRANS) != is_col, self.gaps[0])
        b, ldb = _lay_out(self.b, (self.trans_b != NO_TRANS) != is_col, self.gaps[1])
        c, ldc = _lay_out(self.c, is_col, self.gaps[2])
        (m, k), n = self.a.shape, self.b.shape[1]
        before = c.copy()
        library.sgemm(
            self.order, self.trans_a, self.trans_b, m, n, k, self.alpha, a.ctypes.data, lda,
            b.ctypes.data, ldb, self.beta, c.ctypes.data, ldc,
        )  # fmt: skip
        width = m if is_col else n
        assert np.array_equal(c[:, width:], before[:, width:])
        out = c[:, :width]
        return np.ascontiguousarray(out.T if is_col else out)


def _lay_out(matrix: F32, is_turned: bool, gap: int) -> tuple[F32, int]:
    rows = matrix.T if is_turned else matrix
    ld = max(rows.shape[1] + gap, 1)
    memory = np.full((rows.shape[0], ld), FILL, np.float32)
    memory[:, : rows.shape[1]] = rows
    return memory, ld


def _numbers(rng: np.random.Generator, *shape: int) -> F32:
    return rng.standard_normal(shape, np.float32)


def _check(call: Call, out: F32) -> None:
    """Within the rounding of k additions, one scaling of each part and the last sum."""
    a, b = call.a.astype(np.float64), call.b.astype(np.float64)
    alpha, beta = float(np.float32(call.alpha)), float(np.float32(call.beta))
    old = call.c.astype(np.float64) * beta if beta != 0.0 else np.zeros(call.c.shape)
    size = abs(alpha) * (np.abs(a) @ np.abs(b)) + np.abs(old)
    bound = (2 * call.a.shape[1] + 4) * 2.0**-24 * size
    assert (np.abs(out - (alpha * (a @ b) + old)) <= bound).all()


SIZES = st.one_of(st.integers(0, 40), st.sampled_from([63, 64, 65, 96, 127, 130, 256, 300]))
DEPTHS = st.one_of(st.integers(0, 20), st.sampled_from([64, 255, 511, 512, 513, 600, 1030]))
FACTORS = st.sampled_from([0.0, 1.0, -1.0, 0.5, -2.75, 0.125])


@given(
    m=SIZES, n=SIZES, k=DEPTHS, seed=st.integers(0, 99), alpha=FACTORS, beta=FACTORS,
    order=st.sampled_from([ROW_MAJOR, COL_MAJOR]),
    trans=st.tuples(*[st.sampled_from([NO_TRANS, TRANS, CONJ_TRANS])] * 2),
    gaps=st.tuples(*[st.integers(0, 5)] * 3),
)  # fmt: skip
@example(m=200, n=70, k=1100, seed=0, alpha=0.5, beta=1.0, order=ROW_MAJOR,
         trans=(NO_TRANS, TRANS), gaps=(1, 2, 3))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_equals_float64(library: Library, **drawn: Any) -> None:
    for level in LEVELS:
        if library.use(level):
            call = _drawn_call(**drawn)
            _check(call, call.run(library))


def _drawn_call(
    *, m: int, n: int, k: int, seed: int, trans: tuple[int, int], **rest: Any
) -> Call:
    rng = np.random.default_rng(seed)
    return Call(
        a=_numbers(rng, m, k), b=_numbers(rng, k, n), c=_numbers(rng, m, n),
        trans_a=trans[0], trans_b=trans[1], **rest,
    )  # fmt: skip


NANO = [(256, 512), (256, 6144), (128, 512), (256, 24), (1024, 24), (512, 128), (256, 16)]
ODD = [(4, 4), (1, 1), (1, 70), (70, 1), (7, 3), (600, 33), (64, 97), (513, 130), (1030, 17)]


@pytest.mark.parametrize("is_turned", [False, True], ids=["nn", "nt"])
@pytest.mark.parametrize("shape", NANO + ODD, ids=str)
def test_row_has_its_bits_among_any_others(
    at_level: Library, shape: tuple[int, int], is_turned: bool
) -> None:
    k, n = shape
    rng = np.random.default_rng(k * n)
    x, w = _numbers(rng, 9, k), _numbers(rng, *((n, k) if is_turned else (k, n)))
    alone = np.concatenate([at_level.multiply(r[None], w, is_turned=is_turned) for r in x])
    for m in (*range(1, 10), 23, 24, 50):
        rows = rng.permutation(np.arange(m) % 9)
        among = at_level.multiply(x[rows], w, is_turned=is_turned)
        assert np.array_equal(among, alone[rows]), m


def test_layout_changes_no_bit(at_level: Library) -> None:
    rng = np.random.default_rng(1)
    a, b, c = _numbers(rng, 30, 520), _numbers(rng, 520, 75), _numbers(rng, 30, 75)
    results = [
        Call(a=a, b=b, c=c, order=order, trans_a=ta, trans_b=tb, alpha=0.3, beta=0.7).run(
            at_level
        )
        for order in (ROW_MAJOR, COL_MAJOR)
        for ta in (NO_TRANS, TRANS)
        for tb in (NO_TRANS, TRANS)
    ]
    assert all(np.array_equal(results[0], other) for other in results)


def test_other_columns_and_appended_zeros_change_no_bit(at_level: Library) -> None:
    rng = np.random.default_rng(2)
    x, w = _numbers(rng, 6, 40), _numbers(rng, 40, 150)
    whole = at_level.multiply(x, w)
    for n in (1, 15, 16, 63, 64, 100, 149):
        some = at_level.multiply(x, np.ascontiguousarray(w[:, :n]))
        assert np.array_equal(some, whole[:, :n]), n
    padded_x = np.concatenate([x, np.zeros((6, 24), np.float32)], axis=1)
    padded_w = np.concatenate([w, _numbers(rng, 24, 150)])
    assert np.array_equal(at_level.multiply(padded_x, padded_w), whole)


def test_fused_levels_agree_on_every_bit(library: Library) -> None:
    if not library.use("avx512"):
        pytest.skip("this CPU has no avx512")
    rng = np.random.default_rng(3)
    x, w = _numbers(rng, 40, 300), _numbers(rng, 300, 77)
    first = library.multiply(x, w)
    assert library.use("avx2")
    second = library.multiply(x, w)
    assert library.use("avx512")
    assert np.array_equal(first, second)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("m", [1, 6, 30])
def test_nan_and_inf_spread_as_ieee_says(at_level: Library, m: int, bad: float) -> None:
    x, w = np.zeros((m, 5), np.float32), np.ones((5, 70), np.float32)
    w[3, 69] = bad  # 0 * NaN and 0 * Inf are NaN
    out = at_level.multiply(x, w)
    assert np.isnan(out[:, 69]).all()
    assert (out[:, :69] == 0.0).all()
    x[0, 3] = 1.0
    first = at_level.multiply(x, w)[0, 69]
    assert np.array_equal(first, np.float32(bad), equal_nan=True)


@pytest.mark.parametrize("m", [1, 7, 30])
def test_bad_row_spoils_no_other(at_level: Library, m: int) -> None:
    rng = np.random.default_rng(5)
    x, w = _numbers(rng, m, 20), _numbers(rng, 20, 70)
    good = at_level.multiply(x, w)
    x[0, 4] = np.nan
    out = at_level.multiply(x, w)
    assert np.isnan(out[0]).all()
    assert np.array_equal(out[1:], good[1:])


def test_denormal_numbers_count(at_level: Library) -> None:
    tiny = np.float32(2.0**-149)
    out = at_level.multiply(np.full((3, 4), tiny), np.ones((4, 20), np.float32))
    assert (out == 4 * tiny).all()


@pytest.mark.parametrize("m", [2, 30])
@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_beta_zero_does_not_read_c(at_level: Library, m: int, alpha: float) -> None:
    nothing = np.full((m, 37), np.nan, np.float32)
    a, b = np.ones((m, 3), np.float32), np.ones((3, 37), np.float32)
    out = Call(a=a, b=b, c=nothing, alpha=alpha).run(at_level)
    assert (out == 3 * alpha).all()


def test_alpha_zero_reads_neither_a_nor_b(at_level: Library) -> None:
    bad = np.full((3, 3), np.nan, np.float32)
    out = Call(a=bad, b=bad, c=np.ones((3, 3), np.float32), alpha=0.0, beta=2.0).run(at_level)
    assert (out == 2.0).all()


@pytest.mark.parametrize(("m", "n"), [(0, 5), (5, 0), (0, 0)])
def test_empty_result_is_left_alone(at_level: Library, m: int, n: int) -> None:
    a, b = np.ones((m, 4), np.float32), np.ones((4, n), np.float32)
    out = Call(a=a, b=b, c=np.ones((m, n), np.float32), gaps=(0, 3, 3)).run(at_level)
    assert out.shape == (m, n)


@pytest.mark.parametrize("beta", [0.0, 1.0, 3.0])
def test_empty_sum_is_zero(at_level: Library, beta: float) -> None:
    a, b = np.ones((3, 0), np.float32), np.ones((0, 20), np.float32)
    out = Call(a=a, b=b, c=np.ones((3, 20), np.float32), beta=beta).run(at_level)
    assert (out == beta).all()


def test_counts_calls(library: Library) -> None:
    before = library.n_calls
    library.multiply(np.ones((1, 1), np.float32), np.ones((1, 1), np.float32))
    assert library.n_calls == before + 1


def test_unknown_level_is_refused(library: Library) -> None:
    best = library.level
    assert not library.use("avx1024")
    assert library.level == best


ILLEGAL = """
import sys
from pathlib import Path
import numpy as np
from ds4chat.ops.cpu_blas import Library
library = Library(Path(sys.argv[1]), is_global=False)
a, c = np.ones((4, 4), np.float32), np.full((4, 4), 5, np.float32)
b = a.ctypes.data
arguments = [101, 111, 111, 4, 4, 4, 1.0, b, 4, b, 4, 0.0, c.ctypes.data, 4]
for place, value in {1: 100, 2: 110, 3: 0, 4: -1, 5: -1, 6: -1, 9: 3, 11: 3, 14: 3}.items():
    library.sgemm(*arguments[: place - 1], value, *arguments[place:])
assert (c == 5).all()
"""


def test_illegal_argument_is_named_and_nothing_is_written(library: Library) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ILLEGAL, library.path],
        capture_output=True,
        text=True,
        check=True,
    )
    said = [line.split()[2] for line in done.stderr.splitlines()]
    assert said == ["1", "2", "3", "4", "5", "6", "9", "11", "14"]


def test_calls_of_several_threads_do_not_meet(library: Library) -> None:
    rng = np.random.default_rng(6)
    jobs = [(_numbers(rng, 90, 600), _numbers(rng, 600, 300)) for _ in range(8)]
    alone = [library.multiply(*job) for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda job: library.multiply(*job), jobs * 8))
    assert all(np.array_equal(out, alone[i % 8]) for i, out in enumerate(together))
