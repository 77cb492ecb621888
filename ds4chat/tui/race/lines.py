"""The figures around the lanes as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ds4chat.protocol.types import FinishReason, SpecState
from ds4chat.tui import units
from ds4chat.tui.markdown.clean import clean_line
from ds4chat.tui.race.ask import RaceAsk, Side
from ds4chat.tui.race.lane import Lane
from ds4chat.tui.race.race import Phase, Race

_FULL, _EMPTY = "█", "░"
_RIGHT, _WRONG, _UNSEEN = "■", "×", "□"
_TITLES = {Side.PLAIN: "PLAIN", Side.SPEC: "SPECULATIVE"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How far a lane is shown: as it runs, or in a replay."""

    n_tokens: int
    clock_s: float


def now(lane: Lane) -> Shown:
    """The lane as it is."""
    return Shown(n_tokens=lane.n_tokens, clock_s=lane.clock_s)


def title(lane: Lane, shown: Shown) -> str:
    """`PLAIN   12.3 s   214 tok   17.4 tok/s`: seconds of the lane's own engine clock."""
    words = f"{_TITLES[lane.side]:<12}{shown.clock_s:6.2f} s{shown.n_tokens:5d} tok"
    if shown.n_tokens and shown.clock_s > 0:
        words += f"{shown.n_tokens / shown.clock_s:6.1f} tok/s"
    return words + _ending(lane, shown)


def detail(lane: Lane) -> str:
    """How the lane decodes: accept length and blocks, or one pass a token."""
    if lane.prefill is not None and not lane.tokens:
        return f"reading the prompt: {lane.prefill.n_done:,} of {lane.prefill.n_total:,} tokens"
    if lane.side is Side.PLAIN:
        return "one target pass a token"
    if lane.accept_len is None:
        return _state(lane) or "no block yet"
    parts = [f"accept {lane.accept_len:.2f}", f"blocks {lane.counts.n_rounds}"]
    if lane.last is not None:
        n_tested = len(lane.last.proposal_ids)
        parts.append(f"last {block(lane.last.n_accepted, n_tested)}")
    if lane.n_plain_steps:
        parts.append(f"{lane.n_plain_steps} plain")
    return " · ".join([*parts, _state(lane)]).removesuffix(" · ")


def block(n_accepted: int, n_tested: int) -> str:
    """`■■■×□ 3/5`: accepted, the one that was wrong, never looked at."""
    wrong = _WRONG if n_accepted < n_tested else ""
    rest = _UNSEEN * (n_tested - n_accepted - len(wrong))
    return f"{_RIGHT * n_accepted}{wrong}{rest} {n_accepted}/{n_tested}"


def goal(race: Race) -> int:
    """The tokens of a full bar: the limit, or what was written once a lane has ended."""
    lanes = race.lanes.values()
    if all(lane.end is None for lane in lanes):
        return race.ask.max_tokens
    return max(lane.n_tokens for lane in lanes)


def track(shown: Shown, goal: int, width: int) -> str:
    """A bar: how much of the goal is written."""
    n_full = min(width, width * shown.n_tokens // max(1, goal))
    return _FULL * n_full + _EMPTY * (width - n_full)


def heading(ask: RaceAsk, model: str) -> str:
    """What is raced."""
    heat = ask.sampling.temperature
    return clean_line(
        f"race  {ask.label} · {model} · temp {heat:g} · at most {ask.max_tokens} tok"
        f" · think {ask.think}"
    )


def too_small(least: tuple[int, int], found: tuple[int, int]) -> str:
    """What a window is told that cannot show a race."""
    columns, rows = least
    return (
        f"The race needs {columns} x {rows} characters; this window has {found[0]} x "
        f"{found[1]}. The race goes on; Esc leaves it."
    )


def keys(found: Sequence[tuple[str, str]], columns: int) -> str:
    """As many keys as fit; the last one, the way back, always."""
    kept, last = [f"{key} {word}" for key, word in found[:-1]], " ".join(found[-1])
    while kept and len("  ".join([*kept, last])) > columns - 2:
        kept.pop()
    return "  ".join([*kept, last])


def standing(race: Race) -> str:
    """Where the race stands, with the live ratio; the verdict when it is over."""
    if race.phase is Phase.FAILED:
        return clean_line(f"failed: {race.trouble}")
    ratio = f"{race.ratio:.2f}x" if race.ratio is not None else "-"
    if race.phase is not Phase.FINISHED:
        return f"{race.phase} · ratio so far {ratio}"
    same = race.plain.text_sha256 == race.spec.text_sha256
    hashes = race.plain.text_sha256[:12] + ("" if same else f" / {race.spec.text_sha256[:12]}")
    return clean_line(f"ratio {ratio} · {race.verdict.words()} · text {hashes}")


def times(lane: Lane) -> str:
    """What a round or step cost on average; empty before the end."""
    usage = lane.usage
    if usage is None or not usage.n_rounds + usage.n_plain_steps:
        return ""
    if usage.n_rounds:
        draft = units.milliseconds(usage.draft_s / usage.n_rounds)
        verify = units.milliseconds(usage.verify_s / usage.n_rounds)
        return f"draft {draft} + verify {verify} ms a block"
    return f"{units.milliseconds(usage.plain_s / usage.n_plain_steps)} ms a step"


def _state(lane: Lane) -> str:
    if lane.state is SpecState.ON:
        return ""
    return clean_line(lane.why or str(lane.state))


def _ending(lane: Lane, shown: Shown) -> str:
    if lane.end is None or shown.n_tokens < lane.n_tokens:
        return ""
    is_limit = lane.end.reason is FinishReason.LENGTH
    return " limit" if is_limit else f" {lane.end.reason}"  # fits a lane of 100 columns
