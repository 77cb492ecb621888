"""What fuzzing found once, each as small as it gets."""

from __future__ import annotations

import json
import os
import signal
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pytest

from ds4chat import settings
from ds4chat.demo import snapshots as scripted_snapshots
from ds4chat.engine import owner, snapshot_files
from ds4chat.errors import ModelFileError, ProtocolError, SettingsError, SnapshotError
from ds4chat.formats import safetensors
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.keys import KeyReader
from ds4chat.formats.values import ARRAY, MAX_WALKED, STRING
from ds4chat.formats.vocab import read_tokenizer
from ds4chat.model.metadata import read_target_config
from ds4chat.protocol import codec
from ds4chat.protocol.commands import Tokenize
from ds4chat.store import codec as store_codec
from ds4chat.store.records import Asked, BranchRenamed, Entry, Forked, Record
from ds4chat.store.tree import Tree
from ds4chat.tui import files, keymap, themes
from ds4chat.tui.history import History
from tests.fuzz.targets_model import pair, vocabulary
from tests.fuzz.targets_transcript import signed
from tests.gguf_sketch import F64, U8, Array, Sketch, string
from tests.unit.store.build import finished

HUGE = "9" * 5000  # more digits than Python turns into a number


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Fail after so many seconds of CPU: what was quadratic took minutes."""

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise AssertionError(f"more than {seconds} s of CPU")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


# Settings, themes, history.


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("temp = " + "[" * 2000, "nested too deep"),
        (f"seed = {HUGE}", "not TOML"),
        ("seed = 0x" + "f" * 5000, "is not a whole number"),
        ("temp = " + "9" * 400, "is not a number"),
        (f'top_k = "{"9" * 400}"', "is not a whole number"),
        (f'ctx = "{"9" * 30}"', "is not a whole number"),
        ("spec = [0x" + "f" * 5000 + "]", "is not true or false"),
        ('"a\\nb" = 1', "a\\nb: unknown setting"),
        ("x" * 3000 + " = 1", "unknown setting"),
    ],
)
def test_odd_settings_are_refused_in_one_short_line(
    text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        settings.load(config_file=path, environ={})
    assert words in caught.value.message
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 600 + len(str(path))


@pytest.mark.parametrize("key", ["a." * 5000 + "a", '"a b".' * 5000 + "a", "a . " * 5000 + "a"])
def test_deeply_dotted_names_cost_nothing(key: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    for text in (f"{key} = 1", f"[{key}]", f"x = {{{key} = 1}}"):
        path.write_text(text)
        with cpu_limit(10.0), pytest.raises(SettingsError, match="more than 16 dots"):
            settings.load(config_file=path, environ={})


def test_dots_in_values_are_only_dots(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    text = "Well... e.g. 1.2.3.4. " * 30
    path.write_text(f'system = "{text}"\ntemp = 0.5\n')
    assert settings.load(config_file=path, environ={}).system == text


def test_a_variable_with_an_odd_name_is_shown_harmlessly() -> None:
    with pytest.raises(SettingsError) as caught:
        settings.load(environ={"DS4CHAT_\x1b[2J" + "x" * 500: "1"})
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("kind", ["pipe", "endless", "folder", "loop"])
def test_a_settings_file_or_theme_that_is_no_file_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    make_odd(path, kind)
    for read in (
        lambda: settings.load(config_file=path, environ={}),
        lambda: themes.load_theme(path),
    ):
        with pytest.raises(SettingsError, match="cannot be read"):
            read()
    if kind in ("pipe", "endless"):
        assert keymap.load(path) == {}


@pytest.mark.parametrize("kind", ["pipe", "endless", "folder", "loop"])
def test_a_history_that_is_no_file_is_empty(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "history"
    make_odd(path, kind)
    assert History(path).older("") is None
    assert not files.append_private(path, "x\n")


def make_odd(path: Path, kind: str) -> None:
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "endless":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to(path.name)


def test_a_history_keeps_what_stands_beside_endless_brackets(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text('"one"\n' + "[" * 5000 + "\n")
    assert History(path).older("") == "one"


def test_a_history_of_a_million_lines_costs_what_its_end_does(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(b'"x"\n' * 1_000_000 + b'"last"\n')
    with cpu_limit(0.4):
        history = History(path)
    assert history.older("") == "last"
    assert path.stat().st_size < 10_000  # cut to what is kept


def test_a_theme_with_a_number_that_cannot_be_shown(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        "is_dark = 0x" + "f" * 5000 + "\nscreen={}\nsources={}\nposition={}\nconfidence={}"
    )
    with pytest.raises(SettingsError, match="a very long int is not true or false"):
        themes.load_theme(path)


@pytest.mark.parametrize("since", [1e17, -1e17, 1e300])
def test_a_claim_from_no_time_is_nobodys(since: float, tmp_path: Path) -> None:
    path = tmp_path / "claim"
    path.write_text(json.dumps({"pid": 3, "since": since}))
    fd = os.open(path, os.O_RDONLY)
    try:
        assert owner._read(fd, path).pid == 0
    finally:
        os.close(fd)


# Protocol and transcripts.


def test_protocol_errors_are_short() -> None:
    line = json.dumps({"type": "Done", "request_id": 1, "x" * 9000: 1})
    with pytest.raises(ProtocolError) as caught:
        codec.decode_event(line)
    assert len(caught.value.message) < 400
    line = json.dumps({"type": "PolicyChanged", "turn_id": 1, "state": "x" * 9000})
    with pytest.raises(ProtocolError) as caught:
        codec.decode_event(line)
    assert len(caught.value.message) < 400


def test_any_depth_of_brackets_is_answered() -> None:
    """Also just short of where the parser gives up, where only showing it might fail."""
    for depth in range(1, 1100, 7):
        deep = "[" * depth + "]" * depth
        for line in (f'{{"type":{deep}}}', f'{{"type":"Done","request_id":{deep}}}'):
            with pytest.raises(ProtocolError):
                codec.decode_event(line)
        row = b'{"kind":%s}' % deep.encode()
        with pytest.raises(store_codec.BadLineError):
            store_codec._entry(store_codec.parse(row), row)
        row = b'{"kind":"system","text":%s}' % deep.encode()
        with pytest.raises(store_codec.BadLineError):
            store_codec._entry(store_codec.parse(row), row)


def test_a_scripted_snapshot_of_endless_brackets_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[" * 5000)
    assert scripted_snapshots._read(tmp_path / "x.json") == []


def test_long_transcripts_are_read_in_linear_time() -> None:
    """A compacted branch of many turns, and many branches, each renamed and looked at."""
    n, tree = 20_000, Tree()
    records: list[Record] = [
        Asked(turn_id=1, parent=None, text="q"),
        Forked(branch="c", base="main", leaf=1, start=1, why="compact"),
        *(Asked(turn_id=i, parent=i - 1, branch="c", text="q") for i in range(2, n)),
        *(Forked(branch=f"b{i}", base="c", leaf=i) for i in range(2, n)),
        *(BranchRenamed(branch=f"b{i}", name=f"d{i}") for i in range(2, n)),
    ]
    with cpu_limit(10.0):
        assert not any(tree.apply(Entry(n=1, at="", record=record)) for record in records)
        assert tree.taken_back() == []
    assert len(tree.path("c")) == n - 1


def test_a_turn_ends_once() -> None:
    """Every end kept a copy of the reply's ids: gigabytes for a megabyte of file."""
    tree = Tree()
    tree.apply(Entry(n=1, at="", record=Asked(turn_id=1, parent=None, text="q")))
    tree.apply(Entry(n=2, at="", record=finished(1)))
    wrong = tree.apply(Entry(n=3, at="", record=finished(1)))
    assert wrong == "turn 1 had ended already"
    assert tree.turns[1].events == [tree.turns[1].finished]


