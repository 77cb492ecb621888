"""What the first `make chat` says while it sets everything up."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.terminal import ROOT

FAKE_PYTHON = """#!/bin/sh
case "$*" in
  *venv*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
  *pip*) echo "PIP" ;;
esac
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_a_set_up_says_what_it_does_before_it_takes_long(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    command = ["make", "-C", str(ROOT), "setup", f"PYTHON={python}", f"VENV={tmp_path / 'env'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = [line for line in done.stdout.splitlines() if not line.startswith("make")]
    assert said[0].startswith(f"Setting up ds4chat in {tmp_path / 'env'}")
    assert "installed, a minute or two" in said[said.index("PIP") - 1]
    assert said[-1] == "Done."
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "PIP" not in again.stdout
