"""`ds4chat race` over the real engine process: without a screen, and on one."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import pytest

from ds4chat.cli import race
from ds4chat.cli.main import main
from ds4chat.client.spawn import EngineProcess
from ds4chat.demo import Reply, Script, ScriptedEngine
from ds4chat.protocol.commands import Load
from ds4chat.tui.app import Ds4ChatApp
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.race.race import Phase
from ds4chat.tui.race.verdict import Outcome
from ds4chat.tui.screens.race import RaceScreen
from tests.make_pair import PairPaths, make_pair

TEMPERED = ("--temp", "1", "--seed", "5", "--policy", "fixed")  # a text that does not end soon


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    return make_pair(tmp_path_factory.mktemp("pair"), seed=31)


def argv(pair: PairPaths, *rest: str) -> list[str]:
    files = ["-m", str(pair.base), "--support", str(pair.support), "--backend", "cpu"]
    return ["race", *files, "-c", "512", *TEMPERED, *rest]


def test_both_lanes_write_the_same(
    pair: PairPaths, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    card_path = tmp_path / "card.json"
    card_path.write_text("my notes")
    words = argv(pair, "-n", "30", "--json", "--card", str(card_path), "count")
    assert main(words) == 2
    said = capsys.readouterr()
    assert "card.json: it is there already\n  --force replaces it." in said.err
    assert (said.out, card_path.read_text()) == ("", "my notes")
    assert main([*words, "--force"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    card = events[-1]
    assert card.pop("event") == "card"
    assert card == json.loads(card_path.read_text())
    assert card["verdict"]["outcome"] == "identical"
    assert card["prompt_label"] == "count (best case)"
    assert card["plain"]["text_sha256"] == card["spec"]["text_sha256"]
    assert card["plain"]["n_tokens"] == card["spec"]["n_tokens"] == 30
    assert len(card["files"]["model_fingerprint"]) == 64
    assert len(card["files"]["support_fingerprint"]) == 64
    assert card["plain"]["n_rounds"] == 0 < card["spec"]["n_rounds"]
    for side in ("plain", "speculative"):
        spans = [
            token
            for event in events[:-1]
            if event["event"] == "tokens" and event["lane"] == side
            for token in event["spans"]
        ]
        assert len(spans) == 30
        assert all(span["token"]["logit"] is not None for span in spans)
        times = [e["at_s"] for e in events[:-1] if e["event"] == "tokens" and e["lane"] == side]
        assert times == sorted(times)


def test_the_lanes_take_turns(pair: PairPaths, capsys: pytest.CaptureFixture[str]) -> None:
    def link(log_path: Path) -> EngineProcess:
        command = [sys.executable, "-m", "tests.even_engine", "--log", str(log_path)]
        return EngineProcess(log_path, command)

    words = argv(pair, "-n", "20", "--json", "A prompt of my own.")
    assert race.run(words[1:], link) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    order = [line["lane"] for line in lines if line["event"] == "tokens"]
    n_changes = sum(a != b for a, b in itertools.pairwise(order))
    assert n_changes >= 6


def test_text_goes_out_and_progress_aside(
    pair: PairPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv(pair, "-n", "8", "list")) == 0
    said = capsys.readouterr()
    assert said.out.startswith("ds4chat speed card\n")
    assert "identical: all 8 tokens" in said.out
    assert "speculative 8 tok" in said.err


@pytest.mark.parametrize(
    ("rest", "status", "words"),
    [
        (("--card", "card.png"), 2, "must be one of"),
        (("--support", "none"), 2, "nothing to race"),
        (("--ctx", "20"), 1, "the race failed"),
        (("",), 2, "the prompt is empty"),
        (("cod",), 2, "there is no preset 'cod': did you mean code?"),
    ],
)
def test_what_cannot_be_raced(
    pair: PairPaths,
    capsys: pytest.CaptureFixture[str],
    rest: tuple[str, ...],
    status: int,
    words: str,
) -> None:
    assert main(argv(pair, *rest)) == status
    assert words in capsys.readouterr().err


async def test_a_real_race_on_the_screen(pair: PairPaths, tmp_path: Path) -> None:
    link = EngineProcess(tmp_path / "engine.log")
    load = Load(
        request_id=0, model_path=str(pair.base), support_path=str(pair.support),
        backend="cpu", ctx=512,
    )  # fmt: skip
    options = ChatOptions(is_animated=False, max_tokens=24, first_command="/race count")
    app = Ds4ChatApp(link, load, options)
    try:
        async with app.run_test(size=(80, 24)) as pilot:
            for _ in range(6000):
                await pilot.pause(0.01)
                screen = app.screen
                if isinstance(screen, RaceScreen) and screen.race.phase is Phase.FINISHED:
                    break
            assert isinstance(screen, RaceScreen)
            assert screen.race.verdict.outcome is Outcome.IDENTICAL
            card = app.chat_screen.speed_card()
            assert card.plain.n_tokens == card.spec.n_tokens > 0
    finally:
        link.close()


def test_a_difference_fails(
    pair: PairPaths, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(("one two three four", "one two five"))
    monkeypatch.setattr(Script, "choose", lambda _self, _m: Reply(answer=next(answers)))
    status = race.run(
        argv(pair, "count")[1:],
        lambda _path: ScriptedEngine(Script(replies=(Reply(answer=""),)), pace=0),
    )
    assert status == 1
    assert "DIFFERENT at token 3" in capsys.readouterr().out
