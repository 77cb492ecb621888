"""Sessions and branches in words, for lists and notices. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ds4chat import sizes
from ds4chat.store.summary import Summary
from ds4chat.store.tree import Branch, Tree
from ds4chat.tui.markdown.clean import clean_line

MAX_LISTED = 20
_PREVIEW = 48
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def age(seconds: float) -> str:
    """How long ago, in the largest whole unit."""
    for scale, unit in _UNITS:
        if seconds >= scale:
            return f"{seconds / scale:.0f} {unit} ago"
    return "just now"


def about(summary: Summary, now_s: float) -> str:
    """What a list says below a session's name; `now_s` is seconds since 1970."""
    kv = f" + {sizes.size(summary.kv_bytes)} KV" if summary.kv_bytes else ""
    turns = "1 turn" if summary.n_turns == 1 else f"{summary.n_turns} turns"
    parts = (
        turns,
        sizes.size(summary.text_bytes) + kv,
        age(now_s - summary.changed_s),
        clean_line(summary.model.removesuffix(" none")),
        clean_line(summary.trouble or summary.first),
    )
    return " · ".join(part for part in parts if part)


def fits(summary: Summary, wanted: str) -> bool:
    """Whether a session is meant by the words typed into the filter."""
    text = " ".join((summary.name, summary.first, summary.last, summary.model)).casefold()
    return all(word in text for word in wanted.casefold().split())


def listing(summaries: Iterable[Summary], now_s: float) -> str:
    """The newest sessions, two lines each."""
    found = list(summaries)
    rows = [f"{clean_line(s.name)}\n    {about(s, now_s)}" for s in found[:MAX_LISTED]]
    if len(found) > MAX_LISTED:
        rows.append(f"… and {len(found) - MAX_LISTED} more: Ctrl+R shows all")
    return "\n".join(rows) or "There are no saved sessions yet."


def branches(tree: Tree) -> str:
    """The branches as a tree: each below the one that it was made from, with its own turns."""
    lines: list[str] = []
    children: dict[str, list[Branch]] = {}
    for branch in tree.branches.values():
        known = branch.base if branch.base in tree.branches else ""
        children.setdefault(known, []).append(branch)
    todo = [(branch, 0) for branch in reversed(children.get("", []))]
    shown: set[int] = set()
    while todo:
        branch, depth = todo.pop()
        lines += _branch(tree, branch, depth, shown)
        todo += [(child, depth + 1) for child in reversed(children.get(branch.name, []))]
    gone = tree.taken_back()
    if gone:
        lines.append("  taken back (/goto N brings one back):")
        lines += [f"      {_turn(turn.id, turn.question)}" for turn in gone]
    return "\n".join(lines)


def _branch(tree: Tree, branch: Branch, depth: int, shown: set[int]) -> list[str]:
    mark = "●" if branch.name == tree.current else "○"
    indent = "  " * depth
    path = tree.path(branch.name)
    own = [turn for turn in path if turn.id not in shown]
    shared = f" after turn {path[-len(own) - 1].id}" if len(own) < len(path) else ""
    shown.update(turn.id for turn in own)
    why = f" ({branch.why})" if branch.why not in ("", "fork") else ""
    head = f"{indent}{mark} {clean_line(branch.name)}{shared}{why}"
    return [head, *(f"{indent}    {_turn(turn.id, turn.question)}" for turn in own)]


def _turn(turn_id: int, question: str) -> str:
    words = clean_line(question.replace("\n", " "))
    return f"{turn_id}  {words[:_PREVIEW]}{'…' if len(words) > _PREVIEW else ''}"
