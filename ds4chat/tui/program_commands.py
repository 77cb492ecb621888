"""Slash commands that run another part of the program, or load the model anew."""

from __future__ import annotations

import shlex
from dataclasses import replace

from ds4chat import sizes
from ds4chat.errors import SettingsError
from ds4chat.settings import rows
from ds4chat.tui import units
from ds4chat.tui.command_host import CommandHost, SlashCommand
from ds4chat.tui.controller import ChatController

BENCHES = ("decode", "prefill", "verify", "spec", "open", "ui")
_OF_A_MODEL = frozenset(BENCHES[:4])
LARGE_BYTES = 4 << 30  # a second copy of a larger model may not fit beside the chat's


def _inspect(host: CommandHost, args: str) -> None:
    path = args or host.chat.load.model_path
    if not path:
        raise SettingsError("/inspect wants a file: no model file is open", "/inspect FILE")
    host.run_program(("inspect", path))


def _doctor(host: CommandHost, args: str) -> None:
    if args:
        raise SettingsError(f"/doctor: {args!r:.60} is not wanted", "ds4chat doctor --help")
    host.run_program(("doctor",))


def _bench(host: CommandHost, args: str) -> None:
    what = args or BENCHES[0]
    if what not in BENCHES:
        raise SettingsError(f"/bench: {what!r:.60} is none of {', '.join(BENCHES)}")
    if what not in _OF_A_MODEL:
        host.run_program(("bench", what))
        return
    chat = host.chat
    if chat.info is None or not chat.load.model_path:
        raise SettingsError("/bench: no model file is open", "/race works without one.")
    load = chat.load
    words = ["bench", what, "--model", load.model_path]
    words += ["--support", load.support_path] if load.support_path else []
    if chat.info.weight_bytes > LARGE_BYTES:
        raise SettingsError(
            f"/bench: a second copy of {sizes.size(chat.info.weight_bytes)} may not fit beside "
            "the chat's",
            f"Leave, then: ds4chat {shlex.join(words)}",
        )
    host.run_program(tuple(words))


def _ctx(host: CommandHost, args: str) -> None:
    chat = host.chat
    info = chat.info
    if info is None:
        raise SettingsError("/ctx: no model is loaded", "--ctx N at the start")
    if not args:
        chat.say(
            f"Context: {info.ctx:,} tokens, {chat.n_context:,} of them used. /ctx N changes it."
        )
        return
    wanted = _wanted(args)
    if chat.is_busy:
        raise SettingsError("/ctx: a reply runs", "Esc stops it.")
    if wanted > info.ctx_trained:
        chat.asked_ctx = None
        raise SettingsError(
            f"/ctx: {wanted:,} tokens; the model was trained for {info.ctx_trained:,}",
            f"A start with --ctx {wanted} does it all the same.",
        )
    if wanted == chat.load.ctx == info.ctx:
        chat.say(f"The context has {wanted:,} tokens already.")
    elif chat.asked_ctx != wanted:
        chat.asked_ctx = wanted
        chat.say(_price(chat, wanted), "warning")
    else:
        chat.asked_ctx = None
        chat.load = replace(chat.load, ctx=wanted)
        chat.reload()


def _wanted(args: str) -> int:
    row = next(row for row in rows() if row.name == "ctx")
    value = row.parse(args, "/ctx")
    if not isinstance(value, int):
        raise SettingsError("/ctx: auto is for the start", "/ctx N")
    return value


def _price(chat: ChatController, wanted: int) -> str:
    """What another context costs, and how to agree."""
    assert chat.info is not None
    load = f"The model is loaded anew for that (it took {units.seconds(chat.info.load_s)})"
    reads = ""
    if chat.n_context:
        reads = (
            f", and where no saved state fits, the next message reads all "
            f"{chat.n_context:,} tokens again{chat.prefill_cost()}"
        )
    return f"{load}{reads}. /ctx {wanted} once more does it."


ROWS = (
    SlashCommand(name="ctx", args="[N]", summary="context in tokens", run=_ctx),
    SlashCommand(name="inspect", args="[FILE]", summary="what is in a file", run=_inspect),
    SlashCommand(name="doctor", args="", summary="check this machine", run=_doctor),
    SlashCommand(
        name="bench", args="[WHAT]", summary="measure this machine", run=_bench, values=BENCHES
    ),
)
