"""Who holds a model: claims of living processes count, those of dead ones are removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ds4chat.engine import owner

HOLD = """
import sys
from pathlib import Path
from ds4chat.engine import owner
claim = owner.claim(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


class Other:
    """Another process that holds a model until it is told to end."""

    def __init__(self, model: Path) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(model)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.popen.stdout is not None
        assert self.popen.stdout.readline() == b"held\n"

    def kill(self) -> None:
        self.popen.kill()
        self.popen.communicate()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.touch()
    return path


def test_a_claim_names_its_process_until_it_is_released(model: Path, tmp_path: Path) -> None:
    assert owner.holders(model) == []
    first, second = owner.claim(model), owner.claim(model)
    found = owner.holders(model)
    assert [holder.pid for holder in found] == [os.getpid()] * 2
    assert str(os.getpid()) in str(found[0])
    assert owner.holders(tmp_path) == []
    first.release()
    first.release()
    assert len(owner.holders(model)) == 1
    second.release()
    assert list(owner.folder().iterdir()) == []


def test_another_name_of_the_same_file_is_the_same_model(model: Path, tmp_path: Path) -> None:
    (tmp_path / "link.gguf").symlink_to(model)
    claim = owner.claim(tmp_path / "link.gguf")
    assert len(owner.holders(model)) == 1
    claim.release()


def test_what_a_killed_process_left_is_nobodys(model: Path) -> None:
    other = Other(model)
    assert [holder.pid for holder in owner.holders(model)] == [other.popen.pid]
    other.kill()
    assert len(list(owner.folder().iterdir())) == 1
    assert owner.holders(model) == []
    assert list(owner.folder().iterdir()) == []


def test_waiting_ends_when_the_holder_does(model: Path) -> None:
    other = Other(model)
    (holder,) = owner.holders(model)
    code = (
        "import sys; from pathlib import Path; from ds4chat.engine import owner\n"
        "(holder,) = owner.holders(Path(sys.argv[1])); print('found', flush=True)\n"
        "owner.wait(holder); print(owner.holders(Path(sys.argv[1])))\n"
    )
    waiting = subprocess.Popen([sys.executable, "-c", code, str(model)], stdout=subprocess.PIPE)
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == b"found\n"
    assert waiting.poll() is None
    other.kill()
    assert waiting.communicate(timeout=60)[0] == b"[]\n"
    owner.wait(holder)  # gone: nothing to wait for


def test_claims_that_hold_nonsense_still_count(model: Path) -> None:
    claim = owner.claim(model)
    for words in (b"", b"[]", b'{"pid": "x", "since": 1}', b"\xff" * 9000, b'{"pid": 1}'):
        (path,) = owner.folder().iterdir()
        path.write_bytes(words)
        (holder,) = owner.holders(model)
        assert str(holder) == "another process"
    claim.release()


def test_without_a_place_for_claims_nothing_is_said(
    model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    owner.claim(model).release()
    assert owner.holders(model) == []
    assert owner.holders(tmp_path / "nothing.gguf") == []


def test_a_new_claim_removes_what_the_dead_left_on_any_model(
    model: Path, tmp_path: Path
) -> None:
    other_model = tmp_path / "other.gguf"
    other_model.touch()
    dead, alive = Other(other_model), Other(other_model)
    dead.kill()
    assert len(list(owner.folder().iterdir())) == 2
    claim = owner.claim(model)
    assert [holder.pid for holder in owner.holders(other_model)] == [alive.popen.pid]
    assert len(list(owner.folder().iterdir())) == 2
    claim.release()
    alive.kill()


def test_a_process_that_leaves_at_once_ends_its_claims(model: Path) -> None:
    claims = [owner.claim(model), owner.claim(model)]
    owner.release_all()
    assert list(owner.folder().iterdir()) == []
    claims[0].release()
