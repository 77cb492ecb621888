"""The checks of `ds4chat doctor` that run in a process of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ds4chat.cli import doctor_child, doctor_run
from ds4chat.cli.doctor_child import Ask, check_engine, check_files, check_fit, check_open
from ds4chat.cli.doctor_finding import Finding, Mark
from ds4chat.engine.backend import choose_backend
from ds4chat.engine.fit import Memory, Needs
from ds4chat.engine.op_probe import OpResult
from ds4chat.errors import Ds4Error
from ds4chat.formats.gguf import GgufFile
from ds4chat.ops.dispatch import Dispatcher
from tests.engines import SMALL
from tests.make_pair import PairPaths, make_pair

GIB = 1 << 30


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    return make_pair(tmp_path_factory.mktemp("pair"), seed=31, **SMALL)


def ask(pair: PairPaths, **changed: Any) -> Ask:
    return replace(Ask(model=str(pair.base), support=str(pair.support)), **changed)


def failures(findings: list[Finding]) -> list[Finding]:
    found = [finding for finding in findings if finding.mark is Mark.FAIL]
    assert all(finding.fix for finding in found)
    return found


def test_a_pair_in_order(pair: PairPaths) -> None:
    found = {finding.name: finding for finding in check_files(ask(pair))}
    assert {finding.mark for finding in found.values()} == {Mark.OK}
    assert "tiny V4" in found["model file"].found
    assert found["support file"].found.endswith("blocks of 5; fits the model")
    assert found["tokenizer"].found == "512 tokens, joyai-llm"


def test_without_a_support_file_it_says_what_that_costs(pair: PairPaths) -> None:
    found = list(check_files(ask(pair, support="")))
    assert [f.mark for f in found] == [Mark.OK, Mark.OK, Mark.WARN]
    assert "--support" in found[-1].fix


@pytest.mark.parametrize("is_used", [True, False])
def test_support_files_that_are_passed_over_are_named(pair: PairPaths, is_used: bool) -> None:
    note = "beside the model partial-dspark.gguf: cut off, passed over"
    rest = {} if is_used else {"support": ""}
    found = list(check_files(ask(pair, support_note=note, **rest)))
    (warned,) = [finding for finding in found if finding.mark is Mark.WARN]
    assert warned.found == note
    assert any("fits the model" in finding.found for finding in found) is is_used


def test_the_two_files_swapped(pair: PairPaths) -> None:
    (found,) = check_files(ask(pair, model=str(pair.support), support=str(pair.base)))
    assert found.mark is Mark.FAIL
    assert "not a model" in found.found


def test_a_support_file_of_another_model(pair: PairPaths, tmp_path: Path) -> None:
    other = make_pair(tmp_path, seed=1, **{**SMALL, "head_dim": 192})
    found = list(check_files(ask(pair, support=str(other.support))))
    assert next(f.name for f in failures(found)) == "support file"


def test_a_file_that_is_no_gguf(pair: PairPaths, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"nothing at all, for long enough")
    (found,) = check_files(ask(pair, model=str(tmp_path / "x.gguf")))
    assert (found.mark, found.name) == (Mark.FAIL, "model file")
    found = list(check_files(ask(pair, support=str(tmp_path / "x.gguf"))))[-1]
    assert (found.mark, found.name) == (Mark.FAIL, "support file")


def test_a_truncated_model(pair: PairPaths, tmp_path: Path) -> None:
    short = tmp_path / "short.gguf"
    short.write_bytes(pair.base.read_bytes()[:-4096])
    assert failures(list(check_files(ask(pair, model=str(short)))))


def test_a_small_pair_is_opened_and_tried(pair: PairPaths) -> None:
    (found,) = check_open(replace(ask(pair), cpu_blas=False, backend="cpu"))
    assert found.mark is Mark.OK
    assert "exact" in found.found


def test_a_large_pair_is_not(pair: PairPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_child, "SMALL_BYTES", 1000)
    (found,) = check_open(ask(pair))
    assert found.mark is Mark.OK
    assert "not opened" in found.found


NEEDS = Needs(weights=8 * GIB, fixed=GIB, token=1024.0 * 1024)
MEMORY = Memory(usable=16 * GIB, total=32 * GIB, what="this machine")


def test_memory_that_fits_is_short_or_hopeless() -> None:
    assert check_fit(NEEDS, MEMORY, 1024, is_asked=False).mark is Mark.OK
    short = check_fit(NEEDS, MEMORY, 32768, is_asked=True)
    assert short.mark is Mark.WARN
    assert "--ctx" in short.fix
    hopeless = check_fit(replace(NEEDS, weights=40 * GIB), MEMORY, 1024, is_asked=False)
    assert hopeless.mark is Mark.FAIL
    assert "42.9 GB" in hopeless.found


@pytest.mark.parametrize(
    ("is_row_exact", "nmse", "mark"),
    [(True, 1e-13, Mark.OK), (False, 1e-13, Mark.WARN), (True, 1e-3, Mark.FAIL),
     (False, float("inf"), Mark.FAIL)],
)  # fmt: skip
def test_an_operation_is_right_loose_or_wrong(
    is_row_exact: bool, nmse: float, mark: Mark
) -> None:
    result = OpResult(name="product", is_row_exact=is_row_exact, nmse=nmse)
    found = doctor_child._judge(result)
    assert found.mark is mark
    assert mark is Mark.OK or found.fix


@pytest.mark.parametrize(
    ("is_used", "is_right", "mark"),
    [(True, True, Mark.OK), (False, True, Mark.WARN), (True, False, Mark.FAIL)],
)
def test_the_fast_product(is_used: bool, is_right: bool, mark: Mark) -> None:
    found = doctor_child._fast_product("fast", is_used=is_used, is_right=is_right)
    assert found.mark is mark


def test_no_compiler_is_a_warning_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    (found,) = doctor_child._products("stock CPU products: there is no C compiler", "cpu")
    assert found.mark is Mark.WARN
    assert "compiler" in found.fix
    (found,) = doctor_child._products("", "cpu")
    assert found.mark is Mark.OK
    (found,) = doctor_child._products("", "metal")
    assert "not needed" in found.found


def test_a_kernel_that_cannot_be_built_is_told() -> None:
    (found,) = doctor_child.check_fallbacks({"qmatmul_q8_0": "no such header"})
    assert (found.name, found.mark) == ("qmatmul_q8_0", Mark.WARN)
    assert "no such header" in found.found
    assert found.fix


@pytest.mark.parametrize(("has_kernels", "mark"), [(False, Mark.WARN), (True, Mark.OK)])
def test_loose_operations_matter_unless_kernels_were_tried(
    has_kernels: bool, mark: Mark
) -> None:
    result = OpResult(name="product", is_row_exact=False, nmse=1e-15)
    found = doctor_child._judge(result, has_kernels=has_kernels)
    assert (found.mark, bool(found.fix)) == (mark, mark is Mark.WARN)
    assert "a row's bits depend on others" in found.found


RIGHT = OpResult(name="kernel: a", is_row_exact=True, nmse=1e-15)


@pytest.mark.parametrize(
    ("change", "fallbacks", "are_proven"),
    [
        ({}, {}, True),
        ({"is_row_exact": False}, {}, False),
        ({"nmse": 1.0}, {}, False),
        ({}, {"keep_2": "not built"}, False),
    ],
)
def test_kernels_stand_in_only_if_all_of_them_are_right(
    change: dict[str, Any], fallbacks: dict[str, str], are_proven: bool
) -> None:
    results = [RIGHT, replace(RIGHT, **change)]
    dispatcher = Dispatcher(backend="cuda", fallbacks=fallbacks)
    assert doctor_child._stand_in(dispatcher, results) == are_proven
    reference = Dispatcher(backend="reference")
    assert not doctor_child._stand_in(reference, results)


def test_operations_that_are_tried_one_by_one_are_not_tried_in_passing(pair: PairPaths) -> None:
    names = {found.name for found in check_engine(ask(pair))}
    assert "exact rows" in names
    thorough = {found.name for found in check_engine(ask(pair, is_thorough=True))}
    assert thorough == names - {"exact rows"}


def test_own_kernels_stand_in_a_section_of_their_own() -> None:
    cpu = choose_backend("cpu")
    first, *rest = doctor_child._own_kernels(cpu)
    assert (first.name, first.mark) == ("in use", Mark.OK)
    assert first.found.startswith("none on cpu: ")
    assert {finding.section for finding in (first, *rest)} == {"own kernels"}
    assert "read the streams" in {finding.name for finding in rest}
    assert all(finding.mark is Mark.OK for finding in rest)


def test_an_unknown_backend_names_the_others() -> None:
    backend, (found,) = doctor_child._backend("cuda" if sys.platform == "darwin" else "metal")
    assert backend is None
    assert found.mark is Mark.FAIL
    assert "cpu" in found.found


# The process.


def script(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_talk_between_findings_is_passed_over() -> None:
    row = '{"section": "a", "name": "b", "mark": "ok", "found": "c", "fix": ""}'
    code = f"print('hello'); print('[]'); print('{row}'); print('{{}}')"
    (found,) = doctor_run.watch(script(code), "compute", 60)
    assert (found.section, found.name, found.mark) == ("a", "b", Mark.OK)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise ImportError('libx is gone')", "libx is gone"),
        ("import os; os.abort()", "SIGABRT"),
        ("import sys; sys.exit(3)", "exit code 3"),
    ],
)
def test_a_crash_is_a_finding(code: str, words: str) -> None:
    (found,) = doctor_run.watch(script(code), "compute", 60)
    assert (found.section, found.mark) == ("compute", Mark.FAIL)
    assert words in found.found
    assert found.fix


def test_silence_is_a_finding() -> None:
    (found,) = doctor_run.watch(script("import time; time.sleep(600)"), "compute", 0.1)
    assert found.mark is Mark.FAIL
    assert "longer than 0.1 s" in found.found


def test_an_interrupt_during_the_start_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *argv: Any, **how: Any) -> None:
            super().__init__(*argv, **how)
            started.append(self)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        doctor_run.watch(script("import time; time.sleep(600)"), "compute", 60)
    assert [process.returncode for process in started] == [-signal.SIGKILL]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("which", ["base", "support"])
def test_weights_that_are_no_numbers_fail(pair: PairPaths, tmp_path: Path, which: str) -> None:
    path = getattr(pair, which)
    raw = bytearray(path.read_bytes())
    with GgufFile.open(path) as gguf:
        (entry, *_) = (e for n, e in gguf.tensors.items() if "ffn_down_shexp" in n)
        start = raw.index(bytes(gguf.raw(entry)[:4096]))
    raw[start : start + 4096] = b"\xff" * 4096
    damaged = tmp_path / path.name
    damaged.write_bytes(raw)
    files = {"base": str(pair.base), "support": str(pair.support), which: str(damaged)}
    found = failures(list(check_open(Ask(model=files["base"], support=files["support"]))))
    (weights,) = found
    assert "NaN or infinity among the weights" in weights.found
    assert "--sha256" in weights.fix


def test_what_stops_a_section_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stops(_: Ask) -> Iterator[Finding]:
        yield from ()
        raise Ds4Error("the folder cannot be created: Read-only file system", "Mend it.")

    monkeypatch.setitem(doctor_child.SECTIONS, "engine", stops)
    assert doctor_child.main(["engine", "{}"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["mark"], row["fix"]) == ("fail", "Mend it.")
    assert row["found"] == "the folder cannot be created: Read-only file system"