# Snapshots.


def test_doubled_names_are_found_in_linear_time() -> None:
    names = [f"e{n}" for n in range(60_000)]
    inner = ",".join(f'"{name}":0' for name in [*names, names[-1]])
    header = f"{{{inner}}}".encode()
    raw = len(header).to_bytes(8, "little") + header
    with cpu_limit(10.0), pytest.raises(SnapshotError, match="'e59999' is there twice"):
        safetensors.decode(raw, "x")


@pytest.mark.parametrize("shape", [[0, (1 << 63) - 1], [0, 1 << 61], [1 << 40, 0, 1 << 40]])
def test_a_shape_of_nothing_may_still_be_impossible(shape: list[int]) -> None:
    entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
    header = json.dumps({"x": entry}).encode()
    raw = len(header).to_bytes(8, "little") + header
    with pytest.raises(SnapshotError, match="impossible shape"):
        safetensors.decode(raw, "x")


def test_a_folder_in_place_of_a_snapshots_file_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "x.json").mkdir()
    before = open_files()
    for _ in range(3):
        with pytest.raises(SnapshotError, match="cannot be read"):
            snapshot_files.read_manifest(tmp_path, "x")
    assert open_files() == before


def open_files() -> int:
    place = Path("/proc/self/fd")
    return len(list(place.iterdir())) if place.is_dir() else 0


