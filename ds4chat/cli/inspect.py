"""`ds4chat inspect FILE`: what a model or support file holds, and whether it can be used.

Exit status: 0 usable, 1 refused, 2 the path cannot be read or the arguments are wrong.
Text from the file is escaped before it is printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ds4chat import sizes
from ds4chat.cli import models
from ds4chat.cli.parser import Parser
from ds4chat.draft.binding import read_draft
from ds4chat.draft.metadata import (
    count_stages,
    detect_spelling,
    read_numbers,
)
from ds4chat.errors import Ds4Error, ModelFileError
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.keys import KeyReader
from ds4chat.formats.show import printable
from ds4chat.formats.vocab import read_tokenizer
from ds4chat.model.config import TargetConfig
from ds4chat.model.metadata import model_name, read_target_config
from ds4chat.model.opening import read_target

Report = dict[str, Any]
_HASH_CHUNK = 1 << 23
_ANY_VOCAB = 1 << 24
_SUPPORT_WORDS = ("dspark", "dflash")


def run(argv: Sequence[str]) -> int:
    """Run the command; see the module's docstring for the exit status."""
    options = make_parser().parse_args(argv)
    try:
        report = inspect(options.file, options.pair)
        if options.tensors:
            report["tensors"] = _on_file(options.file, _list_tensors)
        if options.sha256:
            report["sha256"] = _on_file(options.file, _hash_parts)
    except ModelFileError as error:
        return _refuse(options, _with_nearest(options, error))
    print(json.dumps(report, indent=2) if options.json else _render(report))
    return 1 if report["problems"] else 0


