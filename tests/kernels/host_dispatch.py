"""A dispatcher that launches kernels on the host: ops and models run them without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.ops.dispatch import Dispatcher, Launch, Output
from ds4chat.ops.spec import KernelSpec
from tests.kernels import host_build
from tests.kernels.cases import Case, to_bf16


class HostDispatcher(Dispatcher):
    """Launches eagerly; `launched` counts launches by the name of the spec."""

    def __init__(self) -> None:
        super().__init__(backend="host")
        self.launched: dict[str, int] = {}

    def run(
        self,
        spec: KernelSpec,
        inputs: Sequence[mx.array],
        n_blocks: int,
        outputs: Sequence[Output],
    ) -> list[mx.array] | None:
        if spec.name in self.fallbacks:
            return None
        self.launched[spec.name] = self.launched.get(spec.name, 0) + 1
        case = Case(
            spec=spec,
            inputs=tuple(_to_host(a) for a in inputs),
            n_blocks=n_blocks,
            outputs=tuple((o.shape, _name(o.dtype)) for o in outputs),
            exact=(),
        )
        found = host_build.run(case)
        made = [mx.array(a).astype(o.dtype) for a, o in zip(found, outputs, strict=True)]
        self.record(
            Launch(
                spec=spec, function=None, inputs=list(inputs), outputs=made, n_blocks=n_blocks
            )
        )
        return made


def _name(dtype: mx.Dtype) -> str:
    return str(dtype).removeprefix("mlx.core.")


def _to_host(array: mx.array) -> tuple[NDArray[Any], str]:
    name = _name(array.dtype)
    if name == "bfloat16":
        return to_bf16(np.array(array.astype(mx.float32))), name
    return np.array(array), name
