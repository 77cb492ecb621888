"""Markdown to read, JSON to compute with."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from ds4chat.store import codec
from ds4chat.store.clean import clean, clean_line
from ds4chat.store.export.pieces import model_line, receipt
from ds4chat.store.tree import Tree, Turn

EXPORT_VERSION = 1
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


def to_markdown(tree: Tree, name: str, branch: str | None) -> str:
    """One branch. Questions and reasoning are quoted; answers are Markdown already."""
    parts = [f"# {_heading(name)}"]
    if line := model_line(tree):
        parts.append(f"*{_heading(line)}*")
    if tree.system:
        parts += ["## System", quote(tree.system)]
    for turn in tree.path(branch):
        parts += _turn(turn)
    return "\n\n".join(parts) + "\n"


def _turn(turn: Turn) -> list[str]:
    question = "(this message was lost)" if turn.is_lost else turn.question
    parts = [f"## You ({turn.id})", quote(question)]
    if turn.has_reply:
        parts.append("## Reply")
    if turn.reasoning_text:
        parts += ["*Reasoning*", quote(turn.reasoning_text)]
    if turn.answer_text:
        parts.append(close_fence(clean(turn.answer_text).rstrip("\n")))
    if turn.damage:
        parts.append(f"*Damaged: {turn.damage}*")
    if line := receipt(turn):
        parts.append(f"*{line}*")
    return parts


def _heading(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#&])", r"\\\1", clean_line(text))


def quote(text: str) -> str:
    """`text` as a Markdown block quote, any fence in it closed."""
    return "\n".join(f"> {line}".rstrip() for line in close_fence(clean(text)).split("\n"))


def close_fence(text: str) -> str:
    """Close a code block that is open at the end, which would swallow what follows."""
    opened = ""
    for line in text.split("\n"):
        found = _FENCE.fullmatch(line)
        if found is None:
            continue
        mark, rest = found.groups()
        if not opened:
            opened = mark if mark[0] == "~" or "`" not in rest else ""
        elif mark[0] == opened[0] and len(mark) >= len(opened) and not rest.strip():
            opened = ""
    return f"{text}\n{opened}" if opened else text


def to_json(tree: Tree, name: str) -> str:
    """All turns and branches, with provenance; texts are kept as they are, escaped by JSON."""
    document = {
        "format": "ds4chat-session",
        "version": EXPORT_VERSION,
        "name": name,
        "current": tree.current,
        "system": tree.system,
        "options": codec.plain(tree.options),
        "branches": [dataclasses.asdict(branch) for branch in tree.branches.values()],
        "turns": [_object(turn) for turn in tree.turns.values()],
    }
    return json.dumps(document, indent=1) + "\n"


def _object(turn: Turn) -> dict[str, Any]:
    return {
        "id": turn.id,
        "parent": turn.parent,
        "branch": turn.branch,
        "at": turn.at,
        "question": turn.question,
        "think": turn.think,
        "reasoning": turn.reasoning_text,
        "answer": turn.answer_text,
        "ids": turn.ids,
        "reason": turn.reason,
        "usage": codec.plain(turn.usage),
        "damage": turn.damage,
        "events": [
            {"type": type(event).__name__, **codec.plain(event)} for event in turn.events
        ],
    }
