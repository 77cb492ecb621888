"""Names and block sizes of every ggml type, decodable or not.

Sizes of types that we cannot decode are still needed: a directory must be checked against the
file, and a refusal must name what it found.
"""

from __future__ import annotations

from ds4chat.formats.quants import FORMATS

# ggml type id: name, values in a block, bytes in a block. Format facts, checked by a test.
_OTHERS: dict[int, tuple[str, int, int]] = {
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    9: ("Q8_1", 32, 40),
    11: ("Q3_K", 256, 110),
    15: ("Q8_K", 256, 292),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
}


def type_name(type_id: int) -> str:
    """The name of a ggml type, or `type 77` for one that we do not know."""
    if type_id in FORMATS:
        return FORMATS[type_id].name
    return _OTHERS[type_id][0] if type_id in _OTHERS else f"type {type_id}"


def block_size(type_id: int) -> tuple[int, int] | None:
    """(values, bytes) of a block; None for an unknown type."""
    if type_id in FORMATS:
        return FORMATS[type_id].block_values, FORMATS[type_id].block_bytes
    return _OTHERS[type_id][1:] if type_id in _OTHERS else None
