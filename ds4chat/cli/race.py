"""`ds4chat race`: plain against speculative decoding, on the screen or line by line.

Exit status: 0 both lanes wrote the same, 1 they did not or the engine failed, 2 usage,
130 interrupted (what was measured is printed all the same).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ds4chat import paths, settings
from ds4chat.cli import arguments, chat, checks, keep, models, start
from ds4chat.cli.parser import Parser
from ds4chat.cli.printers import harmless
from ds4chat.cli.start import Start
from ds4chat.cli.talk import StoppedError, Talk
from ds4chat.client.spawn import EngineProcess
from ds4chat.errors import Ds4Error, ModelFileError, SettingsError
from ds4chat.protocol.engine import EngineLink
from ds4chat.protocol.events import (
    EngineFailed,
    Event,
    PlainStep,
    PolicyChanged,
    RoundVerified,
    TokensCommitted,
    TurnFinished,
)
from ds4chat.protocol.types import ModelInfo, ThinkMode
from ds4chat.tui.race import card_text, files
from ds4chat.tui.race.ask import (
    DEFAULT_MAX_TOKENS,
    OWN_LABEL,
    RaceAsk,
    check_preset,
    conversation,
    prompt_of,
)
from ds4chat.tui.race.card import SpeedCard
from ds4chat.tui.race.desk import RaceDesk
from ds4chat.tui.race.presets import PRESETS
from ds4chat.tui.race.race import Phase, Race
from ds4chat.tui.race.verdict import Outcome

if TYPE_CHECKING:
    from ds4chat.tui.app import Ds4ChatApp

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 128 + signal.SIGINT
DEFAULT_PRESET = "code"
REPLACES = "--force replaces it."
REPORT_EVERY = 32  # tokens of both lanes between two lines on standard error

USAGE = "ds4chat race [PRESET | PROMPT] [--card FILE [--force]] [--json] [settings]"
DESCRIPTION = "One prompt in two lanes of one engine: plain decoding against speculation."
EPILOG = "presets:\n" + "\n".join(
    f"  {preset.name:<7} {preset.case:<10} {preset.why}" for preset in PRESETS.values()
)

MakeLink = Callable[[Path], EngineLink]


def run(argv: Sequence[str], make_link: MakeLink = EngineProcess) -> int:
    """Race; returns the exit status.

    Raises:
        SettingsError: the arguments cannot be used.
        Ds4Error: the model cannot be opened.
    """
    found = vars(make_parser().parse_args(argv))
    own = {name: found.pop(name) for name in ("what", "card", "force", "json")}
    words = _words(own["what"])
    card = Card(name=own["card"], replaces=own["force"])
    card.check()
    dirs = paths.UserDirs.from_variables(settings.path_variables())
    values = settings.load(found, config_file=dirs.config_file)
    checks.theme(values, dirs)
    pair = models.choose(values, paths.nano_dir())
    if pair is None:
        print(models.where_from(keep.program()), file=sys.stderr)
        return EXIT_USAGE
    if pair.support is None:
        if pair.note:
            raise SettingsError(f"nothing can be raced: {pair.note}")
        raise SettingsError(
            f"no support file lies beside {pair.model}, so there is nothing to race",
            "Name one with --support FILE.",
        )
    how = start.make(values, pair)
    log_path = dirs.log_file()
    link = make_link(log_path)
    if not own["json"] and _is_screen():
        leave = _Leave(card)
        return chat.open_chat(
            link, how, values, log_path, first_command=f"/race {words}", on_exit=leave
        )
    printer = JsonLines(sys.stdout) if own["json"] else TextLines(sys.stdout, sys.stderr)
    return race_in_lines(link, how, words, printer, card)


def _words(typed: Sequence[str]) -> str:
    """What to race: a preset or a prompt. Raises SettingsError for an empty prompt."""
    words = " ".join(typed) if typed else DEFAULT_PRESET
    if not words.strip():
        raise SettingsError("the prompt is empty", f"Presets: {', '.join(PRESETS)}.")
    check_preset(words)
    return words


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Where the speed card goes; `name` None: nowhere. `replaces`: it may be there already."""

    name: str | None = None
    replaces: bool = False

    def check(self) -> None:
        """Refuse a name before anything is measured. Raises SettingsError."""
        if self.name is not None:
            path = files.check_card_name(self.name)
            if not self.replaces:
                files.check_new(path, REPLACES)

    def save(self, card: SpeedCard) -> None:
        """Write it and say where. Raises SettingsError."""
        if self.name is not None:
            path = files.save_card(card, self.name, replaces=self.replaces, hint=REPLACES)
            print(f"ds4chat: the speed card is in {path}", file=sys.stderr)


