"""How a chat starts, and what can be changed while it runs. Values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ds4chat.protocol.commands import Load
from ds4chat.protocol.types import Sampling, SpecOptions, ThinkMode
from ds4chat.settings import Settings
from ds4chat.tui.keys import SCREEN_KEYS, KeyRow
from ds4chat.tui.sessions_hook import SessionsPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """What the command line hands to the app.

    Attributes:
        sampling: how the target chooses a token.
        spec: how speculation starts.
        think: None: the model's own default.
        max_tokens: longest reply; None: up to the context.
        system: system text, empty for none.
        theme: name of a theme, empty for the default.
        themes_dirs: folders of theme files; later ones win.
        colour_mode: `off`, `source`, `position` or `confidence`.
        no_color: `NO_COLOR` or `--color never`: attributes instead of colours.
        banner: shown above the transcript, for the tour.
        log_path: the engine's log, named in error messages; empty when there is none.
        keep_reasoning: later turns still read the reasoning of earlier replies.
        ignore_end: end tokens do not end a reply (benchmarks).
        first_command: a slash command that is run when the model is ready.
        state_dir: folder of the prompt's history and of what was copied; None: nothing is kept.
        settings: what this start was asked for; None: the defaults.
        config_file: the person's settings file, for the settings screen.
        sessions: where chats are kept, and which is resumed; None: nothing is kept.
        key_rows: actions with their keys.
        questions: asked one after the other, for a replay.
        choose_files: from a model's name and the load before, the load of that model; raises
            SettingsError. None: another model cannot be opened.
        is_animated: whether the cursor blinks.
    """

    sampling: Sampling = field(default_factory=Sampling)
    spec: SpecOptions = field(default_factory=SpecOptions)
    think: ThinkMode | None = None
    max_tokens: int | None = None
    system: str = ""
    theme: str = ""
    themes_dirs: tuple[Path, ...] = ()
    colour_mode: str = "source"
    no_color: bool = False
    banner: str = ""
    log_path: str = ""
    first_command: str = ""
    keep_reasoning: bool = False
    ignore_end: bool = False
    state_dir: Path | None = None
    settings: Settings | None = None
    config_file: Path | None = None
    sessions: SessionsPlan | None = None
    key_rows: tuple[KeyRow, ...] = SCREEN_KEYS
    questions: tuple[str, ...] = ()
    choose_files: Callable[[str, Load], Load] | None = None
    is_animated: bool = True
