"""What is run again and again in one form: recorded once, then launched as one graph.

A form goes through MLX a few times before it is recorded: then its launches run once through
MLX, and once as a graph that is compared with them bit for bit. From then on it is an upload of
its buffer, one launch, and a download of its answer. Whatever cannot be recorded goes through
MLX as before.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.errors import KernelError
from ds4chat.ops.dispatch import Launch, current
from ds4chat.ops.step_graph import (
    Device,
    Graph,
    Memory,
    Place,
    Program,
    UnrecordableError,
    located,
    program_of,
)

USES_BEFORE = 3
"""How often a form goes through MLX before it is recorded, unless it says more."""
MAX_FORMS = 128
"""Forms whose uses are counted: the last ones that came."""
MAX_GRAPHS = 32
MAX_BYTES = 1 << 30
"""Of the memory between the launches of all recordings of one kind, and of all arrays between
those of a run that is being recorded."""
_log = logging.getLogger("ds4chat.kernels")

_BITS = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}


class Owner(Protocol):
    """Who holds the first arrays of a state; it is not kept alive for them."""

    def arrays(self) -> list[mx.array]:
        """These arrays, as they are now."""


class State(Protocol):
    """Arrays that a graph reads, or writes where they lie, and that outlive it."""

    @property
    def owner(self) -> Owner:
        """Lives as long as the state."""

    @property
    def n_moves(self) -> int:
        """Counts what may have moved arrays: the host read them, or MLX wrote to them."""

    def arrays(self) -> list[mx.array]:
        """All of them."""

    def put(self, arrays: Sequence[mx.array]) -> None:
        """Hold these instead, in the order of `arrays`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A run through MLX, all lazy.

    `answer` is what it gives beside the state; `words` the buffer on the device that it read,
    and `constants` arrays that stay.
    """

    answer: mx.array
    words: mx.array
    constants: list[mx.array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What is to be run. `key` tells forms of one kind apart, `words` is its buffer, filled.

    `trace` runs it through MLX; the state then holds the arrays that this made. It is recorded
    when it comes again after `uses_before` times.
    """

    key: Hashable
    words: NDArray[Any]
    trace: Callable[[], Traced]
    uses_before: int = USES_BEFORE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moving:
    """A node whose addresses move with the state."""

    node: int
    addresses: list[int]
    places: dict[int, Place]


@dataclass(slots=True, kw_only=True)
class _Recording:
    """A recorded form.

    `bound` are the arrays of the state of `owner` that its graph touches, at `bases`, when they
    may have moved `n_moves` times; `moving` are the nodes that touch them. `memory` are
    addresses and sizes of all else that it writes to, and `held` the arrays to which that
    belongs.
    """

    graph: Graph
    moving: list[_Moving]
    traced: Traced
    words_address: int
    answer_address: int
    owner: weakref.ref[Owner]
    bound: list[mx.array]
    bases: list[int]
    memory: dict[int, int]
    held: list[mx.array]
    n_moves: int

    @property
    def n_bytes(self) -> int:
        """Of the memory between the launches."""
        return sum(self.memory.values())

    def is_bound(self, state: State, arrays: Sequence[mx.array]) -> bool:
        return (
            self.n_moves == state.n_moves
            and len(self.bound) == len(arrays)
            and all(a is b for a, b in zip(self.bound, arrays, strict=True))
        )

    def let_go(self) -> None:
        """Hold no arrays that are nobody's state any more."""
        owner = self.owner()
        held = [] if owner is None else owner.arrays()
        if not held or any(a is not b for a, b in zip(held, self.bound, strict=False)):
            self.bound = []


