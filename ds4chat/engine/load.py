"""From two paths to a model that can run: open, check, then stream the weights in."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ds4chat.draft.binding import read_draft
from ds4chat.draft.build import build_draft
from ds4chat.draft.config import DraftConfig
from ds4chat.draft.dspark import Drafter
from ds4chat.engine.backend import Backend
from ds4chat.engine.fingerprint import fingerprint
from ds4chat.engine.fit import Fit, Needs, judge, needs
from ds4chat.engine.memory import memory_of
from ds4chat.engine.recording import MAX_BYTES
from ds4chat.engine.runner import prefill_chunk
from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile, TensorEntry
from ds4chat.formats.show import shown_path
from ds4chat.formats.vocab import read_tokenizer
from ds4chat.model.build import build_target
from ds4chat.model.config import TargetConfig
from ds4chat.model.opening import read_target
from ds4chat.model.source import WeightSource
from ds4chat.model.target import Target
from ds4chat.text.prefixes import EffortPrefixes
from ds4chat.text.tokenizer import Tokenizer


class OnLoading(Protocol):
    """Called while a model loads: the stage, and what is read of all that will be."""

    def __call__(
        self,
        stage: str,
        done_bytes: int,
        total_bytes: int,
        done_tensors: int = 0,
        total_tensors: int = 0,
    ) -> None:
        """Take it in; may raise to cancel."""


DEFAULT_CTX = 32768

_MANY_LAYERS = 40
"""From here on a model is Flash or larger: trained with effort prefixes, thinks by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """An open model: everything but the timelines."""

    target: Target
    drafter: Drafter | None
    tokenizer: Tokenizer
    effort: EffortPrefixes
    name: str
    quant: str
    support_name: str
    weight_bytes: int
    is_large: bool
    load_s: float
    notes: tuple[str, ...]
    damage: tuple[str, ...]  # those notes that are about weights which are no numbers
    model_print: str
    support_print: str  # empty: no support file
    ctx: int


