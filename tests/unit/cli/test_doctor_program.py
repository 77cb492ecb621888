"""What `ds4chat doctor` says of Python, libraries, settings, keys and themes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ds4chat import paths, settings
from ds4chat.cli.doctor_finding import Finding, Mark
from ds4chat.cli.doctor_program import (
    Package,
    check_packages,
    check_program,
    check_python,
    check_settings,
    fits,
    installed,
)


def test_python() -> None:
    assert check_python((3, 11, 0), "/usr/bin/python").mark is Mark.OK
    old = check_python((3, 10, 9), "/usr/bin/python")
    assert old.mark is Mark.FAIL
    assert "3.11" in old.fix


@pytest.mark.parametrize(
    ("version", "wanted", "holds"),
    [
        ("8.2.8", "<9,>=8.2", True),
        ("8.2", ">=8.2.0,<9", True),
        ("9.0", "<9,>=8.2", False),
        ("9", "<9.0", False),
        ("8.1.9", ">=8.2", False),
        ("10.0", ">=9", True),
        ("2.4.6rc1", ">=2.1", True),
        ("0.32.4.dev1", ">=0.32.4", True),
        ("1", "", True),
    ],
)
def test_versions(version: str, wanted: str, holds: bool) -> None:
    assert fits(version, wanted) is holds


def test_a_library_can_be_missing_old_or_half_there() -> None:
    found = check_packages(
        [
            Package(name="a", wanted=">=1", version="1.5"),
            Package(name="b", wanted=">=2", version="1.5"),
            Package(name="c", wanted=">=1", version=None),
            Package(name="d", wanted=">=1", version="1.5", is_there=False),
        ]
    )
    assert [f.mark for f in found] == [Mark.OK, Mark.WARN, Mark.FAIL, Mark.FAIL]
    assert "'b>=2'" in found[1].fix
    assert all(f.fix.startswith("pip install") for f in found[1:])


def test_requirements_of_other_systems_and_extras_are_left_out() -> None:
    other = "darwin" if sys.platform == "linux" else "linux"
    lines = [
        "numpy>=2.1",
        f"mlx>=0.32; sys_platform == '{other}'",
        f"mlx[cpu]>=0.32; sys_platform == '{sys.platform}'",
        "pytest>=9; extra == 'dev'",
        "markdown-it-py<5,>=4",
        "no-such-library>=1",
    ]
    found = installed(lines)
    assert [package.name for package in found] == [
        "numpy", "mlx", "markdown-it-py", "no-such-library",
    ]  # fmt: skip
    assert [package.wanted for package in found][:2] == [">=2.1", ">=0.32"]
    assert all(package.is_there for package in found[:3])
    assert (found[3].version, found[3].is_there) == (None, False)


def test_this_installation_is_in_order() -> None:
    found = check_program()
    assert {finding.mark for finding in found} == {Mark.OK}
    assert {"ds4chat", "Python", "mlx", "textual"} <= {finding.name for finding in found}


# Settings.


@pytest.fixture
def dirs() -> paths.UserDirs:
    found = paths.UserDirs.from_variables(settings.path_variables())
    found.config_dir()
    return found


def named(findings: list[Finding], name: str) -> Finding:
    return next(finding for finding in findings if finding.name == name)


def test_defaults_are_in_order(dirs: paths.UserDirs) -> None:
    values, found = check_settings({}, dirs)
    assert values is not None
    assert {finding.mark for finding in found} == {Mark.OK}
    assert "not there" in named(found, "file").found


def test_what_was_changed_is_listed_without_private_text(dirs: paths.UserDirs) -> None:
    dirs.config_file.write_text('system = "my secret"\ntemp = 1.0\nmodel = "/x/y.gguf"\n')
    _, found = check_settings({"seed": "4"}, dirs)
    words = named(found, "changed").found
    assert "temp=1.0 (settings file)" in words
    assert "seed=4 (command line)" in words
    assert "system=.." in words
    assert "secret" not in str(found)
    assert "y.gguf" not in words


@pytest.mark.parametrize("text", ["temperature = 1", "temp = 'hot'", "= 3"])
def test_an_unusable_settings_file_is_a_failure(dirs: paths.UserDirs, text: str) -> None:
    dirs.config_file.write_text(text)
    values, (finding,) = check_settings({}, dirs)
    assert values is None
    assert finding.mark is Mark.FAIL
    assert str(dirs.config_file) in finding.found
    assert finding.fix


def test_keys_for_two_actions_are_a_failure(dirs: paths.UserDirs) -> None:
    dirs.config_file.write_text('[keys]\ntoggle-spec = "f9"\nhelp = "f9"\n')
    _, found = check_settings({}, dirs)
    assert named(found, "keys").mark is Mark.FAIL
    dirs.config_file.write_text('[keys]\ntoggle-spec = "f9"\n')
    _, found = check_settings({}, dirs)
    assert named(found, "keys").found == "1 of your own"


def test_a_broken_theme_and_an_unknown_one_are_failures(dirs: paths.UserDirs) -> None:
    _, found = check_settings({"theme": "darc"}, dirs)
    assert named(found, "themes").mark is Mark.FAIL
    assert "dark" in named(found, "themes").fix
    own = dirs.config_root / "themes"
    own.mkdir()
    (own / "mine.toml").write_text("is_dark = 3")
    _, found = check_settings({}, dirs)
    assert named(found, "themes").mark is Mark.FAIL
    assert "mine.toml" in named(found, "themes").found


def test_a_theme_of_ones_own_is_counted(dirs: paths.UserDirs) -> None:
    own = dirs.config_root / "themes"
    own.mkdir()
    shipped = paths.themes_dir() / "dark.toml"
    Path(own / "mine.toml").write_text(shipped.read_text())
    _, found = check_settings({"theme": "mine"}, dirs)
    assert named(found, "themes").found.startswith("mine, of 5 (1 of your own)")
