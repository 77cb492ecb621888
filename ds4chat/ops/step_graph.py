"""A recorded pass as a graph of launches over fixed memory.

A pass through MLX is some 800 launches, each of which costs the host about 10 us. The same
launches, recorded once with the addresses of their arrays, are handed over as one graph. Two
things change: what a pass keeps of the state is written where the state lies, and nothing is
allocated. The order of every sum stays what it was.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import mlx.core as mx
from numpy.typing import NDArray

from ds4chat.errors import KernelError
from ds4chat.ops.dispatch import Launch


class UnrecordableError(KernelError):
    """A pass does more than launch kernels over memory that is known."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "Passes of this form go through MLX.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`offset` bytes into array number `state` of the state."""

    state: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A launch at fixed addresses: of its inputs, then of its outputs.

    `places` says which of them move with the state; `after` are the nodes that must have ended.
    """

    launch: Launch
    addresses: list[int]
    places: dict[int, Place]
    after: tuple[int, ...]


class Graph(Protocol):
    """Nodes that a device launches together."""

    def launch(self) -> None:
        """Hand all nodes over; `Device.wait` waits for them."""

    def move(self, node: int, addresses: Sequence[int]) -> None:
        """Give a node other addresses, while nothing runs."""

    def close(self) -> None:
        """Free it."""


class Device(Protocol):
    """What runs graphs; its memory is MLX's. Addresses stay until the host reads an array."""

    def addresses(self, arrays: Sequence[mx.array]) -> list[int]:
        """Where evaluated arrays lie; a copy's address if an array is not contiguous."""

    def graph(self, nodes: Sequence[Node]) -> Graph:
        """Make a graph.

        Raises:
            KernelError: the device cannot.
        """

    def upload(self, words: NDArray[Any], address: int) -> None:
        """Copy to the device before what is launched next; `words` may change at once."""

    def download(self, address: int, shape: tuple[int, ...]) -> NDArray[Any]:
        """Float32 numbers as they are once `wait` returns; valid until the next call."""

    def fill(self, address: int, n_bytes: int) -> None:
        """Set all bits, before what is launched next."""

    def wait(self) -> None:
        """Wait for all that was handed over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who owns a span: an input that stays, the plan, a state array, or a launch's output."""

    kind: str  # constant, plan, state or made
    number: int = 0
    is_new: bool = False  # of a state array: what the recorded pass made of it


class Spans:
    """Who owns which addresses."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._spans: dict[int, tuple[int, Owner]] = {}

    def add(self, address: int, n_bytes: int, owner: Owner) -> None:
        """`n_bytes` from `address` on belong to `owner`; the first owner stays."""
        if address not in self._spans:
            insort(self._starts, address)
            self._spans[address] = (n_bytes, owner)

    def find(self, address: int) -> tuple[Owner, int] | None:
        """The owner and the offset in its span, or None."""
        i = bisect_right(self._starts, address)
        if i == 0:
            return None
        start = self._starts[i - 1]
        n_bytes, owner = self._spans[start]
        return (owner, address - start) if address < start + n_bytes else None


@dataclass(slots=True, kw_only=True)
class Memory:
    """The memory of a recorded pass.

    Args:
        where: addresses by `id` of array, of every array of the launches and those below.
        constants: weights and other arrays that stay.
        plan: the buffer that holds what the pass depends on.
        before: the state's arrays.
        after: the same arrays as the pass left them; an array that it left alone is the same.
        ends: arrays that are read after the pass.
    """

    where: dict[int, int]
    constants: Sequence[mx.array]
    plan: mx.array
    before: Sequence[mx.array]
    after: Sequence[mx.array]
    ends: Sequence[mx.array] = ()
    spans: Spans = field(default_factory=Spans)

    def __post_init__(self) -> None:
        for i, (old, new) in enumerate(zip(self.before, self.after, strict=True)):
            self._add(old, Owner(kind="state", number=i))
            if new is not old:
                self._add(new, Owner(kind="state", number=i, is_new=True))
        self._add(self.plan, Owner(kind="plan"))
        for array in self.constants:
            self._add(array, Owner(kind="constant"))

    def _add(self, array: mx.array, owner: Owner) -> None:
        self.spans.add(self.where[id(array)], array.nbytes, owner)


def located(
    arrays: Sequence[mx.array], find: Callable[[Sequence[mx.array]], list[int]]
) -> dict[int, int]:
    """Addresses by `id`, each array asked for once."""
    each = list({id(a): a for a in arrays}.values())
    return {id(a): address for a, address in zip(each, find(each), strict=True)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Nodes in an order in which they may run.

    `memory`: addresses and sizes of all that they write beside the state.
    """

    nodes: list[Node]
    memory: dict[int, int]


