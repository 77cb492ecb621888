"""CUDA sources as MLX would generate them, to compile with nvcc where there is no GPU.

`python -m tests.kernels.cuda_source` compiles every variant and prints registers and spills.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ds4chat.ops.cuda_build import bounds_of
from ds4chat.ops.spec import KernelSpec, read_text
from ds4chat.paths import kernels_dir
from tests.kernels.variants import Variant, every_variant

C_TYPES = {
    "float32": "float",
    "bfloat16": "__nv_bfloat16",
    "float16": "__half",
    "uint8": "uint8_t",
    "uint32": "uint32_t",
    "int32": "int32_t",
}
_MAX_NDIM = 10
tell = partial(print, flush=True)
_OPENING = f"""
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cooperative_groups.h>
namespace mlx::core::cu {{
struct Shape {{
  int32_t v[{_MAX_NDIM}];
  __device__ int operator[](int i) const {{ return v[i]; }}
}};
}}
"""


def cuda_source(spec: KernelSpec, types: Sequence[str]) -> str:
    """One translation unit with the signature that MLX writes around a body."""
    text = read_text(spec, "cuda", kernels_dir())
    arguments = []
    for i, (name, kind) in enumerate(zip((*spec.inputs, *spec.outputs), types, strict=True)):
        const = "const " if i < len(spec.inputs) else ""
        arguments.append(f"{const}{C_TYPES[kind]}* {name}")
        if const and f"{name}_shape" in text.body:
            arguments.append(f"const __grid_constant__ Shape {name}_shape")
    signature = ",\n    ".join(arguments)
    return (
        f"{_OPENING}{text.header}\nnamespace mlx::core::cu {{\n"
        f"__global__ void {bounds_of(spec)}{text.name}(\n"
        f"    {signature}) {{\n{text.body}\n}}\n}}\n"
    )


def compile_variant(variant: Variant, nvcc: str) -> tuple[bool, str]:
    """Compile for sm_90: (worked, ptxas' line of resources or the first errors)."""
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder) / "kernel.cu"
        unit.write_text(cuda_source(variant.spec, variant.types))
        command = [nvcc, "-std=c++17", "-gencode", "arch=compute_90,code=sm_90", "-cubin"]
        done = subprocess.run(
            [*command, "-Xptxas", "-v", str(unit), "-o", str(unit.with_suffix(".cubin"))],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    said = done.stderr
    if done.returncode:
        return False, said[:2500]
    found = re.search(r"Used (\d+) registers.*", said)
    spills = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores", said)
    return True, f"{found[0] if found else ''}; {spills[0] if spills else ''}"


def main() -> int:
    """Compile everything."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        tell("there is no nvcc")
        return 1
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    n_bad = 0
    for variant in every_variant("cuda"):
        if wanted in variant.label:
            worked, said = compile_variant(variant, nvcc)
            n_bad += not worked
            tell(f"{variant.label:40} {'ok' if worked else 'FAILED'} {said}")
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
