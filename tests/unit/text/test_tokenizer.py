from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from ds4chat.errors import ModelFileError
from ds4chat.text.tokenizer import Tokenizer
from tests.unit.text import reference, vocab
from tests.unit.text.vocab import ASSISTANT, BOS, DSML, EOS, MARKERS, NO_THINK, THINK, USER

TEXTS = [
    "",
    "a",
    "Hello world",
    "it's isn't I'LL 'tis",
    "1234567 12 1 ١٢٣٤ ⅷ½²",
    "x=12345;y=.5e10",
    "中文文本测试你好",
    "abc中文def日本語カタカナghi",
    "한국어 텍스트",
    "😀 😀😀 👩‍👩‍👧 🇩🇪",
    "“curly” ‘quotes’ — dash… «guillemets»",
    "a\n\nb\r\nc\n  \n d",
    "   leading and trailing   ",
    "tab\t\ttab \t x",
    "!!!\n\n???\r\n.end",
    "<think>hi</think>",
    "e\u0301\u0301 \u0301x\u0301",
    "\x00\x01\x7f\ufeff\u200b\u00a0\u3000z",
    "snake_case camelCase path/to/file.txt #tag @name",
    "def f(x):\n    return x  # ok\n",
    "  1  2   345",
    "naïve café Ελληνικά русский العربية हिन्दी ไทย",
]


def build(
    tokens: Sequence[str] | None = None,
    merges: Sequence[str] | None = None,
    *,
    pre: str = "joyai-llm",
    types: Sequence[int] | None = None,
) -> Tokenizer:
    own_tokens, own_merges, _ = vocab.arrays()
    return Tokenizer.from_vocab(
        own_tokens if tokens is None else tokens,
        own_merges if merges is None else merges,
        pre=pre,
        token_types=types,
        where="flash.gguf",
    )


@pytest.mark.parametrize("text", TEXTS)
def test_encode_plain_equals_the_reference(text: str) -> None:
    tokens, merges, _ = vocab.arrays()
    assert vocab.tokenizer().encode_plain(text) == reference.encode(text, tokens, merges)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("1234567", ["123", "456", "7"]),
        ("abc123", ["abc", "123"]),
        (" word", [" word"]),
        ("it's", ["it", "'s"]),
        ("“it”", ["“", "it", "”"]),
        ("a  b", ["a", " ", " b"]),
        ("a  1", ["a", "  ", "1"]),
        ("...\n\nx", ["...\n\n", "x"]),
        ("  \n\n  x", ["  \n\n", " ", " x"]),
        ("中文abc", ["中文", "abc"]),
        ("é 😀", ["é", " 😀"]),
        (" !!", [" !!"]),
        ("\x00\x01", ["\x00\x01"]),
    ],
)
def test_split_patterns(text: str, pieces: list[str]) -> None:
    # With every piece's merges present, each piece becomes one token.
    tokens, merges = list(reference.SYMBOLS), []
    for piece in pieces:
        symbols = [reference.SYMBOLS[b] for b in piece.encode()]
        for size in range(1, len(symbols)):
            merges.append("".join(symbols[:size]) + " " + symbols[size])
            tokens.append("".join(symbols[: size + 1]))
    # A merge over each border, so that a missing split would show.
    spelled = ["".join(reference.SYMBOLS[b] for b in piece.encode()) for piece in pieces]
    for left, right in itertools.pairwise(spelled):
        merges.append(f"{left} {right}")
        tokens.append(left + right)
    made = build([*tokens, *MARKERS], merges)
    assert [made.decode([i]) for i in made.encode_plain(text)] == pieces


def test_deepseek_v3_is_the_same_split() -> None:
    text = "\n".join(TEXTS)
    assert build(pre="deepseek-v3").encode_plain(text) == vocab.tokenizer().encode_plain(text)


def test_gpt2_splits_contractions_and_not_digits() -> None:
    tokens = [*reference.SYMBOLS, "'l", "'ll", "12", "123", "1234", *MARKERS]
    made = build(tokens, ["' l", "'l l", "1 2", "12 3", "123 4"], pre="gpt-2")
    assert [made.decode([i]) for i in made.encode_plain("I'll1234")] == ["I", "'ll", "1234"]


@pytest.mark.parametrize("pre", ["", "llama-bpe", "default", "JOYAI-LLM"])
def test_other_pre_tokenizers_are_refused_with_the_list(pre: str) -> None:
    with pytest.raises(ModelFileError, match=r"flash\.gguf.*deepseek-v3, gpt-2, joyai-llm"):
        build(pre=pre)


def test_a_duplicate_string_keeps_the_last_id() -> None:
    tokens = [*vocab.arrays()[0], "th", "a"]
    merges = [*vocab.arrays()[1], "t h"]
    made = build(tokens, merges)
    assert made.encode_plain("a") == [len(tokens) - 1]
    assert made.decode([tokens.index("a"), len(tokens) - 1]) == "aa"


@pytest.mark.parametrize(
    "merge",
    ["", " ", "ab", "a ", " a", "a b c", "a  b", "zz zz", "a \ud800", "\x00 a", "q \u2581"],
)
def test_malformed_merges_are_refused(merge: str) -> None:
    merges = vocab.arrays()[1]
    with pytest.raises(ModelFileError, match=rf"flash\.gguf.*merges: {len(merges)} \("):
        build(merges=[*merges, merge])


def test_many_bad_merges_are_counted() -> None:
    with pytest.raises(ModelFileError, match="and 15 more"):
        build(merges=["nonsense"] * 20)


