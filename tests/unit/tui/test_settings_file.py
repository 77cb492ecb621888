"""Writing one setting into a file that people edit."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat import settings
from ds4chat.errors import SettingsError
from ds4chat.settings_row import Value
from ds4chat.tui.settings_file import keep, with_value, written

HANDMADE = '''# my settings
temp = 0.7   # warm
"top_k" = 40 # quoted name
system = """
temp = 9  # inside a text
[keys]
"""  # a poem

# my keys
[keys]
toggle-spec = "f9"
temp = 3
'''


def test_only_the_one_value_changes() -> None:
    new = with_value(HANDMADE, "temp", 1.0)
    assert new == HANDMADE.replace("temp = 0.7   # warm", "temp = 1.0  # warm")


def test_a_quoted_name_and_its_comment() -> None:
    assert "\ntop_k = 5  # quoted name\n" in with_value(HANDMADE, "top_k", 5)


def test_a_value_of_many_lines_is_replaced_whole() -> None:
    new = with_value(HANDMADE, "system", 'a "b" # c\n')
    assert 'system = "a \\"b\\" # c\\n"  # a poem\n\n# my keys\n[keys]' in new
    assert tomllib.loads(new)["system"] == 'a "b" # c\n'


def test_a_new_name_stands_before_the_first_table() -> None:
    new = with_value(HANDMADE, "seed", 7)
    assert '"""  # a poem\nseed = 7\n\n# my keys\n[keys]' in new
    assert with_value("# about keys\n[keys]\n", "seed", 7) == "seed = 7\n# about keys\n[keys]\n"


@pytest.mark.parametrize("text", ["", "\n", "# only a remark\n", "# no end"])
def test_a_file_without_settings(text: str) -> None:
    new = with_value(text, "draft_max", None)
    assert tomllib.loads(new) == {"draft_max": "auto"}
    assert new.startswith(text.rstrip("\n"))
    assert new.endswith("\n")


def test_windows_line_ends_stay() -> None:
    new = with_value("temp = 1.0 # a\r\nseed = 3\r\n", "seed", 4)
    assert new.startswith("temp = 1.0 # a\r\n")
    assert tomllib.loads(new) == {"temp": 1.0, "seed": 4}


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


@given(
    value=st.one_of(
        st.none(),
        st.booleans(),
        st.integers(0, 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_categories=["Cs"])),
    ),
    before=st.lists(st.sampled_from(['a = "#"', "", "# x", "b = [", "1,", "]", 'temp = 1 # "']))
    .map("\n".join)
    .filter(_is_toml),
)
def test_any_value_in_any_file_is_read_back(value: Value, before: str) -> None:
    new = with_value(before, "temp", value)
    expected = {**tomllib.loads(before), "temp": "auto" if value is None else value}
    assert tomllib.loads(new) == expected
    assert tomllib.loads(f"x = {written(value)}")["x"] == expected["temp"]


def test_the_file_is_made_replaced_and_followed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config.toml"
    keep(path, "temp", 0.5)
    assert settings.load({}, config_file=path, environ={}).temp == 0.5
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o640)
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    keep(link, "temp", 0.25)
    assert link.is_symlink()
    assert path.read_text() == "temp = 0.25\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [item.name for item in path.parent.iterdir()] == ["config.toml"]


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"temp = = 1", "line 1"), (b"\xff", "utf-8"), (b"#" * (1 << 21), "large")],
)
def test_a_file_that_cannot_be_used_stays_as_it_is(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=words) as caught:
        keep(path, "temp", 1.0)
    assert "temp was not kept" in caught.value.message
    assert path.read_bytes() == content


def test_a_text_without_utf8_and_a_folder_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("seed = 1\n")
    with pytest.raises(SettingsError, match="not kept"):
        keep(path, "system", "\ud800")
    assert path.read_text() == "seed = 1\n"
    with pytest.raises(SettingsError, match="not kept"):
        keep(path / "config.toml", "seed", 2)
