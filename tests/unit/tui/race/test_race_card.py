from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ds4chat.demo.script import default_info
from ds4chat.errors import SettingsError
from ds4chat.tui.race import files, machine
from ds4chat.tui.race.ask import Side
from ds4chat.tui.race.card import SpeedCard
from ds4chat.tui.race.card_svg import as_svg
from ds4chat.tui.race.card_text import as_text
from tests.unit.tui.race.made import IDS, card_of, make_race, play

INFO = replace(
    default_info(), path="/secret/home/flash.gguf", fingerprint="ab" * 32,
    support_fingerprint="cd" * 32, name="Flash", quant="q2",
)  # fmt: skip


@pytest.fixture
def card() -> SpeedCard:
    race, _ = make_race()
    play(race, Side.PLAIN)
    play(race, Side.SPEC)
    return card_of(race, INFO)


def test_the_text_has_all_a_sceptic_asks_for(card: SpeedCard) -> None:
    text = as_text(card)
    for part in (
        "10.0 tok/s (5 tokens in 0.50 s", "1.00x", "identical", "flash.gguf", "ab" * 8,
        "support.gguf", "cd" * 8, "code (typical)", "7 tokens", "temperature 0", "policy money",
        "block 5", "context 32,768", "MLX 0.32.4", "ds4chat 0.1.0", "2 cores",
        "2026-01-02T03:04:05+00:00", "one target pass a token", "own lane's engine time",
        card.plain.text_sha256[:16],
    ):  # fmt: skip
        assert part in text, part
    assert "/secret" not in text


def test_json_holds_whole_hashes_and_both_lanes(card: SpeedCard) -> None:
    found = json.loads(card.as_json())
    assert found["format"] == 1
    assert found["files"]["model_fingerprint"] == "ab" * 32
    assert len(found["plain"]["text_sha256"]) == 64
    assert found["verdict"] == {
        "outcome": "identical", "n_equal": 5, "plain": None, "spec": None
    }  # fmt: skip
    assert found["ratio"] == 1.0
    assert "/secret" not in card.as_json()


def test_an_unknown_fingerprint_is_said() -> None:
    race, _ = make_race()
    assert "fingerprint unknown" in as_text(card_of(race))


def test_the_picture_is_xml_with_the_same_lines(card: SpeedCard) -> None:
    picture = as_svg(card)
    root = ElementTree.fromstring(picture)
    texts = " ".join(element.text or "" for element in root.iter() if element.text)
    assert "A <CPU> & more" in texts
    assert "10.0 tok/s" in texts
    assert "identical" in texts
    bars = [e for e in root.iter() if e.tag.endswith("rect")][1:]
    assert [float(bar.get("width", "0")) for bar in bars] == [520.0, 520.0]


def test_hostile_words_cannot_break_the_picture() -> None:
    race, _ = make_race(label="</text>\x1b[2J\x00\ud800]]>")
    play(race, Side.PLAIN)
    play(race, Side.SPEC, (11, 12, 99))
    card = card_of(race, replace(INFO, name="\x07<script>&\ufffe"))
    root = ElementTree.fromstring(as_svg(card))
    assert not [e for e in root.iter() if e.tag.endswith("script")]
    assert "\x1b" not in as_text(card)


def test_a_race_without_tokens_still_has_a_card() -> None:
    race, _ = make_race()
    card = card_of(race)
    assert "no tokens" in as_text(card)
    ElementTree.fromstring(as_svg(card))


@pytest.mark.parametrize("ending", [".svg", ".txt", ".json"])
def test_files_are_written_as_their_ending_says(
    card: SpeedCard, tmp_path: Path, ending: str
) -> None:
    path = files.save_card(card, str(tmp_path / f"card{ending}"))
    assert path.read_text().startswith(
        {".svg": "<svg", ".txt": "ds4chat", ".json": "{"}[ending]
    )
    assert stat.S_ISREG(path.stat().st_mode)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["card", "card.png", "no/such/folder/card.svg"])
def test_what_cannot_be_written_is_said(card: SpeedCard, tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match=r"must be one of|there is no folder"):
        files.save_card(card, str(tmp_path / name))


def test_a_file_is_replaced_only_if_that_is_asked_for(card: SpeedCard, tmp_path: Path) -> None:
    path = tmp_path / "card.txt"
    path.write_text("precious")
    (tmp_path / "card-2.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(SettingsError, match="it is there already") as caught:
        files.save_card(card, str(path))
    assert caught.value.hint == f"For example: /card {tmp_path / 'card-3.txt'}"
    assert path.read_text() == "precious"
    files.save_card(card, str(path), replaces=True)
    assert path.read_text() == as_text(card)


def test_a_report_has_every_token_with_its_logit(card: SpeedCard) -> None:
    race, _ = make_race()
    play(race, Side.PLAIN)
    play(race, Side.SPEC, (11, 12, 99))
    found = json.loads(files.report(race, card_of(race)))
    assert [token["id"] for token in found["lanes"]["plain"]] == list(IDS)
    assert found["lanes"]["speculative"][2]["logit"] == 9.0
    assert found["messages"][-1]["text"] == "Say it."


def test_the_machine_is_named(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nmodel name\t: Some \x1bCPU 3000\n")
    assert machine.look(info).processor == "Some ␛CPU 3000"
    assert machine.look(tmp_path / "missing").processor
    assert machine.look().n_cores >= 1
