from __future__ import annotations

import stat
from pathlib import Path

from ds4chat.tui.files import append_private, write_private


def test_files_are_private_and_grow(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old and longer")
    path.chmod(0o644)
    assert write_private(path, "new\n")
    assert append_private(path, "é\ud800")
    assert path.read_text(encoding="utf-8") == "new\né?"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    assert not write_private(tmp_path / "none" / "f", "x")
    target = tmp_path / "target"
    (tmp_path / "link").symlink_to(target)
    assert not write_private(tmp_path / "link", "x")
    assert not target.exists()