def make_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        prog="ds4chat inspect", description="Show what a GGUF file holds and check it."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a model or support file")
    parser.add_argument(
        "--pair", type=Path, metavar="OTHER", help="check FILE together with this file"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--tensors", action="store_true", help="list every tensor")
    parser.add_argument(
        "--sha256", action="store_true", help="hash the whole file (minutes for a large one)"
    )
    return parser


def _with_nearest(options: argparse.Namespace, error: ModelFileError) -> ModelFileError:
    """The error, for a path that leads nowhere with the file that was meant."""
    if isinstance(error.__cause__, FileNotFoundError):
        missing = [path for path in (options.file, options.pair) if path and not path.exists()]
        error.hint = models.meant_file(missing[0]) if missing else error.hint
    return error


def _refuse(options: argparse.Namespace, error: ModelFileError) -> int:
    problems = _lines(error)
    if options.json:
        report = {"path": str(options.file), "problems": problems, "hint": error.hint}
        print(json.dumps(report, indent=2))
    else:
        print(f"ds4chat: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
    return 2 if isinstance(error.__cause__, OSError) else 1


def _lines(error: Ds4Error) -> list[str]:
    """The single problems of a message that lists several."""
    head, *rest = error.message.split("\n  - ")
    return rest or [head]


def _on_file(path: Path, work: Callable[[GgufFile], Any]) -> Any:
    with GgufFile.open(path) as gguf:
        return work(gguf)


def inspect(path: Path, pair: Path | None = None) -> Report:
    """Everything about a file as plain values; `problems` is empty if it can be used.

    Raises:
        ModelFileError: `path` or `pair` is no sound GGUF file.
    """
    with GgufFile.open(path) as gguf:
        report = _facts(gguf)
        check = _add_support if report["kind"] == "support" else _add_target
        _collect(report, lambda: check(gguf, report))
        if pair is not None:
            with GgufFile.open(pair) as other:
                _collect(report, lambda: _add_pair(gguf, other, report))
    return report


def _collect(report: Report, check: Callable[[], None]) -> None:
    try:
        check()
    except ModelFileError as error:
        report["problems"] += _lines(error)
        report["hint"] = error.hint


def _facts(gguf: GgufFile) -> Report:
    n_bytes: Counter[str] = Counter()
    n_tensors: Counter[str] = Counter()
    for entry in gguf.tensors.values():
        n_bytes[entry.type_name] += entry.n_bytes
        n_tensors[entry.type_name] += 1
    architecture = KeyReader(gguf.metadata).text("general.architecture")
    is_support = any(word in architecture for word in _SUPPORT_WORDS) or any(
        name.startswith(("mtp.", "dspark.")) for name in gguf.tensors
    )
    return {
        "path": printable(str(gguf.path), 400),
        "parts": [printable(part.name) for part in gguf.parts],
        "file_bytes": gguf.file_bytes,
        "header_bytes": len(gguf.header_bytes),
        "kind": "support"
        if is_support and "token_embd.weight" not in gguf.tensors
        else "model",
        "architecture": printable(architecture),
        "name": model_name(gguf),
        "n_keys": len(gguf.metadata),
        "n_tensors": len(gguf.tensors),
        "quant": [
            {"type": name, "tensors": n_tensors[name], "bytes": size}
            for name, size in n_bytes.most_common()
        ],
        "problems": [],
        "warnings": [],
        "hint": "",
    }


def _add_target(gguf: GgufFile, report: Report) -> None:
    with suppress(ModelFileError):
        report["geometry"] = _flat(read_target_config(gguf))
    try:
        report["n_bound"] = len(read_target(gguf)[1])
    except ModelFileError:
        with suppress(ModelFileError):  # what is wrong with it is in the list
            _add_tokenizer(gguf, report)
        raise
    _add_tokenizer(gguf, report)


def _flat(config: TargetConfig) -> Report:
    values = dataclasses.asdict(config)
    block = values.pop("block")
    del values["name"]
    ratios = values.pop("compress_ratios")
    counts = {str(ratio): ratios.count(ratio) for ratio in sorted(set(ratios))}
    return {**values, **block, "layers_by_ratio": counts}


def _add_tokenizer(gguf: GgufFile, report: Report) -> None:
    tokenizer = read_tokenizer(gguf)
    specials = dataclasses.asdict(tokenizer.specials)
    report["tokenizer"] = {
        "model": KeyReader(gguf.metadata).text("tokenizer.ggml.model"),
        "pre": KeyReader(gguf.metadata).text("tokenizer.ggml.pre"),
        "tokens": tokenizer.n_vocab,
        "merges": gguf.metadata.count("tokenizer.ggml.merges"),
        "specials": specials,
    }


def _add_support(gguf: GgufFile, report: Report) -> None:
    """What a support file says without its model: sizes, and what it was made for."""
    spelling = detect_spelling(gguf)
    keys = KeyReader(gguf.metadata)
    warnings: list[str] = []
    facts: Report = {
        "spelling": {"DS4": "ds4", "LATE": "ds4 (late)", "LLAMA": "llama.cpp"}[spelling.name],
        "n_stages": count_stages(gguf, spelling, keys, warnings),
        **read_numbers(gguf, spelling, keys, _ANY_VOCAB),
        "variant": printable(keys.text("deepseek4.checkpoint_variant")),
        "revision": printable(keys.text("general.source.revision")),
    }
    report["support"] = facts
    report["problems"] += keys.problems
    report["warnings"] += warnings


def _add_pair(gguf: GgufFile, other: GgufFile, report: Report) -> None:
    support, base = (gguf, other) if report["kind"] == "support" else (other, gguf)
    target = read_target_config(base)
    reading, entries = read_draft(support, target, base)
    report["warnings"] += [line for line in reading.warnings if line not in report["warnings"]]
    report["pair"] = {
        "model": printable(str(base.path), 400),
        "support": printable(str(support.path), 400),
        "n_bound": len(entries),
        "block_size": reading.config.block_size,
    }


def _list_tensors(gguf: GgufFile) -> list[Report]:
    return [
        {
            "name": printable(entry.name, 200),
            "type": entry.type_name,
            "shape": list(entry.shape),
            "bytes": entry.n_bytes,
            "offset": entry.offset,
            "part": entry.part,
        }
        for entry in gguf.tensors.values()
    ]


def _hash_parts(gguf: GgufFile) -> list[Report]:
    done = 0
    hashes = []
    for path in gguf.parts:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(_HASH_CHUNK):
                digest.update(chunk)
                done += len(chunk)
                _progress(done, gguf.file_bytes)
        hashes.append({"part": printable(path.name), "sha256": digest.hexdigest()})
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return hashes


def _progress(done: int, total: int) -> None:
    """Overwrite one line on a terminal; elsewhere a line for each tenth."""
    text = f"sha256: {sizes.part(done, total)}"
    if sys.stderr.isatty():
        print(f"\r{text}   ", end="", file=sys.stderr, flush=True)
    elif done * 10 // total != (done - _HASH_CHUNK) * 10 // total:
        print(text, file=sys.stderr)


def _render(report: Report) -> str:
    kind = {"model": "model", "support": "DSpark support file"}[report["kind"]]
    n_bytes = report["file_bytes"]
    sections: list[tuple[str, Mapping[str, Any]]] = [
        (
            "file",
            {
                "path": report["path"],
                "kind": kind if report["architecture"] else "no architecture given",
                "name": report["name"],
                "architecture": report["architecture"],
                "size": f"{sizes.fine_size(n_bytes)} ({n_bytes:,} bytes)",
                "parts": len(report["parts"]),
                "keys": report["n_keys"],
                "tensors": report["n_tensors"],
            },
        ),
        ("geometry", report.get("geometry", {})),
        ("tokenizer", report.get("tokenizer", {})),
        ("support", report.get("support", {})),
        ("pair", report.get("pair", {})),
        ("weights", _quant_rows(report)),
        ("sha256", {row["part"]: row["sha256"] for row in report.get("sha256", ())}),
    ]
    lines = [line for title, rows in sections if rows for line in _section(title, rows)]
    lines += [_tensor_row(row) for row in report.get("tensors", ())]
    lines += [f"warning: {line}" for line in report["warnings"]]
    return "\n".join([*lines, *_verdict(report)])


def _quant_rows(report: Report) -> dict[str, str]:
    total = sum(row["bytes"] for row in report["quant"]) or 1
    return {
        row[
            "type"
        ]: f"{sizes.fine_size(row['bytes']):>12}  {100 * row['bytes'] / total:5.1f} %  "
        f"{row['tensors']:>5} tensors"
        for row in report["quant"]
    }


def _section(title: str, rows: Mapping[str, Any]) -> list[str]:
    flat: dict[str, Any] = {}
    for name, value in rows.items():
        flat |= value if isinstance(value, dict) and name == "specials" else {name: value}
    width = max(len(name) for name in flat)
    shown = [f"  {name:<{width}}  {_value_text(value)}" for name, value in flat.items()]
    return [title, *shown, ""]


def _value_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_value_text(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_value_text(item) for item in value)
    if value in (None, ""):
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _tensor_row(row: Report) -> str:
    shape = " x ".join(str(size) for size in row["shape"])
    return f"  {row['name']:<44} {row['type']:<8} {shape:<22} {row['bytes']:>14,}"


def _verdict(report: Report) -> list[str]:
    if not report["problems"]:
        what = "usable" if report["kind"] == "model" else "a readable support file"
        unread = "  weights were not read: `ds4chat doctor FILE` tries a small model whole"
        pair = "; the pair fits together" if "pair" in report else ""
        return [f"ok: {what}{pair}", *([] if "sha256" in report else [unread])]
    head = f"refused: {len(report['problems'])} problem(s)"
    hint = [f"  {report['hint']}"] if report["hint"] else []
    return [head, *(f"  - {line}" for line in report["problems"]), *hint]
