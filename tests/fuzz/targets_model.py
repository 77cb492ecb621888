"""Model files: the directory, the values of keys, the tensor table, the tokenizer, the pair."""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from ds4chat.draft.binding import bind_draft
from ds4chat.draft.metadata import read_draft_config
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.keys import KeyReader
from ds4chat.formats.values import STRING
from ds4chat.formats.vocab import read_tokenizer
from ds4chat.model.binding import bind_target
from ds4chat.model.metadata import read_target_config
from ds4chat.text.detok import Detokenizer
from tests.fuzz import mutate_gguf
from tests.fuzz.case import Files, Odd, Target
from tests.fuzz.mutate import hostile_text
from tests.gguf_sketch import Array, Sketch, small
from tests.make_pair import make_pair

MODEL, SUPPORT = "model.gguf", "support.gguf"
_SPELLINGS = ("ds4", "late", "llama")
_TINY = {
    "ratios": (4, 128), "n_hash": 1, "vocab": 300, "n_stages": 1, "n_experts": 2, "topk": 1,
    "heads": 2, "n_groups": 1, "index_heads": 1,
}  # fmt: skip
_MAX_DECODED = 1 << 16  # values; a decoder's output is larger than its blocks by design


@cache
def pair(spelling: str) -> tuple[Sketch, Sketch]:
    """A small but whole pair."""
    with tempfile.TemporaryDirectory() as folder:
        paths = make_pair(folder, spelling=spelling, **_TINY)
        return Sketch.read(paths.base), Sketch.read(paths.support)


@cache
def vocabulary() -> Sketch:
    """A model's tokenizer keys and nothing else."""
    keys = pair("ds4")[0].keys
    return Sketch(keys={key: keys[key] for key in keys if key.startswith("tokenizer.")})


def _odd_or(rng: random.Random, raw: bytes) -> bytes | Odd:
    return rng.choice(list(Odd)) if rng.random() < 0.004 else raw


# The directory.


def _make_directory(rng: random.Random) -> Files:
    changes = mutate_gguf.DIRECTORY + mutate_gguf.TENSORS
    raw = mutate_gguf.mutated(rng, small(), changes, byte_level=0.6)
    if rng.random() < 0.05:
        count, name = rng.choice((1, 2, 3, 1025, 99_999)), rng.choice((1, 2, 0, 99_999))
        return {f"m-{name:05}-of-{count:05}.gguf": raw, "m-00002-of-00003.gguf": raw}
    return {MODEL: _odd_or(rng, raw)}


def _run_directory(folder: Path) -> str:
    path = sorted(folder.iterdir())[0]
    with GgufFile.open(path) as gguf:
        for key in gguf.metadata:
            gguf.metadata.kind(key), gguf.metadata.describe(key), gguf.metadata.count(key)
        n_bytes = gguf.file_bytes + len(gguf.header_bytes)
        return "opened" if n_bytes else "empty"


# Values of keys.


def _make_values(rng: random.Random) -> Files:
    seed = small() if rng.random() < 0.4 else pair("ds4")[0]
    light = Sketch(keys=seed.keys)  # the tensors are another target's
    return {MODEL: mutate_gguf.mutated(rng, light, mutate_gguf.VALUES)}


def _run_values(folder: Path) -> str:
    with GgufFile.open(folder / MODEL) as gguf:
        for key in gguf.metadata:
            _use_key(gguf, key)
        for value in gguf.metadata.values():
            assert value is not None
        read_target_config(gguf)
    return "read"


def _use_key(gguf: GgufFile, key: str) -> None:
    reader = KeyReader(gguf.metadata)
    gguf.metadata.describe(key)
    reader.integer(key)
    reader.number(key)
    reader.flag(key, wanted=True)
    reader.text(key)
    reader.integers(key, count=2)
    reader.uniform(key, count=3, default=None)
    for line in reader.problems:
        assert len(line) < 2000 + len(key), line[:100]


# The tensor table.


def _make_tensors(rng: random.Random) -> Files:
    seed = small() if rng.random() < 0.6 else pair("ds4")[0]
    return {MODEL: mutate_gguf.mutated(rng, seed, mutate_gguf.TENSORS, byte_level=0.15)}


def _run_tensors(folder: Path) -> str:
    with GgufFile.open(folder / MODEL) as gguf:
        for entry in list(gguf.tensors.values())[:300]:
            if entry.n_bytes:
                gguf.raw(entry)
            if entry.quant is None or np.prod(entry.shape, dtype=float) > _MAX_DECODED:
                continue
            _ = gguf.integers(entry) if entry.quant.is_integer else gguf.floats(entry)
        bind_target(gguf, read_target_config(gguf))
    return "bound"


# The tokenizer.


def _make_tokenizer(rng: random.Random) -> Files:
    keys = dict(vocabulary().keys)
    for _ in range(rng.choice((0, 1, 1, 2))):
        rng.choice(_VOCABULARY)(rng, keys)
    sketch = Sketch(keys=keys)
    return {MODEL: mutate_gguf.mutated(rng, sketch, mutate_gguf.VALUES, byte_level=0.25)}


