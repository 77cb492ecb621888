"""The rings of a layer and its latents in one launch, as the host build runs it."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import numpy as np
import pytest

from ds4chat.ops import attention_kernels as kernels
from tests.kernels import host_build
from tests.kernels.attention_cases import EPS
from tests.kernels.blocks import nmse
from tests.kernels.cases import Case, from_bf16
from tests.kernels.keep_cases import RING, cases, keep_case

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)


def values(found: np.ndarray) -> np.ndarray:
    return from_bf16(found) if found.dtype == np.uint16 else found


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.spec.name)
def test_rings_and_latents_are_those_of_the_reference(case: Case) -> None:
    for found, exact in zip(host_build.run(case), case.exact, strict=True):
        assert nmse(values(found), exact) <= case.spec.tolerance.nmse


@pytest.mark.parametrize("kind", ["bfloat16", "float32"])
def test_what_is_not_new_is_copied_and_raw_rows_are_exact(kind: str) -> None:
    case = keep_case(2, 5, kind)
    window, raw, other, *_ = host_build.run(case)
    is_old = ~np.isin(np.arange(RING), case.inputs[1][0])
    np.testing.assert_array_equal(values(window)[is_old], case.exact[0][is_old])
    for found, exact in ((raw, case.exact[1]), (other, case.exact[2])):
        np.testing.assert_array_equal(found, exact.astype(np.float32))


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.spec.name)
def test_rings_may_be_filled_in_place(case: Case) -> None:
    names = case.spec.inputs
    rings = [names.index(name) for name in ("window", "raw", "other") if name in names]
    given = [array.copy() for array, _ in case.inputs]
    made = host_build.run(case, in_place=dict(enumerate(rings)))
    for found, wanted in zip(made, host_build.run(case), strict=True):
        np.testing.assert_array_equal(found, wanted)
    for (array, _), before in zip(case.inputs, given, strict=True):
        np.testing.assert_array_equal(array, before)


@pytest.mark.skipif(sys.platform != "linux", reason="a private page follows its file there")
def test_old_rows_are_not_written_in_place(tmp_path: Path) -> None:
    case = keep_case(0, 3, "float32", width=mmap.PAGESIZE // 4, latent=0)
    ring, file = case.inputs[0][0], tmp_path / "ring"
    file.write_bytes(ring.tobytes())
    with file.open("r+b") as opened:
        memory = mmap.mmap(opened.fileno(), ring.nbytes, flags=mmap.MAP_PRIVATE)
        held = np.frombuffer(memory, np.float32).reshape(ring.shape)
        arrays = [held, *(array for array, _ in case.inputs[1:]), held]
        host_build.launch_at(
            case.spec,
            [*(kind for _, kind in case.inputs), case.outputs[0][1]],
            [a.ctypes.data for a in arrays],
            [a.shape for a in arrays],
            case.n_blocks,
        )
        opened.write(bytes(ring.nbytes))
    # what was written to is a page of its own now, the others are seen to become zero
    assert set(np.flatnonzero(held.any(axis=1))) == set(case.inputs[1][0])


@pytest.mark.parametrize("kind", ["bfloat16", "float32"])
def test_rows_and_latents_have_the_bits_of_rows_made_alone(kind: str) -> None:
    case = keep_case(1, 5, kind)
    made = host_build.run(case)
    slots, sent, kv_norm, cos, sin, q_a, q_norm = (i for i in case.inputs[1:8])
    constants, has_wide = case.spec.constants, kind != "float32"
    spec = kernels.rows_spec(
        192, EPS, has_latent=True, has_wide=has_wide, is_rounded=True,
        places=(int(constants["KV_AT"]), int(constants["Q_AT"])),
    )  # fmt: skip
    latents = case.outputs[2:]
    alone = Case(
        spec=spec,
        inputs=(sent, kv_norm, cos, sin, q_a, q_norm),
        n_blocks=2 * 5,
        outputs=(((5, 192), kind), *latents),
        exact=(),
    )
    row, *wanted = host_build.run(alone)
    np.testing.assert_array_equal(made[0][slots[0]], row)
    for found, latent in zip(made[2:], wanted, strict=True):
        np.testing.assert_array_equal(found, latent)


def test_a_row_ignores_the_rows_beside_it() -> None:
    case = keep_case(2, 5, "bfloat16")
    whole = host_build.run(case)
    slots, at = case.inputs[1][0], 3
    names = case.spec.inputs
    is_row = {"slots", "kv", "cosines", "sines", "q_a", "values", "gates", "phase", "raw_slots",
              "other_values", "other_gates"}  # fmt: skip
    inputs = tuple(
        (array[at : at + 1] if name in is_row else array, kind)
        for name, (array, kind) in zip(names, case.inputs, strict=True)
    )
    outputs = tuple(
        ((1, *shape[1:]) if i > 2 else shape, kind)
        for i, (shape, kind) in enumerate(case.outputs)
    )
    single = Case(
        spec=case.spec, inputs=inputs, n_blocks=case.n_blocks - 4, outputs=outputs, exact=()
    )
    window, raw, other, latent, wide = host_build.run(single)
    raw_slot = case.inputs[names.index("raw_slots")][0][at]
    np.testing.assert_array_equal(window[slots[at]], whole[0][slots[at]])
    np.testing.assert_array_equal(raw[raw_slot], whole[1][raw_slot])
    np.testing.assert_array_equal(other[raw_slot], whole[2][raw_slot])
    np.testing.assert_array_equal(latent[0], whole[3][at])
    np.testing.assert_array_equal(wide[0], whole[4][at])
