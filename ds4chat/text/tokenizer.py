"""Text to token ids and back: byte-level BPE as the model files describe it.

Knows strings and ids only; which file they came from is the caller's business. Two ways in:
`encode_plain` recognises nothing (what a person typed), `encode_rendered` recognises the
markers (a prompt that a program wrote).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import tokenizers
from tokenizers import Regex, models, pre_tokenizers

from ds4chat.errors import ModelFileError
from ds4chat.text.bytemap import BYTE_SYMBOLS, to_bytes

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
USER = "<｜User｜>"
ASSISTANT = "<｜Assistant｜>"
THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"
DSML = "｜DSML｜"

CONTROL_TYPE = 3
"""`tokenizer.ggml.token_type` of a control token."""

# The official splits of the model's tokenizer (model data, verbatim).
OFFICIAL_SPLITS: tuple[str, ...] = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*"
    "|\\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+",
)

_OFFICIAL = "official"
_BYTE_LEVEL = "byte-level"
PRE_TOKENIZERS: dict[str, str] = {
    "joyai-llm": _OFFICIAL,
    "deepseek-v3": _OFFICIAL,
    "gpt-2": _BYTE_LEVEL,
}
"""Accepted values of `tokenizer.ggml.pre`."""

_REQUIRED = {"bos": BOS, "eos": EOS, "user": USER, "assistant": ASSISTANT}
_NAMED = (*_REQUIRED.values(), THINK_OPEN, THINK_CLOSE, DSML)
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_LISTED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Specials:
    """Ids of the markers, found by their strings. The think markers may be absent."""

    bos: int
    eos: int
    user: int
    assistant: int
    think_open: int | None
    think_close: int | None

    @property
    def has_thinking(self) -> bool:
        """Whether both think markers exist."""
        return self.think_open is not None and self.think_close is not None


class Tokenizer:
    """A vocabulary with its merges and split patterns. Immutable; safe to share."""

    def __init__(
        self,
        tokens: tuple[str, ...],
        ids: dict[str, int],
        markers: frozenset[str],
        bpe: tokenizers.Tokenizer,
    ) -> None:
        """Use `from_vocab`, which checks its input."""
        self._tokens = tokens
        self._ids = ids
        self._markers = markers
        self._bpe = bpe
        self._specials = _find_specials(ids)

    @classmethod
    def from_vocab(
        cls,
        tokens: Sequence[str],
        merges: Sequence[str],
        *,
        pre: str,
        token_types: Sequence[int] | None = None,
        where: str = "the model file",
    ) -> Tokenizer:
        """Build from the arrays of a model file.

        Args:
            tokens: `tokenizer.ggml.tokens`, index = id; a duplicate string keeps the last id.
            merges: `tokenizer.ggml.merges`, two symbols with one space between, rank = index.
            pre: `tokenizer.ggml.pre`, a key of `PRE_TOKENIZERS`.
            token_types: `tokenizer.ggml.token_type`, one for each token; 3 is a control token.
            where: what to call the file in messages.

        Raises:
            ModelFileError: anything in it is unusable.
        """
        pre_tokenizer = _pre_tokenizer(pre, where)
        _check_tokens(tokens, token_types, where)
        ids = {token: i for i, token in enumerate(tokens)}
        ids.pop("", None)
        _check_required(ids, where)
        markers = _markers(tokens, token_types)
        # Without the markers no merge and no typed text can produce one.
        plain = {token: i for token, i in ids.items() if token not in markers}
        _check_bytes(plain, where)
        bpe = tokenizers.Tokenizer(models.BPE(plain, _pairs(merges, plain, where)))
        bpe.pre_tokenizer = pre_tokenizer
        return cls(tuple(tokens), ids, markers, bpe)

    @property
    def n_vocab(self) -> int:
        """Number of ids: they run from 0 to `n_vocab - 1`."""
        return len(self._tokens)

    @property
    def specials(self) -> Specials:
        """Ids of the markers."""
        return self._specials

    @cached_property
    def longest_token(self) -> int:
        """Bytes of the longest token that is not a marker."""
        return max(len(to_bytes(token)) for token in self._ids if token not in self._markers)

    def id_of(self, token: str) -> int | None:
        """Id of a stored token string, or None."""
        return self._ids.get(token)

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a text in which nothing is special: a typed `<think>` is just characters.

        Lone surrogates, which UTF-8 cannot hold, become U+FFFD. The cost grows with n log n
        even for one huge piece, so there is no length limit here.
        """
        if not text.isascii():
            text = _SURROGATE.sub("\ufffd", text)
        ids: list[int] = self._bpe.encode(text, add_special_tokens=False).ids
        return ids

    def encode_rendered(self, text: str) -> list[int]:
        """Ids of a prompt that a program wrote: the markers in it become their ids.

        Recognised are the seven named markers and all control tokens; the longest wins.
        """
        ids: list[int] = []
        for part in self._marker_pattern.split(text):
            if part in self._markers:
                ids.append(self._ids[part])
            elif part:
                ids.extend(self.encode_plain(part))
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids; bytes that are no UTF-8 become U+FFFD.

        Raises:
            ModelFileError: an id is outside the vocabulary.
        """
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token; a marker gives its own spelling.

        Raises:
            ModelFileError: the id is outside the vocabulary.
        """
        if not 0 <= token_id < len(self._tokens):
            raise ModelFileError(
                f"token id {token_id} is not in the vocabulary (ids 0..{self.n_vocab - 1})",
                "the ids belong to another model, or the file's vocabulary is incomplete",
            )
        return to_bytes(self._tokens[token_id])

    def piece(self, token_id: int) -> str:
        r"""One token for display: part of a character shows as `\xe4`, a marker as written.

        Raises:
            ModelFileError: the id is outside the vocabulary.
        """
        return self.token_bytes(token_id).decode("utf-8", errors="backslashreplace")

    @cached_property
    def _marker_pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self._markers, key=lambda marker: (-len(marker), marker))
        return re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")


