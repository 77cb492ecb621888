"""Opens the full screen, and leaves the terminal as it was."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ds4chat import paths, settings
from ds4chat.cli import keep as keeping
from ds4chat.cli import models
from ds4chat.cli.start import Start
from ds4chat.protocol.engine import EngineLink
from ds4chat.sizes import GB

if TYPE_CHECKING:
    from ds4chat.tui.app import Ds4ChatApp

EXIT_OK, EXIT_DEFECT = 0, 3

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _plain_interrupts() -> Iterator[None]:
    """Until the screen listens, Ctrl+C ends the process as other signals do.

    As a KeyboardInterrupt it may arise in a callback of the import system, which drops it.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@_plain_interrupts()
def open_chat(
    link: EngineLink,
    start: Start,
    values: settings.Settings,
    log_path: Path | None,
    *,
    keep: keeping.Keep | None = None,
    first_command: str = "",
    on_exit: Callable[[Ds4ChatApp], int] | None = None,
) -> int:
    """Run the chat until the person leaves; returns the exit status.

    Args:
        link: the engine, not started; ended here in any case.
        start: how replies are asked for.
        values: for the looks.
        log_path: the engine's log; None: the recorded tour, which has no engine.
        keep: where the chat is saved; None: nowhere.
        first_command: a slash command to run when the model is ready.
        on_exit: called after a person left; gives the exit status.

    Raises:
        SettingsError: the theme or a key cannot be used.
    """
    settings.prepare_textual(values.color)
    from ds4chat.tui import keymap
    from ds4chat.tui.app import TOUR_BANNER, Ds4ChatApp
    from ds4chat.tui.keys import SCREEN_KEYS
    from ds4chat.tui.options import ChatOptions
    from ds4chat.tui.sessions_hook import SessionsPlan

    dirs = paths.UserDirs.from_variables(settings.path_variables())
    options = ChatOptions(
        sampling=start.sampling,
        spec=start.spec,
        think=start.think,
        max_tokens=start.max_tokens,
        system=start.system,
        keep_reasoning=start.keep_reasoning,
        ignore_end=start.ignore_end,
        theme=values.theme,
        themes_dirs=(paths.themes_dir(), dirs.config_root / "themes"),
        state_dir=dirs.log_dir(),
        settings=values,
        config_file=dirs.config_file,
        key_rows=keymap.remap(SCREEN_KEYS, keymap.load(dirs.config_file)),
        no_color=not settings.wants_color(values.color, is_tty=True),
        banner=start.banner or (TOUR_BANNER if log_path is None else ""),
        questions=start.questions,
        choose_files=models.other if log_path is not None else None,
        log_path=str(log_path or ""),
        first_command=first_command,
        sessions=SessionsPlan(
            root=keep.root,
            is_usual=keep.is_usual,
            resume=keep.resume,
            notes=keep.notes,
            kv_budget_bytes=int(values.kv_budget * GB),
        )
        if keep is not None
        else None,
    )
    app = Ds4ChatApp(link, start.load, options)

    def leave() -> None:
        try:
            link.close()
        finally:
            keeping.finish(app, _named(values, "model"), _named(values, "support"))

    status = asyncio.run(_run(app, leave))
    return on_exit(app) if on_exit is not None and status == EXIT_OK else status


def _named(values: settings.Settings, name: str) -> str:
    """A file, if the command line named it."""
    is_named = values.origin(name) is settings.Origin.COMMAND_LINE
    return str(getattr(values, name) or "") if is_named else ""


async def _run(app: Ds4ChatApp, leave: Callable[[], None]) -> int:
    """Run the app, then `leave`: a signal ends the app, and breaks off nothing behind it."""
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, app.exit, None, 128 + number)
    try:
        await app.run_async()
    finally:
        for number in _SIGNALS:
            loop.add_signal_handler(number, _leaves_already)
        await loop.shutdown_default_executor()  # an engine that is restarted at this moment
        leave()
    status = app.return_code or EXIT_OK
    return EXIT_DEFECT if status == 1 else status  # 1 is how Textual says: an exception


def _leaves_already() -> None:
    """Nothing is left to be stopped by a signal."""
