"""Everything that is checked on a GPU, and its variants: a spec with the types of arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

from ds4chat.ops.spec import KernelSpec
from tests.kernels import (
    attention_cases,
    cache_cases,
    complete_cases,
    edge_cases,
    hyper_cases,
    keep_cases,
    markov_cases,
    moe_cases,
    wide_cases,
)
from tests.kernels.cases import ALL_ROWS, Family, product


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A spec and the types of its inputs, then outputs."""

    label: str
    spec: KernelSpec
    types: tuple[str, ...]


def gpu_families(backend: str) -> Iterator[Callable[[], Family]]:
    """What `gpu_check` goes through, most wanted first."""
    half = "bfloat16"
    for name in ("Q8_0", "IQ2_XXS", "Q2_K"):
        yield partial(product, backend, name, 4096, 1000, half, half)
    yield partial(product, backend, "Q8_0", 1024, 4096, half, half)
    yield partial(product, backend, "Q8_0", 4096, 1024, half, half, 8)
    yield from hyper_cases.families(4096)
    yield from edge_cases.families(4096)
    yield from markov_cases.families(129280, 4096)
    yield from attention_cases.families(backend, 512, 64, 1000)
    yield from moe_cases.families(backend)
    yield from wide_cases.families(backend)
    for name in ("Q4_K", "MXFP4", "F16", "BF16", "F32"):
        yield partial(product, backend, name, 4096, 1000, half, half)
    for name in ("Q8_0", "IQ2_XXS", "Q2_K", "Q4_K", "MXFP4", "F16", "BF16", "F32"):
        yield partial(product, backend, name, 4096 + 256, 1000, "float32")
        yield partial(product, backend, name, 4096 + 256, 40, half)


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
    for case in chain(cache_cases.cases(), keep_cases.cases(), complete_cases.cases()):
        types = (*(kind for _, kind in case.inputs), *(kind for _, kind in case.outputs))
        yield Variant(label=case.spec.name, spec=case.spec, types=types)
    for spec, types in wide_cases.others(backend):
        yield Variant(label=spec.name, spec=spec, types=types)
