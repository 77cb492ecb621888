"""What the CUDA driver is asked, seen by a library that stands in its place.

No GPU is needed: on one, `tests/kernels/gpu_check.py` and the benchmarks run the real thing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.errors import KernelError
from ds4chat.ops import cuda_driver
from ds4chat.ops.cuda_build import Launcher, Unit, find_compiler
from ds4chat.ops.cuda_driver import CudaDevice, CudaGraph
from ds4chat.ops.dispatch import Launch
from ds4chat.ops.spec import KernelSpec
from ds4chat.ops.step_graph import Node

FAILED = 719  # CUDA_ERROR_LAUNCH_FAILED


@dataclass
class Cuda:
    """Answers every call; `broken` is one that fails, `memory` what downloads bring."""

    broken: str = ""
    calls: list[str] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    moved: list[tuple[int, list[int]]] = field(default_factory=list)
    memory: bytes = b""
    _n_handles: int = 100

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name == self.broken:
                return FAILED
            known = getattr(self, "_" + name, None)
            if known is not None:
                known(*arguments)
            elif arguments and hasattr(arguments[0], "_obj"):
                self._give(arguments[0])
            return 0

        return call

    def _give(self, where: Any) -> int:
        self._n_handles += 1
        where._obj.value = self._n_handles
        return self._n_handles

    def _cuGetErrorString(self, status: ctypes.c_int, where: Any) -> None:
        where._obj.value = f"error {status.value}".encode()

    def _cuGraphAddKernelNode_v2(
        self, where: Any, graph: Any, after: Any, n: ctypes.c_size_t, params: Any
    ) -> None:
        del graph
        made = params._obj
        self.nodes.append(
            {
                "handle": self._give(where),
                "after": list(after)[: n.value],
                "grid": (made.grid_x, made.grid_y, made.grid_z),
                "block": (made.block_x, made.block_y, made.block_z),
                "arguments": [made.arguments[i] for i in range(4)],
            }
        )

    def _cuGraphExecKernelNodeSetParams_v2(
        self, executable: Any, handle: ctypes.c_void_p, params: Any
    ) -> None:
        del executable
        values = [
            ctypes.c_uint64.from_address(params._obj.arguments[i]).value for i in range(2)
        ]
        self.moved.append((handle.value or 0, values))

    def _cuMemHostAlloc(self, where: Any, size: ctypes.c_size_t, flags: Any) -> None:
        del flags
        self.held = ctypes.create_string_buffer(size.value)
        where._obj.value = ctypes.addressof(self.held)

    def _cuMemcpyDtoHAsync_v2(
        self, to: ctypes.c_void_p, source: Any, n: ctypes.c_size_t, stream: Any
    ) -> None:
        del source, stream
        ctypes.memmove(to.value or 0, self.memory, n.value)


def device(cuda: Cuda) -> CudaDevice:
    return CudaDevice(cuda_driver._Driver(cast(ctypes.CDLL, cuda)), b"\x7fELF")


def node(*, after: tuple[int, ...] = (), function: Any = None, name: str = "some") -> Node:
    spec = KernelSpec(
        name="some", source="some.kernel", inputs=("x",), outputs=("y",), threads=64
    )
    unit = Unit(name=name, text="", shapes=(0,))
    launch = Launch(
        spec=spec,
        function=function or Launcher(unit, b"\x7fELF", (2,)),
        inputs=[mx.zeros((3, 5))],
        outputs=[mx.zeros((3,))],
        n_blocks=7,
    )
    return Node(launch=launch, addresses=[4096, 8192], places={}, after=after)


def test_nodes_have_the_driver_s_layout() -> None:
    """`CUDA_KERNEL_NODE_PARAMS_v2`: 72 bytes, arguments at 40 on a 64-bit machine."""
    assert ctypes.sizeof(cuda_driver._KernelParams) == 72
    assert cuda_driver._KernelParams.arguments.offset == 40


def test_a_node_is_launched_with_addresses_and_then_shapes() -> None:
    cuda = Cuda()
    made = device(cuda).graph([node(), node(after=(0,), name="other")])
    first, second = cuda.nodes
    assert (first["grid"], first["block"]) == ((7, 1, 1), (64, 1, 1))
    kinds = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int, ctypes.c_int)
    pointers = zip(kinds, first["arguments"], strict=True)
    assert [kind.from_address(at).value for kind, at in pointers] == [4096, 8192, 3, 5]
    assert (first["after"], second["after"]) == ([], [first["handle"]])
    assert cuda.calls.count("cuModuleLoadData") == 2  # a module a kernel
    made.move(1, [16, 32])
    assert cuda.moved == [(second["handle"], [16, 32])]
    made.launch()
    assert cuda.calls[-1] == "cuGraphLaunch"
    made.close()
    made.close()
    assert cuda.calls.count("cuGraphExecDestroy") == cuda.calls.count("cuGraphDestroy") == 1


def test_a_module_is_loaded_once() -> None:
    cuda = Cuda()
    on = device(cuda)
    for _ in range(3):
        on.graph([node()])
    assert cuda.calls.count("cuModuleLoadData") == 1


def test_numbers_come_down_as_they_are_and_keep_their_shape() -> None:
    wanted = np.arange(6, dtype=np.float32).reshape(2, 3)
    cuda = Cuda(memory=wanted.tobytes())
    on = device(cuda)
    np.testing.assert_array_equal(on.download(64, (2, 3)), wanted)
    on.download(64, (3, 2))
    assert cuda.calls.count("cuMemHostAlloc") == 1  # kept for the next ones of that size
    on.upload(wanted, 64)
    on.fill(64, 24)
    on.wait()
    assert cuda.calls[-3:] == ["cuMemcpyHtoDAsync_v2", "cuMemsetD8Async", "cuStreamSynchronize"]


@pytest.mark.parametrize(
    "broken", ["cuGraphAddKernelNode_v2", "cuGraphInstantiateWithFlags", "cuModuleLoadData"]
)
def test_a_graph_that_cannot_be_made_leaves_nothing_behind(broken: str) -> None:
    cuda = Cuda(broken=broken)
    with pytest.raises(KernelError, match=f"{broken}: error {FAILED}"):
        device(cuda).graph([node()])
    assert cuda.calls[-1] == "cuGraphDestroy"


def test_a_kernel_that_mlx_compiled_cannot_stand_in_a_graph() -> None:
    cuda = Cuda()
    with pytest.raises(KernelError, match="some was compiled by MLX"):
        device(cuda).graph([node(function=mx.zeros)])


def test_a_broken_device_can_be_closed() -> None:
    cuda = Cuda()
    made = device(cuda).graph([node()])
    assert isinstance(made, CudaGraph)
    cuda.broken = "cuGraphExecDestroy"
    made.close()


def test_without_a_compiler_there_is_no_device() -> None:
    """On a machine without NVRTC passes go through MLX, and nothing is loaded."""
    if find_compiler() is None:
        assert cuda_driver.find_device() is None