class Recorder:
    """The recordings of one kind.

    Args:
        device: runs graphs.
        kind: what is recorded, in words.
    """

    def __init__(self, device: Device, kind: str) -> None:
        self._device = device
        self._kind = kind
        self._uses: OrderedDict[Hashable, float] = OrderedDict()
        self._kept: OrderedDict[Hashable, _Recording] = OrderedDict()
        self.is_broken = False

    @property
    def n_recorded(self) -> int:
        """Forms that are recorded now."""
        return len(self._kept)

    def run(
        self, form: Form, state: State, meanwhile: Callable[[], None] | None = None
    ) -> NDArray[np.float32] | None:
        """The answer of a form on this state, or None: then nothing has happened.

        `meanwhile` is called while the device works.
        """
        if self.is_broken or current().fallbacks:
            return None
        recording = self._kept.get(form.key)
        if recording is None:
            recording = self._record_if_due(form, state)
            if recording is None:
                return None
        self._kept.move_to_end(form.key)
        try:
            self._bind(recording, state)
            return self._launched(recording, form.words, meanwhile)
        except KernelError as error:
            self._break(error)
            raise

    def release(self, state: State) -> None:
        """Hold arrays no longer that were this state's: MLX makes others."""
        held = {id(a) for a in state.arrays()}
        for recording in self._kept.values():
            if any(id(a) in held for a in recording.bound):
                recording.bound = []

    def close(self) -> None:
        """Free all graphs; everything goes through MLX from then on."""
        for recording in self._kept.values():
            recording.graph.close()
        self._kept.clear()
        self.is_broken = True

    def _launched(
        self,
        recording: _Recording,
        words: NDArray[Any],
        meanwhile: Callable[[], None] | None,
    ) -> NDArray[np.float32]:
        device = self._device
        device.upload(words, recording.words_address)
        recording.graph.launch()
        answer = device.download(recording.answer_address, recording.traced.answer.shape)
        try:
            if meanwhile is not None:
                meanwhile()
        finally:
            device.wait()
        copied: NDArray[np.float32] = answer.copy()
        return copied

    def _bind(self, recording: _Recording, state: State) -> None:
        """Let the graph use this state's arrays."""
        arrays = state.arrays()
        if recording.is_bound(state, arrays):
            return
        mx.eval(arrays)  # sync: passes through MLX must have ended
        mx.synchronize()
        bases = self._device.addresses(arrays)
        if bases != recording.bases:
            for moving in recording.moving:
                for at, place in moving.places.items():
                    moving.addresses[at] = bases[place.state] + place.offset
                recording.graph.move(moving.node, moving.addresses)
        recording.owner = weakref.ref(state.owner)
        recording.bound, recording.bases = arrays, bases
        for other in self._kept.values():
            other.let_go()
        recording.n_moves = state.n_moves

    def _record_if_due(self, form: Form, state: State) -> _Recording | None:
        if not self._is_due(form):
            return None
        before = state.arrays()
        try:
            recording, after = self._record(form, state)
            state.put(before)
            if not self._is_right(recording, form.words, after):
                state.put(after)  # the graph wrote to the others
                recording.graph.close()
                raise UnrecordableError("its graph gives other bits than its launches")
        except UnrecordableError as error:
            self._uses[form.key] = -math.inf
            _log.info("a %s is not recorded: %s", self._kind, error)
            return None
        except (KernelError, RuntimeError, ValueError) as error:
            state.put(before)
            self._break(error)
            return None
        self._kept[form.key] = recording
        self._trim()
        return recording

    def _is_due(self, form: Form) -> bool:
        """Count a use: whether the form has come often enough. What was refused never has."""
        self._uses[form.key] = self._uses.pop(form.key, 0) + 1
        if len(self._uses) > MAX_FORMS:
            self._uses.popitem(last=False)
        return self._uses[form.key] > form.uses_before

    def _record(self, form: Form, state: State) -> tuple[_Recording, list[mx.array]]:
        """Record a form, and the state that MLX made; the state is as before.

        Raises:
            UnrecordableError: it is more than launches.
        """
        before = state.arrays()
        try:
            with current().recording() as launches:
                traced = form.trace()
            after = state.arrays()
        finally:
            state.put(before)
        outputs = [a for launch in launches for a in launch.outputs]
        if sum(a.nbytes for a in outputs) > MAX_BYTES:
            raise UnrecordableError("its launches hand on more than may be kept at a time")
        where = self._located(launches, traced, [*before, *after])
        memory = Memory(
            where=where,
            constants=traced.constants,
            plan=traced.words,
            before=before,
            after=after,
            ends=[traced.answer],
        )
        program = program_of(launches, memory)
        if where[id(traced.answer)] not in program.memory:
            raise UnrecordableError("its answer is made by a stock operation")
        recording = _Recording(
            graph=self._device.graph(program.nodes),
            moving=_moving(program),
            traced=traced,
            words_address=where[id(traced.words)],
            answer_address=where[id(traced.answer)],
            owner=weakref.ref(state.owner),
            bound=before,
            bases=[where[id(a)] for a in before],
            memory=program.memory,
            held=[a for a in outputs if where[id(a)] in program.memory],
            n_moves=state.n_moves,
        )
        return recording, after

    def _located(
        self, launches: Sequence[Launch], traced: Traced, state: Sequence[mx.array]
    ) -> dict[int, int]:
        """Addresses by `id` of all arrays that a run touched."""
        arrays = [a for launch in launches for a in (*launch.inputs, *launch.outputs)]
        arrays += [*state, traced.answer, traced.words]
        mx.eval(arrays)  # sync: addresses are asked
        mx.synchronize()
        return located([*arrays, *traced.constants], self._device.addresses)

    def _is_right(
        self, recording: _Recording, words: NDArray[Any], after: Sequence[mx.array]
    ) -> bool:
        """Whether the graph, run once, gives what MLX gave, bit for bit."""
        device, answer = self._device, recording.traced.answer
        expected = mx.take(answer, mx.arange(answer.shape[0]), axis=0)
        mx.eval(expected)  # sync: the graph writes where it lies
        mx.synchronize()
        for address, n_bytes in recording.memory.items():
            device.fill(address, n_bytes)
        device.upload(words, recording.words_address)
        recording.graph.launch()
        device.wait()
        return _same([expected, *after], [answer, *recording.bound])

    def _break(self, error: Exception) -> None:
        self.is_broken = True
        _log.warning("a %s is recorded no more: %s", self._kind, error)

    def _trim(self) -> None:
        while len(self._kept) > 1 and (
            len(self._kept) > MAX_GRAPHS
            or sum(r.n_bytes for r in self._kept.values()) > MAX_BYTES
        ):
            _, oldest = self._kept.popitem(last=False)
            oldest.graph.close()


def _moving(program: Program) -> list[_Moving]:
    return [
        _Moving(node=i, addresses=list(node.addresses), places=node.places)
        for i, node in enumerate(program.nodes)
        if node.places
    ]


def _same(ours: Sequence[mx.array], theirs: Sequence[mx.array]) -> bool:
    """Whether all bits are the same."""
    pairs = zip(ours, theirs, strict=True)
    found: Any = mx.stack([mx.array_equal(_bits(a), _bits(b)) for a, b in pairs])
    return bool(mx.all(found).item())


def _bits(array: mx.array) -> mx.array:
    return array.view(_BITS[array.dtype.size])
