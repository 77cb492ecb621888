"""The checks of `ds4chat doctor` that need a library which may be broken.

`python -m ds4chat.cli.doctor_child SECTION ASK`, with ASK as JSON, prints findings, one JSON
object a line. It is a process of its own: a library that crashes or hangs costs a line of the
report and not the report. What cannot be imported is imported inside the checks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ds4chat.cli.doctor_finding import Finding, fail, ok, warn
from ds4chat.errors import Ds4Error
from ds4chat.sizes import size

if TYPE_CHECKING:
    from ds4chat.engine.backend import Backend
    from ds4chat.engine.fit import Memory, Needs
    from ds4chat.engine.op_probe import OpResult
    from ds4chat.ops.dispatch import Dispatcher

MODEL, COMPUTE, MEMORY = "model", "compute", "memory"
OPERATIONS, KERNELS = "operations of MLX", "own kernels"
SMALL_BYTES = 256 << 20
"""A pair up to this size is opened and tried whole."""

_MAX_PROBLEMS = 6
_DAMAGE_FIX = "`ds4chat inspect FILE --sha256` gives the file's hash, to compare."
_MLX_FIX = "pip install --force-reinstall 'mlx[cpu]'   (macOS: mlx; NVIDIA: 'mlx[cuda13]')"
_HASH_FIX = "Damaged weights: every start names them; `ds4chat inspect FILE --sha256` compares."
_FETCH_FIX = "`ds4chat inspect FILE` tells more; fetch the file again if it is damaged."


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What to check. Paths are empty where there is none.

    `is_thorough`: operations are tried one by one later, so not in passing.
    """

    model: str = ""
    support: str = ""
    support_note: str = ""  # of those that lie beside the model and are not used
    backend: str = "auto"
    ctx: int | None = None
    cpu_blas: bool = True
    is_thorough: bool = False


def check_files(ask: Ask) -> Iterator[Finding]:
    """The model file, the support file, and whether they are a pair."""
    model = _inspected("model file", ask.model)
    if isinstance(model, Finding):
        yield model
        return
    if model["kind"] == "support":
        yield fail(
            MODEL, "model file", f"{model['path']}: a DSpark support file, not a model",
            "Name it with --support, and the main GGUF with --model.",
        )  # fmt: skip
        return
    yield from _problems("model file", model)
    if model["problems"]:
        return
    quant = ", ".join(str(row["type"]) for row in model["quant"][:4])
    words = f"{model['path']}: {model['name']}, {size(model['file_bytes'])}, {quant}"
    yield ok(MODEL, "model file", words)
    tokens = model["tokenizer"]
    yield ok(MODEL, "tokenizer", f"{tokens['tokens']:,} tokens, {tokens['pre']}")
    yield from (warn(MODEL, "model file", line, _FETCH_FIX) for line in model["warnings"])
    if ask.support_note:
        yield warn(
            MODEL, "support file", ask.support_note, "Keep one of them there, and whole."
        )
    elif not ask.support:
        yield warn(
            MODEL, "support file", "none beside the model: replies are decoded plainly",
            "Put the DSpark support GGUF beside the model, or name it with --support FILE.",
        )  # fmt: skip
    if not ask.support:
        return
    pair = _inspected("support file", ask.support, ask.model)
    if isinstance(pair, Finding):
        yield pair
        return
    yield from _problems("support file", pair)
    if not pair["problems"]:
        words = f"{pair['path']}: {size(pair['file_bytes'])}, blocks of "
        yield ok(MODEL, "support file", f"{words}{pair['pair']['block_size']}; fits the model")
        yield from (warn(MODEL, "support file", line, _FETCH_FIX) for line in pair["warnings"])


def _inspected(name: str, path: str, other: str = "") -> dict[str, Any] | Finding:
    """Everything about a file, or why it cannot be read at all."""
    from ds4chat.cli.inspect import inspect

    try:
        return inspect(Path(path), Path(other) if other else None)
    except Ds4Error as error:
        return fail(MODEL, name, error.message, error.hint or _FETCH_FIX)


def _problems(name: str, report: Mapping[str, object]) -> Iterator[Finding]:
    problems = report["problems"]
    assert isinstance(problems, list)
    for line in problems[:_MAX_PROBLEMS]:
        fix = str(report["hint"]) or _FETCH_FIX
        yield fail(MODEL, name, f"{report['path']}: {line}", fix)
    if len(problems) > _MAX_PROBLEMS:
        rest = f"{len(problems) - _MAX_PROBLEMS} more problems"
        yield fail(MODEL, name, rest, "`ds4chat inspect FILE` lists them all.")


def check_engine(ask: Ask) -> Iterator[Finding]:
    """Where MLX runs, whether its sums can be trusted, and whether the pair fits in memory."""
    blas = _enable_products(ask)  # before the import of MLX
    backend, findings = _backend(ask.backend)
    yield from findings
    if backend is None:
        return
    yield from _products(blas, backend.name)
    if not ask.is_thorough:
        yield from _operations(backend)
    yield from _memory(ask, backend)


