"""Sessions on disk: transcripts, their tree of turns, locks, names and exports.

Knows the protocol's values and nothing of screens or tensors. `library.Library` is where to
begin; `sessions/README.md` documents the format.
"""
