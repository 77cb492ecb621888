"""RMS norms, always in float32."""

from __future__ import annotations

import mlx.core as mx


def rms_norm(x: mx.array, weight: mx.array | None, eps: float) -> mx.array:
    """`x / sqrt(mean(x^2) + eps) * weight` over the last axis, float32 in and out."""
    return mx.fast.rms_norm(x.astype(mx.float32), weight, eps)
