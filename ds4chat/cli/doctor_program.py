"""Python, packages, settings and themes, as `ds4chat doctor` sees them."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ds4chat import __version__, paths, settings
from ds4chat.cli.doctor_finding import Finding, fail, ok, warn
from ds4chat.errors import Ds4Error, SettingsError

PROGRAM, SETTINGS = "program", "settings"
MIN_PYTHON = (3, 11)
PRIVATE = frozenset({"system", "system_file", "model", "support"})
"""Settings whose values are not shown: text of a person, and paths that are shown elsewhere."""

_REINSTALL = "pip install --force-reinstall"
_REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?\s*([^;]*)(?:;\s*(.*))?")
_CLAUSE = re.compile(r"(>=|<)\s*([0-9][0-9.]*)")
_MODULES = {"markdown-it-py": "markdown_it"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A library that the program needs. `version`: None, it is not there."""

    name: str
    wanted: str
    version: str | None
    is_there: bool = True


def check_python(version: tuple[int, int, int], executable: str) -> Finding:
    """Python itself."""
    words = f"{'.'.join(map(str, version))}, {executable}"
    if version[:2] < MIN_PYTHON:
        wanted = ".".join(map(str, MIN_PYTHON))
        return fail(PROGRAM, "Python", words, f"Install Python {wanted} or newer.")
    return ok(PROGRAM, "Python", words)


def check_packages(packages: Iterable[Package]) -> list[Finding]:
    """Each library: there, and of a version that is known to work."""
    return [_check_package(package) for package in packages]


def _check_package(package: Package) -> Finding:
    name, wanted = package.name, package.wanted or "any version"
    fix = f"{_REINSTALL} '{name}{package.wanted}'"
    if package.version is None or not package.is_there:
        return fail(PROGRAM, name, f"not installed; wanted: {wanted}", fix)
    if not fits(package.version, package.wanted):
        return warn(PROGRAM, name, f"{package.version}; wanted: {wanted}", fix)
    return ok(PROGRAM, name, package.version)


def fits(version: str, wanted: str) -> bool:
    """Whether a version lies within `>=A,<B`."""
    have = _numbers(version)
    for sign, bound in _CLAUSE.findall(wanted):
        limit = _numbers(bound)
        width = max(len(have), len(limit))
        padded = [(*numbers, *(0,) * (width - len(numbers))) for numbers in (have, limit)]
        if (padded[0] < padded[1]) if sign == ">=" else (padded[0] >= padded[1]):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def installed(requirements: Iterable[str] | None = None) -> list[Package]:
    """The libraries that this installation wants, and what is there of them."""
    found = []
    for line in metadata.requires("ds4chat") or [] if requirements is None else requirements:
        match = _REQUIREMENT.fullmatch(line.strip())
        if match is None or not _is_ours(match[3] or ""):
            continue
        name, wanted = match[1], match[2].strip().strip("()")
        module = _MODULES.get(name, name.replace("-", "_"))
        found.append(
            Package(
                name=name, wanted=wanted, version=_version(name),
                is_there=importlib.util.find_spec(module) is not None,
            )
        )  # fmt: skip
    return found


def _is_ours(marker: str) -> bool:
    if "extra" in marker:
        return False
    return "sys_platform" not in marker or f"'{sys.platform}'" in marker.replace('"', "'")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_program() -> list[Finding]:
    """This program, its Python and its libraries."""
    here = Path(paths.__file__).parent
    own = ok(PROGRAM, "ds4chat", f"{__version__}, {here}")
    info = sys.version_info
    python = check_python((info.major, info.minor, info.micro), sys.executable)
    try:
        packages = check_packages(installed())
    except metadata.PackageNotFoundError:
        fix = f"{_REINSTALL} ds4chat, or `make setup` in a checkout"
        packages = [warn(PROGRAM, "packages", "not installed as a package", fix)]
    return [own, python, *packages]


def check_settings(
    given: Mapping[str, object], dirs: paths.UserDirs
) -> tuple[settings.Settings | None, list[Finding]]:
    """The settings of a start with these flags (None: they cannot be used), keys and themes."""
    values, findings = _values(given, dirs.config_file)
    if values is None:
        return None, findings
    findings += _guarded("keys", lambda: _check_keys(dirs.config_file))
    findings += _guarded("themes", lambda: _check_themes(dirs, values.theme))
    return values, findings


def _values(
    given: Mapping[str, object], config_file: Path
) -> tuple[settings.Settings | None, list[Finding]]:
    try:
        values = settings.load(given, config_file=config_file)
    except SettingsError as error:
        return None, [_refused("settings", error)]
    where = f"{config_file}{'' if config_file.exists() else ' (not there: defaults)'}"
    return values, [ok(SETTINGS, "file", where), *_changed(values)]


def _changed(values: settings.Settings) -> list[Finding]:
    words = [
        f"{name}={'..' if name in PRIVATE else getattr(values, name)} ({origin})"
        for name, origin in sorted(values.origins.items())
    ]
    return [ok(SETTINGS, "changed", ", ".join(words))] if words else []


def _guarded(name: str, check: Callable[[], Finding]) -> list[Finding]:
    try:
        return [check()]
    except Ds4Error as error:
        return [_refused(name, error)]
    except ImportError as error:
        words = f"the screen's library cannot be loaded: {error}"
        return [fail(SETTINGS, name, words, f"{_REINSTALL} textual rich")]


def _refused(name: str, error: Ds4Error) -> Finding:
    fix = error.hint or "Mend or remove that line."
    return fail(SETTINGS, name, error.message, fix)


def _check_keys(config_file: Path) -> Finding:
    from ds4chat.tui import keymap
    from ds4chat.tui.keys import SCREEN_KEYS

    table = keymap.load(config_file)
    keymap.remap(SCREEN_KEYS, table)
    return ok(SETTINGS, "keys", f"{len(table)} of your own" if table else "the usual ones")


def _check_themes(dirs: paths.UserDirs, chosen: str) -> Finding:
    from ds4chat.tui import themes

    own = dirs.config_root / "themes"
    found = themes.load_themes((paths.themes_dir(), own))
    themes.pick(found, chosen)
    n_own = len(list(own.glob("*.toml")))
    words = f"{chosen or themes.DEFAULT}, of {len(found)}" + (
        f" ({n_own} of your own)" if n_own else ""
    )
    return ok(SETTINGS, "themes", words)
