"""Graphs of launches through the CUDA driver, over the memory that MLX holds.

MLX builds a CUDA graph anew for every pass, 10 us a
launch; a graph that is kept is launched in 3 us and runs a node each microsecond.
"""

from __future__ import annotations

import ctypes
import logging
import math
import threading
from collections.abc import Sequence
from contextlib import suppress
from ctypes import (
    POINTER,
    byref,
    c_char_p,
    c_int,
    c_size_t,
    c_ubyte,
    c_uint,
    c_uint64,
    c_void_p,
)
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.errors import Ds4Error, KernelError
from ds4chat.ops.cuda_build import Launcher, Unit, find_compiler
from ds4chat.ops.step_graph import Node

LIBRARY = "libcuda.so.1"
_MANY = 32  # arrays that one launch tells the addresses of
_NON_BLOCKING = 1
_log = logging.getLogger("ds4chat.kernels")


class _KernelParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS of the driver's second version."""

    _fields_ = (
        ("function", c_void_p),
        *((name, c_uint) for name in ("grid_x", "grid_y", "grid_z")),
        *((name, c_uint) for name in ("block_x", "block_y", "block_z")),
        ("shared_bytes", c_uint),
        ("arguments", POINTER(c_void_p)),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    )


class _Driver:
    """The calls of libcuda, their failures raised."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def __call__(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            words = c_char_p()
            self._library.cuGetErrorString(c_int(status), byref(words))
            text = (words.value or b"unknown").decode()
            raise KernelError(f"CUDA: {name}: {text}", "Passes go through MLX instead.")


def _locator_unit() -> Unit:
    """A kernel that tells where its inputs lie."""
    names = [f"a{i}" for i in range(_MANY)]
    lines = [f"out[{i}] = (unsigned long long){name};" for i, name in enumerate(names)]
    arguments = ", ".join(f"const void* {name}" for name in names)
    text = (
        f'extern "C" __global__ void ds4_locate({arguments}, unsigned long long* out) {{\n'
        f"  if (threadIdx.x == 0) {{ {' '.join(lines)} }}\n}}\n"
    )
    return Unit(name="ds4_locate", text=text, shapes=())


class CudaDevice:
    """The GPU that MLX uses. Belongs to the thread that uses MLX.

    Args:
        driver: libcuda.
        locator: machine code of `_locator_unit`.
    """

    def __init__(self, driver: _Driver, locator: bytes) -> None:
        self.call = driver
        self._locator = locator
        self._functions: dict[str, c_void_p] = {}
        self._pinned: dict[int, tuple[c_void_p, NDArray[np.float32]]] = {}
        mx.eval(mx.zeros((1,)) + 1)  # sync: once, so that MLX has made its context
        context = c_void_p()
        self.call("cuCtxGetCurrent", byref(context))
        if not context.value:
            device = c_int()
            self.call("cuDeviceGet", byref(device), c_int(0))
            self.call("cuDevicePrimaryCtxRetain", byref(context), device)
            self.call("cuCtxSetCurrent", context)
        self._stream = c_void_p()
        self.call("cuStreamCreate", byref(self._stream), c_uint(_NON_BLOCKING))

    def addresses(self, arrays: Sequence[mx.array]) -> list[int]:
        """See `Device`."""
        told = []
        for at in range(0, len(arrays), _MANY):
            part = list(arrays[at : at + _MANY])
            part += [part[0]] * (_MANY - len(part))
            told += mx.fast.precompiled_cuda_kernel(
                name="ds4_locate",
                compiled_source=self._locator,
                inputs=part,
                output_shapes=[(_MANY,)],
                output_dtypes=[mx.uint64],
                scalars=[],
                grid=(32, 1, 1),
                threadgroup=(32, 1, 1),
                ensure_row_contiguous=True,
            )
        mx.eval(told)  # sync: where a graph's memory lies is asked once
        return [int(v) for part in told for v in np.array(part)][: len(arrays)]

    def graph(self, nodes: Sequence[Node]) -> CudaGraph:
        """See `Device`."""
        return CudaGraph(self, nodes)

    def upload(self, words: NDArray[Any], address: int) -> None:
        """See `Device`; the driver has read pageable memory when its call returns."""
        flat = np.ascontiguousarray(words)
        self.call(
            "cuMemcpyHtoDAsync_v2",
            c_uint64(address), c_void_p(flat.ctypes.data), c_size_t(flat.nbytes), self._stream,
        )  # fmt: skip

    def download(self, address: int, shape: tuple[int, ...]) -> NDArray[Any]:
        """See `Device`."""
        n = math.prod(shape)
        if n not in self._pinned:
            memory = c_void_p()
            self.call("cuMemHostAlloc", byref(memory), c_size_t(4 * n), c_uint(0))
            pointer = ctypes.cast(memory, POINTER(ctypes.c_float))
            self._pinned[n] = (memory, np.ctypeslib.as_array(pointer, (n,)))
        memory, array = self._pinned[n]
        self.call(
            "cuMemcpyDtoHAsync_v2", memory, c_uint64(address), c_size_t(4 * n), self._stream
        )
        return array.reshape(shape)

    def fill(self, address: int, n_bytes: int) -> None:
        """See `Device`."""
        self.call(
            "cuMemsetD8Async", c_uint64(address), c_ubyte(0xFF), c_size_t(n_bytes), self._stream
        )

    def wait(self) -> None:
        """See `Device`."""
        self.call("cuStreamSynchronize", self._stream)

    def launch(self, executable: c_void_p) -> None:
        """Hand a graph over."""
        self.call("cuGraphLaunch", executable, self._stream)

    def function(self, launcher: Launcher) -> c_void_p:
        """The function of a kernel, its module loaded once."""
        found = self._functions.get(launcher.name)
        if found is None:
            module, found = c_void_p(), c_void_p()
            self.call("cuModuleLoadData", byref(module), launcher.cubin)
            self.call("cuModuleGetFunction", byref(found), module, launcher.name.encode())
            self._functions[launcher.name] = found
        return found


class _NodeArguments:
    """The parameters of a node and the memory behind them."""

    def __init__(self, function: c_void_p, node: Node) -> None:
        launcher = node.launch.function
        assert isinstance(launcher, Launcher)
        numbers = launcher.numbers(node.launch.inputs)
        self.addresses = [c_uint64(a) for a in node.addresses]
        self._numbers = [c_int(n) for n in numbers]
        values: list[Any] = [*self.addresses, *self._numbers]
        self._pointers = (c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        self.params = _KernelParams(
            function=function,
            grid_x=node.launch.n_blocks, grid_y=1, grid_z=1,
            block_x=node.launch.spec.threads, block_y=1, block_z=1,
            arguments=self._pointers,
        )  # fmt: skip


class CudaGraph:
    """Nodes instantiated on a device; see `Graph`."""

    def __init__(self, device: CudaDevice, nodes: Sequence[Node]) -> None:
        self._device = device
        self._handles: list[c_void_p] = []
        self._arguments: list[_NodeArguments] = []
        self._graph, self._executable = c_void_p(), c_void_p()
        device.call("cuGraphCreate", byref(self._graph), c_uint(0))
        try:
            for node in nodes:
                self._add(node)
            device.call(
                "cuGraphInstantiateWithFlags", byref(self._executable), self._graph, c_uint64(0)
            )
        except KernelError:
            self.close()
            raise

    def _add(self, node: Node) -> None:
        launcher = node.launch.function
        if not isinstance(launcher, Launcher):
            raise KernelError(
                f"{node.launch.spec.name} was compiled by MLX", "Passes go through MLX."
            )
        made = _NodeArguments(self._device.function(launcher), node)
        handle = c_void_p()
        after = [self._handles[i].value for i in node.after]
        self._device.call(
            "cuGraphAddKernelNode_v2",
            byref(handle), self._graph, (c_void_p * len(after))(*after),
            c_size_t(len(after)), byref(made.params),
        )  # fmt: skip
        self._handles.append(handle)
        self._arguments.append(made)

    def launch(self) -> None:
        """See `Graph`."""
        self._device.launch(self._executable)

    def move(self, node: int, addresses: Sequence[int]) -> None:
        """See `Graph`."""
        made = self._arguments[node]
        for kept, address in zip(made.addresses, addresses, strict=True):
            kept.value = address
        self._device.call(
            "cuGraphExecKernelNodeSetParams_v2",
            self._executable, self._handles[node], byref(made.params),
        )  # fmt: skip

    def close(self) -> None:
        """See `Graph`; a device that failed has nothing left to free."""
        with suppress(KernelError):
            if self._executable.value:
                self._device.call("cuGraphExecDestroy", self._executable)
            if self._graph.value:
                self._device.call("cuGraphDestroy", self._graph)
        self._executable, self._graph = c_void_p(), c_void_p()


def find_device() -> CudaDevice | None:
    """The device of this thread, or None where passes must go through MLX."""
    return _device_of(threading.get_ident())


@cache
def _device_of(thread: int) -> CudaDevice | None:
    del thread  # the driver's context is a thread's own
    compiler = find_compiler()
    if compiler is None:
        return None
    try:
        driver = _Driver(ctypes.CDLL(LIBRARY))
        return CudaDevice(driver, compiler.cubin(_locator_unit()))
    except (Ds4Error, OSError, AttributeError, RuntimeError) as error:
        _log.warning("no graphs of our own: %s", error)
        return None
