"""The very first lines of the program, interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ds4chat import __main__ as entry
from ds4chat.cli import chat, main


def test_an_interrupt_is_an_exit_status_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "main", interrupted)
    before = signal.getsignal(signal.SIGINT)
    assert entry.main() == main.EXIT_INTERRUPTED
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_during_the_imports_is_not_lost(tmp_path: Path) -> None:
    """`argparse`, which the first import needs, is one that interrupts and goes on."""
    (tmp_path / "argparse.py").write_text(
        "import os, signal\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    import time\n    time.sleep(600)\n"
        "except KeyboardInterrupt:\n    pass\n"
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    code += "from ds4chat.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -signal.SIGINT
    assert done.stderr == b""


def test_an_interrupt_in_a_later_import_is_not_lost() -> None:
    """In a weak reference's callback of the import system: every module's lock has one."""
    code = (
        "import signal, weakref\n"
        "from ds4chat import __main__ as entry\n"
        "from ds4chat.cli import main\n"
        "class Lock: pass\n"
        "def run():\n"
        "    names = {'signal': signal}\n"
        "    text = 'def cb(_): signal.raise_signal(signal.SIGINT)'\n"
        "    exec(compile(text, '<frozen importlib._bootstrap>', 'exec'), names)\n"
        "    lock = Lock()\n"
        "    reference = weakref.ref(lock, names['cb'])\n"
        "    del lock\n"
        "    return 0\n"
        "main.main = run\n"
        "raise SystemExit(entry.main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -signal.SIGINT
    assert done.stderr == b""


def test_before_the_screen_listens_ctrl_c_is_a_plain_signal() -> None:
    before = signal.getsignal(signal.SIGINT)
    with chat._plain_interrupts():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is before
