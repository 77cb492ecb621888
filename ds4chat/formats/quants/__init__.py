"""One file a block format: a decoder and a record."""

from ds4chat.formats.quants import (
    bf16,
    f16,
    f32,
    i32,
    iq2_xxs,
    mxfp4,
    q2_k,
    q4_0,
    q4_1,
    q4_k,
    q5_k,
    q6_k,
    q8_0,
)
from ds4chat.formats.quants.base import FORMATS, QuantFormat, format_named

__all__ = [
    "FORMATS",
    "QuantFormat",
    "bf16",
    "f16",
    "f32",
    "format_named",
    "i32",
    "iq2_xxs",
    "mxfp4",
    "q2_k",
    "q4_0",
    "q4_1",
    "q4_k",
    "q5_k",
    "q6_k",
    "q8_0",
]
