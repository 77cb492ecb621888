"""What the command line does: run targets and print what came of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.fuzz import keep
from tests.fuzz.case import Target
from tests.fuzz.guard import Bars, Outcome
from tests.fuzz.worker import Bench, Finding, Plan, Report, fuzz

_MAX_LABELS = 12


def say(line: str = "") -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run(targets: Sequence[Target], options: argparse.Namespace) -> int:
    """Do what was asked; 1 if a case failed, 2 if there is no such target."""
    bars = Bars(cpu_s=options.bar, wait_s=options.wait)
    by_name = {target.name: target for target in targets}
    if options.replay is not None:
        name, files = keep.read(options.replay)
        with Bench(by_name[name], bars) as bench:
            return _show(bench.run(files))
    unknown = [name for name in options.target if name not in by_name]
    if unknown:
        say(f"no target {unknown[0]!r}; there are: {', '.join(by_name)}")
        return 2
    chosen = [by_name[name] for name in options.target or by_name]
    if options.seed is not None:
        with Bench(chosen[0], bars) as bench:
            return _show(bench.run(bench.case(options.seed)))
    plan = Plan(first=options.first, cpu_s=options.seconds, n_cases=options.cases)
    n_found = sum(_run_one(target, plan, bars, options) for target in chosen)
    return 1 if n_found else 0


def _show(outcome: Outcome) -> int:
    say(f"{outcome.fault or 'sound'}: {outcome.label} {outcome.where}")
    say(f"{outcome.cpu_s:.2f} s CPU, {outcome.peak_bytes / 1e6:.1f} MB")
    if outcome.text:
        say(outcome.text)
    return 0 if outcome.fault is None else 1


def _run_one(target: Target, plan: Plan, bars: Bars, options: argparse.Namespace) -> int:
    report = fuzz(target, plan, bars)
    _print_figures(target, report)
    for finding in report.findings.values():
        _print_finding(target, finding, bars, options)
    return len(report.findings)


def _print_figures(target: Target, report: Report) -> None:
    tally = report.tally
    say(
        f"{target.name}: {tally.n_cases:,} cases in {report.cpu_s:.0f} CPU s "
        f"({tally.n_cases / max(report.cpu_s, 1e-9):.0f} a second), "
        f"{len(tally.labels)} outcomes, {len(report.findings)} findings"
    )
    say(
        f"  worst: {tally.worst_s:.2f} s (case {tally.worst_s_seed}), "
        f"{tally.worst_bytes / 1e6:.1f} MB (case {tally.worst_bytes_seed})"
    )
    for label, n in tally.labels.most_common(_MAX_LABELS):
        say(f"  {n:8,}  {label}")
    if len(tally.labels) > _MAX_LABELS:
        say(f"            and {len(tally.labels) - _MAX_LABELS} more")


def _print_finding(
    target: Target, finding: Finding, bars: Bars, options: argparse.Namespace
) -> None:
    say(f"  FOUND {finding.outcome.key} (case {finding.seed})")
    for line in finding.outcome.text.rstrip().split("\n")[-6:]:
        say(f"    {line[:300]}")
    if options.no_shrink:
        return
    small = keep.shrink(target, finding.seed, finding.outcome, bars)
    place = keep.save(finding, small, options.out)
    say(f"    again: python -m tests.fuzz --target {target.name} --seed {finding.seed}")
    say(f"    small: python -m tests.fuzz --replay {place}")
