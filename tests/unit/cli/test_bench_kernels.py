"""`ds4chat bench kernels`: what is multiplied, and what is printed. No time is judged."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.cli import bench, bench_kernels
from ds4chat.cli.bench_open import FLASH, published_format
from ds4chat.cli.main import main
from ds4chat.engine import kernel_runs, kernel_weights, memory
from ds4chat.engine.fit import Memory
from ds4chat.engine.kernel_runs import products_of
from ds4chat.engine.kernel_weights import Product, Setting
from ds4chat.formats.quants import FORMATS, format_named
from ds4chat.formats.quants.base import decode
from ds4chat.ops import dispatch
from tests.kernels import host_build
from tests.kernels.host_dispatch import HostDispatcher
from tests.make_pair import make_pair

SETTING = Setting(copies_bytes=1, n_launches=3, repeat=2, dtype=mx.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair")
    return make_pair(folder, seed=3, quant="q2", ratios=(0, 4, 128)).base


def run(model: Path, capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    quick = ("--repeat", "1", "--launches", "2", "--megabytes", "1", "--backend", "cpu")
    assert bench.run(["kernels", "-m", str(model), *quick, *argv]) == 0
    return capsys.readouterr().out


def test_a_step_of_flash_reads_the_published_bytes() -> None:
    products = products_of(FLASH, published_format)
    by_name = {(p.name, p.n_out): p for p in products}
    gate = by_name["ffn_gate_exps, ffn_up_exps", 2048]
    assert gate.n_bytes == 2 * 2048 * 16 * 66
    assert (gate.quant.name, gate.n_in, gate.n_experts, gate.n_used) == (
        "IQ2_XXS",
        4096,
        256,
        6,
    )
    assert gate.per_step == 43
    assert by_name["indexer.attn_q_b", 8192].per_step == 21
    assert by_name["attn_compressor_kv", 512].per_step == 20  # ratio 128
    assert by_name["attn_compressor_kv", 1024].per_step == 21  # ratio 4
    assert by_name["attn_output_a", 8192].n_groups == 8
    total = sum(p.n_bytes * max(1, p.n_used) * p.per_step for p in products)
    assert 9.5e9 < total < 10.2e9  # about 9.6 GB of weights are read for a token
    assert not any("token_embd" in p.name or "ape" in p.name for p in products)


def test_the_table_names_every_product_of_the_file(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(run(model, capsys, "--rows", "1", "3", "--json"))
    names = {row["name"] for row in found["rows"]}
    assert {"output", "attn_q_a", "ffn_down_exps", "indexer.proj", "hc_attn_fn"} <= names
    by_key = {(row["name"], row["n_out"], row["rows"]): row for row in found["rows"]}
    down = by_key["ffn_down_exps", 256, 1]
    assert (down["format"], down["stock_us"]) == ("Q2_K", None)
    assert found["kept"] == "float32"
    assert down["megabytes"] == 3 * 4 * 256 * down["n_in"] / 1e6  # three experts of 256 rows
    assert by_key["ffn_down_exps", 256, 3]["megabytes"] >= down["megabytes"]
    assert by_key["attn_q_a", 256, 1]["stock_us"] > 0
    for row in found["rows"]:
        assert row["gbps"] == pytest.approx(1e3 * row["megabytes"] / row["us"])
        assert row["share"] == pytest.approx(row["gbps"] / found["copy_gbps"])
    single = [row for row in found["rows"] if row["rows"] == 1]
    wanted = sum(row["per_step"] * row["megabytes"] for row in single)
    assert found["summary"]["step_megabytes"] == pytest.approx(wanted)


def test_text_and_csv(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(model, capsys, "--rows", "1", "--only", "exps")
    assert out.count("IQ2_XXS") == out.count("Q2_K") == 1
    assert "float32, as the chat keeps them here" in out
    assert "no bar here: 55% and 70%" in out
    assert "bar of" not in out
    rows = list(csv.DictReader(io.StringIO(run(model, capsys, "--only", "q2_k", "--csv"))))
    assert [row["rows"] for row in rows] == [str(n) for n in range(1, 9)]


def test_an_unknown_product_is_refused(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "kernels", "-m", str(model), "--only", "nonsense"]) == 2
    assert "attn_q_a" in capsys.readouterr().err


def test_ctrl_c_keeps_what_was_measured(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = kernel_runs.time_product
    left = count(1)

    def some(*given: object) -> Iterator[kernel_runs.Timing]:
        if next(left) > 2:
            raise KeyboardInterrupt
        yield from timed(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(kernel_runs, "time_product", some)
    found = json.loads(run(model, capsys, "--rows", "1", "--json"))
    assert len({row["name"] for row in found["rows"]}) == 2


def test_each_product_is_named_before_it_is_timed(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = ("--repeat", "1", "--launches", "1", "--megabytes", "1", "--rows", "1")

    def none(*_: object) -> Iterator[kernel_runs.Timing]:
        said = capsys.readouterr().err
        assert "kernels: " in said or said.startswith("  ")
        assert said.endswith("..\n")
        yield from ()

    monkeypatch.setattr(kernel_runs, "time_product", none)
    bench.run(["kernels", "-m", str(model), "--backend", "cpu", *quick])


def test_too_little_memory_is_told_with_figures_before_anything_is_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Memory(usable=2 * 10**9, total=3 * 10**9, what="this machine")
    monkeypatch.setattr(memory, "memory_of", lambda _: there)
    monkeypatch.setattr(kernel_runs, "copy_bandwidth", pytest.fail)
    argv = ["bench", "kernels", "--shapes", "flash", "--backend", "cpu", "--only", "q8_0"]
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert "output (Q8_0) takes up to 6.4 GB" in said
    assert "2.0 GB free of 3.0 GB" in said
    assert "--only" in said


def test_a_cpu_holds_few_copies_of_large_weights() -> None:
    cpu = Setting(
        copies_bytes=32 << 20, n_launches=32, repeat=5, dtype=mx.float32, keeps_blocks=False
    )
    needs = {
        (p.name, p.n_out): kernel_weights.most_bytes(p, cpu)
        for p in products_of(FLASH, published_format)
    }
    output = 4 * 4096 * 129_280
    assert needs["output", 129_280] == 3 * output  # two copies, and one in the making
    assert max(needs.values()) == 3 * output
    gpu = Setting(copies_bytes=1 << 30, n_launches=32, repeat=5, dtype=mx.bfloat16)
    (last,) = (p for p in products_of(FLASH, published_format) if p.name == "output")
    assert kernel_weights.most_bytes(last, gpu) >= 8 * last.n_bytes  # as the bar asks


@pytest.mark.parametrize("changes", [{}, {"n_experts": 12, "n_used": 2, "n_stacks": 2}])
@pytest.mark.parametrize("keeps_blocks", [True, False])
def test_weights_take_what_was_foretold(changes: dict[str, int], keeps_blocks: bool) -> None:
    each = product("Q8_0", n_in=1024, n_out=2048, **changes)
    setting = Setting(
        copies_bytes=1, n_launches=1, repeat=1, dtype=mx.float32, keeps_blocks=keeps_blocks
    )
    foretold = kernel_weights.most_bytes(each, setting)
    for make in (kernel_weights.own_weights, kernel_weights.stock_weights):
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        made = make(each, setting)
        held = sum(array.nbytes for copy in made for array in copy.arrays())
        assert held <= mx.get_peak_memory() - before <= foretold * 1.1
        del made


def test_float32_weights_multiply_as_the_shapes_say() -> None:
    setting = Setting(
        copies_bytes=1, n_launches=1, repeat=1, dtype=mx.float32, keeps_blocks=False
    )
    grouped = product("Q8_0", n_groups=2, n_out=100)
    stack = product("Q2_K", n_experts=20, n_used=2, n_stacks=2)
    for each, n_bytes in ((grouped, 4 * 256 * 50 * 2), (stack, 2 * 2 * 4 * 256 * 8)):
        timings = list(kernel_runs.time_product(each, [1], setting, ticking(0.1)))
        own = [t for t in timings if t.who == kernel_runs.OWN]
        assert [t.n_bytes for t in own] == [n_bytes]


def test_slow_launches_are_fewer_on_a_cpu() -> None:
    seen: list[int] = []

    def launch(at: mx.array, i: int) -> mx.array:
        seen.append(i)
        return at

    setting = Setting(
        copies_bytes=1, n_launches=9, repeat=1, dtype=mx.float32, keeps_blocks=False
    )
    x = mx.ones((1, 4))
    assert kernel_runs._n_launches(launch, x, setting, ticking(0.125)) == 4  # half a second
    assert kernel_runs._n_launches(launch, x, setting, ticking(7.0)) == 1
    assert kernel_runs._n_launches(launch, x, setting, ticking(1e-6)) == 9


@pytest.mark.parametrize(
    ("step", "large", "is_whole", "over"),
    [
        (0.6, 0.8, True, {"large_share_least": False, "step_share": False}),
        (0.5, 0.8, True, {"large_share_least": False, "step_share": True}),
        (0.5, 0.6, False, {"large_share_least": True}),
    ],
)
def test_bars_are_judged_on_a_gpu_with_large_weights(
    step: float, large: float, is_whole: bool, over: dict[str, bool]
) -> None:
    figures = {
        "step_ms": 1.0, "step_megabytes": 9600.0, "step_share": step,
        "large_share_least": large,
    }  # fmt: skip
    result = {"backend": "cuda", "summary": figures}
    assert bench_kernels._over(result, is_whole=is_whole) == over
    words = "\n".join(bench_kernels._verdicts(figures, over))
    assert ("UNDER the bar" in words) == any(over.values())
    assert bench_kernels._over({**result, "backend": "cpu"}, is_whole=True) == {}
    del figures["large_share_least"]  # a small model
    assert bench_kernels._over(result, is_whole=True) == {}


def ticking(step: float) -> Callable[[], float]:
    ticks = count()
    return lambda: step * next(ticks)


def product(name: str, **changes: int) -> Product:
    fields = {"n_in": 256, "n_out": 8, "per_step": 1} | changes
    return Product(name="p", quant=format_named(name), **fields)


def test_launches_go_round_at_least_eight_copies() -> None:
    seen: list[int] = []
    x = mx.ones((1, 4))

    def launch(at: mx.array, i: int) -> mx.array:
        seen.append(i)
        return at

    setting = Setting(copies_bytes=1, n_launches=9, repeat=1, dtype=mx.float32)
    seconds = kernel_runs.time_launches(launch, x, setting, ticking(0.5))
    assert seen == [0, *range(9), *range(9)]
    assert len(seconds) == 1
    copies = kernel_weights.own_weights(product("Q8_0"), SETTING)
    assert len(copies) == 8
    raws = [np.array(copy.arrays()[0]).tobytes() for copy in copies]
    assert len(set(raws)) == 8


def test_the_time_of_waiting_is_taken_off() -> None:
    # The clock is read twice a chain and moves on by 3 a reading, by 1 in chains without work.
    times = iter([0.0, 30.0, 30.0, 34.0, 34.0, 64.0, 64.0, 68.0])
    setting = Setting(copies_bytes=1, n_launches=2, repeat=1, dtype=mx.float32)
    found = kernel_runs.time_launches(
        lambda x, _: x, mx.ones((1, 4)), setting, lambda: next(times)
    )
    assert found == [15.0 - 2.0]


@pytest.mark.skipif(host_build.find_compiler() is None, reason="no C++ compiler")
def test_kernels_are_timed_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    host = HostDispatcher()
    monkeypatch.setattr(dispatch, "_current", host)
    setting = Setting(copies_bytes=1, n_launches=1, repeat=1, dtype=mx.bfloat16)
    gate = product("IQ2_XXS", n_experts=8, n_used=2, n_stacks=2)
    grouped = product("Q8_0", n_groups=2, n_out=64)  # groups of whole tiles
    for each in (gate, product("Q2_K", n_experts=8, n_used=2), grouped):
        list(kernel_runs.time_product(each, [1, 2], setting, ticking(0.1)))
    assert host.launched.keys() == {
        "moe_gate_up_iq2_xxs", "moe_down_q2_k", "qmatmul_q8_0",
    }  # fmt: skip
    assert host.launched["moe_down_q2_k"] == 2 * 3  # two row counts; a first launch, two runs


@pytest.mark.parametrize("quant", [q for q in FORMATS.values() if not q.is_integer])
def test_random_rows_are_valid_and_finite(quant: object) -> None:
    assert isinstance(quant, type(format_named("Q8_0")))
    raw = kernel_weights.random_rows(quant, 4, 512)
    values = decode(quant, raw, (4, 512))
    assert np.isfinite(values).all()
    assert values.std() > 0


@pytest.mark.parametrize("name", ["Q8_0", "MXFP4", "F16", "IQ2_XXS"])
def test_rows_of_experts_read_only_what_they_choose(name: str) -> None:
    stack = product(name, n_experts=40, n_used=6)
    timings = list(kernel_runs.time_product(stack, [1, 8], SETTING, ticking(0.1)))
    own = {t.rows: t.n_bytes for t in timings if t.who == kernel_runs.OWN}
    assert own[1] == 6 * stack.n_bytes
    assert 6 * stack.n_bytes < own[8] < 40 * stack.n_bytes
    has_stock = any(t.who == kernel_runs.STOCK for t in timings)
    assert has_stock == (name in ("Q8_0", "MXFP4"))  # float experts: not on a CPU


def test_bars_are_those_of_the_design() -> None:
    assert (bench_kernels.STEP_BAR, bench_kernels.LARGE_BAR) == (0.55, 0.70)
    assert bench_kernels.LARGE_BYTES == 30_000_000
