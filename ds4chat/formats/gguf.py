"""A GGUF model, in one file or several: keys, tensor directory, and views of the data.

Our own reader: the `gguf` package needs seconds for a vocabulary of 129,280 tokens and checks
little. Nothing here knows what a tensor means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ds4chat.errors import ModelFileError
from ds4chat.formats.directory import TensorEntry
from ds4chat.formats.parts import Part, open_parts
from ds4chat.formats.quants import QuantFormat
from ds4chat.formats.quants.base import decode
from ds4chat.formats.show import printable, shown_path
from ds4chat.formats.values import Metadata

__all__ = ["GgufFile", "TensorEntry"]


class GgufFile:
    """An open model. Use it as a context manager, or call `close`.

    Arrays from `raw` (and `floats` of F32) look into the mapped file and keep it mapped after
    `close`; they are read-only.
    """

    def __init__(self, parts: tuple[Part, ...], path: Path) -> None:
        self._parts = parts
        self.path = path
        self.parts = tuple(part.path for part in parts)
        self.tensors: Mapping[str, TensorEntry] = MappingProxyType(_join_tensors(parts))

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a model; any one part opens all parts of a split model.

        Raises:
            ModelFileError: the path cannot be read, or the file is not sound GGUF v3.
        """
        path = Path(path)
        parts = open_parts(path)
        try:
            return cls(parts, path)
        except BaseException:
            for part in parts:
                part.close()
            raise

    @property
    def metadata(self) -> Metadata:
        """The keys (of the first part); values are decoded on first use."""
        return self._parts[0].directory.metadata

    @property
    def file_bytes(self) -> int:
        """Size of all parts."""
        return sum(part.directory.file_bytes for part in self._parts)

    @property
    def header_bytes(self) -> bytes:
        """All bytes before the data section, of all parts in order (for fingerprints)."""
        return b"".join(part.buffer[: part.directory.data_start] for part in self._parts)

    def raw(self, entry: TensorEntry) -> NDArray[np.uint8]:
        """The tensor's blocks without a copy: `shape[:-1] + (bytes of a row,)`, read-only.

        Raises:
            ModelFileError: the size of the tensor's type is not known.
        """
        if entry.n_bytes == 0:
            raise self._undecodable(entry)
        data = self._parts[entry.part].data
        if data is None:
            raise ValueError(f"{self.path} is closed")
        view = data[entry.offset : entry.offset + entry.n_bytes]
        return view.reshape(*entry.shape[:-1], -1)

    def floats(self, entry: TensorEntry) -> NDArray[np.float32]:
        """The tensor's values in NumPy order. F32 is a view, everything else is decoded.

        Raises:
            ModelFileError: the type cannot be decoded.
        """
        quant = self._quant(entry)
        if quant.is_integer:
            raise TypeError(f"{entry.name} holds ids: use integers()")
        raw = self.raw(entry)
        if quant.name == "F32":
            return raw.reshape(-1).view("<f4").reshape(entry.shape)
        return decode(quant, raw, entry.shape)

    def integers(self, entry: TensorEntry) -> NDArray[np.int32]:
        """The ids of an I32 tensor in NumPy order, a view.

        Raises:
            ModelFileError: the tensor is of another type.
        """
        if not self._quant(entry).is_integer:
            raise self._undecodable(entry, wanted="I32")
        return self.raw(entry).reshape(-1).view("<i4").reshape(entry.shape)

    def close(self) -> None:
        """Let go of the files; arrays handed out stay valid."""
        for part in self._parts:
            part.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _quant(self, entry: TensorEntry) -> QuantFormat:
        if entry.quant is None:
            raise self._undecodable(entry)
        return entry.quant

    def _undecodable(
        self, entry: TensorEntry, wanted: str = "a type with a decoder"
    ) -> ModelFileError:
        return ModelFileError(
            f"{shown_path(self.path)}: tensor '{printable(entry.name)}' is "
            f"{entry.type_name}; {wanted} wanted",
            "Use a file with F32, F16, BF16, Q8_0, Q4_K, Q2_K, IQ2_XXS or MXFP4 tensors.",
        )


def _join_tensors(parts: tuple[Part, ...]) -> dict[str, TensorEntry]:
    tensors: dict[str, TensorEntry] = {}
    for number, part in enumerate(parts):
        for name, entry in part.directory.tensors.items():
            if name in tensors:
                other = parts[tensors[name].part].path.name
                raise ModelFileError(
                    f"{shown_path(part.path)}: tensor '{printable(name)}' is also in "
                    f"{printable(other)}",
                    "Fetch the parts again; two of them may be copies of one.",
                )
            tensors[name] = replace(entry, part=number) if number else entry
    return tensors
