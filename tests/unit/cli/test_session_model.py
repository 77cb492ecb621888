"""Which model a resumed session goes on with."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ds4chat import settings
from ds4chat.cli import session_model
from ds4chat.cli.keep import Keep
from ds4chat.demo.script import default_info
from ds4chat.engine.fingerprint import fingerprint
from ds4chat.errors import SettingsError
from ds4chat.formats.gguf import GgufFile
from ds4chat.settings import Origin
from ds4chat.store.library import Library
from ds4chat.store.records import OptionsSet
from tests.make_pair import make_pair


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pair(tmp_path_factory.mktemp("pair"), seed=3).base


@pytest.fixture
def model(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made, tmp_path / "base.gguf"))


@pytest.fixture
def kept(model: Path, tmp_path: Path) -> Keep:
    """A session that was written with the model."""
    with GgufFile.open(model) as gguf:
        info = replace(default_info(), path=str(model), fingerprint=fingerprint(gguf))
    session = Library(tmp_path / "sessions").create("talk")
    session.append(OptionsSet(model=info))
    session.close()
    return Keep(root=tmp_path / "sessions", is_usual=False, resume="talk")


def load(given: dict[str, object] | None = None, **environ: str) -> settings.Settings:
    return settings.load(given or {}, environ=environ)


def test_the_sessions_own_model_is_used_and_said(kept: Keep, model: Path) -> None:
    for values in (load(), load(DS4CHAT_MODEL="/another.gguf")):
        choice = session_model.choose(kept, values, other=Path("/other.gguf"))
        assert choice.values.model == str(model)
        assert choice.values.origin("model") is Origin.SESSION
        assert f"the session's own: {model}" in choice.note
        assert "its support file (scripted drafts) does not lie beside it" in choice.note
    (model.parent / "dspark.gguf").touch()
    choice = session_model.choose(kept, load(), other=None)
    assert choice.note.endswith("base.gguf, with dspark.gguf beside it.")
    choice = session_model.choose(kept, load({"support": "/s.gguf"}), other=None)
    assert choice.note.endswith("base.gguf.")


def test_a_model_that_would_be_opened_anyway_is_not_told(kept: Keep, model: Path) -> None:
    link = model.parent / "link.gguf"
    link.symlink_to(model)
    for other in (model, link):
        choice = session_model.choose(kept, load(), other=other)
        assert choice.note.startswith(f"The model is the session's: {model}; its support file")
        (model.parent / "dspark.gguf").touch()
        assert session_model.choose(kept, load(), other=other).note == ""
        assert choice.values.model == str(model)
        (model.parent / "dspark.gguf").unlink()


def test_a_model_of_the_command_line_wins(kept: Keep) -> None:
    values = load({"model": "/named.gguf"})
    choice = session_model.choose(kept, values, other=Path("/other.gguf"))
    assert (choice.values, choice.note) == (values, "")


def test_a_new_chat_has_no_model_of_its_own(kept: Keep) -> None:
    values = load()
    choice = session_model.choose(replace(kept, resume=""), values, other=None)
    assert (choice.values, choice.note) == (values, "")


def test_a_file_that_is_gone_must_be_named(kept: Keep, model: Path) -> None:
    model.unlink()
    with pytest.raises(SettingsError, match="is not there any more") as stopped:
        session_model.choose(kept, load(), other=None)
    assert str(model) in stopped.value.message
    assert stopped.value.hint == "Name the file: ds4chat -m FILE -r talk"


def test_another_file_of_that_name_is_not_taken(kept: Keep, model: Path) -> None:
    data = bytearray(model.read_bytes())
    data[-1] ^= 1
    model.write_bytes(data)
    with pytest.raises(SettingsError, match="is another file now"):
        session_model.choose(kept, load(), other=None)
    values = load(DS4CHAT_MODEL="/another.gguf")
    choice = session_model.choose(kept, values, other=Path("/other.gguf"))
    assert choice.values is values
    assert choice.note.startswith(f"The session's model {model} is another file now")


def test_a_damaged_file_is_no_crash(kept: Keep, model: Path) -> None:
    model.write_bytes(b"GGUF")
    with pytest.raises(SettingsError, match="cannot be used"):
        session_model.choose(kept, load(), other=None)


def test_a_session_that_cannot_be_read_says_so_later(kept: Keep, tmp_path: Path) -> None:
    (tmp_path / "sessions" / "talk" / "transcript.jsonl").write_bytes(b"no\n")
    choice = session_model.choose(kept, load(), other=None)
    assert choice.note == ""
