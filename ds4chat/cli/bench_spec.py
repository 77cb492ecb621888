"""`ds4chat bench spec`: speculative against plain, in turn within one run.

At given accept lengths (through given proposals; the drafter runs and its time counts), with
the real drafter, and both at once as in a race.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ds4chat.cli import bench_engine
from ds4chat.cli.amounts import MAX_TOKENS, number, whole
from ds4chat.cli.bench_engine import Bench, Row
from ds4chat.errors import SettingsError
from ds4chat.protocol.types import Policy
from ds4chat.tui.race.ask import conversation, prompt_of
from ds4chat.tui.race.presets import PRESETS

if TYPE_CHECKING:
    from ds4chat.engine.bench_runs import Sample
    from ds4chat.engine.engine import Engine

DEFAULT_ACCEPT = (1.0, 2.0, 3.4, 6.0)


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Its own flags."""
    add = parser.add_argument
    add("-n", "--tokens", type=whole(1, MAX_TOKENS), default=64, metavar="N",
        help="tokens a run (default 64)")  # fmt: skip
    add("--accept", type=number(1, 8), nargs="+", metavar="F",
        help="accept lengths to force (default 1 2 3.4 6; block permitting)")  # fmt: skip
    add("--prompt", type=_prompt, default="code", metavar="PRESET | TEXT",
        help=f"{', '.join(PRESETS)}, or any prompt (default code)")  # fmt: skip
    add("--policy", choices=[str(policy) for policy in Policy], default=str(Policy.MONEY),
        help="of the real drafter's runs (default money)")  # fmt: skip
    bench_engine.add_options(parser)


def _prompt(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError(f"it is empty; there are {', '.join(PRESETS)}")
    return text


def _samples(engine: Engine, options: argparse.Namespace) -> Iterator[Sample]:
    from ds4chat.engine import bench_runs

    block = engine.info.block_size
    if block == 0:
        raise SettingsError("there is no support file", "Name one with --support FILE.")
    accept = options.accept or [length for length in DEFAULT_ACCEPT if length <= block + 1]
    if (longest := max(accept)) > block + 1:
        raise SettingsError(
            f"accept length {longest:g}: blocks of {block} reach at most {block + 1}",
            "Give shorter ones with --accept.",
        )
    _, prompt = prompt_of(options.prompt)
    plan = bench_runs.SpecPlan(
        prompt=tuple(engine.render(conversation("", prompt), "off")),
        n=options.tokens,
        accept_lens=tuple(accept),
        policy=Policy(options.policy),
        repeat=options.repeat,
    )
    return bench_runs.spec(engine, plan)


def _rows(samples: list[Sample]) -> list[Row]:
    from ds4chat.engine.bench_runs import BARE, DRAFTER, RACE_PLAIN, RACE_SPEC, SHIPPED

    cases = bench_engine.by_case(samples)
    rows: list[Row] = []
    for case, found in cases.items():
        rows += bench_engine.spread(case, "tok/s", bench_engine.rates(found), _note(found))
    for case in cases:
        if case == DRAFTER or case.startswith("forced"):
            rows += _ratio(cases, case, SHIPPED)
            rows += _ratio(cases, case, BARE)
    rows += _ratio(cases, RACE_PLAIN, BARE)
    return rows + _ratio(cases, RACE_SPEC, DRAFTER)


def _ratio(cases: dict[str, list[Sample]], ours: str, theirs: str) -> list[Row]:
    if ours not in cases or theirs not in cases:
        return []
    ratios = bench_engine.paired(cases[ours], cases[theirs], bench_engine.rate)
    return bench_engine.spread(f"{ours} / {theirs}", "x", ratios)


def _note(found: list[Sample]) -> str:
    parts = []
    lengths = [sample.accept_len for sample in found if sample.accept_len is not None]
    if lengths:
        parts.append(f"accept {sum(lengths) / len(lengths):.2f}")
    n_plain = sum(sample.facts.get("n_plain_steps", 0) for sample in found)
    if n_plain:
        parts.append(f"{n_plain / len(found):.0f} plain steps a run")
    if any(sample.is_identical is False for sample in found):
        parts.append("NOT the plain text")
    elif any(sample.is_identical for sample in found):
        parts.append("identical")
    return ", ".join(parts)


BENCH = Bench(name="spec", title="plain and speculative in turn", samples=_samples, rows=_rows)
