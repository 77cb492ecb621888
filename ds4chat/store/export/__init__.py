"""A session as a document: Markdown, JSON, HTML or SVG.

Text of a session is hostile until it is escaped: every format cleans control characters, HTML
and SVG escape markup, refer to nothing outside themselves and run nothing.
"""

from __future__ import annotations

from ds4chat.errors import SessionFileError
from ds4chat.store.export.drawing import to_svg
from ds4chat.store.export.look import Look
from ds4chat.store.export.page import to_html
from ds4chat.store.export.text import to_json, to_markdown
from ds4chat.store.names import nearest
from ds4chat.store.tree import Tree

FORMATS = ("markdown", "json", "html", "svg")
SUFFIXES = {".md": "markdown", ".markdown": "markdown", ".json": "json"} | {
    ".html": "html", ".htm": "html", ".svg": "svg",
}  # fmt: skip


def export(
    tree: Tree, name: str, kind: str, look: Look | None = None, branch: str | None = None
) -> str:
    """The document.

    Args:
        tree: the conversation.
        name: the session's name, for the title.
        kind: one of `FORMATS`.
        look: colours, wanted for `html` and `svg`.
        branch: which branch; None: the current one. JSON holds them all.

    Raises:
        SessionFileError: no such format or branch, or no colours given where they are wanted.
    """
    if branch is not None and branch not in tree.branches:
        near = nearest(branch, tree.branches)
        raise SessionFileError(
            f"there is no branch {branch!r:.60}", f"Did you mean {near!r}?" if near else ""
        )
    if kind == "markdown":
        return to_markdown(tree, name, branch)
    if kind == "json":
        return to_json(tree, name)
    if kind not in FORMATS or look is None:
        raise SessionFileError(
            f"cannot export as {kind!r:.40}", f"Formats: {', '.join(FORMATS)}."
        )
    return (to_html if kind == "html" else to_svg)(tree, name, look, branch)