class _Homes:
    """Where outputs lie: in the memory of others that nobody will read again.

    A launch may take the memory of an output if it runs behind the one that made that output
    and all that read it, over edges that are there anyway. So a pass needs the memory of a few
    layers instead of that of all, and what it hands on is still in the device's cache.

    Args:
        users: of each output, bits of the nodes that make or read it; -1 if it must stay.
    """

    def __init__(self, users: dict[Owner, int]) -> None:
        self.sizes: dict[int, int] = {}
        self.addresses: dict[Owner, int] = {}
        self._users = users
        self._tenants: dict[int, Owner] = {}

    def settle(self, owner: Owner, own: int, n_bytes: int, covered: int) -> int:
        """Choose where an output lies, whose maker runs behind the nodes in `covered`."""
        free = [
            (size, address)
            for address, size in self.sizes.items()
            if size >= n_bytes and not self._users[self._tenants[address]] & ~covered
        ]
        stays = self._users[owner] < 0
        size, home = (n_bytes, own) if stays else min(free, default=(n_bytes, own))
        self.sizes[home], self._tenants[home], self.addresses[owner] = size, owner, home
        return home


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A launch, and the owners of its arrays.

    `after` are the last of the nodes that must have ended, `covered` the bits of all of them.
    """

    launch: Launch
    read: list[tuple[Owner, int]]
    made: list[Owner]
    after: tuple[int, ...]
    covered: int


class _Builder:
    """Orders launches by what they read and write."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._ends = {memory.where[id(a)] for a in memory.ends}
        self._writers: dict[Owner, int] = {}
        self._readers: dict[Owner, list[int]] = {}
        self._steps: list[_Step] = []

    def add(self, launch: Launch) -> None:
        """The next launch."""
        number = len(self._steps)
        read = [self._owner(launch, array) for array in launch.inputs]
        made = [self._made(launch, array, number, i) for i, array in enumerate(launch.outputs)]
        after: set[int] = set()
        for owner, _ in read:
            after |= self._read(launch, owner, number)
        for owner in made:
            after |= self._write(launch, owner, number)
        after.discard(number)
        kept, covered = self._reduced(after)
        self._steps.append(
            _Step(launch=launch, read=read, made=made, after=kept, covered=covered)
        )

    def program(self) -> Program:
        """All launches as nodes."""
        users = {
            owner: sum(1 << reader for reader in set(self._readers.get(owner, ()))) | 1 << maker
            for owner, maker in self._writers.items()
        }
        for step in self._steps:
            for owner, array in zip(step.made, step.launch.outputs, strict=True):
                if self._memory.where[id(array)] in self._ends:
                    users[owner] = -1
        homes = _Homes(users)
        nodes = [self._node(step, homes) for step in self._steps]
        return Program(nodes=nodes, memory=homes.sizes)

    def _node(self, step: _Step, homes: _Homes) -> Node:
        addresses: list[int] = []
        places: dict[int, Place] = {}
        arrays = [*step.launch.inputs, *step.launch.outputs]
        for (owner, offset), array in zip(
            [*step.read, *((owner, 0) for owner in step.made)], arrays, strict=True
        ):
            own = self._memory.where[id(array)]
            if owner.kind == "state":
                places[len(addresses)] = Place(state=owner.number, offset=offset)
                own = self._memory.where[id(self._memory.before[owner.number])] + offset
            elif owner.kind == "made" and owner in homes.addresses:
                own = homes.addresses[owner] + offset
            elif owner.kind == "made":
                own = homes.settle(owner, own, array.nbytes, step.covered)
            addresses.append(own)
        return Node(launch=step.launch, addresses=addresses, places=places, after=step.after)

    def writes(self, state: int) -> bool:
        """Whether a launch wrote to this array of the state."""
        return Owner(kind="state", number=state) in self._writers

    def _owner(self, launch: Launch, array: mx.array) -> tuple[Owner, int]:
        found = self._memory.spans.find(self._memory.where[id(array)])
        if found is None:
            i = next(i for i, a in enumerate(launch.inputs) if a is array)
            name = launch.spec.inputs[i]
            raise UnrecordableError(f"{launch.spec.name}: {name} is made by a stock operation")
        return found

    def _made(self, launch: Launch, array: mx.array, number: int, i: int) -> Owner:
        """The owner of an output, which may be the state."""
        address = self._memory.where[id(array)]
        found = self._memory.spans.find(address)
        if found is None:
            owner = Owner(kind="made", number=(number << 8) + i)
            self._memory.spans.add(address, array.nbytes, owner)
            return owner
        owner, offset = found
        if owner.kind != "state" or not owner.is_new or offset:
            raise UnrecordableError(f"{launch.spec.name} writes to memory that is not its own")
        return owner

    def _read(self, launch: Launch, owner: Owner, number: int) -> set[int]:
        """Nodes that must have ended before this one reads."""
        if owner.kind in ("constant", "plan"):
            return set()
        old = Owner(kind=owner.kind, number=owner.number)
        if owner.kind == "state" and not owner.is_new and old in self._writers:
            raise UnrecordableError(f"{launch.spec.name} reads state that was written to")
        self._readers.setdefault(old, []).append(number)
        return {self._writers[old]} if old in self._writers else set()

    def _write(self, launch: Launch, owner: Owner, number: int) -> set[int]:
        """Nodes that must have ended before this one writes."""
        old = Owner(kind=owner.kind, number=owner.number)
        readers = self._readers.get(old, [])
        if owner.kind == "state" and number in readers and not launch.spec.in_place:
            raise UnrecordableError(f"{launch.spec.name} does not write in place")
        if old in self._writers:
            raise UnrecordableError(f"{launch.spec.name} writes what was written before")
        self._writers[old] = number
        return set(readers)

    def _reduced(self, after: set[int]) -> tuple[tuple[int, ...], int]:
        """`after` without those that end before others of it, and the bits of all before."""
        covered, kept = 0, []
        for i in sorted(after, reverse=True):
            if not covered >> i & 1:
                kept.append(i)
                covered |= self._steps[i].covered | 1 << i
        return tuple(sorted(kept)), covered


def program_of(launches: Sequence[Launch], memory: Memory) -> Program:
    """A recorded pass; the state is written where `memory.before` lies.

    Raises:
        UnrecordableError: the pass needs more than its launches, or writing in place would
            change what another launch reads.
    """
    builder = _Builder(memory)
    for launch in launches:
        builder.add(launch)
    missing = [
        i
        for i, (old, new) in enumerate(zip(memory.before, memory.after, strict=True))
        if new is not old and not builder.writes(i)
    ]
    if missing:
        raise UnrecordableError(f"array {missing[0]} of the state is made by a stock operation")
    return builder.program()
