"""Places: a person's folders and the resources."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from ds4chat import paths, settings
from ds4chat.errors import Ds4Error
from ds4chat.paths import UserDirs


def test_linux_folders_follow_xdg_defaults(tmp_path: Path) -> None:
    dirs = UserDirs.from_variables({"HOME": str(tmp_path)}, "linux")
    assert dirs.config_file == tmp_path / ".config/ds4chat/config.toml"
    assert dirs.data_root == tmp_path / ".local/share/ds4chat"
    assert dirs.state_root == tmp_path / ".local/state/ds4chat"


def test_mac_folders_lie_in_the_library(tmp_path: Path) -> None:
    dirs = UserDirs.from_variables({"HOME": str(tmp_path)}, "darwin")
    support = tmp_path / "Library/Application Support/ds4chat"
    assert (dirs.config_root, dirs.data_root) == (support, support)
    assert dirs.state_root == tmp_path / "Library/Logs/ds4chat"


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_xdg_variables_win_unless_relative(platform: str, tmp_path: Path) -> None:
    variables = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": "/c",
        "XDG_DATA_HOME": "relative",
        "XDG_STATE_HOME": "/s",
    }
    dirs = UserDirs.from_variables(variables, platform)
    assert dirs.config_root == Path("/c/ds4chat")
    assert dirs.state_root == Path("/s/ds4chat")
    assert dirs.data_root.is_relative_to(tmp_path)


def test_folders_are_made_private_on_use(tmp_path: Path) -> None:
    dirs = UserDirs.from_variables({"HOME": str(tmp_path / "home")}, "linux")
    assert not (tmp_path / "home").exists()
    for folder in (dirs.config_dir(), dirs.build_dir(), dirs.log_dir()):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert dirs.sessions_root == dirs.data_root / "sessions"
    assert not dirs.sessions_root.exists()


def test_a_log_without_a_folder_has_a_name_all_the_same(tmp_path: Path) -> None:
    for name in ("home", "file/home"):
        (tmp_path / "file").touch()
        dirs = UserDirs.from_variables({"HOME": str(tmp_path / name)}, "linux")
        assert dirs.log_file() == tmp_path / name / ".local/state/ds4chat/engine.log"
        assert dirs.state_root.is_dir() is (name == "home")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    dirs = UserDirs.from_variables({"XDG_DATA_HOME": str(tmp_path / "file")}, "linux")
    with pytest.raises(Ds4Error, match=r"file.*cannot be created") as caught:
        dirs.build_dir()
    assert "XDG_DATA_HOME" in caught.value.hint


def test_resources_of_the_checkout() -> None:
    top = Path(paths.__file__).parents[1]
    assert paths.kernels_dir() == top / "kernels"
    assert paths.themes_dir() == top / "themes"
    assert paths.samples_dir() == top / "sessions" / "samples"


def test_resources_of_a_wheel_come_first(tmp_path: Path) -> None:
    package = tmp_path / "ds4chat"
    (package / "_kernels").mkdir(parents=True)
    (tmp_path / "kernels").mkdir()
    (tmp_path / "pyproject.toml").touch()
    assert paths.resource_dir("kernels", package) == package / "_kernels"


def test_a_stray_folder_beside_the_package_is_not_a_resource(tmp_path: Path) -> None:
    package = tmp_path / "ds4chat"
    package.mkdir()
    (tmp_path / "kernels").mkdir()
    with pytest.raises(Ds4Error, match=r"'kernels' is missing.*_kernels.*kernels"):
        paths.resource_dir("kernels", package)


def test_nano_is_there_only_with_its_files(tmp_path: Path) -> None:
    assert paths.nano_dir(tmp_path) is None
    (tmp_path / "nano").mkdir()
    assert paths.nano_dir(tmp_path) is None
    (tmp_path / "nano" / "a.gguf").touch()
    assert paths.nano_dir(tmp_path) == tmp_path / "nano"


def test_tests_do_not_see_the_persons_own_folders(isolated_environment: Path) -> None:
    dirs = UserDirs.from_variables(settings.path_variables())
    for folder in (dirs.config_dir(), dirs.sessions_root, dirs.log_dir()):
        assert folder.is_relative_to(isolated_environment)


def test_tests_cannot_reach_the_network() -> None:
    with (
        socket.socket() as sock,
        pytest.raises(AssertionError, match="tried to use the network"),
    ):
        sock.connect(("127.0.0.1", 9))
