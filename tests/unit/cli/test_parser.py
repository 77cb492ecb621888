"""The parser of the subcommands: what was meant, and what there is."""

from __future__ import annotations

import pytest

from ds4chat.cli import bench, doctor, inspect, race, sessions
from ds4chat.cli.parser import Parser

PARSERS = {
    module.__name__.rpartition(".")[2]: module.make_parser
    for module in (bench, doctor, inspect, race, sessions)
}


def refusal(capsys: pytest.CaptureFixture[str], line: str) -> str:
    """What is said of a line that is refused, without the usage above it."""
    name, *words = line.split()
    with pytest.raises(SystemExit) as caught:
        PARSERS[name]().parse_args(words)
    assert caught.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sessions lst", "did you mean list?"),
        ("bench decod", "did you mean decode?"),
        ("race code --jsn", "there is no option '--jsn': did you mean --json?"),
        ("race code --crad=x.svg", "there is no option '--crad': did you mean --card?"),
        ("doctor --repot", "did you mean --report?"),
        ("inspect a.gguf --sha265", "did you mean --sha256?"),
        ("sessions list --jsn", "did you mean --json?"),
        ("sessions export tea --format htm", "did you mean html?"),
        ("bench spec --repat 3", "did you mean --repeat?"),
        ("bench spec --rep 3", "did you mean --repeat?"),  # no abbreviations
        ("bench spec --zzz", "`ds4chat bench spec --help` lists them"),
        ("inspect a.gguf b.gguf", "'b.gguf' is one word too many"),
    ],
)
def test_what_was_meant(capsys: pytest.CaptureFixture[str], line: str, said: str) -> None:
    assert refusal(capsys, line).endswith(said)


@pytest.mark.parametrize("name", ["sessions", "bench"])
def test_a_missing_subcommand_says_what_there_is(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    said = refusal(capsys, name)
    kinds = PARSERS[name]().kinds
    assert len(kinds) > 5
    assert f"WHAT is missing: {', '.join(kinds)}; " in said
    assert f"`ds4chat {name} --help`" in said


@pytest.mark.parametrize("name", PARSERS)
def test_the_usage_is_no_wall(capsys: pytest.CaptureFixture[str], name: str) -> None:
    with pytest.raises(SystemExit):
        PARSERS[name]().parse_args(["--no-such-option"])
    assert len(capsys.readouterr().err.splitlines()) <= 4


def test_rest_is_given_back_where_it_is_asked_for() -> None:
    parser = Parser(prog="x", takes_rest=True)
    assert parser.parse_known_args(["--what", "more"])[1] == ["--what", "more"]