def _pre_tokenizer(pre: str, where: str) -> pre_tokenizers.PreTokenizer:
    """The splitter for a `tokenizer.ggml.pre` value."""
    kind = PRE_TOKENIZERS.get(pre)
    if kind is None:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise ModelFileError(
            f"{where}: tokenizer.ggml.pre is {pre!r:.60}; known: {known}",
            "use a DeepSeek-V4-Flash file, or one whose tokenizer splits like these",
        )
    if kind == _BYTE_LEVEL:
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    splits = [pre_tokenizers.Split(Regex(split), "isolated") for split in OFFICIAL_SPLITS]
    to_alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*splits, to_alphabet])


def _check_tokens(tokens: Sequence[str], types: Sequence[int] | None, where: str) -> None:
    """Refuse a token list that cannot be read at all."""
    if not all(isinstance(token, str) for token in tokens):
        raise ModelFileError(f"{where}: tokenizer.ggml.tokens must hold strings only")
    try:
        "".join(tokens).encode("utf-8")
    except UnicodeEncodeError:
        bad = next(i for i, token in enumerate(tokens) if _SURROGATE.search(token))
        raise ModelFileError(f"{where}: token {bad} of the vocabulary is no text") from None
    if types is not None and len(types) != len(tokens):
        raise ModelFileError(
            f"{where}: tokenizer.ggml.token_type has {len(types)} entries, "
            f"tokenizer.ggml.tokens has {len(tokens)}; they must be equally many"
        )


def _check_required(ids: dict[str, int], where: str) -> None:
    """Refuse a vocabulary without the markers that every prompt needs."""
    missing = [token for token in _REQUIRED.values() if token not in ids]
    if missing:
        raise ModelFileError(
            f"{where}: the vocabulary lacks {', '.join(missing)}",
            "the file's tokenizer is not that of DeepSeek-V4",
        )


def _check_bytes(plain: dict[str, int], where: str) -> None:
    """Refuse a vocabulary in which some text has no ids: it would be lost silently."""
    missing = [byte for byte, symbol in enumerate(BYTE_SYMBOLS) if symbol not in plain]
    if missing:
        listed = ", ".join(f"0x{byte:02x}" for byte in missing[:_MAX_LISTED])
        raise ModelFileError(
            f"{where}: the vocabulary has no token for {len(missing)} of 256 bytes "
            f"({listed}{', ...' if len(missing) > _MAX_LISTED else ''})"
        )


def _markers(tokens: Sequence[str], types: Sequence[int] | None) -> frozenset[str]:
    """Strings that are never typed text: the named ones that exist, and the control tokens."""
    named = set(_NAMED).intersection(tokens)
    if types is not None:
        named.update(
            token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL_TYPE
        )
    return frozenset(named - {""})


def _pairs(merges: Sequence[str], plain: dict[str, int], where: str) -> list[tuple[str, str]]:
    """The merges as pairs, each checked: both symbols and their union are tokens."""
    pairs: list[tuple[str, str]] = []
    bad: list[str] = []
    for rank, merge in enumerate(merges):
        left, _, right = merge.partition(" ")
        if left in plain and right in plain and left + right in plain:
            pairs.append((left, right))
        else:
            bad.append(f"{rank} ({merge[:40]!r})")
    if bad:
        more = f" and {len(bad) - _MAX_LISTED} more" if len(bad) > _MAX_LISTED else ""
        raise ModelFileError(
            f"{where}: unusable entries of tokenizer.ggml.merges: "
            f"{', '.join(bad[:_MAX_LISTED])}{more}; wanted: two tokens with one space between, "
            "whose union is a token too and no marker"
        )
    return pairs


def _find_specials(ids: dict[str, int]) -> Specials:
    """The markers' ids; the required ones were checked before."""
    return Specials(
        think_open=ids.get(THINK_OPEN),
        think_close=ids.get(THINK_CLOSE),
        **{name: ids[token] for name, token in _REQUIRED.items()},
    )
