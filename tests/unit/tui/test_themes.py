from __future__ import annotations

from pathlib import Path

import pytest

from ds4chat import paths
from ds4chat.errors import SettingsError
from ds4chat.protocol.types import Source
from ds4chat.tui.themes import DEFAULT, load_theme, load_themes, pick


def shipped(name: str = DEFAULT) -> str:
    return (paths.themes_dir() / f"{name}.toml").read_text(encoding="utf-8")


def test_shipped_themes_load() -> None:
    themes = load_themes([paths.themes_dir()])
    assert {"dark", "light"} <= set(themes)
    dark = pick(themes, "")
    assert dark.screen.dark
    assert not pick(themes, "light").screen.dark
    assert set(dark.palette.sources) == set(Source)
    assert len(set(dark.palette.sources.values())) == len(Source)
    assert dark.screen.variables["source-accepted"] == dark.palette.sources[Source.ACCEPTED]


@pytest.mark.parametrize("name", ["dark", "light"])
def test_source_colours_can_be_read(name: str) -> None:
    """Contrast of 4.5 or more on the surface (WCAG 2.1, 1.4.3)."""
    theme = pick(load_themes([paths.themes_dir()]), name)
    surface = str(theme.screen.surface)
    palette = theme.palette
    for colour in (*palette.sources.values(), *palette.positions, *palette.confidences):
        assert contrast(colour, surface) >= 4.5, colour


def test_own_folder_wins(tmp_path: Path) -> None:
    text = shipped().replace("#55ff55", "#00ff00")
    (tmp_path / "dark.toml").write_text(text, encoding="utf-8")
    themes = load_themes([paths.themes_dir(), tmp_path])
    assert themes["dark"].palette.sources[Source.ACCEPTED] == "#00ff00"


def test_unknown_theme_names_the_nearest() -> None:
    with pytest.raises(SettingsError) as caught:
        pick(load_themes([paths.themes_dir()]), "drak")
    assert "dark" in caught.value.hint


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('accepted = "#55ff55"', 'accepted = "green"', "sources.accepted: 'green'"),
        ('accepted = "#55ff55"', "accepted = 5", "sources.accepted: 5"),
        ('accepted = "#55ff55"', 'acepted = "#55ff55"', "unknown name 'acepted'"),
        ('accepted = "#55ff55"', "", "'accepted' is missing"),
        ("is_dark = true", "is_dark = 1", "is_dark: 1"),
        ("is_dark = true", "is_dark = true\nextra = 1", "unknown name 'extra'"),
        ("is_dark = true", "is_dark = ", "not TOML"),
        ("[position]\ncolours = [", "[position]\ncolours = [] #", "2 to 16 colours"),
    ],
)
def test_a_broken_file_is_refused_with_its_place(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    text = shipped()
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load_theme(path)
    assert str(path) in caught.value.message
    assert words in caught.value.message


def test_a_table_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    names = ("screen", "sources", "position", "confidence")
    path.write_text("is_dark = true\n" + "".join(f"{name} = 3\n" for name in names))
    with pytest.raises(SettingsError, match="screen: 3 is not a table"):
        load_theme(path)


def test_a_file_that_is_too_large_or_no_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"#" * 70_000)
    with pytest.raises(SettingsError, match="the limit is"):
        load_theme(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="not TOML"):
        load_theme(path)
    with pytest.raises(SettingsError, match="cannot be read"):
        load_theme(tmp_path / "absent.toml")


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours (WCAG 2.1)."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
