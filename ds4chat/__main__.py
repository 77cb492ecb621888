"""`python -m ds4chat`, and the console script."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; returns the exit status."""
    from ds4chat.cli.main import main as run  # noqa: PLC0415

    return run()


if __name__ == "__main__":
    sys.exit(main())
