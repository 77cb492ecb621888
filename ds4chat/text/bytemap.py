"""The byte alphabet of byte-level BPE: every byte has one printable character.

Bytes that are printable in Latin-1 stand for themselves; the other 68 take the code points from
U+0100 on, in byte order (the GPT-2 convention).
"""

from __future__ import annotations


def _alphabet() -> tuple[str, ...]:
    """The 256 characters, index = byte."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return tuple(
        chr(byte) if byte in printable else chr(0x100 + others.index(byte))
        for byte in range(256)
    )


BYTE_SYMBOLS: tuple[str, ...] = _alphabet()
_BYTE_OF = {symbol: byte for byte, symbol in enumerate(BYTE_SYMBOLS)}


def to_symbols(data: bytes) -> str:
    """Spell bytes in the byte alphabet."""
    return "".join(BYTE_SYMBOLS[byte] for byte in data)


def to_bytes(token: str) -> bytes:
    """The bytes that a stored token string stands for.

    A token with a character outside the alphabet (the markers hold U+FF5C or U+2581) is not
    spelled in it at all and stands for its own UTF-8.
    """
    try:
        return bytes([_BYTE_OF[symbol] for symbol in token])
    except KeyError:
        return token.encode("utf-8")