def _enable_products(ask: Ask) -> str:
    if not ask.cpu_blas or ask.backend not in ("auto", "cpu"):
        return ""
    from ds4chat.engine.host_open import use_fast_products
    from ds4chat.ops import cpu_blas

    use_fast_products()
    return cpu_blas.status()


def _backend(name: str) -> tuple[Backend | None, list[Finding]]:
    try:
        import mlx.core as mx

        from ds4chat.engine.backend import choose_backend

        backend = choose_backend(name)
        total = mx.arange(1000).sum().item()
    except ImportError as error:
        return None, [fail(COMPUTE, "MLX", f"cannot be loaded: {error}", _MLX_FIX)]
    except Ds4Error as error:
        return None, [fail(COMPUTE, "backend", error.message, error.hint or _MLX_FIX)]
    except Exception as error:  # noqa: BLE001 - what a broken library raises is anything
        words = f"fails: {type(error).__name__}: {error}"
        return None, [fail(COMPUTE, "MLX", words, _MLX_FIX)]
    if total != 499_500:
        return None, [fail(COMPUTE, "MLX", f"counts wrongly: {total}", _MLX_FIX)]
    return backend, [ok(COMPUTE, "backend", f"{backend.name} on {backend.device}")]


def _products(blas: str, backend: str) -> Iterator[Finding]:
    """The fast CPU matrix product: in use, or why not."""
    if backend != "cpu":
        yield ok(COMPUTE, "CPU product", f"not needed on {backend}")
        return
    from ds4chat.ops import cpu_blas

    if not blas:
        yield ok(COMPUTE, "CPU product", "MLX's own, as --no-cpu-blas asks")
    elif "fast" in blas:
        import mlx.core as mx

        mx.eval(mx.ones((2, 64)) @ mx.ones((64, 64)))
        yield _fast_product(blas, is_used=cpu_blas.is_in_use(), is_right=cpu_blas.self_test())
    elif sys.platform == "linux":
        fix = "Install a C compiler (cc, gcc or clang): without it the CPU is much slower."
        if "[Errno" in blas:  # not the compiler: there is nowhere to build
            fix = "Make the build folder (below) yours to write: without it the CPU is slower."
        yield warn(COMPUTE, "CPU product", blas, fix)
    else:
        yield ok(COMPUTE, "CPU product", blas)


def _fast_product(words: str, *, is_used: bool, is_right: bool) -> Finding:
    if not is_right:
        fix = "Delete the build folder (below) and run this again; --no-cpu-blas goes without."
        return fail(COMPUTE, "CPU product", f"{words}: fails its self-test", fix)
    if not is_used:
        fix = "This MLX brings its own product: replies are right, but slower."
        return warn(COMPUTE, "CPU product", f"{words}: built, but MLX does not call it", fix)
    return ok(COMPUTE, "CPU product", f"{words}, in use and self-tested")


def _operations(backend: Backend) -> Iterator[Finding]:
    from ds4chat.engine import op_probe

    results = [op_probe.probe(op) for op in op_probe.stock_ops(op_probe.SMALL)]
    yield from (_judge(result) for result in results if not result.is_right)
    loose = [result.name for result in results if not result.is_row_exact]
    words = f"{len(results) - len(loose)} of {len(results)} operations give a row its own bits"
    if loose:
        found = f"{words}; not: {', '.join(loose)}"
        yield warn(COMPUTE, "exact rows", found, _loose_fix())
    elif not backend.is_order_fixed:
        found = f"{words} here; not proven for every shape on {backend.name}"
        yield ok(COMPUTE, "exact rows", found, _loose_fix())
    else:
        yield ok(COMPUTE, "exact rows", words)


def _loose_fix() -> str:
    return "Nothing to do: rows are verified one by one, which is exact and only slower."


def _judge(
    result: OpResult, section: str = OPERATIONS, *, has_kernels: bool = False
) -> Finding:
    """One operation: wrong, inexact among other rows, or right.

    `has_kernels`: kernels of our own, tried before, stand in for it in passes of few rows.
    """
    name = result.name.removeprefix("kernel: ")
    if not result.is_right:
        found = f"wrong: error {result.nmse:.1e} against float64"
        return fail(section, name, found, f"{_MLX_FIX}; until then --backend cpu")
    found = f"error {result.nmse:.1e}"
    if not result.is_row_exact:
        found += "; a row's bits depend on others"
        if has_kernels:
            return ok(section, name, f"{found}: own kernels stand in for it")
        return warn(section, name, found, _loose_fix())
    return ok(section, name, f"{found}; each row has its own bits")


def check_kernels(ask: Ask) -> Iterator[Finding]:
    """Every stock operation in the sizes of large models, and every kernel of our own."""
    _enable_products(ask)
    backend, findings = _backend(ask.backend)
    if backend is None:
        yield from findings
        return
    from ds4chat.engine import op_probe
    from ds4chat.ops import dispatch

    # our own first: after a fault of MLX a GPU answers nobody
    has_kernels = yield from _own_kernels(backend)
    dispatch.use(dispatch.choose(backend.name, is_wanted=False))
    for op in op_probe.stock_ops(op_probe.LARGE):
        yield _judge(op_probe.probe(op), has_kernels=has_kernels)