@dataclass(slots=True, kw_only=True)
class _Progress:
    on_loading: OnLoading
    total: int
    n_tensors: int
    stage: str = "reading weights"
    done: int = 0
    n_read: int = 0

    def add(self, n_bytes: int) -> None:
        """Count one tensor."""
        self.done += n_bytes
        self.n_read += 1
        self.on_loading(self.stage, self.done, self.total, self.n_read, self.n_tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Both files, checked but not read."""

    base: GgufFile
    target: TargetConfig
    entries: dict[str, TensorEntry]
    support: GgufFile | None = None
    draft: DraftConfig | None = None
    draft_entries: dict[str, TensorEntry] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def n_bytes(self) -> int:
        """Bytes of all tensors that will be read."""
        every = [*self.entries.values(), *self.draft_entries.values()]
        return sum(e.n_bytes for e in every)

    @property
    def n_tensors(self) -> int:
        """How many tensors will be read."""
        return len(self.entries) + len(self.draft_entries)


def load(
    model_path: str | Path,
    support_path: str | Path | None,
    *,
    backend: Backend,
    kv_fp8: bool,
    on_loading: OnLoading,
    ctx: int | None = None,
) -> Loaded:
    """Open a pair and read its weights.

    Both files are checked whole, and whether they fit into memory, before anything large is
    read. `ctx` None is what the model was trained for, at most 32,768, and what fits.

    Raises:
        ModelFileError: a file cannot be used, or the two do not belong together.
        EngineError: the weights are larger than the machine's memory.
    """
    start = time.perf_counter()
    on_loading("opening", 0, 0)
    with ExitStack() as stack:
        pair = _open_pair(stack, model_path, support_path)
        on_loading("tokenizer", 0, 0)
        tokenizer = read_tokenizer(pair.base)
        if tokenizer.n_vocab < pair.target.n_vocab:
            raise ModelFileError(
                f"{shown_path(pair.base.path)}: {tokenizer.n_vocab:,} token texts; "
                f"{pair.target.n_vocab:,} wanted, one for each output",
                "The file is incomplete: fetch it again.",
            )
        fitting = _fit(pair, backend, ctx)
        progress = _Progress(
            on_loading=on_loading, total=pair.n_bytes, n_tensors=pair.n_tensors
        )
        source = stack.enter_context(
            WeightSource(pair.base, pair.entries, backend.storage, progress.add)
        )
        weights = build_target(source, pair.target)
        target = Target(
            pair.target,
            weights,
            dtype=backend.storage.dtype,
            kv_fp8=kv_fp8,
            capture_layers=pair.draft.target_layers if pair.draft is not None else (),
        )
        drafter, spoiled = _read_drafter(pair, target, backend, kv_fp8, progress)
        spoiled_notes = _spoiled_notes(source.spoiled, spoiled)
        is_large = pair.target.n_layers >= _MANY_LAYERS
        template = pair.base.metadata.get("tokenizer.chat_template")
        effort = (
            EffortPrefixes.resolve(template if isinstance(template, str) else None)
            if is_large
            else EffortPrefixes.none()
        )
        return Loaded(
            target=target,
            drafter=drafter,
            tokenizer=tokenizer,
            effort=effort,
            name=pair.target.name,
            quant=_quant_label(pair.entries),
            support_name=pair.draft.name if pair.draft is not None else "",
            weight_bytes=pair.n_bytes,
            is_large=is_large,
            load_s=time.perf_counter() - start,
            notes=(
                *pair.warnings,
                *((effort.note,) if effort.note else ()),
                *fitting.notes,
                *spoiled_notes,
            ),
            ctx=fitting.ctx,
            damage=tuple(spoiled_notes),
            model_print=fingerprint(pair.base),
            support_print=fingerprint(pair.support) if pair.support is not None else "",
        )


def _open_pair(
    stack: ExitStack, model_path: str | Path, support_path: str | Path | None
) -> _Pair:
    base = stack.enter_context(GgufFile.open(model_path))
    target, entries = read_target(base)
    if support_path is None:
        return _Pair(base=base, target=target, entries=entries)
    support = stack.enter_context(GgufFile.open(support_path))
    reading, draft_entries = read_draft(support, target, base)
    return _Pair(
        base=base,
        target=target,
        entries=entries,
        support=support,
        draft=reading.config,
        draft_entries=draft_entries,
        warnings=reading.warnings,
    )


def _fit(pair: _Pair, backend: Backend, ctx: int | None) -> Fit:
    """Decide the context by the memory that there is."""
    wanted = _wanted_ctx(pair, ctx)
    memory = memory_of(backend.name)
    if memory is None:
        return Fit(ctx=wanted)
    return judge(_needs(pair, backend), memory, wanted, is_asked=ctx is not None)


def _wanted_ctx(pair: _Pair, ctx: int | None) -> int:
    return min(pair.target.ctx_trained, DEFAULT_CTX) if ctx is None else ctx


def _needs(pair: _Pair, backend: Backend) -> Needs:
    entries = [*pair.entries.values(), *pair.draft_entries.values()]
    return needs(
        pair.target,
        weights=sum(map(backend.storage.resident_bytes, entries)),
        itemsize=backend.storage.dtype.size,
        n_stages=pair.draft.n_stages if pair.draft is not None else 0,
        chunk=prefill_chunk(),
        recorded=MAX_BYTES if backend.name == "cuda" else 0,
    )


def estimate(
    model_path: str | Path, support_path: str | Path | None, backend: Backend, ctx: int | None
) -> tuple[Needs, int]:
    """What a pair would take, and with how much context; only headers are read.

    Raises:
        ModelFileError: a file cannot be used, or the two do not belong together.
    """
    with ExitStack() as stack:
        pair = _open_pair(stack, model_path, support_path)
        return _needs(pair, backend), _wanted_ctx(pair, ctx)


def _read_drafter(
    pair: _Pair, target: Target, backend: Backend, kv_fp8: bool, progress: _Progress
) -> tuple[Drafter | None, list[str]]:
    """The draft module, and the names of its tensors that hold NaN or infinity."""
    if pair.support is None or pair.draft is None:
        return None, []
    progress.stage = "reading draft weights"
    with WeightSource(
        pair.support, pair.draft_entries, backend.storage, progress.add
    ) as source:
        weights = build_draft(source, pair.draft)
    drafter = Drafter(
        pair.draft,
        weights,
        embedding=target.weights.embed,
        output=target.weights.output,
        dtype=backend.storage.dtype,
        kv_fp8=kv_fp8,
    )
    return drafter, source.spoiled


def _spoiled_notes(target: list[str], draft: list[str]) -> list[str]:
    """What to say about weights that are not finite; the chat may start all the same."""
    notes = []
    if target:
        notes.append(
            f"{_named(target)} of the model: NaN or infinity among the weights; a reply "
            "that meets it is broken off. Fetch the file again."
        )
    if draft:
        notes.append(
            f"{_named(draft)} of the support file: NaN or infinity among the weights; replies "
            "that meet it go on without speculation. Fetch the file again."
        )
    return notes


def _named(tensors: list[str]) -> str:
    rest = f" and {len(tensors) - 1:,} more tensors" if len(tensors) > 1 else ""
    return f"{tensors[0]}{rest}"


def _quant_label(entries: dict[str, TensorEntry]) -> str:
    """The formats that hold at least a twentieth of the bytes, largest first."""
    sizes: Counter[str] = Counter()
    for entry in entries.values():
        sizes[entry.quant.name if entry.quant is not None else "?"] += entry.n_bytes
    total = sum(sizes.values())
    return "+".join(name for name, size in sizes.most_common() if size * 20 >= total)
