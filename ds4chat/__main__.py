"""`python -m ds4chat`, and the console script."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run the command line; returns the exit status.

    While modules are imported Ctrl+C ends the process as other signals do: a KeyboardInterrupt
    that arises in a callback of the import system would be dropped.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from ds4chat.cli.main import main as run  # noqa: PLC0415
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        return run()
    except KeyboardInterrupt:  # just before `run` takes it
        return 130


if __name__ == "__main__":
    sys.exit(main())
