from __future__ import annotations

from pathlib import Path

import pytest

from ds4chat import settings
from ds4chat.errors import SettingsError
from ds4chat.tui.keymap import load, pretty, remap
from ds4chat.tui.keys import SCREEN_KEYS


def keys_of(table: dict[str, object]) -> dict[str, str]:
    return {row.name: row.keys for row in remap(SCREEN_KEYS, table)}


def test_no_table_changes_nothing() -> None:
    assert remap(SCREEN_KEYS, {}) == SCREEN_KEYS
    assert len({row.name for row in SCREEN_KEYS}) == len(SCREEN_KEYS)


def test_own_keys_with_twins_and_their_names() -> None:
    found = remap(SCREEN_KEYS, {"toggle-spec": "F9, ctrl+k", "help": ["shift+f1"]})
    rows = {row.name: row for row in found}
    assert rows["toggle-spec"].keys == "f9,ctrl+k,alt+9"
    assert rows["toggle-spec"].shown == "F9"
    assert (rows["help"].keys, rows["help"].shown) == ("shift+f1", "Shift+F1")
    assert rows["settings"].keys == "f2,alt+2"


def test_keys_can_be_exchanged_and_twins_never_clash() -> None:
    found = keys_of({"help": "f3", "toggle-spec": "f1"})
    assert (found["help"], found["toggle-spec"]) == ("f3,alt+3", "f1,alt+1")
    found = keys_of({"toggle-spec": "f9", "help": "alt+9"})
    assert (found["toggle-spec"], found["help"]) == ("f9", "alt+9")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"toggle-spec": "f4"}, "f4 is the key of both 'toggle-spec' and 'cycle-colours'"),
        ({"toggle-spec": "alt+4"}, r"alt\+4 is the key of both"),
        ({"tooggle-spec": "f9"}, "no action 'tooggle-spec'"),
        ({"help": "hyper+x"}, "'hyper\\+x' is no key"),
        ({"help": "f25"}, "is no key"),
        ({"help": "x"}, "'x' is needed for typing"),
        ({"help": "enter"}, "needed for typing"),
        ({"help": "shift+a"}, "needed for typing"),
        ({"help": 3}, "3 is not a key"),
        ({"help": []}, "is not a key"),
        ({"help": [1]}, "1 is no key"),
    ],
)
def test_what_cannot_be_used_is_refused(table: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        remap(SCREEN_KEYS, table)


def test_an_unknown_action_names_the_nearest() -> None:
    with pytest.raises(SettingsError) as caught:
        remap(SCREEN_KEYS, {"tooggle-spec": "f9"})
    assert caught.value.hint == "Did you mean 'toggle-spec'?"


@pytest.mark.parametrize(
    ("key", "shown"),
    [("f9", "F9"), ("ctrl+k", "^K"), ("alt+up", "Alt+Up"), ("ctrl+shift+c", "^Shift+C"),
     ("escape", "Escape")],
)  # fmt: skip
def test_pretty(key: str, shown: str) -> None:
    assert pretty(key) == shown


def test_the_table_lies_in_the_settings_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    assert load(path) == load(None) == {}
    path.write_text('temp = 0.5\n[keys]\nhelp = "f9"\n')
    assert load(path) == {"help": "f9"}
    assert settings.load(config_file=path, environ={}).temp == 0.5
    path.write_text("keys = 3\n")
    with pytest.raises(SettingsError, match="not a table"):
        load(path)
