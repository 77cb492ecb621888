"""`python -m tests.scripted_chat ARGS`: the real program over the scripted engine process."""

from __future__ import annotations

import sys
from pathlib import Path

from ds4chat.cli.main import main
from ds4chat.client.spawn import EngineProcess, OnSaid

ENGINE = [sys.executable, "-m", "tests.scripted_engine"]


def make_link(log_path: Path, *, on_said: OnSaid | None = None) -> EngineProcess:
    return EngineProcess(log_path, [*ENGINE, "--log", str(log_path)], on_said=on_said)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], make_link))
