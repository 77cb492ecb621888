"""What happened when the engine is gone: the cause, the log, the way on."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from ds4chat.tui.controller import ChatController, Phase
from ds4chat.tui.markdown.clean import clean_line


def content(chat: ChatController) -> Content | None:
    """The lines of the box; None while the engine lives."""
    failure = chat.failure
    if chat.phase is not Phase.DEAD or failure is None:
        return None
    parts: list[Content] = [
        Content.styled("The engine stopped", "bold $error"),
        Content(clean_line(f"{failure.message} {failure.hint}").strip()),
    ]
    if failure.log_path:
        parts.append(Content.styled(f"log: {clean_line(failure.log_path)}", "$secondary"))
        parts += [Content.styled(f"  {line}", "$secondary") for line in failure.log_end]
    parts.append(
        Content.assemble(
            ("F8", "bold $primary"),
            " or /restart starts it again; the conversation is kept · ",
            ("^Q", "bold $primary"),
            " quits",
        )
    )
    return Content("\n").join(parts)


class CrashBox(Static):
    """Above the prompt while the engine is dead; the prompt goes on taking text."""

    DEFAULT_CSS = """
    CrashBox {
        height: auto; max-height: 9; padding: 0 1; display: none;
        border-left: outer $error; background: $panel; color: $foreground;
    }
    CrashBox.-shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__(id="crash", markup=False)
        self._shown: object = None

    def show(self, chat: ChatController) -> None:
        """Redraw from the chat's state."""
        key = (chat.phase is Phase.DEAD, chat.failure)
        if key == self._shown:
            return
        self._shown = key
        found = content(chat)
        self.set_class(found is not None, "-shown")
        if found is not None:
            self.update(found)
