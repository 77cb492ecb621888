"""Slash commands: one table for the prompt, its completion, the palette and the help screen."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ds4chat import settings
from ds4chat.errors import SettingsError
from ds4chat.protocol.types import Policy, ThinkMode
from ds4chat.settings_row import nearest
from ds4chat.tui import compact, ledger, program_commands, reporting, sessions_commands
from ds4chat.tui.command_host import CommandHost, Offer, SlashCommand
from ds4chat.tui.problems import sentence
from ds4chat.tui.race import card_text, files
from ds4chat.tui.race.presets import PRESETS

MAX_READ_BYTES = 1 << 20
THIS_CHAT = "For this chat; F2 keeps it for later ones."

_COMMAND = re.compile(r"/([A-Za-z][A-Za-z-]*)(?:\s+(.*))?", re.DOTALL)
_FENCE = re.compile(
    r"^ {0,3}(`{3,}|~{3,})[^\n]*\n(.*?)(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.M | re.S
)
_THINK_WORDS = {"on": ThinkMode.HIGH} | {str(mode): mode for mode in ThinkMode}


def parse(text: str) -> tuple[str, str] | None:
    """Name and arguments if the text is a command; None if it is a message.

    Only a word of letters after the slash makes a command, so that paths are messages.
    """
    found = _COMMAND.fullmatch(text.strip())
    return (found[1].lower(), (found[2] or "").strip()) if found else None


def execute(host: CommandHost, name: str, args: str) -> bool:
    """Run a command; False if there is none of that name. Errors become notices."""
    command = COMMANDS.get(name)
    if command is None:
        near = nearest(name, COMMANDS)
        hint = f"Did you mean /{near}?" if near else "/help lists all commands."
        host.chat.say(f"There is no command /{name}. {hint}", "error")
        return False
    if name != "ctx":
        host.chat.asked_ctx = None  # its question is answered at once or not at all
    try:
        command.run(host, args)
    except SettingsError as error:
        host.chat.say(sentence(error.message, error.hint), "error")
    return True


def complete(text: str) -> list[Offer]:
    """What could follow in the prompt, best first."""
    if not text.startswith("/") or "\n" in text:
        return []
    name, space, typed = text[1:].partition(" ")
    if not space:
        return [_offer(c) for c in COMMANDS.values() if c.name.startswith(name.lower())]
    command = COMMANDS.get(name.lower())
    values = command.values if command is not None else ()
    return [
        Offer(text=f"/{name} {value}", shown=f"/{name} {value}")
        for value in values
        if value.startswith(typed) and value != typed
    ]


def _offer(command: SlashCommand) -> Offer:
    return Offer(
        text=f"/{command.name}" + (" " if command.args else ""),
        shown=f"{command.usage}  {command.summary}",
        wants_words=command.wants_words,
    )


def last_code_block(text: str) -> str | None:
    """Content of the last fenced block of a Markdown text, an unclosed one too."""
    blocks = _FENCE.findall(text)
    return blocks[-1][1] if blocks else None


# The handlers.


def _parsed(name: str, args: str) -> Any:
    """Check an argument by the settings table. Raises SettingsError."""
    row = next(row for row in settings.rows() if row.name == name)
    return row.parse(args, "/" + name.replace("_", "-"))


def _sampling(name: str, field: str) -> Callable[[CommandHost, str], None]:
    def run(host: CommandHost, args: str) -> None:
        chat = host.chat
        if not args:
            chat.say(f"{name}: {getattr(chat.sampling, field)}")
            return
        value = _parsed(name, args)
        chat.sampling = replace(chat.sampling, **{field: value})
        chat.say(f"{name}: {value}{chat.next_reply()}. {THIS_CHAT}")
        chat.view.show_now()

    return run


def _max_tokens(host: CommandHost, args: str) -> None:
    chat = host.chat
    if args:
        chat.max_tokens = _parsed("max_tokens", args)
    limit = chat.max_tokens
    words = f"{limit:,} tokens" if limit is not None else "up to the context"
    said = f"Longest reply: {words}{chat.next_reply() if args else ''}."
    chat.say(f"{said} {THIS_CHAT}" if args else said)


def _spec(host: CommandHost, args: str) -> None:
    chat, word = host.chat, args.lower()
    changes: dict[str, dict[str, Any]] = {
        "on": {"enabled": True, "policy": Policy.FIXED},
        "off": {"enabled": False},
        "auto": {"enabled": True, "policy": Policy.MONEY},
    }
    if word in changes:
        chat.set_spec(replace(chat.spec, **changes[word]))
    elif word:
        raise SettingsError(f"/spec: {args!r:.60} is not on, off or auto")
    chat.say(reporting.speculation(chat))


def _draft_max(host: CommandHost, args: str) -> None:
    chat = host.chat
    if args:
        chat.set_spec(replace(chat.spec, draft_max=_parsed("draft_max", args)))
    limit = chat.spec.draft_max
    chat.say(f"Drafts a round: {'the whole block' if limit is None else f'at most {limit}'}.")


def _confidence(host: CommandHost, args: str) -> None:
    chat = host.chat
    if args:
        chat.set_spec(replace(chat.spec, confidence_threshold=_parsed("confidence", args)))
    limit = chat.spec.confidence_threshold
    words = "the policy's own" if limit is None else f"{limit:g}"
    chat.say(f"Confidence threshold: {words}.")


def _think(host: CommandHost, args: str) -> None:
    word = args.lower()
    if not word:
        host.chat.say(f"Thinking: {host.chat.think}. /think low, high, max or off changes it.")
    elif word in _THINK_WORDS:
        host.chat.set_think(_THINK_WORDS[word])
    else:
        raise SettingsError(f"/think: {args!r:.60} is not low, high, max or off")


def _system(host: CommandHost, args: str) -> None:
    if args.lower() == "off":
        host.chat.set_system("")
    elif args:
        host.chat.set_system(args)
    else:
        host.chat.say(f"System text: {host.chat.conversation.system or 'none'}")


def _why(host: CommandHost) -> None:
    turn = host.chat.conversation.last_finished
    known = turn.usage if turn is not None else None
    words = ledger.why(known) if known is not None else "There is no finished reply yet."
    host.chat.say("\n".join(part for part in (words, host.chat.support_trouble) if part))


def _model(host: CommandHost, args: str) -> None:
    chat = host.chat
    if not args:
        chat.say(reporting.model(chat))
        return
    if not chat.can_restart or chat.choose_files is None:
        raise SettingsError(
            "/model FILE: a model is loaded, and one start has one model",
            "Leave with /quit, then: ds4chat -m FILE",
        )
    chat.load = chat.choose_files(args, chat.load)
    support = chat.load.support_path
    with_it = f" with {Path(support).name}" if support else ""
    chat.say(f"Opening {chat.load.model_path}{with_it}.")
    chat.restart()


def _copy(host: CommandHost, args: str) -> None:
    if args.lower() not in ("", "code"):
        raise SettingsError(f"/copy: {args!r:.60} is not 'code'", "/copy copies the answer.")
    turn = host.chat.conversation.last_answered
    if turn is None:
        host.chat.say("There is no answer to copy yet.")
    elif not args:
        host.copy(turn.answer_text, "The last answer")
    elif (code := last_code_block(turn.answer_text)) is None:
        host.chat.say("The last answer has no code block.")
    else:
        host.copy(code, "The last code block")


def _colours(host: CommandHost, args: str) -> None:
    if args:
        host.set_colours(args.lower())
    else:
        host.action_cycle_colours()


def _read(host: CommandHost, args: str) -> None:
    if not args:
        raise SettingsError("/read wants a file", "/read FILE")
    path = Path(args).expanduser()
    try:
        if path.is_dir():
            raise SettingsError(f"{path}: a folder", "Name a file in it.")
        if not path.exists():
            raise SettingsError(f"{path}: there is no such file", "Check the path.")
        if not path.is_file():
            raise SettingsError(f"{path}: neither a file nor a folder", "Name a text file.")
        size = path.stat().st_size
        if size > MAX_READ_BYTES:
            raise SettingsError(f"{path}: {size:,} bytes; the limit is {MAX_READ_BYTES:,}")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8 text") from error
    host.fill_prompt(text.rstrip("\n"))
    host.chat.say(f"{path.name} is in the prompt; Enter sends it.")


def _theme(host: CommandHost, args: str) -> None:
    if args:
        host.set_theme(args)
        host.chat.say(f"Theme: {args}. For this run; F2 keeps one for later ones.")
    else:
        host.chat.say(f"Themes: {', '.join(host.theme_names())}. /theme NAME takes one.")


def _card(host: CommandHost, args: str) -> None:
    card = host.speed_card()
    if args:
        host.chat.say(f"The speed card is in {files.save_card(card, args)}.")
    else:
        host.chat.say(card_text.as_text(card).rstrip())


def _fixed_think(mode: ThinkMode) -> Callable[[CommandHost, str], None]:
    return lambda host, _: host.chat.set_think(mode)


def _table() -> dict[str, SlashCommand]:
    def row(
        name: str,
        summary: str,
        run: Callable[[CommandHost, str], None],
        args: str = "",
        values: tuple[str, ...] = (),
    ) -> SlashCommand:
        return SlashCommand(name=name, args=args, summary=summary, run=run, values=values)

    rows = (
        row("help", "words, keys and commands", lambda host, _: host.action_help()),
        row("keys", "the key list", lambda host, _: host.action_keys()),
        row("quit", "leave", lambda host, _: host.action_quit()),
        row("suspend", "to the shell; fg returns", lambda host, _: host.action_suspend()),
        row("new", "a new, empty conversation", lambda host, _: host.chat.new_chat()),
        row("clear", "the same as /new", lambda host, _: host.chat.new_chat()),
        row("retry", "answer the last message again", lambda host, _: host.chat.retry()),
        row("undo", "take the last message back", lambda host, _: host.chat.undo()),
        row("stop", "stop the reply", lambda host, _: _stop(host)),
        row("answer", "stop reasoning and answer", lambda host, _: host.chat.answer_now()),
        row("restart", "start a dead engine again", lambda host, _: host.chat.restart()),
        row(
            "stats",
            "figures of this chat",
            lambda host, _: host.chat.say(reporting.stats(host.chat)),
        ),
        row("why", "what the last reply cost, in words", lambda host, _: _why(host)),
        row("model", "what is loaded; after a refusal: open FILE", _model, "[FILE]"),
        row("spec", "speculation", _spec, "on|off|auto", ("on", "off", "auto")),
        row("draft-max", "most drafts a round", _draft_max, "N|auto", ("auto",)),
        row("confidence", "drop drafts below this", _confidence, "F|auto", ("auto",)),
        row("theme", "another theme", _theme, "[NAME]"),
        row("settings", "all settings", lambda host, _: host.action_settings()),
        row("search", "find text", lambda host, args: host.search(args), "[TEXT]"),
        row("ghosts", "rejected drafts of a turn", lambda host, _: host.action_ghosts()),
        row("edit", "prompt in your editor", lambda host, _: host.action_edit_prompt()),
        row("empty", "empty the prompt", lambda host, _: host.action_empty_prompt()),
        row("colors", "what the colours mean", _colours, "MODE", _MODES),
        row("panel", "show or hide the panel", lambda host, _: host.action_toggle_panel()),
        row("fold", "fold or unfold reasoning", lambda host, _: host.action_toggle_fold()),
        row(
            "think",
            "how much to reason",
            _think,
            "low|high|max|off",
            ("low", "high", "max", "off"),
        ),
        row("nothink", "do not reason", _fixed_think(ThinkMode.OFF)),
        row("think-max", "reason with maximal effort", _fixed_think(ThinkMode.MAX)),
        row(
            "temp", "temperature; 0 takes the likeliest", _sampling("temp", "temperature"), "F"
        ),
        row("top-p", "nucleus sampling", _sampling("top_p", "top_p"), "F"),
        row("top-k", "the K likeliest; 0: all", _sampling("top_k", "top_k"), "N"),
        row("min-p", "share of the likeliest", _sampling("min_p", "min_p"), "F"),
        row("seed", "seed of the sampling", _sampling("seed", "seed"), "N"),
        row("max-tokens", "longest reply", _max_tokens, "N|auto", ("auto",)),
        row(
            "compact",
            "drop the oldest turns",
            lambda host, args: compact.compact(host.chat, args),
            "[N|undo]",
            ("undo",),
        ),
        row("system", "the system text", _system, "TEXT|off", ("off",)),
        row("read", "put a file into the prompt", _read, "FILE"),
        row(
            "race",
            "plain against speculative",
            lambda host, args: host.race(args),
            "[preset|prompt]",
            tuple(PRESETS),
        ),
        row("card", "the last race's speed card", _card, "[FILE.svg|.txt|.json]"),
        row("copy", "copy the last answer or code", _copy, "[code]", ("code",)),
        *program_commands.ROWS,
        *sessions_commands.ROWS,
    )
    return {command.name: command for command in rows}


def _stop(host: CommandHost) -> None:
    if not host.chat.stop():
        host.chat.say("Nothing runs that could be stopped.")


_MODES = ("off", "source", "position", "confidence")
COMMANDS = _table()
