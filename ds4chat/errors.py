"""Every exception that ds4chat raises on purpose.

Ds4Error
├── SettingsError       a flag, variable or settings file holds something unusable
├── ModelFileError      a GGUF file cannot be used
├── KernelError         a kernel cannot be built or gives wrong numbers
├── ContextFullError    the context has no room for another token
├── NonFiniteError      the model computed NaN or infinity
├── EngineError         the engine process failed or answered nonsense
├── ProtocolError       a protocol line cannot be understood
├── SessionFileError    a saved session cannot be read or written
└── SnapshotError       a KV snapshot does not fit or is damaged
"""

from __future__ import annotations


class Ds4Error(Exception):
    """A failure with words for a person.

    Args:
        message: what happened and to which file or setting, with the value found and wanted.
        hint: what to do next; empty when there is nothing to do.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class SettingsError(Ds4Error):
    """A flag, an environment variable or the settings file holds something unusable."""


class ModelFileError(Ds4Error):
    """A GGUF file cannot be used; the message lists every mismatch found."""


class KernelError(Ds4Error):
    """A kernel cannot be built or gives wrong numbers on this device."""


class ContextFullError(Ds4Error):
    """The context has no room for another token."""


class NonFiniteError(Ds4Error):
    """The model computed NaN or infinity: nothing after it can be trusted."""


class EngineError(Ds4Error):
    """The engine process failed, or answered with something that makes no sense."""


class ProtocolError(Ds4Error):
    """A protocol line cannot be understood."""


class SessionFileError(Ds4Error):
    """A saved session cannot be read or written."""


class SnapshotError(Ds4Error):
    """A KV snapshot does not belong to this model, or is damaged."""