def _changed_array(
    keys: dict[str, tuple[int, object]], name: str, values: list[object]
) -> None:
    kind, found = keys[f"tokenizer.ggml.{name}"]
    assert isinstance(found, Array)
    keys[f"tokenizer.ggml.{name}"] = (kind, Array(found.kind, values))


def _values(keys: dict[str, tuple[int, object]], name: str) -> list[object]:
    found = keys[f"tokenizer.ggml.{name}"][1]
    assert isinstance(found, Array)
    return list(found.values)


def _odd_tokens(rng: random.Random, keys: dict[str, tuple[int, object]]) -> None:
    tokens = _values(keys, "tokens")
    for _ in range(rng.choice((1, 5, 100))):
        text = rng.choice((hostile_text(rng), str(rng.choice(tokens)), "Ġ" * 3))
        tokens[rng.randrange(len(tokens))] = text
    _changed_array(keys, "tokens", tokens)


def _odd_merges(rng: random.Random, keys: dict[str, tuple[int, object]]) -> None:
    merges = _values(keys, "merges")
    tokens = _values(keys, "tokens")
    for _ in range(rng.choice((1, 5, 400))):
        left, right = rng.choice(tokens), rng.choice(tokens)
        merge = rng.choice(
            (f"{left} {right}", f"{left}  {right}", f"{left}", rng.choice(merges))
        )
        merges.insert(rng.randrange(len(merges) + 1), merge)
    _changed_array(keys, "merges", merges)


def _long_merges(rng: random.Random, keys: dict[str, tuple[int, object]]) -> None:
    """Ever longer tokens of one letter, each made from the one before."""
    n = rng.choice((8, 60, 400))
    chain = ["a" * (i + 2) for i in range(n)]
    _changed_array(keys, "tokens", _values(keys, "tokens") + list(chain))
    types = _values(keys, "token_type")
    _changed_array(keys, "token_type", types + [1] * n)
    merges = [f"{text[:-1]} a" for text in chain]
    _changed_array(keys, "merges", _values(keys, "merges") + list(merges))


def _all_control(rng: random.Random, keys: dict[str, tuple[int, object]]) -> None:
    types = _values(keys, "token_type")
    kinds = (0, 1, 3, 6, -1, 2**31 - 1)
    for _ in range(rng.choice((1, 20, 400))):
        types[rng.randrange(len(types))] = rng.choice(kinds)
    _changed_array(keys, "token_type", types)


def _other_pre(rng: random.Random, keys: dict[str, tuple[int, object]]) -> None:
    keys["tokenizer.ggml.pre"] = (
        STRING,
        rng.choice(("gpt-2", "deepseek-v3", "llama-bpe", hostile_text(rng))),
    )


_VOCABULARY = (_odd_tokens, _odd_merges, _long_merges, _all_control, _other_pre)
_TEXTS = (
    "", "a" * 3000, "The quick brown fox.\n\n", "größe 你好 🚀🚀", "<｜User｜>x</think>",
    "\0\x1b", "1234567 " * 50, " " * 2000, "\ud800",
)  # fmt: skip


def _run_tokenizer(folder: Path) -> str:
    with GgufFile.open(folder / MODEL) as gguf:
        tokenizer = read_tokenizer(gguf)
    for text in _TEXTS:
        ids = tokenizer.encode_rendered(text)
        plain = tokenizer.encode_plain(text)
        assert tokenizer.decode(plain) == text.replace("\ud800", "\ufffd"), text[:40]
        assert all(0 <= token < tokenizer.n_vocab for token in ids)
    detok = Detokenizer(tokenizer)
    for token in range(tokenizer.n_vocab):
        tokenizer.piece(token)
        detok.push(token)
    return f"built {tokenizer.longest_token > 0} {tokenizer.specials.has_thinking}"


# The pair.


def _make_pair(rng: random.Random) -> Files:
    model, support = pair(rng.choice(_SPELLINGS))
    changes = mutate_gguf.VALUES + mutate_gguf.TENSORS
    which = rng.choice((0, 1, 1, 1, 2))
    files = {
        MODEL: mutate_gguf.mutated(rng, model, changes, 0.1) if which != 1 else model.build(),
        SUPPORT: mutate_gguf.mutated(rng, support, changes, 0.1) if which else support.build(),
    }
    if rng.random() < 0.03:
        files[SUPPORT], files[MODEL] = files[MODEL], files[SUPPORT]
    return files


def _run_pair(folder: Path) -> str:
    with GgufFile.open(folder / MODEL) as model, GgufFile.open(folder / SUPPORT) as support:
        target = read_target_config(model)
        bind_target(model, target)
        reading = read_draft_config(support, target, model)
        bind_draft(support, reading.config, target)
        return f"fits, {len(reading.warnings)} warnings"


def _prepare() -> None:
    vocabulary()
    for spelling in _SPELLINGS:
        pair(spelling)


def _target(name: str, make: object, run: object) -> Target:
    assert callable(make)
    assert callable(run)
    return Target(name=name, make=make, run=run, prepare=_prepare)


TARGETS = (
    _target("directory", _make_directory, _run_directory),
    _target("metadata", _make_values, _run_values),
    _target("tensors", _make_tensors, _run_tensors),
    _target("tokenizer", _make_tokenizer, _run_tokenizer),
    _target("pairing", _make_pair, _run_pair),
)
