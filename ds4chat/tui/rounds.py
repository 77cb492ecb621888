"""What is known of one token and of the round it came from, in lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ds4chat.protocol.events import RoundVerified
from ds4chat.protocol.types import Source, SpecState
from ds4chat.tui import units
from ds4chat.tui.markdown.clean import clean_line
from ds4chat.tui.markdown.ghosts import FEED

MAX_SHOWN = 24  # characters of a token's text

_MEANINGS = {
    Source.ACCEPTED: "drafted, and the target agreed",
    Source.FALLBACK: "the target's own token where the draft was wrong",
    Source.BONUS: "the target's extra token after a block that was right",
    Source.PLAIN: "a plain step: nothing was drafted",
    Source.FORCED: "put there by the program",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFacts:
    """One token of a reply.

    Attributes:
        text: Its text.
        id: Its id.
        source: Where it came from.
        round: The round that decided about it; 0: none.
        position: Place in its block; 0 for the target's own token.
        confidence: The drafter's estimate, None if it was not drafted.
        margin: The target's top-1 minus top-2 logit.
        at_s: Engine seconds that the turn had decoded for.
    """

    text: str
    id: int
    source: Source
    round: int
    position: int
    confidence: float | None
    margin: float
    at_s: float


class Line(NamedTuple):
    """A line of the report; `kind` is what it tells: a source, `ghost`, or empty."""

    text: str
    kind: str = ""


def quoted(text: str) -> str:
    """A token's text so that its spaces show and nothing can style the screen."""
    shown = clean_line(text.replace("\n", FEED))
    return f"'{shown[:MAX_SHOWN]}{'…' if len(shown) > MAX_SHOWN else ''}'"


def token_lines(facts: TokenFacts) -> list[Line]:
    """What is known of a token."""
    place = f" · place {facts.position} in its block" if facts.position else ""
    known = facts.confidence
    confidence = f" · confidence {known:.2f}" if known is not None else ""
    return [
        Line(f"token {quoted(facts.text)} · id {facts.id}"),
        Line(f"{facts.source}: {_MEANINGS[facts.source]}{place}", str(facts.source)),
        Line(
            f"margin of the target {facts.margin:.2f}{confidence} · "
            f"after {units.seconds(facts.at_s)} of decoding"
        ),
    ]


def round_lines(event: RoundVerified, chosen: str | None) -> list[Line]:
    """A round: each draft with its confidence and its fate, then times and reason.

    Args:
        event: The round.
        chosen: Text of the target's own token behind the accepted ones, None if unknown.
    """
    lines = [
        Line(f"round {event.round} · {event.n_accepted} of {len(event.proposal_ids)} accepted")
    ]
    known = list(event.confidences) + [float("nan")] * len(event.proposal_texts)
    for place, text in enumerate(event.proposal_texts, start=1):
        fate, kind = _fate(place, event.n_accepted)
        lines.append(
            Line(f"  {place}  {known[place - 1]:.2f}  {fate:<12} {quoted(text)}", kind)
        )
    if chosen is not None:
        is_full = event.n_accepted == len(event.proposal_ids)
        source = Source.BONUS if is_full else Source.FALLBACK
        lines.append(Line(f"  then the target's own   {quoted(chosen)}", str(source)))
    lines.append(
        Line(
            f"draft {units.milliseconds(event.draft_s)} ms · "
            f"verify {units.milliseconds(event.verify_s)} ms"
        )
    )
    if event.decision:
        lines.append(Line(clean_line(event.decision)))
    return lines


def _fate(place: int, n_accepted: int) -> tuple[str, str]:
    if place <= n_accepted:
        return "accepted", str(Source.ACCEPTED)
    return ("wrong", "ghost") if place == n_accepted + 1 else ("not reached", "ghost")


class RejectedTexts(Mapping[int, str]):
    """The text of the rejected drafts of each round that had any; grows with the rounds."""

    def __init__(self, rounds: Mapping[int, RoundVerified]) -> None:
        self._rounds = rounds

    def __getitem__(self, number: int) -> str:
        event = self._rounds[number]
        if event.n_accepted >= len(event.proposal_texts):
            raise KeyError(number)
        return "".join(event.proposal_texts[event.n_accepted :])

    def __iter__(self) -> Iterator[int]:
        return (number for number in self._rounds if number in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def why_no_ghosts(rounds: Mapping[int, RoundVerified], spec: SpecState, reason: str) -> str:
    """Why a reply has no rejected drafts to show.

    Args:
        rounds: The reply's rounds.
        spec: Whether the engine speculates now.
        reason: Why it does not.
    """
    n_accepted = sum(event.n_accepted for event in rounds.values())
    if n_accepted:
        return f"No draft of this reply was rejected: all {n_accepted:,} were accepted"
    because = f": {clean_line(reason)}" if reason else ""
    words = {
        SpecState.OFF: "speculation is off (F3)",
        SpecState.PARKED: f"speculation is parked{because}",
        SpecState.UNAVAILABLE: f"speculation is unavailable{because}",
    }
    return f"Nothing was drafted in this reply; {words.get(spec, 'every step was plain')}"