def make_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        prog="ds4chat race", usage=USAGE, description=DESCRIPTION, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument(
        "what", nargs="*", metavar="PRESET | PROMPT",
        help=f"{', '.join(PRESETS)}, or any prompt (default {DEFAULT_PRESET})",
    )  # fmt: skip
    parser.add_argument(
        "--card", metavar="FILE", help="write the speed card: FILE.svg, .txt or .json"
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it is there")
    parser.add_argument("--json", action="store_true", help="JSON Lines, the card last")
    arguments.add_settings(parser)
    return parser


def _is_screen() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and not settings.is_dumb_terminal()


class _Leave:
    """After the screen: write the card, print it, and decide the exit status."""

    def __init__(self, card: Card) -> None:
        self._card = card

    def __call__(self, app: Ds4ChatApp) -> int:
        """Look at the last race of `app`."""
        try:
            card = app.chat_screen.speed_card()
        except SettingsError:
            return EXIT_OK  # left before the end of a race
        return _conclude(card, TextLines(sys.stdout, sys.stderr), self._card)


class TextLines:
    """The card on `out`; how far the lanes are on `err`."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out, self._err = out, err
        self._n_said = 0

    def model(self, info: ModelInfo) -> None:
        """Say what was opened."""
        self._say(f"{info.name}, {info.backend}, {info.device}")

    def take(self, race: Race, event: Event) -> None:
        """Say now and then where the lanes are."""
        n_tokens = race.plain.n_tokens + race.spec.n_tokens
        if n_tokens - self._n_said >= REPORT_EVERY or race.is_over:
            self._n_said = n_tokens
            lanes = (
                f"{side} {lane.n_tokens} tok in {lane.clock_s:.2f} s"
                for side, lane in race.lanes.items()
            )
            if isinstance(event, TokensCommitted | TurnFinished):
                self._say("; ".join(lanes))

    def card(self, card: SpeedCard) -> None:
        """Print the card."""
        self._out.write(card_text.as_text(card))
        self._out.flush()

    def _say(self, words: str) -> None:
        print(f"ds4chat: {harmless(words)}", file=self._err)


class JsonLines:
    """One JSON object a line on `out`: model, tokens and rounds by lane, the card."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def model(self, info: ModelInfo) -> None:
        """What was opened."""
        self._put("model", dataclasses.asdict(info))

    def take(self, race: Race, event: Event) -> None:
        """One event of a lane."""
        kinds: dict[type, str] = {
            TokensCommitted: "tokens",
            RoundVerified: "round",
            PlainStep: "plain_step",
            PolicyChanged: "policy",
            TurnFinished: "receipt",
        }
        kind = kinds.get(type(event))
        if kind is None:
            return
        fields: dict[str, Any] = dataclasses.asdict(event)
        turn_id = fields.pop("turn_id")
        lane = next(lane for lane in race.lanes.values() if lane.turn_id == turn_id)
        self._put(kind, {"lane": str(lane.side), **fields})

    def card(self, card: SpeedCard) -> None:
        """The card."""
        self._put("card", dataclasses.asdict(card))

    def _put(self, kind: str, fields: dict[str, Any]) -> None:
        self._out.write(json.dumps({"event": kind, **fields}) + "\n")
        self._out.flush()


Lines = TextLines | JsonLines
NO_CARD = Card()


def race_in_lines(
    link: EngineLink, how: Start, words: str, printer: Lines, where: Card = NO_CARD
) -> int:
    """Race without a screen; returns the exit status. An interrupt ends it with what it has.

    Raises:
        Ds4Error: the model cannot be opened or raced, or the card cannot be written.
    """
    talk, desk = Talk(link), RaceDesk()
    try:
        with talk.running():
            info = _load(talk, how)
            if info.block_size == 0:
                raise SettingsError(
                    "the support file cannot be used, so there is nothing to race",
                    "; ".join(info.notes),
                )
            printer.model(info)
            race = Race(link.send, talk.number, ask_of(how, info, words))
            desk.add(race, info, how.load.support_path)
            race.start()
            was_interrupted = _watch(talk, desk, race, printer)
            card = desk.card(race)
            status = _conclude(card, printer, where)
    except StoppedError as stopped:
        return stopped.status
    if race.phase is Phase.FAILED:
        raise Ds4Error(f"the race failed: {race.trouble}")
    return EXIT_INTERRUPTED if was_interrupted else status


def _load(talk: Talk, how: Start) -> ModelInfo:
    """Open both files: without the support file there is nothing to race."""
    load = dataclasses.replace(how.load, needs_support=True)
    try:
        return talk.load(load, lambda _: None)
    except ModelFileError as error:
        raise start.refusal(error, load) from error


def ask_of(how: Start, info: ModelInfo, words: str) -> RaceAsk:
    """What is raced, from the settings. A preset is raced without reasoning."""
    label, prompt = prompt_of(words)
    think = how.think or info.think_default
    return RaceAsk(
        label=label,
        messages=conversation(how.system, prompt),
        think=think if label == OWN_LABEL else ThinkMode.OFF,
        sampling=how.sampling,
        spec=how.spec,
        max_tokens=how.max_tokens or DEFAULT_MAX_TOKENS,
    )


def _watch(talk: Talk, desk: RaceDesk, race: Race, printer: Lines) -> bool:
    """Take events until both lanes have ended; returns whether a person stopped them."""
    was_interrupted = False
    while not race.is_over:
        event = talk.next_event()
        if isinstance(event, int):
            if was_interrupted or event != signal.SIGINT:
                raise StoppedError(event)
            was_interrupted = True
            race.stop()
        elif desk.report(event) is race:
            printer.take(race, event)
        elif isinstance(event, EngineFailed) and event.fatal:
            return was_interrupted  # the desk has told the race
    return was_interrupted


def _conclude(card: SpeedCard, printer: Lines, where: Card) -> int:
    printer.card(card)
    where.save(card)
    return EXIT_FAILED if card.verdict.outcome is Outcome.DIFFERENT else EXIT_OK
