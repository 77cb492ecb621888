"""The chat that `ds4chat bench ui` looks at: `python -m ds4chat.cli.bench_ui_child JSON`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ds4chat import paths, settings
from ds4chat.cli.bench_ui import READY
from ds4chat.demo import Reply, Script, ScriptedEngine
from ds4chat.demo.script import split_text
from ds4chat.protocol.commands import Load
from ds4chat.protocol.types import Channel, Source, Span, Token

SECONDS = 120  # of text that the reply has; planning more would hold the interpreter
TURN = 1_000  # older tokens in a turn
_ROUND = 5  # tokens in a round: four drafts and the target's own

_TEXT = """\
## Heading {n}

Some **bold words** in a paragraph that is long enough to be wrapped at the width of a screen, \
with `code`, *emphasis* and a [link](http://example.org/{n}).

- an item
- another one
  1. nested, with a few more words

```python
def function_{n}(items):
    return [item * {n} for item in items]
```

| name | value |
|---|---:|
| {n} | {n}.5 |

> A quote about {n}.

"""
_SOURCES = (Source.FALLBACK, Source.ACCEPTED, Source.ACCEPTED, Source.BONUS, Source.ACCEPTED)


def text(n_tokens: int) -> str:
    """Markdown of about so many tokens."""
    each = len(split_text(_TEXT.format(n=0)))
    return "".join(_TEXT.format(n=n) for n in range(n_tokens // each + 1))


def spans(source: str) -> list[Span]:
    """The text in tokens of changing origin."""
    return [
        Span(
            text=piece,
            token=Token(
                id=n, source=_SOURCES[n % 5], round=n // 5 + 1, position=n % 5,
                confidence=0.7, margin=1.0,
            ),
        )
        for n, piece in enumerate(split_text(source))
    ]  # fmt: skip


def script(tps: float) -> Script:
    """An engine of that speed; rounds of five tokens."""
    round_s = _ROUND / (tps or 100.0)
    return Script(
        replies=(Reply(answer=text(int(tps * SECONDS)), accepts=(4,)),),
        draft_s=round_s / 8,
        verify_s=round_s * 7 / 8,
        plain_step_s=round_s * 0.9,
        prefill_tps=1e6,
    )


def main() -> None:
    """Run until Ctrl+Q, then write the seconds of every frame."""
    asked = json.loads(sys.argv[1])
    settings.prepare_textual("auto")
    from ds4chat.tui import memory
    from ds4chat.tui.app import Ds4ChatApp
    from ds4chat.tui.options import ChatOptions

    frames: list[float] = []
    link = ScriptedEngine(script(asked["tps"]))
    options = ChatOptions(themes_dirs=(paths.themes_dir(),))

    class Bench(Ds4ChatApp):
        """Fills the transcript, then asks."""

        def on_ready(self) -> None:
            self.set_timer(0.5, self._fill)

        def _fill(self) -> None:
            transcript = self.chat_screen.transcript
            left = asked["tokens"]
            while left > 0:
                n, left = min(TURN, left), left - TURN
                turn_id = -1 - left
                transcript.add_user("an older question", turn_id)
                transcript.append(turn_id, Channel.ANSWER, spans(text(n))[:n])
                transcript.finish_reply(turn_id, "older")
            memory.settle()
            transcript.add_notice(READY, "info")
            if asked["tps"]:
                self.chat_screen.chat.send_text("go")

    _time_frames(frames)
    app = Bench(link, Load(request_id=0, model_path=""), options)
    try:
        app.run()
    finally:
        link.close()
    Path(asked["report"]).write_text(json.dumps(frames))


def _time_frames(frames: list[float]) -> None:
    """Note how long each frame of the screen takes, from layout to bytes for the terminal."""
    from ds4chat.tui.screens.chat import ChatScreen

    original: Callable[[ChatScreen], None] = ChatScreen._on_timer_update

    def timed(screen: ChatScreen) -> None:
        is_drawn = bool(screen._dirty_widgets or screen._repaint_required)
        started = time.perf_counter()
        original(screen)
        if is_drawn:
            frames.append(time.perf_counter() - started)

    ChatScreen._on_timer_update = timed  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    main()
