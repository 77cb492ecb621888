"""Tensor bytes read ahead by threads, a chunk at a time, into a few buffers.

For weights that go to a device as they are: a mapped file would be faulted in page by page on
one thread, and its pages would stay in the process.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile, TensorEntry
from ds4chat.formats.show import printable, shown_path

CHUNK_BYTES = 32 << 20
_N_THREADS = 6


class TensorStream:
    """Reads the tensors of an open model. A context manager; `close` ends its threads."""

    def __init__(self, gguf: GgufFile, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._gguf = gguf
        self._chunk_bytes = chunk_bytes
        self._handles: dict[int, int] = {}
        self._spare: list[NDArray[np.uint8]] = []
        self._stack = ExitStack()
        self._threads = self._stack.enter_context(ThreadPoolExecutor(_N_THREADS))

    def chunks(self, entry: TensorEntry) -> Iterator[NDArray[np.uint8]]:
        """The bytes of a tensor in order, `(n,)` each; valid until the next chunk is asked for.

        Raises:
            ModelFileError: the file ends early, or cannot be read any more.
        """
        starts = deque(range(0, entry.n_bytes, self._chunk_bytes))
        handle = self._handle(entry.part)
        ahead: deque[Future[NDArray[np.uint8]]] = deque()
        while starts or ahead:
            while starts and len(ahead) < _N_THREADS:
                start = starts.popleft()
                size = min(self._chunk_bytes, entry.n_bytes - start)
                buffer = self._buffer()[:size]
                ahead.append(self._threads.submit(self._read, entry, handle, start, buffer))
            chunk = ahead.popleft().result()
            yield chunk
            base = chunk.base
            self._spare.append(base if isinstance(base, np.ndarray) else chunk)

    def close(self) -> None:
        """End the threads and let go of the files."""
        self._stack.close()
        self._spare.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _buffer(self) -> NDArray[np.uint8]:
        return self._spare.pop() if self._spare else np.empty(self._chunk_bytes, np.uint8)

    def _handle(self, part: int) -> int:
        if part not in self._handles:
            try:
                handle = os.open(self._gguf.parts[part], os.O_RDONLY)
            except OSError as error:
                raise self._unreadable(part, error.strerror or str(error)) from error
            self._stack.callback(os.close, handle)
            self._handles[part] = handle
        return self._handles[part]

    def _read(
        self, entry: TensorEntry, handle: int, start: int, buffer: NDArray[np.uint8]
    ) -> NDArray[np.uint8]:
        done = 0
        while done < len(buffer):
            try:
                n = os.preadv(handle, [buffer[done:].data], entry.offset + start + done)
            except OSError as error:
                raise self._unreadable(entry.part, error.strerror or str(error)) from error
            if n == 0:
                raise self._unreadable(entry.part, f"it ends inside {printable(entry.name)}")
            done += n
        return buffer

    def _unreadable(self, part: int, why: str) -> ModelFileError:
        return ModelFileError(
            f"{shown_path(self._gguf.parts[part])}: cannot be read: {why}",
            "Was the file replaced or cut while it was being read? Start again.",
        )
