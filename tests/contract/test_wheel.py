"""The wheel holds what the program needs at run time, and nothing of a person's."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def tracked(*folders: str) -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return set(listed.stdout.split("\n")) - {""}


@pytest.mark.parametrize("folder", ["kernels", "themes", "sessions"])
def test_resources_lie_inside_the_package(folder: str, names: set[str]) -> None:
    inside = {
        name.replace(f"ds4chat/_{folder}/", f"{folder}/")
        for name in names
        if name.startswith(f"ds4chat/_{folder}/")
    }
    assert tracked(folder) <= inside


def test_every_module_and_style_sheet_is_there(names: set[str]) -> None:
    assert tracked("ds4chat") <= names


def test_tests_and_training_stay_out(names: set[str]) -> None:
    tops = {name.split("/", 1)[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"ds4chat"}


def test_sessions_of_the_checkout_stay_out(names: set[str]) -> None:
    shipped = {name for name in names if name.startswith("ds4chat/_sessions/")}
    allowed = ("ds4chat/_sessions/README.md", "ds4chat/_sessions/samples/")
    assert {name for name in shipped if not name.startswith(allowed)} == set()
