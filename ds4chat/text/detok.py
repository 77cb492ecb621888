"""Token ids to text, one at a time: a character appears with the token that completes it."""

from __future__ import annotations

import codecs

from ds4chat.text.tokenizer import Tokenizer

_DECODER = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """An incremental UTF-8 decoder over tokens.

    The texts of all `push` calls and of the last `flush`, joined, equal `Tokenizer.decode` of
    all ids; each of them is whole code points.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = _DECODER(errors="replace")

    def push(self, token_id: int) -> str:
        """Text that this token completed; empty while a character is unfinished.

        Raises:
            ModelFileError: the id is outside the vocabulary.
        """
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))

    def flush(self) -> str:
        """End the text: an unfinished character becomes U+FFFD. Ready for a new text."""
        return self._decoder.decode(b"", final=True)

    def copy(self) -> Detokenizer:
        """An independent decoder in the same state, to look ahead."""
        twin = Detokenizer(self._tokenizer)
        twin._decoder.setstate(self._decoder.getstate())
        return twin
