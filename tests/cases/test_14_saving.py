"""Every file that the program saves: killed or refused in the middle, it is the old or the new.

Sessions and snapshots have tests of their own in `unit/store` and `unit/engine`; these are the
other files of a person: settings, history, copied text, exports.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ds4chat.smallfile import write_whole
from ds4chat.tui.history import History
from tests.cases.killing import SCENARIOS

ROOT = Path(__file__).parents[2]


QUICK = ("setting", "history", "long history", "export again")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in SCENARIOS]
)
def test_a_kill_at_every_call_into_the_system(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cases.killing", name, str(tmp_path / "k")],
        check=False, cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["died"] >= 4
    assert 1 <= found["states"] <= 2
    assert found["left"] == [], "a full disk left these behind"


def test_a_torn_line_costs_the_line_only(tmp_path: Path) -> None:
    """What a kill left of a line must not swallow the next one."""
    path = tmp_path / "history.jsonl"
    path.write_text('"one"\n"two"\n"thr')
    History(path).add("four")
    assert History(path)._entries == ["one", "two", "four"]


def test_a_new_file_never_replaces_another(tmp_path: Path) -> None:
    path, other = tmp_path / "a.md", tmp_path / "b.md"
    write_whole(path, "mine", is_new=True)
    with pytest.raises(FileExistsError):
        write_whole(path, "yours", is_new=True)
    other.symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        write_whole(other, "yours", is_new=True)
    assert path.read_text() == "mine"
    assert {p.name for p in tmp_path.iterdir()} == {"a.md", "b.md"}


def test_a_link_is_followed_and_keeps_pointing(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_whole(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640
    write_whole(Path("/dev/null"), "no file to replace")
    assert Path("/dev/null").is_char_device()
