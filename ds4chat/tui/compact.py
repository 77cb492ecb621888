"""`/compact`: the oldest turns are no longer sent, so that the conversation fits again.

Nothing is forgotten: the turns stay on the screen and in the conversation, and `/compact undo`
sends them again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ds4chat.errors import SettingsError
from ds4chat.tui import units
from ds4chat.tui.controller import ChatController

_SHARE = 2  # at most 1 / 2 of the context is kept


def compact(chat: ChatController, args: str) -> None:
    """Carry out `/compact [N|undo]`.

    Raises:
        SettingsError: the argument is no number of turns, or a reply is running.
    """
    if chat.is_busy:
        raise SettingsError("/compact: a reply is running", "Stop it first (Esc).")
    if args.lower() == "undo":
        _undo(chat)
    elif args:
        _drop(chat, len(chat.conversation.turns) - _number(args))
    else:
        _drop(chat, n_to_drop(chat.conversation.sizes(), _ctx(chat) // _SHARE))
    chat.view.show_now()


def n_to_drop(sizes: Sequence[int], limit: int) -> int:
    """How many of the oldest turns must go so that the rest takes at most `limit` tokens.

    The newest turn always stays.
    """
    n, left = 0, sum(sizes)
    while left > limit and n < len(sizes) - 1:
        left -= sizes[n]
        n += 1
    return n


def _drop(chat: ChatController, n: int) -> None:
    talk = chat.conversation
    before = talk.n_dropped
    if n <= before:
        used = f"{chat.n_context:,} of {_ctx(chat):,} tokens"
        chat.say(
            f"The conversation takes {used}: no turn must go. "
            "/compact N keeps the last N turns."
        )
        return
    talk.n_dropped = n
    _tell(
        chat,
        f"{_turns(n)} at the beginning will not be sent any more; the system text stays.",
        "/compact undo takes that back.",
    )


def _undo(chat: ChatController) -> None:
    n, chat.conversation.n_dropped = chat.conversation.n_dropped, 0
    if n:
        _tell(chat, f"{_turns(n)} at the beginning will be sent again.")
    else:
        chat.say("All turns are sent; there is nothing to undo.")


def _tell(chat: ChatController, what: str, end: str = "") -> None:
    """Say what is sent now and what that costs, once it is known what the engine holds."""
    talk = chat.conversation
    chat.n_context = talk.n_context

    def held(n_tokens: int) -> None:
        if n_tokens:
            talk.n_dropped_held = talk.n_dropped
        chat.n_context = talk.n_context  # what is held may be less than what will be sent
        chat.say(f"{what} {_cost(chat, n_tokens)} {end}".rstrip())
        chat.view.show_now()

    if talk.n_dropped == talk.n_dropped_held:
        chat.say(
            f"{what} The engine still holds that: only the next message is read. {end}".rstrip()
        )
    elif not chat.keeper.compacted(held):
        held(0)


def _cost(chat: ChatController, n_held: int) -> str:
    """What the next message reads, in words."""
    talk = chat.conversation
    n_tokens = max(0, sum(talk.sizes()[talk.n_dropped :]) - n_held)
    found = f"A KV snapshot holds {n_held:,} tokens of that. " if n_held else ""
    if n_tokens == 0:
        return f"{found}Only the next message is read."
    seconds = talk.reading_s(n_tokens)
    time = f", about {units.seconds(seconds)}" if seconds is not None else ""
    return f"{found}The next message reads about {n_tokens:,} tokens again{time}."


def _number(args: str) -> int:
    if not args.isdecimal() or int(args) < 1:
        raise SettingsError(
            f"/compact: {args!r:.60} is not a number of turns to keep", "/compact [N|undo]"
        )
    return int(args)


def _turns(n: int) -> str:
    return "1 turn" if n == 1 else f"{n} turns"


def _ctx(chat: ChatController) -> int:
    return chat.info.ctx if chat.info is not None else 0