def _own_kernels(backend: Backend) -> Generator[Finding, None, bool]:
    """Each of them tried; returns whether they can stand in for operations of MLX."""
    from ds4chat.engine import kernel_probe, op_probe
    from ds4chat.ops import dispatch

    dispatcher = kernel_probe.dispatcher_of(backend.name)
    dispatch.use(dispatcher)
    if dispatcher.is_reference:
        words = (
            f"none on {backend.name}: below are the operations of MLX that stand in for them"
        )
        yield ok(KERNELS, "in use", words)
    results = []
    for op in kernel_probe.kernel_ops():
        results.append(op_probe.probe(op))
        yield _judge(results[-1], KERNELS)
    yield from check_fallbacks(dispatcher.fallbacks)
    return _stand_in(dispatcher, results)


def _stand_in(dispatcher: Dispatcher, results: Sequence[OpResult]) -> bool:
    """Whether kernels are in use here, and all of them are right and none was given up."""
    is_whole = not dispatcher.is_reference and not dispatcher.fallbacks
    return is_whole and all(result.is_right and result.is_row_exact for result in results)


def check_fallbacks(fallbacks: Mapping[str, str]) -> Iterator[Finding]:
    """Kernels that this device could not build or run, with the reason."""
    for name, reason in fallbacks.items():
        fix = "Stock operations run in its place, slower. Please report it: --report FILE"
        yield warn(KERNELS, name, f"not used: {reason}", fix)


def _memory(ask: Ask, backend: Backend) -> Iterator[Finding]:
    from ds4chat.engine.memory import memory_of

    memory = memory_of(backend.name)
    if memory is None:
        yield warn(
            MEMORY, "memory", "this system does not say how much there is",
            "Watch the first start; a smaller --ctx takes less.",
        )  # fmt: skip
        return
    words = f"{size(memory.usable)} free of {size(memory.total)} ({memory.what})"
    yield ok(MEMORY, "memory", words)
    if ask.model:
        from ds4chat.engine.load import estimate

        try:
            wants, ctx = estimate(ask.model, ask.support or None, backend, ask.ctx)
        except Ds4Error:
            return  # the files' own check tells
        yield check_fit(wants, memory, ctx, is_asked=ask.ctx is not None)


def check_fit(wants: Needs, memory: Memory, ctx: int, *, is_asked: bool) -> Finding:
    """Whether a pair and its context fit."""
    from ds4chat.engine.fit import judge

    takes = f"weights {size(wants.weights)}, with {ctx:,} tokens {size(wants.at(ctx))}"
    try:
        fit = judge(wants, memory, ctx, is_asked=is_asked)
    except Ds4Error as error:
        return fail(MEMORY, "this model", error.message, error.hint)
    if fit.notes:
        fix = "\n".join((*fit.notes, "A smaller --ctx, or end what else takes memory."))
        return warn(MEMORY, "this model", takes, fix)
    return ok(MEMORY, "this model", f"{takes}: fits")


def check_open(ask: Ask) -> Iterator[Finding]:
    """Open a small pair and try the whole model; of a large one say how that is done."""
    paths = [Path(name) for name in (ask.model, ask.support) if name]
    if sum(path.stat().st_size for path in paths) > SMALL_BYTES:
        yield ok(COMPUTE, "whole model", "not opened: large; every start tries it", _HASH_FIX)
        return
    _enable_products(ask)
    from ds4chat.engine.engine import Engine

    try:
        with Engine.open(
            ask.model, ask.support or None, backend=ask.backend, ctx=ask.ctx, policy="fixed"
        ) as engine:
            info, damage = engine.info, engine.damage
    except Ds4Error as error:
        yield fail(COMPUTE, "whole model", error.message, error.hint or _FETCH_FIX)
        return
    yield from (fail(MODEL, "weights", line, _DAMAGE_FIX) for line in damage)
    words = f"opened in {info.load_s:.1f} s"
    if info.exact_note:
        yield warn(COMPUTE, "whole model", f"{words}; {info.exact_note}", _loose_fix())
    else:
        yield ok(COMPUTE, "whole model", f"{words}; passes of 2 to 8 rows are exact")


SECTIONS: dict[str, Callable[[Ask], Iterator[Finding]]] = {
    "files": check_files,
    "engine": check_engine,
    "open": check_open,
    "kernels": check_kernels,
}


def main(argv: Sequence[str]) -> int:
    """Print the findings of a section as they come."""
    section, asked = argv
    known = {field.name for field in fields(Ask)}
    ask = Ask(**{name: value for name, value in json.loads(asked).items() if name in known})
    try:
        for finding in SECTIONS[section](ask):
            print(json.dumps(asdict(finding)), flush=True)
    except Ds4Error as error:
        fix = error.hint or "`ds4chat doctor --report` keeps what was found."
        print(json.dumps(asdict(fail(COMPUTE, section, error.message, fix))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
