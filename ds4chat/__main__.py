"""`python -m ds4chat`, and the console script."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; returns the exit status."""
    try:
        from ds4chat.cli.main import main as run  # noqa: PLC0415

        return run()
    except KeyboardInterrupt:  # while it is being imported; later `run` takes it
        return 130


if __name__ == "__main__":
    sys.exit(main())
