"""The running figures of a scripted turn."""

from __future__ import annotations

from dataclasses import dataclass, field

from ds4chat.protocol.types import Usage


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts and engine seconds of one turn; `usage` turns them into the protocol's record."""

    block_size: int
    n_prompt: int
    n_cached: int
    plain_step_s: float
    prefill_s: float = 0.0
    first_token_s: float = 0.0
    n_tokens: int = 0
    n_thinking: int = 0
    n_plain_steps: int = 0
    draft_s: float = 0.0
    verify_s: float = 0.0
    plain_s: float = 0.0
    accept_lens: list[int] = field(default_factory=list)
    n_drafted: int = 0
    n_accepted: int = 0
    accepted: list[int] = field(default_factory=list)
    tested: list[int] = field(default_factory=list)
    histogram: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.accepted = [0] * self.block_size
        self.tested = [0] * self.block_size
        self.histogram = [0] * (self.block_size + 1)

    def add_round(
        self,
        *,
        n_drafted: int,
        n_accepted: int,
        accept_len: int,
        draft_s: float,
        verify_s: float,
    ) -> None:
        """Count one round."""
        self.draft_s += draft_s
        self.verify_s += verify_s
        self.n_drafted += n_drafted
        self.n_accepted += n_accepted
        self.accept_lens.append(accept_len)
        self.histogram[n_accepted] += 1
        for position in range(min(n_accepted + 1, n_drafted)):
            self.tested[position] += 1
            self.accepted[position] += position < n_accepted

    def add_plain(self, step_s: float) -> None:
        """Count one plain step."""
        self.n_plain_steps += 1
        self.plain_s += step_s

    @property
    def decode_s(self) -> float:
        """Engine seconds spent on decoding."""
        return self.draft_s + self.verify_s + self.plain_s

    @property
    def tps(self) -> float:
        """Tokens a second of decoding; 0 before the first."""
        return self.n_tokens / self.decode_s if self.decode_s else 0.0

    def usage(self) -> Usage:
        """The figures so far."""
        n_rounds = len(self.accept_lens)
        return Usage(
            n_prompt=self.n_prompt,
            n_cached=self.n_cached,
            n_tokens=self.n_tokens,
            n_thinking=self.n_thinking,
            n_rounds=n_rounds,
            n_plain_steps=self.n_plain_steps,
            n_drafted=self.n_drafted,
            n_accepted=self.n_accepted,
            prefill_s=self.prefill_s,
            first_token_s=self.first_token_s,
            decode_s=self.decode_s,
            draft_s=self.draft_s,
            verify_s=self.verify_s,
            plain_s=self.plain_s,
            plain_step_s=self.plain_step_s,
            saved_s=self.n_tokens * self.plain_step_s - self.decode_s if n_rounds else None,
            accept_len=sum(self.accept_lens) / n_rounds if n_rounds else None,
            by_position=tuple(zip(self.accepted, self.tested, strict=True)),
            histogram=tuple(self.histogram),
            kv_bytes=(self.n_prompt + self.n_tokens) * 1_024,
            n_context=self.n_prompt + self.n_tokens,
        )
