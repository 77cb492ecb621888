"""Settings to protocol values, and prompts from files."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from ds4chat import settings
from ds4chat.cli import models, start
from ds4chat.errors import SettingsError
from ds4chat.protocol.types import Policy, Sampling, SpecOptions, ThinkMode


def test_every_setting_reaches_its_place(tmp_path: Path) -> None:
    values = settings.load(
        {
            "backend": "cpu", "ctx": "512", "kv_fp8": False, "spec": False, "policy": "fixed",
            "draft_max": "3", "confidence": "0.5", "temp": "0.7", "top_p": "0.9", "top_k": "40",
            "min_p": "0.05", "seed": "9", "max_tokens": "7", "system": "Be brief.",
            "think": "max",
        },
        environ={},
    )  # fmt: skip
    pair = models.Pair(model=tmp_path / "a.gguf", support=tmp_path / "b.gguf")
    made = start.make(values, pair)
    spec = SpecOptions(
        enabled=False, policy=Policy.FIXED, confidence_threshold=0.5, draft_max=3
    )
    assert made.load.model_path == str(tmp_path / "a.gguf")
    assert made.load.support_path == str(tmp_path / "b.gguf")
    assert (made.load.backend, made.load.ctx, made.load.kv_fp8) == ("cpu", 512, False)
    assert made.load.spec == made.spec == spec
    assert made.sampling == Sampling(temperature=0.7, top_k=40, top_p=0.9, min_p=0.05, seed=9)
    assert (made.max_tokens, made.system, made.think) == (7, "Be brief.", ThinkMode.MAX)


def test_words_of_settings_are_words_of_the_protocol() -> None:
    rows = {row.name: row for row in settings.rows()}
    assert set(rows["policy"].choices) == set(Policy)
    assert set(rows["think"].choices) == set(ThinkMode)


def test_a_stronger_layer_decides_which_system_prompt(tmp_path: Path) -> None:
    file = tmp_path / "system.txt"
    file.write_text("from file\n")
    in_file = {"DS4CHAT_SYSTEM_FILE": str(file)}

    def system(given: dict[str, object], environ: dict[str, str]) -> str:
        return start.make(settings.load(given, environ=environ), None).system

    assert system({}, in_file) == "from file"
    assert system({"system": "typed"}, in_file) == "typed"
    assert system({"system_file": str(file)}, {"DS4CHAT_SYSTEM": "typed"}) == "from file"
    with pytest.raises(SettingsError, match="a system prompt and a file"):
        system({"system": "typed", "system_file": str(file)}, {})


@pytest.mark.parametrize(
    ("raw", "text"), [(b"a\n", "a"), (b"a\r\n", "a"), (b"a\n\n", "a\n"), ("é".encode(), "é")]
)
def test_a_prompt_file_loses_one_newline(raw: bytes, text: str, tmp_path: Path) -> None:
    file = tmp_path / "prompt"
    file.write_bytes(raw)
    assert start.read(str(file)) == text


def test_unreadable_prompts_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        start.read(str(tmp_path / "nothing"))
    with pytest.raises(SettingsError, match="cannot be read"):
        start.read(str(tmp_path))
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(SettingsError, match=r"not UTF-8 text \(byte 3\)"):
        start.read(str(tmp_path / "latin"))
    monkeypatch.setattr(start, "MAX_PROMPT_BYTES", 2)
    (tmp_path / "long").write_bytes(b"abc")
    with pytest.raises(SettingsError, match="larger than 2 bytes"):
        start.read(str(tmp_path / "long"))


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"piped\n")))
    assert start.read("-") == "piped"
