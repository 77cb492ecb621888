"""The in-process engine: the Python API of ds4chat.

    with Engine.open("flash.gguf", "dspark.gguf") as engine:
        session = engine.session()
        session.sync(engine.render([{"role": "user", "content": "Hi"}], think="off"))
        while (token := session.choose()) not in engine.end_ids:
            for t in session.speculate(token, max_tokens=64):
                print(engine.detokenize([t.id]), end="")

An Engine belongs to the thread that opened it and raises EngineError from any other.
The names are imported on first use, so that `import ds4chat.engine` stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ds4chat.engine.engine import Engine
    from ds4chat.engine.session import Session

__all__ = ["Engine", "Session"]


def __getattr__(name: str) -> object:
    """Import `Engine` and `Session` when they are first asked for."""
    if name == "Engine":
        from ds4chat.engine.engine import Engine  # noqa: PLC0415

        return Engine
    if name == "Session":
        from ds4chat.engine.session import Session  # noqa: PLC0415

        return Session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
