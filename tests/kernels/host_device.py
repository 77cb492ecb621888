"""A device that runs recorded passes on the host: the same graphs, over MLX's memory there."""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.ops.step_graph import Node
from tests.kernels import host_build


class HostDevice:
    """Runs nodes one by one, in any order that their edges allow (`seed` chooses).

    `launched` counts graphs. Without edges (`has_edges`) any order is allowed; `forgotten`
    ones, by the names of both kernels, are left out.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        has_edges: bool = True,
        forgotten: frozenset[tuple[str, str]] = frozenset(),
    ) -> None:
        self.order = random.Random(seed)
        self.has_edges = has_edges
        self.forgotten = forgotten
        self.launched = 0
        self.graphs: list[HostGraph] = []
        self._copies: list[NDArray[Any]] = []

    def addresses(self, arrays: Sequence[mx.array]) -> list[int]:
        """See `Device`."""
        mx.eval(arrays)
        return [self._address(a) for a in arrays]

    def _address(self, array: mx.array) -> int:
        bits = array.view(mx.uint16) if array.dtype == mx.bfloat16 else array
        mx.eval(bits)
        seen = np.array(bits, copy=False)
        if not seen.flags.c_contiguous:
            seen = np.ascontiguousarray(seen)
            self._copies.append(seen)  # its address is nobody else's
        return int(seen.ctypes.data)

    def graph(self, nodes: Sequence[Node]) -> HostGraph:
        """See `Device`."""
        made = HostGraph(self, nodes)
        self.graphs.append(made)
        return made

    def upload(self, words: NDArray[Any], address: int) -> None:
        """See `Device`."""
        flat = np.ascontiguousarray(words)
        ctypes.memmove(address, flat.ctypes.data, flat.nbytes)

    def download(self, address: int, shape: tuple[int, ...]) -> NDArray[Any]:
        """See `Device`."""
        memory = (ctypes.c_float * math.prod(shape)).from_address(address)
        return np.ctypeslib.as_array(memory).reshape(shape)

    def fill(self, address: int, n_bytes: int) -> None:
        """See `Device`."""
        ctypes.memset(address, 0xFF, n_bytes)

    def wait(self) -> None:
        """See `Device`: nothing is handed over before it is done."""


class HostGraph:
    """See `Graph`."""

    def __init__(self, device: HostDevice, nodes: Sequence[Node]) -> None:
        self._device = device
        self.nodes = list(nodes)
        self.addresses = [list(node.addresses) for node in nodes]
        self.moved = 0
        self.is_closed = False

    def launch(self) -> None:
        """See `Graph`."""
        assert not self.is_closed
        self._device.launched += 1
        after = [self._after(node) for node in self.nodes]
        waiting, done = set(range(len(self.nodes))), set[int]()
        while waiting:
            ready = sorted(i for i in waiting if after[i] <= done)
            i = self._device.order.choice(ready)
            self._run(i)
            waiting.remove(i)
            done.add(i)

    def _after(self, node: Node) -> set[int]:
        if not self._device.has_edges:
            return set()
        name, forgotten = node.launch.spec.name, self._device.forgotten
        names = {i: self.nodes[i].launch.spec.name for i in node.after}
        return {i for i, other in names.items() if (other, name) not in forgotten}

    def _run(self, i: int) -> None:
        launch = self.nodes[i].launch
        arrays = [*launch.inputs, *launch.outputs]
        host_build.launch_at(
            launch.spec,
            [str(a.dtype).removeprefix("mlx.core.") for a in arrays],
            self.addresses[i],
            [a.shape for a in arrays],
            launch.n_blocks,
        )

    def move(self, node: int, addresses: Sequence[int]) -> None:
        """See `Graph`."""
        self.moved += 1
        self.addresses[node] = list(addresses)

    def close(self) -> None:
        """See `Graph`."""
        self.is_closed = True
