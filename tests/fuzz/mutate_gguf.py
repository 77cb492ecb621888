"""GGUF files with something wrong: keys, values, the tensor table, the head, the bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from copy import deepcopy

from ds4chat.formats.values import ARRAY, STRING
from tests.fuzz.mutate import BAD_UTF8, FLOATS, damage, hostile_int, hostile_text
from tests.gguf_sketch import BOOL, F32, F64, Array, Sketch, Tensor, string

_RANGES = {
    0: (0, 255), 1: (-128, 127), 2: (0, 65_535), 3: (-32_768, 32_767), 4: (0, (1 << 32) - 1),
    5: (-(1 << 31), (1 << 31) - 1), 10: (0, (1 << 64) - 1), 11: (-(1 << 63), (1 << 63) - 1),
}  # fmt: skip
_SCALARS = (*_RANGES, F32, F64, BOOL, STRING)
_MAX_F32 = 3.4e38

Change = Callable[[random.Random, Sketch], None]


def scalar(rng: random.Random, kind: int) -> object:
    """A hostile value of a metadata type."""
    if kind in _RANGES:
        return hostile_int(rng, *_RANGES[kind])
    if kind == BOOL:
        return rng.random() < 0.5
    if kind == STRING:
        return rng.choice(BAD_UTF8) if rng.random() < 0.15 else hostile_text(rng)
    value = rng.choice(FLOATS)
    return value if kind == F64 or abs(value) <= _MAX_F32 else _MAX_F32


def change_value(rng: random.Random, sketch: Sketch) -> None:
    """Another value of the same type under some key."""
    if not sketch.keys:
        return
    key = rng.choice(list(sketch.keys))
    kind, value = sketch.keys[key]
    if kind != ARRAY:
        sketch.keys[key] = (kind, scalar(rng, kind))
    elif value.values and value.kind != ARRAY:
        values = list(value.values)
        values[rng.randrange(len(values))] = scalar(rng, value.kind)
        sketch.keys[key] = (ARRAY, Array(value.kind, values))


def change_length(rng: random.Random, sketch: Sketch) -> None:
    """Some array gets shorter, empty, or longer."""
    arrays = [key for key, (kind, _) in sketch.keys.items() if kind == ARRAY]
    if not arrays:
        return
    key = rng.choice(arrays)
    value = sketch.keys[key][1]
    n = len(value.values)
    keep = rng.choice((0, 1, n // 2, max(0, n - 1), n + 1, 2 * n))
    sketch.keys[key] = (ARRAY, Array(value.kind, (value.values * 3)[:keep]))


def change_kind(rng: random.Random, sketch: Sketch) -> None:
    """A value of another type, or an array of one."""
    if not sketch.keys:
        return
    key, kind = rng.choice(list(sketch.keys)), rng.choice(_SCALARS)
    if rng.random() < 0.6:
        sketch.keys[key] = (kind, scalar(rng, kind))
        return
    n = rng.choice((0, 1, 3, 300))
    sketch.keys[key] = (ARRAY, Array(kind, [scalar(rng, kind) for _ in range(n)]))


def drop_key(rng: random.Random, sketch: Sketch) -> None:
    """A key less."""
    if sketch.keys:
        del sketch.keys[rng.choice(list(sketch.keys))]


def rename_key(rng: random.Random, sketch: Sketch) -> None:
    """A key under a hostile or nearly right name."""
    if sketch.keys:
        key = rng.choice(list(sketch.keys))
        new = rng.choice((hostile_text(rng), key[:-1], key + "s", key.upper()))
        sketch.keys[new] = sketch.keys.pop(key)


def raw_key(rng: random.Random, sketch: Sketch) -> None:
    """A key whose value no writer would write: doubled, nested, or with a lying length."""
    known = list(sketch.keys) or ["k"]
    name = string(rng.choice((rng.choice(known), "k.raw", rng.choice(BAD_UTF8))))
    sketch.extra_keys.append(name + rng.choice(_RAW_VALUES)(rng))


def _raw_nested(rng: random.Random) -> bytes:
    depth = rng.choice((1, 7, 8, 9, 300, 1100, 20_000))
    inner = struct.pack("<IQ", 4, 1) + b"\1\0\0\0"
    return struct.pack("<I", ARRAY) + struct.pack("<IQ", ARRAY, 1) * depth + inner


def _raw_wide(rng: random.Random) -> bytes:
    n = rng.choice((2, 1000, 30_000))
    inner = struct.pack("<IQ", rng.choice((0, 4, STRING, ARRAY)), 0) * n
    return struct.pack("<IIQ", ARRAY, ARRAY, n) + inner


def _raw_count(rng: random.Random) -> bytes:
    return struct.pack("<IIQ", ARRAY, rng.choice((0, 4, 8, 9, 10, 13)), hostile_int(rng))


def _raw_length(rng: random.Random) -> bytes:
    return struct.pack("<IQ", STRING, hostile_int(rng)) + b"abc"


def _raw_kind(rng: random.Random) -> bytes:
    return struct.pack("<I", hostile_int(rng, 0, (1 << 32) - 1)) + rng.randbytes(8)


def _raw_strings(rng: random.Random) -> bytes:
    n = rng.choice((3, 50_000))
    lies = struct.pack("<Q", hostile_int(rng))
    return struct.pack("<IIQ", ARRAY, STRING, n + 1) + struct.pack("<Q", 0) * n + lies


_RAW_VALUES = (_raw_nested, _raw_wide, _raw_count, _raw_length, _raw_kind, _raw_strings)


def change_shape(rng: random.Random, sketch: Sketch) -> None:
    """Other dimensions: zero, huge, more or fewer, or in another order."""
    tensor = _some_tensor(rng, sketch)
    if tensor is None:
        return
    shape = list(tensor.shape)
    how = rng.randrange(5)
    if how == 0 and shape:
        shape[rng.randrange(len(shape))] = hostile_int(rng)
    elif how == 1:
        shape = [rng.choice((0, 1, 2, 32, 1 << 16, 1 << 32)) for _ in range(rng.randint(0, 10))]
    elif how == 2:
        shape.reverse()
    elif how == 3:
        shape += [1] * rng.choice((1, 4, 5))
    else:
        shape = shape[1:]
    tensor.shape = tuple(shape)


def change_type(rng: random.Random, sketch: Sketch) -> None:
    """Another block format, known or not."""
    tensor = _some_tensor(rng, sketch)
    if tensor is not None:
        tensor.type_id = rng.choice((rng.randrange(42), hostile_int(rng, 0, (1 << 32) - 1)))


def change_offset(rng: random.Random, sketch: Sketch) -> None:
    """Data that overlaps, is not aligned, or lies beyond the end."""
    tensor = _some_tensor(rng, sketch)
    if tensor is not None:
        tensor.offset = rng.choice((hostile_int(rng), rng.randrange(64) * 16, 1, 32))


def change_data(rng: random.Random, sketch: Sketch) -> None:
    """Other bytes in a tensor."""
    tensor = _some_tensor(rng, sketch)
    if tensor is not None:
        n = len(tensor.data)
        tensor.data = rng.choice((damage(rng, tensor.data), b"\xff" * n, rng.randbytes(n)))


def rename_tensor(rng: random.Random, sketch: Sketch) -> None:
    """A tensor under another name, or gone."""
    if not sketch.tensors:
        return
    name = rng.choice(list(sketch.tensors))
    tensor = sketch.tensors.pop(name)
    if rng.random() < 0.7:
        number = rng.choice((0, 1, 9, 10**8, 10**9 - 1, 10**400))
        new = rng.choice((hostile_text(rng), name + "x", f"mtp.{number}.x", f"blk.{number}.y"))
        sketch.tensors[new] = tensor


def raw_tensor(rng: random.Random, sketch: Sketch) -> None:
    """A row of the table that no writer would write."""
    known = list(sketch.tensors) or ["t"]
    name = string(rng.choice((rng.choice(known), "t.raw", rng.choice(BAD_UTF8), "n" * 70_000)))
    n_dims = rng.choice((0, 1, 2, 8, 9, 255, (1 << 32) - 1))
    dims = b"".join(struct.pack("<Q", hostile_int(rng)) for _ in range(min(n_dims, 9)))
    tail = struct.pack("<IQ", rng.choice((0, 1, 8, 10, 16, 39, 77)), hostile_int(rng))
    sketch.extra_tensors.append(name + struct.pack("<I", n_dims) + dims + tail)


def many_tensors(rng: random.Random, sketch: Sketch) -> None:
    """A long table of empty promises."""
    n = rng.choice((100, 4000))
    kind = rng.choice((0, 8, 99))
    for i in range(n):
        sketch.tensors[f"blk.{i}.t"] = Tensor((32,), kind, b"", offset=rng.choice((0, 32 * i)))


def change_head(rng: random.Random, sketch: Sketch) -> None:
    """Magic, version, alignment."""
    how = rng.randrange(4)
    if how == 0:
        sketch.magic = rng.choice((b"FUGG", b"GGML", b"\0\0\0\0", b"PK\3\4", b"{   "))
    elif how == 1:
        sketch.version = hostile_int(rng, 0, (1 << 32) - 1)
    else:
        kind = rng.choice((4, 4, 4, 10, STRING))
        sketch.keys["general.alignment"] = (kind, scalar(rng, kind))


def _some_tensor(rng: random.Random, sketch: Sketch) -> Tensor | None:
    if not sketch.tensors:
        return None
    name = rng.choice(list(sketch.tensors))
    sketch.tensors[name] = deepcopy(sketch.tensors[name])
    return sketch.tensors[name]


DIRECTORY: tuple[Change, ...] = (change_head, raw_key, raw_tensor, many_tensors, change_length)
VALUES: tuple[Change, ...] = (
    change_value, change_value, change_kind, change_length, drop_key, rename_key, raw_key,
)  # fmt: skip
TENSORS: tuple[Change, ...] = (
    change_shape, change_type, change_offset, change_data, rename_tensor, raw_tensor,
    many_tensors,
)  # fmt: skip


def mutated(
    rng: random.Random, seed: Sketch, changes: tuple[Change, ...], byte_level: float = 0.3
) -> bytes:
    """A file made from `seed` with some of `changes`, and perhaps damage to its bytes."""
    sketch = Sketch(
        keys=dict(seed.keys), tensors=dict(seed.tensors), is_padded=rng.random() < 0.8
    )
    for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
        rng.choice(changes)(rng, sketch)
    raw = sketch.build()
    if rng.random() < 0.06:  # the counts of the head
        at = rng.choice((8, 16))
        raw = raw[:at] + struct.pack("<Q", hostile_int(rng)) + raw[at + 8 :]
    return damage(rng, raw) if rng.random() < byte_level else raw
