"""CUDA kernels compiled here, side by side, and kept on disk.

MLX compiles a custom kernel anew in every process, one at a time, behind headers that take
longer than the kernel. NVRTC, which MLX brings along, takes a tenth of a second for the same
text behind the few lines below. What it makes is kept by the hash of all that it depends on,
and MLX launches it (`mx.fast.precompiled_cuda_kernel`).
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx

from ds4chat import settings
from ds4chat.errors import Ds4Error, KernelError
from ds4chat.ops.spec import KernelSpec, KernelText
from ds4chat.paths import UserDirs

LIBRARIES = ("libnvrtc.so.13", "libnvrtc.so.12")
_log = logging.getLogger("ds4chat.kernels")

_TYPES = {
    mx.float32: "float",
    mx.bfloat16: "__nv_bfloat16",
    mx.float16: "unsigned short",
    mx.uint8: "unsigned char",
    mx.uint16: "unsigned short",
    mx.uint32: "unsigned int",
    mx.int32: "int",
}

# What the prelude wants of CUDA's own headers, which may not be installed.
_BF16 = """
#pragma once
struct __align__(2) __nv_bfloat16 { unsigned short bits; };
static __device__ __forceinline__ float __bfloat162float(__nv_bfloat16 v) {
  return __uint_as_float(static_cast<unsigned>(v.bits) << 16);
}
static __device__ __forceinline__ __nv_bfloat16 __float2bfloat16_rn(float v) {
  __nv_bfloat16 out;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(v));
  return out;
}
static __device__ __forceinline__ unsigned short __bfloat16_as_ushort(__nv_bfloat16 v) {
  return v.bits;
}
"""
_FP16 = """
#pragma once
struct __align__(2) __half { unsigned short bits; };
static __device__ __forceinline__ __half __ushort_as_half(unsigned short bits) {
  __half out;
  out.bits = bits;
  return out;
}
static __device__ __forceinline__ float __half2float(__half v) {
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(v.bits));
  return out;
}
"""
_HEADERS = {"cuda_bf16.h": _BF16, "cuda_fp16.h": _FP16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The types of a kernel's arguments, and the ranks of its inputs."""

    inputs: tuple[mx.Dtype, ...]
    ranks: tuple[int, ...]
    outputs: tuple[mx.Dtype, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A translation unit; `shapes` says of which inputs the shape follows as numbers."""

    name: str
    text: str
    shapes: tuple[int, ...]


def unit_of(spec: KernelSpec, text: KernelText, signature: Signature) -> Unit:
    """The whole text of a kernel with the signature that MLX can launch.

    Raises:
        KernelError: an argument has a type that no kernel takes.
    """
    shapes = tuple(i for i, name in enumerate(spec.inputs) if f"{name}_shape" in text.body)
    numbers = [
        [f"{spec.inputs[i]}_shape_{axis}" for axis in range(signature.ranks[i])] for i in shapes
    ]
    arguments = [
        *(
            f"const {_c_type(t)}* {n}"
            for n, t in zip(spec.inputs, signature.inputs, strict=True)
        ),
        *(f"{_c_type(t)}* {n}" for n, t in zip(spec.outputs, signature.outputs, strict=True)),
        *(f"int {number}" for names in numbers for number in names),
    ]
    arrays = [
        f"  const int {spec.inputs[i]}_shape[] = {{{', '.join(names)}}};\n"
        for i, names in zip(shapes, numbers, strict=True)
    ]
    whole = (
        f'{text.header}\nextern "C" __global__ void {bounds_of(spec)}{text.name}(\n'
        f"    {', '.join(arguments)}) {{\n{''.join(arrays)}{text.body}\n}}\n"
    )
    return Unit(name=text.name, text=whole, shapes=shapes)


def bounds_of(spec: KernelSpec) -> str:
    """Registers for so many blocks of a multiprocessor at once as the constants ask for."""
    blocks = spec.constants.get("BLOCKS_AT_ONCE", 0)
    return f"__launch_bounds__({spec.threads}, {blocks}) " if blocks else ""


def _c_type(dtype: mx.Dtype) -> str:
    if dtype not in _TYPES:
        raise KernelError(f"no kernel takes {dtype}", "This is a defect: report it.")
    return _TYPES[dtype]


class Compiler:
    """NVRTC for one architecture, with what it made before in a folder.

    Threads may share it: NVRTC compiles several programs at once.
    """

    def __init__(self, library: ctypes.CDLL, architecture: str, folder: Path) -> None:
        self._nvrtc = library
        self._folder = folder
        self._options = (f"--gpu-architecture={architecture}", "--std=c++17")
        library.nvrtcGetErrorString.restype = c_char_p
        major, minor = c_int(), c_int()
        self._check(library.nvrtcVersion(byref(major), byref(minor)))
        self._salt = f"{major.value}.{minor.value} {self._options} {_HEADERS}"

    def cubin(self, unit: Unit) -> bytes:
        """The machine code of a unit.

        Raises:
            KernelError: it does not compile; the message holds the compiler's words.
        """
        key = hashlib.sha256(f"{self._salt}\0{unit.text}".encode()).hexdigest()
        path = self._folder / f"{key}.cubin"
        try:
            kept = path.read_bytes()
        except OSError:
            kept = b""
        if kept.startswith(b"\x7fELF"):
            return kept
        made = self._compile(unit)
        _keep(path, made)
        return made

    def _compile(self, unit: Unit) -> bytes:
        program = c_void_p()
        texts, names = _strings(list(_HEADERS.values())), _strings(list(_HEADERS))
        self._check(
            self._nvrtc.nvrtcCreateProgram(
                byref(program), unit.text.encode(), f"{unit.name}.cu".encode(),
                c_int(len(_HEADERS)), texts, names,
            )
        )  # fmt: skip
        try:
            options = _strings(list(self._options))
            status = self._nvrtc.nvrtcCompileProgram(program, c_int(len(options)), options)
            if status:
                log = self._read(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
                raise KernelError(f"{unit.name} does not compile: {log[:2000]}", "Report it.")
            return self._read(program, "CUBIN")
        finally:
            self._nvrtc.nvrtcDestroyProgram(byref(program))

    def _read(self, program: c_void_p, what: str) -> bytes:
        size = c_size_t()
        self._check(getattr(self._nvrtc, f"nvrtcGet{what}Size")(program, byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._nvrtc, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw

    def _check(self, status: int) -> None:
        if status:
            words = self._nvrtc.nvrtcGetErrorString(c_int(status)).decode()
            raise KernelError(f"NVRTC: {words}", "MLX's own compiler is used instead.")


def _strings(values: Sequence[str]) -> Any:
    return (c_char_p * len(values))(*(v.encode() for v in values))


def _keep(path: Path, made: bytes) -> None:
    """Write a file that other processes see whole or not at all; it may also be left out."""
    part = path.with_suffix(f".{os.getpid()}-{id(made)}")
    try:
        part.write_bytes(made)
        part.replace(path)
    except OSError as error:
        _log.info("a compiled kernel is not kept: %s", error)


@cache
def find_compiler() -> Compiler | None:
    """NVRTC for this machine's GPU, or None where MLX must compile."""
    library = _load()
    if library is None:
        return None
    try:
        architecture = str(mx.device_info()["architecture"])
        folder = UserDirs.from_variables(settings.path_variables()).build_dir() / "cuda"
        folder.mkdir(mode=0o700, exist_ok=True)
        return Compiler(library, architecture, folder)
    except (Ds4Error, OSError, KeyError, RuntimeError, AttributeError) as error:
        _log.warning("kernels are compiled by MLX: %s", error)
        return None


def build(spec: KernelSpec, text: KernelText, signature: Signature) -> Launcher | None:
    """A launcher for a kernel, or None where MLX must compile it."""
    compiler = find_compiler()
    if compiler is None:
        return None
    try:
        unit = unit_of(spec, text, signature)
        return Launcher(unit, compiler.cubin(unit), signature.ranks)
    except KernelError as error:
        _log.warning("kernel %s is compiled by MLX: %s", text.name, error)
        return None


def _load() -> ctypes.CDLL | None:
    """The library that MLX has loaded; its name is enough then."""
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


class Launcher:
    """Launches a compiled unit with the arguments of `mx.fast.cuda_kernel`'s functions."""

    def __init__(self, unit: Unit, cubin: bytes, ranks: tuple[int, ...]) -> None:
        self._unit = unit
        self._cubin = cubin
        self._ranks = ranks

    @property
    def name(self) -> str:
        """The function's name in `cubin`."""
        return self._unit.name

    @property
    def cubin(self) -> bytes:
        """The machine code."""
        return self._cubin

    def numbers(self, inputs: list[mx.array]) -> list[int]:
        """The shapes that follow the arrays among a launch's arguments.

        Raises:
            ValueError: an input has another number of axes than the first time.
        """
        shapes = [inputs[i].shape for i in self._unit.shapes]
        if any(
            len(s) != self._ranks[i] for i, s in zip(self._unit.shapes, shapes, strict=True)
        ):
            raise ValueError(f"{self._unit.name}: inputs of other ranks than before")
        return [n for shape in shapes for n in shape]

    def __call__(
        self,
        *,
        inputs: list[mx.array],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        output_shapes: list[tuple[int, ...]],
        output_dtypes: list[mx.Dtype],
    ) -> list[mx.array]:
        """Launch, lazily.

        Raises:
            ValueError: an input has another number of axes than the first time.
        """
        return mx.fast.precompiled_cuda_kernel(
            name=self._unit.name,
            compiled_source=self._cubin,
            inputs=inputs,
            output_shapes=output_shapes,
            output_dtypes=output_dtypes,
            scalars=self.numbers(inputs),
            grid=grid,
            threadgroup=threadgroup,
            ensure_row_contiguous=True,
        )