# Model files.


def test_an_odd_splitter_is_named_briefly(tmp_path: Path) -> None:
    keys: dict[str, Any] = dict(vocabulary().keys)
    keys["tokenizer.ggml.pre"] = (STRING, "１２" * 5000)
    path = Sketch(keys=keys).write(tmp_path / "m.gguf")
    with GgufFile.open(path) as gguf, pytest.raises(ModelFileError) as caught:
        read_tokenizer(gguf)
    assert len(caught.value.message) < 300 + len(str(path))


def test_an_infinite_context_is_refused_not_raised(tmp_path: Path) -> None:
    keys: dict[str, Any] = dict(pair("ds4")[0].keys)
    del keys["deepseek4.context_length"]
    keys["deepseek4.rope.scaling.factor"] = (F64, 1e308)
    path = Sketch(keys=keys).write(tmp_path / "m.gguf")
    with GgufFile.open(path) as gguf:
        assert read_target_config(gguf).ctx_trained == (1 << 31) - 1


def test_a_signed_line_is_sound() -> None:
    """The fuzzer's own sums are right, so that its lines get past the first check."""
    row = {"kind": "system", "n": 1, "at": "now", "text": "größe"}
    assert store_codec.decode(signed(row)).n == 1


@pytest.mark.parametrize("what", ["keys", "tensors"])
def test_a_directory_of_absurd_length_is_refused_by_its_head(what: str, tmp_path: Path) -> None:
    """Each entry takes many times its bytes in memory."""
    counts = (0, 70_000) if what == "keys" else (70_000, 0)
    path = tmp_path / "m.gguf"
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, *counts) + bytes(70_000 * 32))
    with pytest.raises(ModelFileError, match=f"70,000 {what}; at most 65,536 expected"):
        GgufFile.open(path)


@pytest.mark.parametrize("kind", [STRING, ARRAY])
def test_arrays_that_take_a_step_each_are_counted(kind: int, tmp_path: Path) -> None:
    """Over all keys: no one of them need be long."""
    n = MAX_WALKED // (2 if kind == STRING else 128) + 1
    empty = struct.pack("<Q", 0) if kind == STRING else struct.pack("<IQ", 0, 0)
    value = struct.pack("<IIQ", ARRAY, kind, n) + empty * n
    sketch = Sketch(extra_keys=[string("a") + value, string("b") + value])
    with (
        cpu_limit(30.0),
        pytest.raises(ModelFileError, match="absurdly many strings or arrays"),
    ):
        GgufFile.open(sketch.write(tmp_path / "m.gguf"))


def test_a_list_that_is_taken_whole_is_short(tmp_path: Path) -> None:
    keys: dict[str, tuple[int, Any]] = {"k": (ARRAY, Array(U8, [1] * 70_000))}
    with GgufFile.open(Sketch(keys=keys).write(tmp_path / "m.gguf")) as gguf:
        reader = KeyReader(gguf.metadata)
        assert reader.integers("k") is None
        assert reader.integers("k", count=2) == (1, 1)
        assert reader.problems == ["key k has 70,000 entries; at most 65,536 wanted"]


def test_a_long_line_may_hold_much_text_but_not_many_lists() -> None:
    command = Tokenize(request_id=1, text='[{"' * 400_000)
    assert codec.decode_command(codec.encode(command)) == command
    many = f'{{"type": "Tokenize", "request_id": 1, "text": [{"[]," * 800_000}[]]}}'
    with pytest.raises(ProtocolError, match="parts"):
        codec.decode_command(many)


@pytest.mark.parametrize("end", ['"}', "", "}"], ids=["whole", "open", "cut"])
def test_a_long_text_of_escapes_is_counted_in_little_memory(end: str) -> None:
    """An expression with a way back at each escape took 70 bytes for each."""
    line = '{"type": "Tokenize", "request_id": 1, "text": "' + r"\n\"" * 1_000_000 + end
    tracemalloc.start()
    try:
        with cpu_limit(20.0):
            n_parts = codec._n_parts(line)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 5 <= n_parts <= 8
    assert peak < 4 * len(line)
