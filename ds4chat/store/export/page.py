"""One self-contained HTML page: no script, nothing fetched; ghosts appear on demand."""

from __future__ import annotations

import html

from ds4chat.protocol.types import Channel, Source
from ds4chat.store.clean import clean, clean_line
from ds4chat.store.export.look import CSS_ATTRIBUTES, MEANINGS, Look
from ds4chat.store.export.pieces import Piece, model_line, pieces, receipt
from ds4chat.store.tree import Tree, Turn

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def to_html(tree: Tree, name: str, look: Look, branch: str | None) -> str:
    """One branch as a page."""
    title = _text(clean_line(name))
    body = [f"<h1>{title}</h1>", f"<p class=note>{_text(model_line(tree))}</p>", _legend()]
    if tree.system:
        body.append(f"<h2>system</h2><pre>{_text(clean(tree.system))}</pre>")
    body += [_turn(turn) for turn in tree.path(branch)]
    return (
        "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8>"
        f'<meta http-equiv=Content-Security-Policy content="{_POLICY}">'
        '<meta name=viewport content="width=device-width">'
        f"<title>{title}</title><style>{_style(look)}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _style(look: Look) -> str:
    rules = [
        f"body{{background:{look.background};color:{look.foreground};"
        "max-width:60em;margin:2em auto;padding:0 1em;font-family:system-ui,sans-serif}",
        "pre{white-space:pre-wrap;overflow-wrap:anywhere;font-family:ui-monospace,monospace}",
        f"h2,.note,del,summary{{color:{look.dim};font-size:.9em;font-weight:normal}}",
        ".think{opacity:.75}",
        "del{display:none}#ghosts:checked~.turn del{display:inline}",
    ]
    rules += [f".{s}{{color:{look.sources[s]};{CSS_ATTRIBUTES[s]}}}" for s in Source]
    return "".join(rules)


def _legend() -> str:
    rows = " · ".join(
        f'<span class={s} title="{_text(MEANINGS[s])}">{s}</span>' for s in Source
    )
    return (
        f"<p class=note>{rows}</p>"
        "<input type=checkbox id=ghosts><label for=ghosts> show rejected drafts</label>"
    )


def _turn(turn: Turn) -> str:
    question = "(this message was lost)" if turn.is_lost else clean(turn.question)
    parts = [
        f"<section class=turn id=turn-{turn.id}>",
        f"<h2>you ({turn.id})</h2><pre>{_text(question)}</pre>",
    ]
    if turn.reasoning_text:
        drawn = _pieces(pieces(turn, Channel.THINKING))
        n_tokens = sum(1 for _ in turn.spans(Channel.THINKING))
        parts.append(
            f"<details><summary>reasoning, {n_tokens} tokens</summary>"
            f"<pre class=think>{drawn}</pre></details>"
        )
    if turn.answer_text:
        parts.append(f"<h2>reply</h2><pre>{_pieces(pieces(turn, Channel.ANSWER))}</pre>")
    notes = [f"damaged: {turn.damage}" if turn.damage else "", receipt(turn)]
    line = " · ".join(note for note in notes if note)
    return "".join([*parts, f"<p class=note>{_text(line)}</p></section>"])


def _pieces(drawn: list[Piece]) -> str:
    return "".join(map(_piece, drawn))


def _piece(piece: Piece) -> str:
    if piece.token is not None:
        if not piece.text:
            return ""
        inside = f'class={piece.token.source} title="{_text(piece.note)}"'
        return f"<span {inside}>{_text(piece.text)}</span>"
    if piece.note:
        return f'<del title="{_text(piece.note)}">{_text(piece.text)}</del>'
    return _text(piece.text)


def _text(text: str) -> str:
    return html.escape(text, quote=True)
