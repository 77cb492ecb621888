"""The prompt's text broken into rows: its height is read, not counted."""

from __future__ import annotations

from textual.document._wrapped_document import WrappedDocument


class PromptRows(WrappedDocument):
    """Rows of a text of any length.

    Textual adds up the rows of all lines whenever it asks for the height, which is once for
    each row that it draws.
    """

    @property
    def height(self) -> int:
        """The number of rows; every edit and every wrap keeps one entry for each."""
        return len(self._offset_to_line_info)
