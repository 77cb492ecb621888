"""A loaded model: the in-process engine. See `engine/api.py` for the contract."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ds4chat.draft.verify import MAX_VERIFIED
from ds4chat.engine import owner
from ds4chat.engine.backend import Backend, choose_backend
from ds4chat.engine.calibrate import calibrate
from ds4chat.engine.costs import CostModel
from ds4chat.engine.load import Loaded, OnLoading, load
from ds4chat.engine.owner import Claim
from ds4chat.engine.policy_base import Scheduler
from ds4chat.engine.policy_window import WindowKnobs
from ds4chat.engine.probe import can_verify_in_passes
from ds4chat.engine.recorded import recorded_passes
from ds4chat.engine.recorded_draft import recorded_drafts
from ds4chat.engine.runner import Runner
from ds4chat.engine.sampling import check_sampling
from ds4chat.engine.scheduler import block_notice, make_scheduler
from ds4chat.engine.session import Session
from ds4chat.errors import EngineError, SettingsError
from ds4chat.protocol.types import Message, ModelInfo, Policy, Sampling, SpecOptions, ThinkMode
from ds4chat.text.prompt import messages_from, parse_think, render
from ds4chat.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What the caller of `Engine.open` asked for, checked against the file."""

    path: str
    ctx: int
    kv_fp8: bool
    spec: SpecOptions
    end_ids: frozenset[int]
    knobs: WindowKnobs | None


