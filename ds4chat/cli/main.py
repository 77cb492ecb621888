"""The composition root: the only place that joins the engine's process and the screen."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from ds4chat import paths, settings
from ds4chat.cli import (
    arguments,
    asking,
    busy,
    checks,
    completion,
    crash,
    keep,
    lines,
    models,
    prompts,
    session_lines,
    start,
    vocabulary,
)
from ds4chat.cli.arguments import Arguments
from ds4chat.cli.printers import JsonPrinter, Printer, TextPrinter
from ds4chat.client.spawn import EngineProcess, OnSaid
from ds4chat.errors import Ds4Error, SettingsError
from ds4chat.protocol.engine import EngineLink
from ds4chat.settings import Settings
from ds4chat.sizes import GB
from ds4chat.store.clean import clean_line

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_DEFECT, EXIT_INTERRUPTED = 0, 1, 2, 3, 130

ENGINE_LINES = "ds4: "  # lines of the engine's standard error that are shown


class MakeLink(Protocol):
    """Makes an engine that is not started yet."""

    def __call__(self, log_path: Path, *, on_said: OnSaid | None = None) -> EngineLink:
        """`log_path` is the engine's log; `on_said` takes what it says on standard error."""


def main(argv: Sequence[str] | None = None, make_link: MakeLink = EngineProcess) -> int:
    """Run ds4chat; returns the exit status.

    Args:
        argv: the arguments; None: the process's own.
        make_link: how the engine is reached.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(words, make_link)
    except SettingsError as error:
        return _refuse(error, EXIT_USAGE)
    except Ds4Error as error:
        return _refuse(error, EXIT_FAILED)
    except BrokenPipeError:
        _silence()
        return EXIT_OK
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost frame: see the style page
        crash.tell(error)
        return EXIT_DEFECT


def _dispatch(words: list[str], make_link: MakeLink) -> int:
    if words and words[0] in arguments.COMMANDS:
        command = importlib.import_module(f"ds4chat.cli.{words[0]}")
        return int(command.run(words[1:]))
    given = arguments.parse(words)
    if given.completion is not None:
        print(completion.script(given.completion, vocabulary.program()), end="")
        return EXIT_OK
    dirs = paths.UserDirs.from_variables(settings.path_variables())
    values = settings.load(given.given, config_file=dirs.config_file)
    checks.theme(values, dirs)
    checks.sessions_folder(given.sessions)
    for notice in given.notices:
        print(f"ds4chat: {notice}", file=sys.stderr)
    if given.inspect:
        return _inspect(values)
    return _serve(given, values, dirs, make_link)


def _inspect(values: Settings) -> int:
    from ds4chat.cli import inspect

    if not values.model:
        raise SettingsError("--inspect wants a file", "ds4chat --inspect MODEL")
    return inspect.run([values.model])


def _serve(
    given: Arguments, values: Settings, dirs: paths.UserDirs, make_link: MakeLink
) -> int:
    if given.replay is not None:
        return _replay(given, values, dirs)
    kept = _kept(given, dirs)
    values, kept = _own_model(values, kept)
    pair = models.choose(values, paths.nano_dir())
    if pair is None:
        return _without_model(given, values)
    how = start.make(values, pair)
    _check_knobs()
    if not busy.may_open(pair.model, values.when_busy, _asker()):
        return EXIT_FAILED
    log_path = dirs.log_file()
    if not _wants_lines(given):
        from ds4chat.cli import chat

        return chat.open_chat(make_link(log_path), how, values, log_path, keep=kept)
    return _answer(
        given, values, start.strict(how, pair), make_link(log_path, on_said=_echo), kept
    )


def _answer(
    given: Arguments,
    values: Settings,
    how: start.Start,
    link: EngineLink,
    kept: keep.Keep | None,
) -> int:
    """Without a screen: one answer, or one to each line; a session only if one was named."""
    prompt = prompts.prompt(given)
    printer = _printer(given, values)
    session = None
    if kept is not None:
        budget_bytes = int(values.kv_budget * GB)
        session = session_lines.SessionLines(kept, budget_bytes, _tell)
        how = session.adopt(how, values)
    try:
        if prompt is not None:
            return lines.one_shot(link, how, printer, prompt, session)
        print(lines.GREETING, file=sys.stderr)
        return lines.line_mode(link, how, printer, lines.ask_for_line, session)
    finally:
        if session is not None:
            session.close()


def _tell(line: str) -> None:
    print(f"ds4chat: {clean_line(line)}", file=sys.stderr)


def _replay(given: Arguments, values: Settings, dirs: paths.UserDirs) -> int:
    from ds4chat.cli import replay

    if _wants_lines(given):
        raise SettingsError("--replay needs the full screen", "Leave -p and pipes out.")
    return replay.run(given, values, dirs)


def _kept(given: Arguments, dirs: paths.UserDirs) -> keep.Keep | None:
    """Where the chat is kept; None: answers on standard output are not, by themselves."""
    if not _wants_lines(given) or given.resume is not None or given.is_continued:
        return keep.choose(given, dirs)
    return None


def _own_model(values: Settings, kept: keep.Keep | None) -> tuple[Settings, keep.Keep | None]:
    """Go on with the model of the session that is resumed."""
    if kept is None or not kept.resume:
        return values, kept
    from ds4chat.cli import session_model

    other = models.model_file(values, paths.nano_dir())
    choice = session_model.choose(kept, values, other=other)
    notes = (choice.note,) if choice.note else ()
    return choice.values, replace(kept, notes=notes)


def _check_knobs() -> None:
    """Refuse unusable variables of ds4's scheduler now, and not in the engine's process."""
    knobs = settings.dspark_knobs()
    if knobs:
        from ds4chat.engine.policy_window import WindowKnobs

        WindowKnobs.from_mapping(knobs)


def _asker() -> busy.Ask | None:
    is_answered = sys.stdin.isatty() and sys.stderr.isatty()
    return asking.read_line if is_answered else None


def _echo(line: str) -> None:
    if line.startswith(ENGINE_LINES):
        print(line, file=sys.stderr)


def _wants_lines(given: Arguments) -> bool:
    is_screen = sys.stdin.isatty() and sys.stdout.isatty() and not settings.is_dumb_terminal()
    return given.is_one_shot or given.json or not is_screen


def _printer(given: Arguments, values: Settings) -> Printer:
    if given.json:
        return JsonPrinter(sys.stdout)
    return TextPrinter(
        sys.stdout,
        sys.stderr,
        shows_thinking=values.show_thinking,
        is_verbose=given.verbose,
        shows_loading=sys.stderr.isatty() and not settings.is_dumb_terminal(),
    )


def _without_model(given: Arguments, values: Settings) -> int:
    """Say where models come from; on a terminal, offer the recorded tour."""
    print(models.where_from(keep.program()), file=sys.stderr)
    if _wants_lines(given):
        return EXIT_USAGE
    answer = asking.read_line(
        "\nOpen the recorded tour instead (no model, made-up text)? [Y/n] "
    )
    if answer is None or answer.strip().lower() not in ("", "y", "yes"):
        return EXIT_OK  # an answer, not a mistake
    from ds4chat.cli import chat
    from ds4chat.demo import TOUR, ScriptedEngine

    return chat.open_chat(ScriptedEngine(TOUR), start.make(values, None), values, None)


def _refuse(error: Ds4Error, status: int) -> int:
    print(f"ds4chat: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"  {error.hint}", file=sys.stderr)
    return status


def _silence() -> None:
    """Nobody reads standard output any more: keep the interpreter from complaining at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
