"""The screen starts without the tensor libraries: they belong to the engine's process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("mlx", "numpy", "gguf", "tokenizers")
PROBE = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def loaded_by(module: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after the import."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, module], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "module", ["ds4chat.tui.app", "ds4chat.demo", "ds4chat.protocol.codec"]
)
def test_no_tensor_library_is_imported(module: str) -> None:
    assert loaded_by(module).isdisjoint(HEAVY)


def test_the_demo_and_the_protocol_do_not_import_the_terminal() -> None:
    assert loaded_by("ds4chat.demo").isdisjoint({"textual", "rich"})


def test_the_probe_sees_what_is_imported() -> None:
    assert "numpy" in loaded_by("numpy")
