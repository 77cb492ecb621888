"""A slow, plain reference of the target and the draft module, in float64.

Written from the description of the architecture alone: whole sequences, nothing incremental,
loops over positions. It shares no code with ds4chat; weights come through the gguf package.
"""

from tests.reference.draft import DraftOutput, draft, draft_context
from tests.reference.pair import ReferencePair, read_pair
from tests.reference.target import TargetOutput, run_target

__all__ = [
    "DraftOutput",
    "ReferencePair",
    "TargetOutput",
    "draft",
    "draft_context",
    "read_pair",
    "run_target",
]
