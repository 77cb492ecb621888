"""Makes a failing case small, saves it, and reads it back."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.case import Files, Odd, Target, size_of
from tests.fuzz.guard import Bars, Outcome
from tests.fuzz.worker import Bench, Finding

SHRINK_S = 20.0
_MAX_SHOWN = 4096


def shrink(target: Target, seed: int, outcome: Outcome, bars: Bars) -> Files:
    """The case of this number with everything taken away that the fault does not need.

    Whole files first, then halves, quarters .. of each; at most `SHRINK_S` of waiting.
    """
    end = time.monotonic() + SHRINK_S
    with Bench(target, bars) as bench:
        files = bench.case(seed)

        def still_fails(tried: Files) -> bool:
            return time.monotonic() < end and bench.run(tried).key == outcome.key

        for name in list(files):
            without = {other: content for other, content in files.items() if other != name}
            if without and still_fails(without):
                files = without
        for name, content in list(files.items()):
            if not isinstance(content, Odd):
                files = _shorter(files, name, content, still_fails)
    return files


def _shorter(
    files: Files, name: str, content: bytes, still_fails: Callable[[Files], bool]
) -> Files:
    step = max(1, len(content) // 2)
    while True:
        at = 0
        while at < len(content):
            cut = content[:at] + content[at + step :]
            if still_fails({**files, name: cut}):
                content = cut
            else:
                at += step
        if step == 1 or (step < 16 and len(content) > _MAX_SHOWN):
            return {**files, name: content}
        step = max(1, step // 2)


def save(finding: Finding, files: Files, folder: Path) -> Path:
    """Write a case as files and as one `case.json`; returns its folder."""
    digest = hashlib.sha256(finding.outcome.key.encode()).hexdigest()[:8]
    place = folder / f"{finding.target}-{digest}"
    place.mkdir(parents=True, exist_ok=True)
    record = {
        "target": finding.target,
        "seed": finding.seed,
        "fault": finding.outcome.key,
        "text": finding.outcome.text,
        "bytes": size_of(files),
        "files": {
            name: {"odd": str(content)}
            if isinstance(content, Odd)
            else {"base64": base64.b64encode(content).decode()}
            for name, content in files.items()
        },
    }
    (place / "case.json").write_text(json.dumps(record, indent=1))
    for name, content in files.items():
        if not isinstance(content, Odd):
            (place / name.replace("/", "+")).write_bytes(content)
    return place


def read(place: Path) -> tuple[str, Files]:
    """The target's name and the files of a saved case."""
    record = json.loads((place / "case.json").read_text())
    files = {
        name: Odd(found["odd"]) if "odd" in found else base64.b64decode(found["base64"])
        for name, found in record["files"].items()
    }
    return record["target"], files