def test_a_merge_that_makes_a_marker_is_refused() -> None:
    tokens = [*vocab.arrays()[0], "<t", "<th", "<thi", "<thin", "<think"]
    merges = ["< t", "<t h", "<th i", "<thi n", "<thin k", "<think >"]
    assert build(tokens, merges[:-1]).n_vocab == len(tokens)
    with pytest.raises(ModelFileError, match="marker"):
        build(tokens, merges)


def test_every_missing_marker_is_reported() -> None:
    tokens = [t for t in vocab.arrays()[0] if t not in {EOS, USER}]
    with pytest.raises(ModelFileError) as caught:
        build(tokens)
    assert EOS in caught.value.message
    assert USER in caught.value.message
    assert ASSISTANT not in caught.value.message


def test_a_missing_byte_is_reported() -> None:
    tokens = [t for t in vocab.arrays()[0] if t != reference.SYMBOLS[0x0A]]
    with pytest.raises(ModelFileError, match=r"1 of 256 bytes \(0x0a\)"):
        build(tokens, [])


def test_an_empty_vocabulary_is_refused() -> None:
    with pytest.raises(ModelFileError, match="lacks"):
        build([], [])


def test_token_types_must_be_as_many() -> None:
    with pytest.raises(ModelFileError, match="3 entries"):
        build(types=[1, 2, 3])


def test_a_token_that_is_no_text_is_refused() -> None:
    with pytest.raises(ModelFileError, match="token 1 "):
        build([BOS, "\ud800", *vocab.arrays()[0]])


def test_empty_token_strings_are_harmless() -> None:
    tokens, merges, types = vocab.arrays()
    made = build([*tokens, "", ""], merges, types=[*types, 3, 1])
    assert made.decode(made.encode_rendered(f"a{USER}b")) == f"a{USER}b"
    assert made.token_bytes(len(tokens)) == b""
    with pytest.raises(ModelFileError, match="merges"):
        build([*tokens, ""], ["a "])


def test_specials_are_found_by_string() -> None:
    tokens = vocab.arrays()[0]
    found = vocab.tokenizer().specials
    assert (found.bos, found.eos) == (0, 1)
    assert [tokens[found.user], tokens[found.assistant]] == [USER, ASSISTANT]
    assert found.think_open is not None
    assert found.think_close is not None
    assert [tokens[found.think_open], tokens[found.think_close]] == [THINK, NO_THINK]
    assert found.has_thinking


def test_think_markers_may_be_absent() -> None:
    assert not vocab.tokenizer(thinking=False).specials.has_thinking


@pytest.mark.parametrize("marker", MARKERS)
def test_plain_text_recognises_no_marker(marker: str) -> None:
    made = vocab.tokenizer()
    ids = made.encode_plain(f"a {marker} b")
    assert made.id_of(marker) not in ids
    assert made.decode(ids) == f"a {marker} b"


@pytest.mark.parametrize("marker", MARKERS)
def test_rendered_text_recognises_each_marker(marker: str) -> None:
    made = vocab.tokenizer()
    wanted = [*made.encode_plain("a "), made.id_of(marker), *made.encode_plain(" b")]
    assert made.encode_rendered(f"a {marker} b") == wanted


def test_rendered_text_without_types_knows_the_named_markers_only() -> None:
    made = build()
    assert made.encode_rendered(DSML) == [made.id_of(DSML)]
    assert len(made.encode_rendered(vocab.PLACEHOLDER)) > 1


def test_the_longest_marker_wins() -> None:
    tokens, merges, types = vocab.arrays()
    made = build([*tokens, "<think>>"], merges, types=[*types, 3])
    assert made.encode_rendered("<think>>") == [len(tokens)]


def test_token_bytes_of_markers_and_bytes() -> None:
    made = vocab.tokenizer()
    assert made.token_bytes(0) == BOS.encode()
    for byte, symbol in enumerate(reference.SYMBOLS):
        token_id = made.id_of(symbol)
        assert token_id is not None
        assert made.token_bytes(token_id) == bytes([byte])
    think = made.specials.think_open
    assert think is not None
    assert made.token_bytes(think) == b"<think>"


def test_piece_shows_part_of_a_character() -> None:
    made = vocab.tokenizer()
    part = made.id_of(reference.SYMBOLS[0xF0])
    assert part is not None
    assert made.piece(part) == "\\xf0"
    assert made.piece(made.specials.user) == USER


@pytest.mark.parametrize("token_id", [-1, 10**9])
def test_an_unknown_id_is_refused(token_id: int) -> None:
    made = vocab.tokenizer()
    for call in (made.token_bytes, made.piece, lambda i: made.decode([i])):
        with pytest.raises(
            ModelFileError, match=f"token id {token_id} .*0\\.\\.{made.n_vocab - 1}"
        ):
            call(token_id)


def test_broken_utf8_decodes_to_replacement_characters() -> None:
    made = vocab.tokenizer()
    half = made.id_of(reference.SYMBOLS[0xE4])
    letter = made.id_of("a")
    assert half is not None
    assert letter is not None
    assert made.decode([half, letter]) == "\ufffda"


def test_lone_surrogates_become_replacement_characters() -> None:
    made = vocab.tokenizer()
    assert made.decode(made.encode_plain("a\ud800b\udfff")) == "a\ufffdb\ufffd"


def test_longest_token() -> None:
    tokens, _, _ = vocab.arrays()
    wanted = max(len(t) for t in tokens if t not in MARKERS)
    assert vocab.tokenizer().longest_token == wanted


@pytest.mark.parametrize(
    "unit", ["a", "7", " ", "\n", "\t", "中", "😀", "!", "\r\n", "\x00", "e\u0301"]
)
def test_a_huge_equal_text_round_trips(unit: str) -> None:
    # 131,072 equal units: linear, or this test would not end.
    text = unit * 131_072
    made = vocab.tokenizer()
    assert made.decode(made.encode_plain(text)) == text
