"""The table of field cases tells the truth: all 25 are there, and every test that it names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TABLE = TESTS / "field_cases.md"
N_CASES = 25
MIN_TESTS = 4  # the given case and three siblings


def rows(table: str) -> dict[int, list[str]]:
    """The ids of each case's tests, the given one first."""
    found: dict[int, list[str]] = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0].isdigit():
            assert int(cells[0]) not in found, f"case {cells[0]} stands twice"
            assert len(re.findall("`[^`]+`", cells[2])) == 1, f"case {cells[0]}: one given case"
            found[int(cells[0])] = re.findall("`([^`]+)`", cells[2] + cells[3])
    return found


def problems(cases: dict[int, list[str]], existing: set[str]) -> list[str]:
    """What is wrong with a table: cases without enough tests, and tests that do not exist."""
    missing = sorted(set(range(1, N_CASES + 1)).symmetric_difference(cases))
    found = [f"case {n}: in the list and the table only once" for n in missing]
    for n, tests in cases.items():
        if len(set(tests)) < max(MIN_TESTS, len(tests)):
            found.append(f"case {n}: {len(set(tests))} different tests of {len(tests)}")
        found += [f"case {n}: {test} does not exist" for test in tests if test not in existing]
    return found


def collected(files: set[str]) -> set[str]:
    """Ids of all tests of some files as pytest collects them, marked ones too."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", *sorted(files)],
        cwd=TESTS.parent, env=os.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    ids = (line.split("[", 1)[0] for line in done.stdout.splitlines() if "::" in line)
    return {name.removeprefix("tests/") for name in ids}


def test_every_case_has_its_tests_and_every_test_exists() -> None:
    cases = rows(TABLE.read_text(encoding="utf-8"))
    files = {f"tests/{test.split('::')[0]}" for tests in cases.values() for test in tests}
    lost = [name for name in sorted(files) if not (TESTS.parent / name).is_file()]
    assert lost == []
    assert problems(cases, collected(files)) == []


def test_every_test_of_the_cases_is_in_the_table() -> None:
    listed = TABLE.read_text(encoding="utf-8")
    for path in sorted((TESTS / "cases").glob("test_[0-9]*.py")):
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE):
            assert f"`cases/{path.name}::{name}`" in listed


SOUND = {n: [f"a.py::test_{n}_{i}" for i in range(4)] for n in range(1, N_CASES + 1)}
EXISTING = {test for tests in SOUND.values() for test in tests}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({3: SOUND[3][:3]}, "case 3: 3 different tests"),
        ({7: [*SOUND[7], SOUND[7][0]]}, "case 7: 4 different tests of 5"),
        ({9: [*SOUND[9], "a.py::test_gone"]}, "case 9: a.py::test_gone does not exist"),
        ({26: SOUND[1]}, "case 26"),
    ],
)
def test_the_check_finds(change: dict[int, list[str]], words: str) -> None:
    assert problems(SOUND, EXISTING) == []
    (found,) = problems(SOUND | change, EXISTING)
    assert words in found


def test_the_check_finds_a_missing_case() -> None:
    fewer = {n: tests for n, tests in SOUND.items() if n != 12}
    assert problems(fewer, EXISTING) == ["case 12: in the list and the table only once"]
