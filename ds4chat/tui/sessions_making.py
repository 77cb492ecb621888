"""Makes a session's folder on a thread: the first writes of a file can take a while."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from ds4chat.store.library import Library
from ds4chat.store.session import Session


class SessionMaker:
    """At most one session in the making.

    Args:
        library: where it is made.
        on_done: called on the thread when it is made or refused.
    """

    def __init__(self, library: Library, on_done: Callable[[], None]) -> None:
        self._library = library
        self._on_done = on_done
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="session")
        self._future: Future[Session] | None = None

    @property
    def is_at_it(self) -> bool:
        """Whether a session is in the making, or made and not taken yet."""
        return self._future is not None

    def begin(self, about: str) -> None:
        """Begin to make a session named after its first message."""
        self._future = self._threads.submit(self._library.create, about=about)
        self._future.add_done_callback(lambda _: self._on_done())

    def take(self) -> Session | None:
        """The session; waits for it. None: nothing was begun.

        Raises:
            SessionFileError: the disk refused.
        """
        future, self._future = self._future, None
        return future.result() if future is not None else None

    def close(self) -> None:
        """End the thread."""
        self._threads.shutdown()
