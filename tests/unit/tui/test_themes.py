from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path

import pytest

from ds4chat import paths
from ds4chat.errors import SettingsError
from ds4chat.protocol.types import Source
from ds4chat.tui.themes import DEFAULT, load_theme, load_themes, pick
from tests.colours import DEUTERANOPIA, NORMAL, PROTANOPIA, Sight, contrast, difference

NAMES = pytest.mark.parametrize("name", ["dark", "light", "high-contrast", "colour-blind"])


def shipped(name: str = DEFAULT) -> str:
    return (paths.themes_dir() / f"{name}.toml").read_text(encoding="utf-8")


def test_shipped_themes_load() -> None:
    themes = load_themes([paths.themes_dir()])
    assert {"dark", "light", "high-contrast", "colour-blind"} == set(themes)
    dark = pick(themes, "")
    assert dark.screen.dark
    assert not pick(themes, "light").screen.dark
    assert set(dark.palette.sources) == set(Source)
    assert len(set(dark.palette.sources.values())) == len(Source)
    assert dark.screen.variables["source-accepted"] == dark.palette.sources[Source.ACCEPTED]


@NAMES
def test_provenance_colours_can_be_read(name: str) -> None:
    """Contrast of 4.5 or more on the surface (WCAG 2.1, 1.4.3 AA)."""
    theme = pick(load_themes([paths.themes_dir()]), name)
    surface = str(theme.screen.surface)
    palette = theme.palette
    for colour in (*palette.sources.values(), *palette.positions, *palette.confidences):
        assert contrast(colour, surface) >= (7 if name == "high-contrast" else 4.5), colour


@NAMES
@pytest.mark.parametrize("sight", [NORMAL, PROTANOPIA, DEUTERANOPIA])
def test_sources_stay_apart_for_every_sight(name: str, sight: Sight) -> None:
    sources = pick(load_themes([paths.themes_dir()]), name).palette.sources
    shown = [colour for source, colour in sources.items() if source is not Source.FORCED]
    for one, other in combinations(shown, 2):
        assert difference(one, other, sight) >= 12, (one, other)


@pytest.mark.parametrize("sight", [NORMAL, PROTANOPIA, DEUTERANOPIA])
def test_in_the_colour_blind_theme_the_scales_stay_apart_too(sight: Sight) -> None:
    palette = pick(load_themes([paths.themes_dir()]), "colour-blind").palette
    for one, other in combinations(palette.positions, 2):
        assert difference(one, other, sight) >= 15, (one, other)
    for one, other in pairwise(palette.confidences):
        assert difference(one, other, sight) >= 15, (one, other)


def test_the_colour_science_knows_red_and_green() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)
    assert difference("#ff0000", "#00ff00") == pytest.approx(170.6, abs=0.5)
    confused = difference("#8a6a00", "#5f7a00", DEUTERANOPIA)
    assert confused < difference("#8a6a00", "#5f7a00") / 2


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
    with pytest.raises(SettingsError, match="not UTF-8"):
        load_theme(path)
    with pytest.raises(SettingsError, match="cannot be read"):
        load_theme(tmp_path / "absent.toml")
