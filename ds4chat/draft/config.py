"""Sizes of the DSpark draft module, read from the support file."""

from __future__ import annotations

from dataclasses import dataclass

from ds4chat.model.config import BlockConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftConfig:
    """The draft module. `block_size` excludes the anchor."""

    name: str
    block: BlockConfig  # the stages; all of ratio 0, score-routed
    n_stages: int
    block_size: int
    markov_rank: int
    noise_id: int
    target_layers: tuple[int, ...]  # 0-based target layers whose outputs are captured
