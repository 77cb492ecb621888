"""The flags that people know from the field and from ds4, and what each one sets."""

from __future__ import annotations

import pytest

from ds4chat import __version__, settings
from ds4chat.cli import arguments

SETS: list[tuple[str, dict[str, object]]] = [
    ("-m a.gguf", {"model": "a.gguf"}),
    ("--model a.gguf", {"model": "a.gguf"}),
    ("a.gguf", {"model": "a.gguf"}),
    ("--support s.gguf", {"support": "s.gguf"}),
    ("--mtp s.gguf", {"support": "s.gguf"}),
    ("--mtp-model s.gguf", {"support": "s.gguf"}),
    ("--draft-gguf s.gguf", {"support": "s.gguf"}),
    ("--draft-model s.gguf", {"support": "s.gguf"}),
    ("-md s.gguf", {"support": "s.gguf"}),
    ("--spec", {"spec": True}),
    ("--dspark", {"spec": True}),
    ("--no-spec", {"spec": False}),
    ("--plain", {"spec": False}),
    ("--quality", {"spec": False}),
    ("--spec --plain", {"spec": False}),
    ("--policy window", {"policy": "window"}),
    ("--cpu-blas", {"cpu_blas": True}),
    ("--no-cpu-blas", {"cpu_blas": False}),
    ("--kv-fp8", {"kv_fp8": True}),
    ("--no-kv-fp8", {"kv_fp8": False}),
    ("--draft-max 3", {"draft_max": "3"}),
    ("--draft-max auto", {"draft_max": "auto"}),
    ("--confidence .5", {"confidence": ".5"}),
    ("--dspark-confidence .5", {"confidence": ".5"}),
    ("--temp 1 --top-p .9 --top-k 4 --min-p .1 --seed 5",
     {"temp": "1", "top_p": ".9", "top_k": "4", "min_p": ".1", "seed": "5"}),
    ("-c 99", {"ctx": "99"}),
    ("--ctx 99", {"ctx": "99"}),
    ("-n 9", {"max_tokens": "9"}),
    ("--max-tokens 9", {"max_tokens": "9"}),
    ("--tokens 9", {"max_tokens": "9"}),
    ("-s hi", {"system": "hi"}),
    ("--system hi", {"system": "hi"}),
    ("-sys hi", {"system": "hi"}),
    ("--system-file f", {"system_file": "f"}),
    ("--think-low", {"think": "low"}),
    ("--think", {"think": "high"}),
    ("--think-max", {"think": "max"}),
    ("--nothink", {"think": "off"}),
    ("--show-thinking", {"show_thinking": True}),
    ("--kv-budget 5.5", {"kv_budget": "5.5"}),
    ("--theme light", {"theme": "light"}),
    ("--color never", {"color": "never"}),
    ("--backend cpu", {"backend": "cpu"}),
    ("--metal", {"backend": "metal"}),
    ("--cuda", {"backend": "cuda"}),
    ("--cpu", {"backend": "cpu"}),
    ("--dspark-strict", {"spec": False}),
    ("--wait", {"when_busy": "wait"}),
    ("--no-wait", {"when_busy": "share"}),
    ("--keep-reasoning", {"keep_reasoning": True}),
    ("--drop-reasoning", {"keep_reasoning": False}),
    ("--ignore-eos", {"ignore_eos": True}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "wanted"), SETS, ids=[line for line, _ in SETS])
def test_flag(line: str, wanted: dict[str, object]) -> None:
    given = arguments.parse(line.split()).given
    assert given == wanted
    values = settings.load(given, environ={})
    assert all(values.origin(name) is settings.Origin.COMMAND_LINE for name in wanted)


def test_every_setting_has_a_flag_that_is_tested() -> None:
    assert {name for _, wanted in SETS for name in wanted} == {
        row.name for row in settings.rows()
    }


def test_greedy_means_two_things_and_says_so() -> None:
    found = arguments.parse(["--greedy"])
    assert found.given == {"temp": 0.0, "spec": False}
    assert found.notices == (arguments.GREEDY_NOTICE,)
    assert arguments.parse(["--greedy", "--spec"]).given["spec"] is True


@pytest.mark.parametrize(
    ("line", "notice"),
    [
        ("--mtp-exact-sampling", arguments.EXACT_NOTICE),
        ("--mtp-draft 3", arguments.DRAFT_NOTICE),
    ],
)
def test_ds4_flags_without_effect_say_so(line: str, notice: str) -> None:
    found = arguments.parse(line.split())
    assert found.given == {}
    assert found.notices == (notice,)


def test_one_shot_flags() -> None:
    found = arguments.parse(["-p", "hi", "--json", "-v"])
    assert (found.prompt, found.json, found.verbose, found.is_one_shot) == (
        "hi", True, True, True,
    )  # fmt: skip
    assert arguments.parse(["-f", "x"]).prompt_file == "x"
    assert arguments.parse(["--prompt-file", "x"]).is_one_shot
    assert arguments.parse(["--inspect", "a.gguf"]).inspect
    assert not arguments.parse([]).is_one_shot


def test_session_flags() -> None:
    assert arguments.parse(["-r", "x", "--sessions", "d"]).resume == "x"
    assert arguments.parse(["--resume", "x", "--sessions", "d"]).sessions == "d"
    assert arguments.parse(["--continue"]).is_continued
    assert arguments.parse(["--replay", "x"]).replay == "x"
    nothing = arguments.parse([])
    assert (nothing.resume, nothing.sessions, nothing.replay) == (None, None, None)
    assert not nothing.is_continued


@pytest.mark.parametrize(
    "line",
    [
        "--temperature 1", "--mod a", "--no-such", "a.gguf b.gguf", "a.gguf -m b.gguf",
        "-p hi -f x", "-p", "--theme", "-r x --continue", "-r", "--sessions",
        "--resume x --continue",
    ],
)  # fmt: skip
def test_what_does_not_exist_is_a_usage_error(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        arguments.parse(line.split())
    assert stopped.value.code == 2
    assert "ds4chat: error:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("inspekt x.gguf", "did you mean `ds4chat inspect x.gguf`?"),
        ("sesions list", "did you mean `ds4chat sessions list`?"),
        ("--thme dark", "there is no option '--thme': did you mean --theme?"),
        ("--max-token=3", "there is no option '--max-token': did you mean --max-tokens?"),
        ("hello there", "found 'hello' and 'there'; to ask something: -p TEXT"),
    ],
)
def test_what_was_meant_is_offered(
    line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        arguments.parse(line.split())
    assert stopped.value.code == 2
    assert words in capsys.readouterr().err


def test_the_same_model_twice_is_no_contradiction() -> None:
    assert arguments.parse(["a.gguf", "-m", "a.gguf"]).given == {"model": "a.gguf"}


def test_help_names_every_flag_and_says_what_it_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stopped:
        arguments.parse(["--help"])
    assert stopped.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for row in settings.rows():
        assert row.doc in text
        for flag in (*row.flags, *(flag for flag, _ in row.shortcuts)):
            assert flag in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        arguments.parse(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"ds4chat {__version__}\n"
