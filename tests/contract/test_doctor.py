"""`ds4chat doctor` as a person runs it, on machines in order and out of it."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ds4chat import __version__
from ds4chat.cli import doctor, doctor_run
from ds4chat.cli.doctor_finding import Finding
from ds4chat.cli.main import main
from ds4chat.protocol.types import ThinkMode
from ds4chat.store.library import Library
from tests.engines import SMALL
from tests.make_pair import PairPaths, make_pair

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    return make_pair(tmp_path_factory.mktemp("pair"), seed=31, **SMALL)


def named(report: dict[str, Any], name: str) -> dict[str, str]:
    return next(row for row in report["findings"] if row["name"] == name)


def as_json(
    capsys: pytest.CaptureFixture[str], *argv: object, status: int = 0
) -> dict[str, Any]:
    assert main(["doctor", "--json", *map(str, argv)]) == status
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_a_pair_in_order(pair: PairPaths, capsys: pytest.CaptureFixture[str]) -> None:
    report = as_json(capsys, pair.base, "--support", pair.support, "--cpu", "--no-cpu-blas")
    assert set(report) == {
        "version", "ds4chat", "python", "platform", "ok", "counts", "findings",
    }  # fmt: skip
    assert (report["version"], report["ds4chat"], report["ok"]) == (1, __version__, True)
    for row in report["findings"]:
        assert set(row) == {"section", "name", "mark", "found", "fix"}
        assert row["mark"] == "ok" or row["fix"]
    marks = [row["mark"] for row in report["findings"]]
    assert report["counts"] == {mark: marks.count(mark) for mark in ("ok", "warn", "fail")}
    sections = list(dict.fromkeys(row["section"] for row in report["findings"]))
    assert sections == [
        "terminal", "program", "settings", "model", "compute", "memory", "disk", "sessions",
    ]  # fmt: skip
    assert "exact" in named(report, "whole model")["found"]
    assert named(report, "this model")["found"].endswith("fits")


def test_without_a_model_it_says_where_files_come_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_run, "findings", lambda *_: [])
    monkeypatch.setattr("ds4chat.paths.nano_dir", lambda: None)
    found = named(as_json(capsys), "files")
    assert found["mark"] == "warn"
    assert "DeepSeek-V4-Flash-DSpark-support-0731.gguf" in found["fix"]
    assert "sha256" in found["fix"]


def test_a_model_that_does_not_exist(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_run, "findings", lambda *_: [])
    report = as_json(capsys, "-m", tmp_path / "none.gguf", status=1)
    found = named(report, "files")
    assert not report["ok"]
    assert found["mark"] == "fail"
    assert "none.gguf" in found["found"]
    assert "Check the path" in found["fix"]


def test_a_support_file_that_does_not_fit(
    pair: PairPaths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_pair(tmp_path, seed=1, **{**SMALL, "head_dim": 192})
    report = as_json(
        capsys, pair.base, "--support", other.support, "--cpu", "--no-cpu-blas", status=1
    )
    found = named(report, "support file")
    assert found["mark"] == "fail"
    assert found["fix"]
    names = [row["name"] for row in report["findings"]]
    assert "whole model" not in names  # what is known to fail is not opened


def test_a_broken_mlx_is_a_line_with_a_fix(
    pair: PairPaths, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "__init__.py").write_text("")
    (tmp_path / "mlx" / "core.py").write_text("raise ImportError('libmlx.so: no such file')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    report = as_json(capsys, pair.base, status=1)
    found = named(report, "MLX")
    assert found["mark"] == "fail"
    assert "libmlx.so: no such file" in found["found"]
    assert "pip install --force-reinstall" in found["fix"]
    assert named(report, "model file")["mark"] == "ok"  # the rest is checked all the same
    assert named(report, "health")["mark"] == "ok"


def test_without_numpy_and_textual_it_still_says_what_is_wrong(
    pair: PairPaths, tmp_path: Path
) -> None:
    for name in ("numpy", "textual"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise ImportError('{name} is broken')")
    done = subprocess.run(
        [sys.executable, "-m", "ds4chat", "doctor", "--json", str(pair.base)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    failed = {row["section"]: row for row in report["findings"] if row["mark"] == "fail"}
    assert "numpy is broken" in failed["model"]["found"]
    assert "numpy is broken" in failed["compute"]["found"]
    assert "textual is broken" in failed["settings"]["found"]
    assert named(report, "health")["mark"] == "ok"


def test_every_operation_is_listed_when_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def note(section: str, *_: object) -> list[Finding]:
        asked.append(section)
        return []

    monkeypatch.setattr(doctor_run, "findings", note)
    as_json(capsys)
    assert "kernels" not in asked
    as_json(capsys, "--kernels")
    assert "kernels" in asked


def test_a_report_has_no_home_and_no_words_of_a_chat(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    isolated_environment: Path,
) -> None:  # fmt: skip
    monkeypatch.setattr(doctor_run, "findings", lambda *_: [])
    root = isolated_environment / "data" / "ds4chat" / "sessions"
    session = Library(root).create(about="my private words")
    session.ask("my private words", ThinkMode.OFF)
    session.close()
    path = tmp_path / "report.txt"
    argv = ["doctor", "--report", str(path), "--system", "private words too"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert str(path) in err
    text = path.read_text()
    assert f"ds4chat {__version__}" in text
    assert "~/data/ds4chat/sessions" in text
    assert str(isolated_environment) not in text
    assert "private" not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert main(argv) == 2  # nothing is overwritten
    assert "there already" in capsys.readouterr().err


def test_a_report_without_a_name_is_made_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor_run, "findings", lambda *_: [])
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--report"]) == 0
    (made,) = tmp_path.iterdir()
    assert made.name.startswith("ds4chat-report-")


def test_the_home_behind_a_link_is_shortened_too(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    text = f"{tmp_path}/link/a {tmp_path}/real/b"
    assert doctor.shortened(text, {"HOME": str(tmp_path / "link")}) == "~/a ~/b"


def test_an_unknown_flag_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["doctor", "--kernel"])
    assert stopped.value.code == 2
    assert "--kernel" in capsys.readouterr().err


def test_an_interrupt_ends_it_and_its_child(tmp_path: Path) -> None:
    """The child reports that it runs, and hangs: as a library that waits for a device does."""
    fake = tmp_path / "mlx"
    fake.mkdir()
    (fake / "__init__.py").write_text("")
    runs = tmp_path / "runs"
    os.mkfifo(runs)
    (fake / "core.py").write_text(
        f"import os, time\nopen({str(runs)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "ds4chat", "doctor"], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    try:
        child = int(runs.read_text())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 130
    assert (out, err) == (b"", b"")
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
