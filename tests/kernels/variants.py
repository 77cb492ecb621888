"""Every kernel variant with the types of its arguments, at Flash's row lengths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ds4chat.ops.spec import KernelSpec
from tests.kernels.cases import ALL_ROWS, gpu_families


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A spec and the types of its inputs, then outputs."""

    label: str
    spec: KernelSpec
    types: tuple[str, ...]


def every_variant(backend: str) -> Iterator[Variant]:
    """The variants that `gpu_check` launches."""
    seen: set[tuple[object, ...]] = set()
    for maker in gpu_families(backend):
        family = maker()
        case = family.make(ALL_ROWS)
        types = (*(kind for _, kind in case.inputs), *(kind for _, kind in case.outputs))
        if (case.spec, types) not in seen:
            seen.add((case.spec, types))
            yield Variant(label=family.label, spec=case.spec, types=types)
