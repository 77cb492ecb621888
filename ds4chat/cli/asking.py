"""Reading a line behind a question, without a screen."""

from __future__ import annotations

import sys


def read_line(question: str) -> str | None:
    """Read a line of standard input behind `question` on standard error; None: its end.

    Whatever ends the waiting, a signal as soon as the question stands there too, the next
    words begin on a line of their own. The line comes without its end.
    """
    line = ""
    try:
        sys.stderr.write(question)
        sys.stderr.flush()
        line = sys.stdin.readline()
    finally:
        if not line.endswith("\n"):  # else the terminal has echoed it
            sys.stderr.write("\n")
            sys.stderr.flush()
    return line.rstrip("\r\n") if line else None
