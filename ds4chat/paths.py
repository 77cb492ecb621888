"""Where resources and a person's files lie: the only module that knows.

In a checkout, kernels, themes and sample sessions are top-level folders; in an installed wheel
they lie inside the package. A person's own files follow the XDG base directory specification,
on macOS the `Library` folders. This module reads no environment: it is given the variables.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ds4chat.errors import Ds4Error

APP = "ds4chat"
_PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True, kw_only=True)
class UserDirs:
    """A person's folders; what `..._dir()` names is created, private to the user."""

    config_root: Path
    data_root: Path
    state_root: Path

    @classmethod
    def from_variables(
        cls, variables: Mapping[str, str], platform: str = sys.platform
    ) -> UserDirs:
        """Decide the folders from `settings.path_variables()`.

        An XDG variable wins on every system; one that is not an absolute path is ignored, as
        the specification says.
        """
        home = Path(variables.get("HOME") or Path.home())
        library = home / "Library" / "Application Support" / APP
        is_mac = platform == "darwin"

        def root(variable: str, mac: Path, *elsewhere: str) -> Path:
            given = variables.get(variable, "")
            if given and Path(given).is_absolute():
                return Path(given) / APP
            return mac if is_mac else home.joinpath(*elsewhere) / APP

        return cls(
            config_root=root("XDG_CONFIG_HOME", library, ".config"),
            data_root=root("XDG_DATA_HOME", library, ".local", "share"),
            state_root=root(
                "XDG_STATE_HOME", home / "Library" / "Logs" / APP, ".local", "state"
            ),
        )

    @property
    def config_file(self) -> Path:
        """The settings file; it and its folder need not exist."""
        return self.config_root / "config.toml"

    def config_dir(self) -> Path:
        """Folder of the settings file."""
        return private_dir(self.config_root)

    @property
    def sessions_root(self) -> Path:
        """Folder of saved sessions; it need not exist, what writes there makes it."""
        return self.data_root / "sessions"

    def build_dir(self) -> Path:
        """Folder of what is compiled on this machine."""
        return private_dir(self.data_root / "build")

    def log_dir(self) -> Path:
        """Folder of the engine's log and of crash reports."""
        return private_dir(self.state_root)

    def log_file(self) -> Path:
        """The engine's log; where its folder cannot be made, there is none."""
        with contextlib.suppress(Ds4Error):
            self.log_dir()
        return self.state_root / "engine.log"


def private_dir(path: Path) -> Path:
    """Create `path` with mode 0700 (parents too) and return it.

    Raises:
        Ds4Error: it cannot be created.
    """
    try:
        if not path.parent.exists():
            private_dir(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise Ds4Error(
            f"{path}: the folder cannot be created: {error.strerror}",
            "Check its permissions, or set XDG_CONFIG_HOME, XDG_DATA_HOME and XDG_STATE_HOME.",
        ) from error
    return path


def resource_dir(name: str, package: Path = _PACKAGE) -> Path:
    """Folder of a resource: `kernels`, `themes` or `sessions`.

    Raises:
        Ds4Error: the installation lacks it; the message names both places looked at.
    """
    installed = package / f"_{name}"
    if installed.is_dir():
        return installed
    checkout = package.parent / name
    if checkout.is_dir() and (package.parent / "pyproject.toml").is_file():
        return checkout
    raise Ds4Error(
        f"the folder {name!r} is missing: looked for {installed} and {checkout}",
        "Install ds4chat again.",
    )


def kernels_dir() -> Path:
    """Folder of the kernel sources."""
    return resource_dir("kernels")


def themes_dir() -> Path:
    """Folder of the colour themes that ship with the program."""
    return resource_dir("themes")


def samples_dir() -> Path:
    """Folder of the sample sessions that ship with the program."""
    return resource_dir("sessions") / "samples"


def native_dir(package: Path = _PACKAGE) -> Path:
    """Folder of what was compiled when the package was built; it need not exist."""
    return package / "_native"


def nano_dir(package: Path = _PACKAGE) -> Path | None:
    """Folder of the bundled trained pair, or None where none is bundled."""
    folder = package / "nano"
    return folder if any(folder.glob("*.gguf")) else None
