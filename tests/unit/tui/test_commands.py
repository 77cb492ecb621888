from __future__ import annotations

import pytest

from ds4chat.errors import SettingsError
from ds4chat.tui import sessions_commands
from ds4chat.tui.commands import COMMANDS, complete, last_code_block, parse

WANTED = {
    *("help", "keys", "quit", "new", "clear", "retry", "undo", "stop", "answer", "restart"),
    *("stats", "why", "model", "spec", "draft-max", "confidence", "colors", "panel", "fold"),
    *("think", "nothink", "think-max", "temp", "top-p", "top-k", "min-p", "seed"),
    *("max-tokens", "system", "read", "copy", "race", "card", "compact"),
    *("theme", "settings", "search", "ghosts", "edit", "empty", "suspend"),
    *("ctx", "inspect", "doctor", "bench"),
    *("resume", "save", "list", "rename", "del", "undelete", "strip", "export"),
    *("fork", "branches", "branch", "goto", "takeover"),
}


def test_the_commands_are_the_promised_ones() -> None:
    assert set(COMMANDS) == WANTED


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/help", ("help", "")),
        ("  /Temp   0.7 ", ("temp", "0.7")),
        ("/system two\nlines", ("system", "two\nlines")),
        ("/draft-max\t3", ("draft-max", "3")),
        ("/usr/bin", None),
        ("/", None),
        ("/ help", None),
        ("/1", None),
        ("hello /help", None),
        ("//help", None),
        ("/[red]", None),
    ],
)
def test_parse(text: str, found: tuple[str, str] | None) -> None:
    assert parse(text) == found


def test_complete_names_then_values() -> None:
    assert [offer.text for offer in complete("/dr")] == ["/draft-max "]
    spec = ["/spec on", "/spec off", "/spec auto"]
    assert [offer.text for offer in complete("/spec ")] == spec
    assert [offer.text for offer in complete("/spec of")] == ["/spec off"]
    assert complete("/spec off") == []
    assert complete("hello") == []
    assert complete("/system a\nb") == []
    assert complete("/nothing ") == []


@pytest.mark.parametrize(
    ("typed", "text", "wants_words"),
    [
        ("/stat", "/stats", False),
        ("/mod", "/model ", False),  # [FILE]
        ("/rea", "/read ", True),  # FILE
        ("/spec of", "/spec off", False),
    ],
)
def test_only_what_cannot_run_yet_wants_words(typed: str, text: str, wants_words: bool) -> None:
    (offer,) = complete(typed)
    assert (offer.text, offer.wants_words) == (text, wants_words)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("no code", None),
        ("```py\na\n```\n\n```\nb\n```\n", "b\n"),
        ("````\n```\ninner\n```\n````\n", "```\ninner\n```\n"),
        ("~~~\nx\n~~~", "x\n"),
        ("```\nnot closed\n", "not closed\n"),
        ("inline ```x``` only", None),
    ],
)
def test_last_code_block(text: str, code: str | None) -> None:
    assert last_code_block(text) == code


@pytest.mark.parametrize(
    ("usage", "message", "hint"),
    [
        ("/del NAME", "/del wants NAME", "/list shows the names"),
        ("/goto BRANCH|TURN", "/goto wants BRANCH|TURN", "/branches shows both"),
        ("/rename NAME", "/rename wants NAME", "/rename NAME"),
    ],
)
def test_a_command_alone_says_what_it_wants(usage: str, message: str, hint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        sessions_commands._wanted("", usage)
    assert (caught.value.message, caught.value.hint) == (message, hint)
