"""Kernels for CUDA as this program compiles them: their text, and what is kept of them."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from ds4chat.errors import KernelError
from ds4chat.ops import cuda_build
from ds4chat.ops.cache_kernels import choose_spec
from ds4chat.ops.cuda_build import Compiler, Launcher, Signature, Unit, bounds_of, unit_of
from ds4chat.ops.keep_kernels import Form, keep_spec
from ds4chat.ops.moe_kernels import down_spec
from ds4chat.ops.spec import read_text
from ds4chat.paths import kernels_dir

UNIT = Unit(name="k", text="__global__ void k() {}", shapes=())


class Nvrtc:
    """NVRTC's functions, whose machine code is the text itself."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.compiled: list[str] = []
        self.nvrtcGetErrorString = lambda status: b"error %d" % status.value
        self.nvrtcGetErrorString.restype = None  # type: ignore[attr-defined]

    def nvrtcVersion(self, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = 13, 0
        return 0

    def nvrtcCreateProgram(self, program: Any, text: bytes, *rest: Any) -> int:
        self.compiled.append(text.decode())
        return 0

    def nvrtcCompileProgram(self, program: Any, n: Any, options: Any) -> int:
        self.options = list(options)
        return self.status

    def nvrtcGetProgramLogSize(self, program: Any, size: Any) -> int:
        size._obj.value = 12
        return 0

    def nvrtcGetProgramLog(self, program: Any, buffer: Any) -> int:
        buffer.value = b"line 3: no"
        return 0

    def nvrtcGetCUBINSize(self, program: Any, size: Any) -> int:
        size._obj.value = 8
        return 0

    def nvrtcGetCUBIN(self, program: Any, buffer: Any) -> int:
        ctypes.memmove(buffer, b"\x7fELFcode", 8)
        return 0

    def nvrtcDestroyProgram(self, program: Any) -> int:
        return 0


def compiler(library: Nvrtc, folder: Path, architecture: str = "sm_90") -> Compiler:
    return Compiler(library, architecture, folder)  # type: ignore[arg-type]


def test_a_kernel_is_compiled_once_and_kept(tmp_path: Path) -> None:
    library = Nvrtc()
    first = compiler(library, tmp_path).cubin(UNIT)
    assert first == b"\x7fELFcode"
    assert compiler(library, tmp_path).cubin(UNIT) == first
    assert library.compiled == [UNIT.text]
    assert library.options == [b"--gpu-architecture=sm_90", b"--std=c++17"]


def test_another_architecture_and_a_spoiled_file_are_compiled_again(tmp_path: Path) -> None:
    library = Nvrtc()
    compiler(library, tmp_path).cubin(UNIT)
    compiler(library, tmp_path, "sm_100").cubin(UNIT)
    assert len(library.compiled) == 2
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    assert compiler(library, tmp_path).cubin(UNIT) == b"\x7fELFcode"
    assert len(library.compiled) == 3


def test_a_folder_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    library = Nvrtc()
    assert compiler(library, tmp_path / "none").cubin(UNIT) == b"\x7fELFcode"


def test_the_compilers_words_are_told(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="k does not compile: line 3: no"):
        compiler(Nvrtc(status=6), tmp_path).cubin(UNIT)
    assert list(tmp_path.iterdir()) == []


def units() -> list[Unit]:
    """A kernel with shapes of two ranks in its text, and one with half inputs."""
    form = Form(
        widest=512,
        eps=1e-6,
        places=(0, 0, 0, 64),
        has_latent=False,
        has_wide=False,
        is_rounded=True,
    )
    rings, choose = keep_spec(form), choose_spec(512)
    half, whole, number = mx.bfloat16, mx.float32, mx.int32
    made, ranks = (whole, whole, whole), (2, 1, 2, 1, 2, 2, 3, 2, 2, 2, 1, 1)
    inputs = (half, number, half, *made, whole, whole, whole, whole, number, number)
    return [
        unit_of(
            rings,
            read_text(rings, "cuda", kernels_dir()),
            Signature(inputs=inputs, ranks=ranks, outputs=(half, whole)),
        ),
        unit_of(
            choose,
            read_text(choose, "cuda", kernels_dir()),
            Signature(inputs=(whole, whole), ranks=(2, 2), outputs=(whole,)),
        ),
    ]


def test_shapes_follow_the_arrays_as_numbers() -> None:
    rings, choose = units()
    assert choose.shapes == (0, 1)
    signature = choose.text[choose.text.index('extern "C"') :]
    assert re.search(r"float\* chosen, int scores_shape_0, int scores_shape_1", signature)
    assert "const int scores_shape[] = {scores_shape_0, scores_shape_1};" in signature
    assert "const __nv_bfloat16* window" in rings.text
    assert rings.shapes == (0, 1, 2, 4, 5, 6, 7, 8)  # "cosines_shape" names sines too


def test_a_type_without_a_name_in_cuda_is_refused() -> None:
    spec = choose_spec(512)
    text = read_text(spec, "cuda", kernels_dir())
    wrong = Signature(inputs=(mx.float32, mx.complex64), ranks=(2, 2), outputs=(mx.float32,))
    with pytest.raises(KernelError, match="complex64"):
        unit_of(spec, text, wrong)


def test_an_input_of_another_rank_is_refused() -> None:
    launcher = Launcher(units()[1], b"", (2, 2))
    scores = mx.zeros((1, 1, 4))
    with pytest.raises(ValueError, match="ranks"):
        launcher(
            inputs=[scores, scores],
            grid=(64, 1, 1),
            threadgroup=(64, 1, 1),
            output_shapes=[(1, 4)],
            output_dtypes=[mx.float32],
        )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc compiles for no GPU")
@pytest.mark.parametrize("at", [0, 1])
def test_nvcc_takes_the_text_with_our_headers(at: int, tmp_path: Path) -> None:
    for name, text in cuda_build._HEADERS.items():
        (tmp_path / name).write_text(text)
    unit = units()[at]
    (tmp_path / "unit.cu").write_text(unit.text)
    command = ["nvcc", "-std=c++17", "-arch=sm_90", "-cubin", "-I", str(tmp_path)]
    done = subprocess.run(
        [*command, str(tmp_path / "unit.cu"), "-o", str(tmp_path / "unit.cubin")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_twelve_simdgroups_leave_registers_for_another_block() -> None:
    def bounds(format_name: str) -> str:
        spec = down_spec(format_name, 2048, "bfloat16", 6, backend="cuda", is_bf16_out=False)
        return bounds_of(spec)

    assert bounds("Q2_K") == "__launch_bounds__(384, 2) "
    assert bounds("MXFP4") == ""
