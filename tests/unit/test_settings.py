"""Settings: layers, origins, unusable values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ds4chat import settings
from ds4chat.errors import SettingsError
from ds4chat.settings import Origin
from ds4chat.settings_row import Row, Value

LAYERS = (Origin.FILE, Origin.ENVIRONMENT, Origin.COMMAND_LINE)


def samples(row: Row) -> Sequence[Value]:
    """Three different allowed values, none of them the default."""
    if row.choices:
        return [choice for choice in (*row.choices, *row.choices) if choice != row.default][:3]
    if row.kind is bool:
        return [not row.default] * 3
    if row.kind is str:
        return ["one", "two", "three"]
    low = row.bounds[0] if row.bounds else 0
    return [
        row.kind(low + step) for step in ((1, 2, 3) if row.kind is int else (0.1, 0.2, 0.3))
    ]


def toml(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool | int | float) else f'"{value}"'


@pytest.mark.parametrize("row", settings.rows(), ids=lambda row: row.name)
@pytest.mark.parametrize("given", range(8))
def test_the_strongest_layer_wins_and_is_remembered(
    row: Row, given: int, tmp_path: Path
) -> None:
    chosen = [layer for bit, layer in enumerate(LAYERS) if given & 1 << bit]
    value = dict(zip(LAYERS, samples(row), strict=True))
    config = tmp_path / "config.toml"
    if Origin.FILE in chosen:
        config.write_text(f"{row.name} = {toml(value[Origin.FILE])}\n")
    environ = {row.variable: str(value[Origin.ENVIRONMENT])}
    flags = {row.name: value[Origin.COMMAND_LINE]}

    found = settings.load(
        flags if Origin.COMMAND_LINE in chosen else {},
        config_file=config,
        environ=environ if Origin.ENVIRONMENT in chosen else {},
    )

    expected = chosen[-1] if chosen else Origin.DEFAULT
    assert getattr(found, row.name) == value.get(expected, row.default)
    assert found.origin(row.name) is expected


@pytest.mark.parametrize("row", settings.rows(), ids=lambda row: row.name)
def test_every_row_has_words_and_a_usable_default(row: Row) -> None:
    assert row.doc.endswith(".")
    assert row.parse(row.default, "default") == row.default
    assert row.wanted
    for flag, value in row.shortcuts:
        assert row.parse(value, flag) == value


def test_no_flag_belongs_to_two_settings() -> None:
    flags = [flag for row in settings.rows() for flag in row.flags]
    flags += [flag for row in settings.rows() for flag, _ in row.shortcuts]
    assert len(flags) == len(set(flags))


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("polcy = 'money'", "unknown setting 'polcy'", "'policy'"),
        ("zzz = 1", "unknown setting 'zzz'", "--help"),
        ("policy = 'mony'", "'mony' is not money | window | fixed", "'money'"),
        ("temp = 'hot'", "'hot' is not a number", "temp"),
        ("temp = nan", "nan is not a number", ""),
        ("temp = true", "True is not a number", ""),
        ("top_k = 1.5", "1.5 is not a whole number", ""),
        ("seed = -1", "-1 is not a whole number from 0", ""),
        ("confidence = 1.01", "from 0 to 1", ""),
        ("spec = 1", "1 is not true or false", ""),
        ("system = ['a']", "is not text", ""),
        ("spec", "not TOML", ""),
    ],
)
def test_a_bad_file_is_refused_with_place_and_fix(
    line: str, message: str, hint: str, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(line)
    with pytest.raises(SettingsError) as caught:
        settings.load(config_file=config, environ={})
    assert message in caught.value.message
    assert str(config) in caught.value.message
    assert hint in caught.value.hint


def test_a_file_that_is_no_text_or_a_folder_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="not UTF-8"):
        settings.load(config_file=config, environ={})
    with pytest.raises(SettingsError, match="cannot be read"):
        settings.load(config_file=tmp_path, environ={})
    config.write_bytes(b"#" * (settings.MAX_FILE_BYTES + 1))
    with pytest.raises(SettingsError, match="the limit is"):
        settings.load(config_file=config, environ={})


def test_a_bad_variable_names_itself() -> None:
    with pytest.raises(SettingsError, match="DS4CHAT_TOP_P: '2' is not a number from 0 to 1"):
        settings.load(environ={"DS4CHAT_TOP_P": "2"})
    with pytest.raises(SettingsError, match="DS4CHAT_TMP: unknown setting 'tmp'"):
        settings.load(environ={"DS4CHAT_TMP": "2"})


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("DS4CHAT_POLCY", "Did you mean DS4CHAT_POLICY?"),
        ("DS4CHAT_NONSENSE", "Unset it: `unset DS4CHAT_NONSENSE`."),
    ],
)
def test_an_unknown_variable_names_the_nearest_variable_or_none(
    variable: str, hint: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        settings.load(environ={variable: "x"})
    assert caught.value.hint.startswith(hint)


def test_the_variables_of_the_build_and_the_tests_are_no_settings() -> None:
    others = {"DS4CHAT_BUILD_CPU_BLAS": "0", "DS4CHAT_UPDATE_SNAPSHOTS": "1"}
    assert settings.load(environ=others) == settings.Settings()


def test_bounds_are_numbers_that_can_be_typed() -> None:
    with pytest.raises(SettingsError, match="a whole number from 0 to 9223372036854775807"):
        settings.load({"seed": "x"})
    with pytest.raises(SettingsError, match="a number from 0 to 1048576"):
        settings.load({"kv_budget": "x"})


def test_a_bad_flag_names_itself() -> None:
    with pytest.raises(SettingsError, match="--ctx: 'many' is not a whole number"):
        settings.load({"ctx": "many"}, environ={})


@pytest.mark.parametrize(
    ("word", "value"), [("yes", True), ("OFF", False), ("0", False), ("true", True)]
)
def test_words_for_true_and_false(word: str, value: bool) -> None:
    assert settings.load(environ={"DS4CHAT_SPEC": word}).spec is value


def test_auto_overrides_a_number_of_a_weaker_layer() -> None:
    found = settings.load({"draft_max": "auto"}, environ={"DS4CHAT_DRAFT_MAX": "3"})
    assert found.draft_max is None
    assert found.origin("draft_max") is Origin.COMMAND_LINE


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS4CHAT_SEED", "7")
    assert settings.load().seed == 7


def test_knobs_are_only_those_of_the_window_policy() -> None:
    environ = {"DS4_DSPARK_SCHEDULER": "0", "DS4CHAT_SEED": "1", "HOME": "/h"}
    assert settings.dspark_knobs(environ) == {"DS4_DSPARK_SCHEDULER": "0"}


@pytest.mark.parametrize(("value", "wanted"), [("1", True), ("0", False), ("", False)])
def test_the_block_log_is_asked_for_like_in_ds4(value: str, wanted: bool) -> None:
    assert settings.wants_spec_log({"DS4_DSPARK_SPEC_LOG": value}) is wanted
    assert not settings.wants_spec_log({})


@pytest.mark.parametrize(
    ("color", "is_tty", "environ", "wanted"),
    [
        ("auto", True, {"TERM": "xterm"}, True),
        ("auto", False, {"TERM": "xterm"}, False),
        ("auto", True, {"TERM": "dumb"}, False),
        ("auto", True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        ("auto", True, {"TERM": "xterm", "NO_COLOR": ""}, True),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {"TERM": "xterm"}, False),
    ],
)
def test_color(color: str, is_tty: bool, environ: dict[str, str], wanted: bool) -> None:
    assert settings.wants_color(color, is_tty, environ) is wanted


@pytest.mark.parametrize(("color", "wanted"), [("auto", "1"), ("always", None), ("never", "1")])
def test_textual_gets_its_frame_rate_and_the_color_flag(color: str, wanted: str | None) -> None:
    environ = {"NO_COLOR": "1"}
    settings.prepare_textual(color, environ)
    assert environ["TEXTUAL_FPS"] == "120"
    assert environ.get("NO_COLOR") == wanted


def test_a_frame_rate_of_the_persons_own_is_kept() -> None:
    environ = {"TEXTUAL_FPS": "30"}
    settings.prepare_textual("never", environ)
    assert environ == {"TEXTUAL_FPS": "30", "NO_COLOR": "1"}


def test_editor_prefers_visual() -> None:
    assert settings.editor_command({"VISUAL": "vi", "EDITOR": "ed"}) == "vi"
    assert settings.editor_command({"EDITOR": "ed"}) == "ed"
    assert settings.editor_command({}) == ""


def test_path_variables_leave_out_what_is_empty() -> None:
    environ = {"HOME": "/h", "XDG_DATA_HOME": "", "PATH": "/bin"}
    assert settings.path_variables(environ) == {"HOME": "/h"}
    assert settings.path_variables()["HOME"] == os.environ["HOME"]


def test_mlx_batches_launches_by_number_unless_the_person_says_otherwise() -> None:
    variables = {"MLX_MAX_OPS_PER_BUFFER": "7"}
    settings.prepare_mlx_gpu(variables)
    assert variables["MLX_MAX_OPS_PER_BUFFER"] == "7"
    assert int(variables["MLX_MAX_MB_PER_BUFFER"]) > 100_000


def test_on_is_another_word_for_high_reasoning() -> None:
    row = next(row for row in settings.rows() if row.name == "think")
    assert row.parse("on", "here") == row.parse("high", "here") == "high"
    assert "on" not in row.wanted.split(" | ")