class Engine:
    """Weights, tokenizer and cost model; timelines come from `session()`.

    An Engine belongs to the thread that opened it: every call from another raises EngineError.
    """

    def __init__(self, loaded: Loaded, backend: Backend, options: EngineOptions) -> None:
        self._owner = threading.get_ident()
        self._loaded = loaded
        self._backend = backend
        self._options = options
        self._costs = CostModel()
        self._is_open = True
        self._claim: Claim | None = None
        self._is_calibrated = False
        self._runner = Runner(loaded.target, loaded.drafter, is_row_exact=True)
        self._is_exact_in_passes = can_verify_in_passes(
            self._runner, is_order_fixed=backend.is_order_fixed
        )
        self._runner.is_row_exact = self._is_exact_in_passes
        self._runner.recorded = recorded_passes(loaded.target, loaded.drafter)
        self._runner.recorded_drafts = recorded_drafts(loaded.drafter)
        self._info = self._make_info()
        self._make_scheduler(options.spec)  # refuses unusable options now

    @classmethod
    def open(  # noqa: PLR0913  (the published signature)
        cls,
        model_path: str | Path,
        support_path: str | Path | None = None,
        *,
        backend: str = "auto",
        ctx: int | None = None,
        confidence_threshold: float | None = None,
        policy: str = "money",
        draft_max: int | None = None,
        kv_fp8: bool = True,
        end_ids: Collection[int] | None = None,
        knobs: WindowKnobs | None = None,
        progress: OnLoading | None = None,
    ) -> Self:
        """Open a model and, for speculation, its DSpark support file.

        Args:
            model_path: the main GGUF (any part of a split one).
            support_path: the support GGUF; None decodes plainly.
            backend: auto, metal, cuda or cpu.
            ctx: context in tokens; None: what the model was trained for, at most 32,768.
            confidence_threshold: cut a proposal before the first draft below it; None: the
                policy's default.
            policy: money, window or fixed.
            draft_max: most drafts verified in a round; None: the whole block.
            kv_fp8: the FP8 and FP4 round trips that the checkpoint was trained with.
            end_ids: ids that end a reply; None: the file's end token.
            knobs: the window policy's knobs.
            progress: called with (stage, bytes done, bytes in all, tensors done and in all);
                may raise to cancel.

        Raises:
            ModelFileError: a file cannot be used, or the two do not belong together.
            EngineError: the backend is not available.
            SettingsError: an option is out of range.
        """
        spec = SpecOptions(
            policy=_policy(policy),
            confidence_threshold=confidence_threshold,
            draft_max=draft_max,
        )
        chosen = choose_backend(backend)
        report = progress or _silent
        _check_ctx(ctx)
        with ExitStack() as undo:
            claim = owner.claim(Path(model_path))
            undo.callback(claim.release)
            loaded = load(
                model_path, support_path, backend=chosen, kv_fp8=kv_fp8, on_loading=report,
                ctx=ctx,
            )  # fmt: skip
            report("checking exactness", 0, 0)
            ids = {loaded.tokenizer.specials.eos} if end_ids is None else end_ids
            options = EngineOptions(
                path=str(model_path),
                ctx=loaded.ctx,
                kv_fp8=kv_fp8,
                spec=spec,
                end_ids=frozenset(int(i) for i in ids),
                knobs=knobs,
            )
            engine = cls(loaded, chosen, options)
            engine._claim = claim
            undo.pop_all()
        if spec.policy is not Policy.FIXED and loaded.drafter is not None:
            report("measuring", 0, 0)
            engine.measure()
        return engine

    @property
    def info(self) -> ModelInfo:
        """What was opened."""
        return self._info

    @property
    def damage(self) -> tuple[str, ...]:
        """What is to be said of weights that hold NaN or infinity; empty: none does."""
        return self._loaded.damage

    @property
    def end_ids(self) -> frozenset[int]:
        """Ids that end a reply."""
        return self._options.end_ids

    @property
    def fingerprints(self) -> tuple[str, str]:
        """Fingerprints of the model and of the support file (empty without one)."""
        return self._loaded.model_print, self._loaded.support_print

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._loaded.tokenizer

    @property
    def runner(self) -> Runner:
        """Runs passes; for tools and tests that work below a session."""
        return self._runner

    @property
    def costs(self) -> CostModel:
        """Measured times of passes and drafts, shared by all sessions."""
        return self._costs

    def tokenize(self, text: str) -> list[int]:
        """Plain text to ids: a typed marker is text."""
        self._check_thread()
        return self.tokenizer.encode_plain(text)

    def render(
        self,
        messages: Sequence[Message | Mapping[str, str]],
        think: object = None,
        *,
        keep_reasoning: bool = False,
    ) -> list[int]:
        """A conversation to ids, the opener of the reply included.

        Args:
            messages: Message objects, or mappings with `role` and `content`; the last is the
                user's.
            think: a ThinkMode or its word, True or False, None for the model's default.
            keep_reasoning: earlier replies keep their reasoning; False: only their answers,
                as the model was trained.

        Raises:
            SettingsError: roles or thinking mode are unusable.
        """
        self._check_thread()
        mode = parse_think(think, self._info.think_default)
        return render(
            self.tokenizer,
            messages_from(messages),
            mode,
            effort=self._loaded.effort,
            keep_reasoning=keep_reasoning,
        )

    def detokenize(self, ids: Sequence[int]) -> str:
        """Ids to text; bytes that are not UTF-8 become U+FFFD."""
        self._check_thread()
        return self.tokenizer.decode(ids)

    def session(
        self,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int = 0,
        drafts: bool = True,
    ) -> Session:
        """A new empty timeline.

        Without `drafts` it decodes plainly for good and keeps nothing for the drafter, which is
        the fastest plain path.

        Raises:
            SettingsError: a sampling value is out of range.
        """
        self._check_thread()
        sampling = Sampling(
            temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed
        )
        check_sampling(sampling)
        return Session(
            self._runner if drafts else self._runner.without_drafter(),
            ctx=self._options.ctx,
            end_ids=self._options.end_ids,
            sampling=sampling,
            spec=self._options.spec,
            make_scheduler=self._make_scheduler,
            check_thread=self._check_thread,
        )

    def measure(self) -> None:
        """Time passes and drafts once, for the money policy (about a second)."""
        self._check_thread()
        if not self._is_calibrated:
            self._is_calibrated = True
            calibrate(self._runner, self._costs, self._max_rows())

    def stats(self) -> dict[str, Any]:
        """Figures of the engine: sizes in bytes, times in seconds."""
        self._check_thread()
        rows = range(1, self._max_rows() + 1)
        return {
            "model": self._info.name,
            "support": self._info.support_name,
            "backend": self._info.backend,
            "weight_bytes": self._info.weight_bytes,
            "load_s": self._info.load_s,
            "is_exact_in_passes": self._is_exact_in_passes,
            "draft_s": self._costs.draft_s,
            "pass_s": {r: self._costs.pass_s(r) for r in rows},
        }

    def close(self) -> None:
        """Free the weights; sessions of this engine cannot be used afterwards."""
        self._check_thread()
        self._is_open = False
        if self._claim is not None:
            self._claim.release()
        for recorded in (self._runner.recorded, self._runner.recorded_drafts):
            if recorded is not None:
                recorded.close()
        del self._runner, self._loaded

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_open:
            self.close()

    def _max_rows(self) -> int:
        drafter = self._loaded.drafter
        return 1 if drafter is None else 1 + min(drafter.config.block_size, MAX_VERIFIED)

    def _make_scheduler(self, spec: SpecOptions) -> Scheduler:
        return make_scheduler(
            spec,
            block_size=self._max_rows() - 1,
            costs=self._costs,
            window_knobs=self._options.knobs,
        )

    def _make_info(self) -> ModelInfo:
        loaded, config = self._loaded, self._loaded.target.config
        block_size = loaded.drafter.config.block_size if loaded.drafter is not None else 0
        notice = block_notice(block_size)
        can_think = loaded.is_large and loaded.tokenizer.specials.has_thinking
        return ModelInfo(
            name=loaded.name,
            path=self._options.path,
            quant=loaded.quant,
            n_layers=config.n_layers,
            n_vocab=config.n_vocab,
            ctx=self._options.ctx,
            ctx_trained=config.ctx_trained,
            support_name=loaded.support_name,
            block_size=block_size,
            backend=self._backend.name,
            device=self._backend.device,
            activation_dtype=str(self._backend.storage.dtype).removeprefix("mlx.core."),
            weight_bytes=loaded.weight_bytes,
            load_s=loaded.load_s,
            kv_fp8=self._options.kv_fp8,
            is_exact=True,
            exact_note=(
                ""
                if self._is_exact_in_passes
                else "several rows at once may differ here: rows are verified one by one, "
                "which is exact but not faster than plain decoding"
            ),
            think_default=ThinkMode.HIGH if can_think else ThinkMode.OFF,
            fingerprint=loaded.model_print,
            support_fingerprint=loaded.support_print,
            notes=loaded.notes + tuple(note for note in (notice, self._ctx_note()) if note),
        )

    def _ctx_note(self) -> str:
        ctx, trained = self._options.ctx, self._loaded.target.config.ctx_trained
        if ctx <= trained:
            return ""
        return f"the context of {ctx:,} tokens is longer than the {trained:,} of the file"

    def _check_thread(self) -> None:
        if not self._is_open:
            raise EngineError("the engine is closed", "open it again")
        if threading.get_ident() != self._owner:
            raise EngineError(
                "the engine was called from another thread than the one that opened it",
                "make all calls from one thread",
            )


def _policy(name: str) -> Policy:
    try:
        return Policy(name)
    except ValueError:
        known = ", ".join(p.value for p in Policy)
        raise SettingsError(f"policy {name!r} is not known", f"use one of {known}") from None


def _check_ctx(ctx: int | None) -> None:
    if ctx is not None and ctx < 1:
        raise SettingsError(f"ctx is {ctx:,}; at least 1 wanted", "use a larger --ctx")


def _silent(
    stage: str,
    done_bytes: int,
    total_bytes: int,
    done_tensors: int = 0,
    total_tensors: int = 0,
) -> None:
    del stage, done_bytes, total_bytes, done_tensors, total_tensors
