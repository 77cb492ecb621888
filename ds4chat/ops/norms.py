"""RMS norms, always in float32."""

from __future__ import annotations

from functools import cache

import mlx.core as mx

from ds4chat.ops.dispatch import Output, current
from ds4chat.ops.spec import KernelSpec, Tolerance

THREADS = 256
_TYPES = (mx.float32, mx.bfloat16)


@cache
def norm_spec(eps: float, *, is_bf16_out: bool) -> KernelSpec:
    """The kernel behind `norm_rows`."""
    rounded = Tolerance(nmse=4e-6, reason="rounded to bf16: 2^-9 relative, squared")
    return KernelSpec(
        name="norm_rows",
        source="norm.kernel",
        headers=("row.h", "latent.h"),
        inputs=("x", "weight"),
        outputs=("y",),
        threads=THREADS,
        constants={"RMS_EPS": f"{eps!r}f"},
        tolerance=rounded if is_bf16_out else Tolerance(),
    )


def rms_norm(x: mx.array, weight: mx.array | None, eps: float) -> mx.array:
    """`x / sqrt(mean(x^2) + eps) * weight` over the last axis, float32 in and out."""
    return mx.fast.rms_norm(x.astype(mx.float32), weight, eps)


def norm_rows(x: mx.array, weight: mx.array, eps: float, dtype: mx.Dtype) -> mx.array:
    """`rms_norm` of `(L, D)` float32 or bfloat16 in `dtype`, in one launch where there are any.

    A row's bits ignore the rows beside it.
    """
    if not current().is_reference and x.dtype in _TYPES and dtype in _TYPES:
        spec = norm_spec(eps, is_bf16_out=dtype == mx.bfloat16)
        output = Output(shape=x.shape, dtype=dtype)
        made = current().run(spec, [x, weight], int(x.shape[0]), [output])
        if made is not None:
            return made[0]
    return rms_norm(x, weight, eps).astype(dtype)
