"""The chat screen: lays out the widgets and joins them to the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.layout import Layout
from textual.timer import Timer
from textual.widgets import Static, TextArea

from ds4chat.errors import Ds4Error, SettingsError
from ds4chat.protocol.commands import Load
from ds4chat.protocol.engine import EngineLink
from ds4chat.protocol.events import EngineFailed, Event, ModelReady
from ds4chat.protocol.types import SpecState
from ds4chat.tui import bridge, commands, memory, reporting
from ds4chat.tui.controller import ChatController, Phase
from ds4chat.tui.history import FILE, History
from ds4chat.tui.keys import SCREEN_KEYS
from ds4chat.tui.markdown.clean import clean_line
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.palette import ColourMode
from ds4chat.tui.race import begin
from ds4chat.tui.race.card import SpeedCard
from ds4chat.tui.race.desk import RaceDesk
from ds4chat.tui.reports import EngineReports
from ds4chat.tui.screens.help import HelpScreen
from ds4chat.tui.screens.leaving import LeavingScreen
from ds4chat.tui.screens.palette import CommandProvider
from ds4chat.tui.screens.race import RaceLook, RaceScreen
from ds4chat.tui.stack_layout import StackLayout
from ds4chat.tui.themes import DEFAULT, ChatTheme, pick
from ds4chat.tui.title import set_title
from ds4chat.tui.widgets.completion import CompletionList
from ds4chat.tui.widgets.crash import CrashBox
from ds4chat.tui.widgets.header import HeaderLine
from ds4chat.tui.widgets.hint_line import HintLine
from ds4chat.tui.widgets.keybar import KeyBar
from ds4chat.tui.widgets.panel import SpeculationPanel
from ds4chat.tui.widgets.prompt import PromptArea
from ds4chat.tui.widgets.search_bar import SearchBar
from ds4chat.tui.widgets.status import StatusLines
from ds4chat.tui.widgets.transcript import Transcript

PANEL_MIN_COLUMNS = 100
LOW_ROWS = 6  # below, every row is needed
TICK_S = 1.0
REDRAW_S = 0.2  # how late figures may be that change with every token
LONG_REPLY_S = 10.0  # replies of this length ring the bell when nobody looks

_MEANINGS: Mapping[ColourMode, str] = {
    ColourMode.OFF: "off",
    ColourMode.SOURCE: "source of each token",
    ColourMode.POSITION: "position in the block",
    ColourMode.CONFIDENCE: "the drafter's confidence",
}


class ChatScreen(LeavingScreen):
    """One chat. It is the controller's view and the commands' host."""

    CSS_PATH = "chat.tcss"
    COMMANDS: ClassVar = {CommandProvider}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            row.keys, row.action, row.summary, show=False, priority=row.is_priority, id=row.name
        )
        for row in SCREEN_KEYS
    ]

    def __init__(
        self,
        link: EngineLink,
        load: Load,
        options: ChatOptions,
        themes: Mapping[str, ChatTheme],
    ) -> None:
        super().__init__()
        self.transcript = Transcript(id="transcript")
        self.chat = ChatController(link, load, options, self)
        self.reports = EngineReports(self.chat)
        self.keep_sessions(options)
        self.races = RaceDesk()
        self._link = link
        self._options = options
        self._themes = themes
        self._theme_name = options.theme or DEFAULT
        self._palette = pick(themes, options.theme).palette
        self._header = HeaderLine(self.chat)
        self.state_dir = options.state_dir
        self._panel = SpeculationPanel()
        self._status = StatusLines()
        self._hints = HintLine()
        self._completion = CompletionList(commands.complete)
        self._prompt = PromptArea(
            self.chat.take_back_queued,
            self._completion,
            history=History(self.state_dir and self.state_dir / FILE),
            is_animated=options.is_animated,
        )
        self._keybar = KeyBar(self.chat, options.key_rows)
        self._search = SearchBar()
        self._crash = CrashBox()
        self._is_panel_wanted = True
        self._first_command = options.first_command
        self._redraw: Timer | None = None
        self._layout = StackLayout()
        self._link_lock = asyncio.Lock()  # closing and restarting take turns

    def compose(self) -> ComposeResult:
        """Header, transcript beside panel, status, prompt, keys."""
        yield self._header
        if self._options.banner:
            yield Static(clean_line(self._options.banner), id="banner", markup=False)
        with Horizontal(id="body"):
            yield self.transcript
            yield self._panel
        yield self._search
        yield self._crash
        yield self._status
        yield self._completion
        with Horizontal(id="prompt-row"):
            yield Static("> ", id="prompt-sign", markup=False)
            yield self._prompt
        yield self._keybar
        yield self._hints

    @property
    def layout(self) -> Layout:
        """Header at the top, keys at the bottom, however low the window is."""
        return self._layout

    def on_mount(self) -> None:
        """Colours and focus."""
        self.transcript.set_theme_colours(self._palette)
        self.transcript.set_colour_mode(ColourMode(self._options.colour_mode))
        self._prompt.focus()
        self._fit_panel()
        self.show_now()
        self.call_after_refresh(self.resume_first)
        self.set_interval(TICK_S, self._tick)

    def _tick(self) -> None:
        """Let a long load count its seconds."""
        if self.chat.phase is Phase.LOADING:
            self._status.show(self.chat)

    def report(self, event: Event) -> None:
        """Take in an event of the engine."""
        if self.races.report(event) is None and not self.kept(event):
            bridge.route(event, self.reports)
            self.ask_next(event)
        if isinstance(event, ModelReady) and (first := commands.parse(self._first_command)):
            self._first_command = ""
            commands.execute(self, *first)

    # The controller's view.

    def show_now(self) -> None:
        """Redraw everything around the transcript."""
        if not self.is_mounted:
            return
        self._header.show()
        self._panel.show(self.chat.figures, self.transcript.colour_mode)
        self._status.show(self.chat)
        self._crash.show(self.chat)
        self._keybar.show()
        set_title(self.app, self.window_title())

    def show_soon(self) -> None:
        """Redraw a little later, once for many calls."""
        if self._redraw is None and self.is_mounted:
            self._redraw = self.set_timer(REDRAW_S, self._redraw_now)

    def _redraw_now(self) -> None:
        self._redraw = None
        self.show_now()

    def fill_prompt(self, text: str) -> None:
        """Put text into the prompt, before the draft."""
        self._prompt.fill(text)
        self._prompt.focus()

    def restart_engine(self) -> None:
        """Restart the link on another thread."""
        self.run_worker(self._restart(), group="engine")

    def close_engine(self) -> None:
        """Close the link on another thread."""
        self.run_worker(self._close(), group="engine")

    def redrawn(self) -> None:
        """Keep the collector off what was put on the screen."""
        memory.settle_again()
        self.show_now()

    def reply_ended(self, seconds: float) -> None:
        """Ring for a long reply when nobody looks."""
        if seconds >= LONG_REPLY_S and not self.app.app_focus:
            self.app.bell()

    async def _restart(self) -> None:
        async with self._link_lock:
            try:
                await asyncio.to_thread(self._link.restart)
            except Ds4Error as error:
                self.report(EngineFailed(message=error.message, hint=error.hint))

    async def _close(self) -> None:
        async with self._link_lock:
            await asyncio.to_thread(self._link.close)

    # What the prompt says.

    @on(PromptArea.Sent)
    def _send(self, event: PromptArea.Sent) -> None:
        """Run a command or ask; an unknown command comes back."""
        command = commands.parse(event.text)
        if command is None:
            self.chat.send_text(event.text)
        elif not commands.execute(self, *command):
            self._prompt.fill(event.text)

    @on(TextArea.Changed)
    def _offer(self) -> None:
        self._completion.offer("" if self._prompt.is_recalled else self._prompt.text)

    @on(PromptArea.ScrollWanted)
    def _scroll(self, event: PromptArea.ScrollWanted) -> None:
        if event.pages < 0:
            self.transcript.scroll_page_up(animate=False)
        else:
            self.transcript.scroll_page_down(animate=False)

    @on(PromptArea.QuitWanted)
    def _quit_wanted(self) -> None:
        self.action_quit()

    # Keys.

    def action_help(self) -> None:
        """Show words, keys and commands."""
        self.app.push_screen(HelpScreen(self._options.key_rows))

    def action_keys(self) -> None:
        """Show the key list."""
        self.app.push_screen(HelpScreen(self._options.key_rows, at_keys=True))

    def action_toggle_spec(self) -> None:
        """Speculation on or off."""
        if self.chat.figures.state is SpecState.UNAVAILABLE:
            self.hint(f"Speculation is unavailable: {self.chat.figures.reason}")
            return
        was_parked = self.chat.figures.state is SpecState.PARKED and self.chat.spec.enabled
        self.chat.toggle_spec()
        self.hint(reporting.switched(self.chat, was_parked=was_parked))

    def action_race(self) -> None:
        """Race the last prompt."""
        commands.execute(self, "race", "")

    def race(self, words: str) -> None:
        """Race a preset, a prompt, or the last prompt. Raises SettingsError."""
        race = begin.begin(self.chat, self.races, words)
        model = self.chat.info.name if self.chat.info is not None else ""
        look = RaceLook(
            model=model, palette=self._palette, colour_mode=self.transcript.colour_mode
        )
        self.app.push_screen(RaceScreen(race, self.speed_card, look))

    def speed_card(self) -> SpeedCard:
        """What the last race measured. Raises SettingsError."""
        return begin.card_of(self.races)

    def action_cycle_colours(self) -> None:
        """The next meaning of the colours."""
        self._set_mode(self.transcript.colour_mode.following())

    def set_colours(self, mode: str) -> None:
        """Choose what the colours mean. Raises SettingsError."""
        try:
            found = ColourMode(mode)
        except ValueError:
            words = ", ".join(ColourMode)
            raise SettingsError(f"/colors: {mode!r:.60} is none of {words}") from None
        self._set_mode(found)

    def _set_mode(self, mode: ColourMode) -> None:
        self.transcript.set_colour_mode(mode)
        self.hint(f"Colours: {_MEANINGS[mode]}")
        self.show_now()

    def action_toggle_panel(self) -> None:
        """Show or hide the panel."""
        if self.size.width < PANEL_MIN_COLUMNS:
            self.hint(
                f"The panel needs {PANEL_MIN_COLUMNS} columns; this terminal has "
                f"{self.size.width}."
            )
            return
        self._is_panel_wanted = not self._is_panel_wanted
        self._fit_panel()

    def action_toggle_fold(self) -> None:
        """Fold or unfold all reasoning."""
        self.transcript.toggle_fold()

    def action_think(self) -> None:
        """Off, on, max; or answer now."""
        self.chat.cycle_think()

    def action_new_chat(self) -> None:
        """Begin an empty conversation."""
        self.chat.new_chat()

    def action_restart(self) -> None:
        """Start a dead engine again."""
        self.chat.restart()

    def action_palette(self) -> None:
        """Find a command by its name."""
        self.app.action_command_palette()

    def action_stop(self) -> None:
        """Stop the reply or the load; else close the list, or leave what was begun."""
        if self.chat.stop() or (self._prompt.has_focus and self._completion.close()):
            self.hold_rewind()
        elif not (self.leave_turns() or self._leave_edit()):
            self.escape_idle()

    def _leave_edit(self) -> bool:
        """Leave the edit of a turn; its question goes from the prompt where it is untouched."""
        editing = self.chat.editing
        turn = self.chat.conversation.find(editing) if editing is not None else None
        if turn is not None:
            self._prompt.drop(turn.question)
        return self.chat.stop_editing()

    def action_copy_answer(self) -> None:
        """Copy the last answer."""
        commands.execute(self, "copy", "")

    def action_copy_code(self) -> None:
        """Copy the last code block."""
        commands.execute(self, "copy", "code")

    def action_suspend(self) -> None:
        """Back to the shell until `fg`."""
        self.app.action_suspend_process()

    # Size and title.

    def on_resize(self) -> None:
        """The panel needs a wide terminal, the rule above the prompt one that is not low."""
        self.set_class(self.size.height < LOW_ROWS, "-low")
        self._fit_panel()

    def _fit_panel(self) -> None:
        is_shown = self._is_panel_wanted and self.size.width >= PANEL_MIN_COLUMNS
        self._panel.set_class(not is_shown, "-hidden")

    def window_title(self) -> str:
        """What the terminal is called: the session once there is one, else the model."""
        desk, info = self.sessions, self.chat.info
        if desk is not None and desk.session is not None:
            return f"{clean_line(desk.session.name)} – ds4chat"
        return f"ds4chat – {clean_line(info.name)}" if info is not None else "ds4chat"
