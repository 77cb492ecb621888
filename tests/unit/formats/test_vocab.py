from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.values import ARRAY, STRING
from ds4chat.formats.vocab import read_tokenizer
from tests.gguf_sketch import I32, U32, Array, Sketch
from tests.pair_vocab import make_vocab


def sketch(**changes: Any) -> Sketch:
    vocab = make_vocab(300)
    keys = {
        "model": (STRING, "gpt2"),
        "pre": (STRING, "joyai-llm"),
        "tokens": (ARRAY, Array(STRING, vocab.tokens)),
        "token_type": (ARRAY, Array(I32, vocab.types)),
        "merges": (ARRAY, Array(STRING, vocab.merges)),
    }
    kept = {name: value for name, value in (keys | changes).items() if value is not None}
    return Sketch(keys={f"tokenizer.ggml.{name}": value for name, value in kept.items()})


def refusal(path: Path) -> str:
    with GgufFile.open(path) as gguf, pytest.raises(ModelFileError) as caught:
        read_tokenizer(gguf)
    return caught.value.message


def test_the_vocabulary_of_a_file_round_trips(tmp_path: Path) -> None:
    with GgufFile.open(sketch().write(tmp_path / "v.gguf")) as gguf:
        tokenizer = read_tokenizer(gguf)
    assert tokenizer.n_vocab == 300
    ids = tokenizer.encode_plain("the thing, é and 😀")
    assert tokenizer.decode(ids) == "the thing, é and 😀"
    assert len(ids) < len("the thing, é and 😀".encode())


def test_types_may_be_absent(tmp_path: Path) -> None:
    with GgufFile.open(sketch(token_type=None).write(tmp_path / "v.gguf")) as gguf:
        assert read_tokenizer(gguf).specials.eos == 1


def test_all_problems_are_listed(tmp_path: Path) -> None:
    broken = sketch(
        tokens=None,
        merges=(U32, 3),
        model=(STRING, "llama"),
        pre=(U32, 1),
        token_type=(ARRAY, Array(STRING, ["x"])),
    )
    message = refusal(broken.write(tmp_path / "v.gguf"))
    for words in (
        "tokens is missing",
        "merges is stored as UINT32",
        "model is 'llama'; 'gpt2' wanted",
        "pre is stored as UINT32",
        "token_type is stored as array of 1 STRING",
    ):
        assert words in message


def test_an_unknown_split_names_the_file(tmp_path: Path) -> None:
    path = sketch(pre=(STRING, "qwen2")).write(tmp_path / "v.gguf")
    message = refusal(path)
    assert "qwen2" in message
    assert str(path) in message
