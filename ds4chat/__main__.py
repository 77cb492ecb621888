"""`python -m ds4chat`, and the console script."""

from __future__ import annotations

import signal
import sys
from types import FrameType


def main() -> int:
    """Run the command line; returns the exit status.

    While modules are imported Ctrl+C ends the process as other signals do: a KeyboardInterrupt
    that arises in a callback of the import system would be dropped.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from ds4chat.cli.main import main as run  # noqa: PLC0415
    finally:
        is_usual = before is signal.default_int_handler
        signal.signal(signal.SIGINT, _interrupt if is_usual else before)
    try:
        return run()
    except KeyboardInterrupt:  # just before `run` takes it
        return 130
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, or end the process where an import begins or ends."""
    if frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
