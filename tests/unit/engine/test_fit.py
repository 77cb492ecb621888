"""Whether a model fits: the estimate against real states, and what a person is told."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from ds4chat.cli.bench_open import FLASH as FLASH_SIZES
from ds4chat.engine.fit import Fit, Memory, Needs, judge, largest_ctx, needs
from ds4chat.engine.memory import of_device, parse_meminfo
from ds4chat.engine.runner import PREFILL_CHUNK
from ds4chat.errors import EngineError
from ds4chat.model.kv import padded, ring_size
from ds4chat.ops.attention_kernels import n_chunks_of
from tests.engines import SMALL, open_pair, random_ids

GIB = 1 << 30
FLASH = Needs(weights=80 * GIB, fixed=GIB, token=8192.0)


def memory(usable: float, total: float = 128, *, wired: bool = False) -> Memory:
    return Memory(usable=int(usable * GIB), total=int(total * GIB), what="the GPU", wired=wired)


def test_what_fits_is_opened_without_a_word() -> None:
    assert judge(FLASH, memory(96), 32768, is_asked=False) == Fit(ctx=32768)
    assert judge(FLASH, memory(96), 32768, is_asked=True) == Fit(ctx=32768)


def test_the_default_context_shrinks_to_what_fits_and_says_so() -> None:
    fit = judge(FLASH, memory(81.125), 32768, is_asked=False)
    assert fit.ctx == 16384
    assert FLASH.at(fit.ctx) <= memory(81.125).usable < FLASH.at(fit.ctx + 1024)
    (note,) = fit.notes
    assert "16,384 tokens instead of 32,768" in note
    assert "87.1 GB" in note


def test_a_context_that_was_asked_for_stands_with_a_warning() -> None:
    fit = judge(FLASH, memory(81.125), 32768, is_asked=True)
    assert fit.ctx == 32768
    assert "87.2 GB" in fit.notes[0]
    assert "largest context that fits is 16,384" in fit.notes[0]


def test_weights_beyond_the_machine_are_refused() -> None:
    with pytest.raises(EngineError) as refused:
        judge(FLASH, memory(60, 64), 32768, is_asked=False)
    assert "85.9 GB" in refused.value.message
    assert "68.7 GB" in refused.value.message
    assert refused.value.hint


def test_weights_beyond_what_is_free_now_are_warned_of() -> None:
    fit = judge(FLASH, memory(70), 4096, is_asked=False)
    assert fit.ctx == 4096
    assert "none fits" in fit.notes[0]


def test_the_wired_limit_is_explained_where_it_would_help() -> None:
    fit = judge(FLASH, memory(72, 96, wired=True), 32768, is_asked=False)
    wanted = FLASH.at(32768) / (1 << 20) + 512
    assert f"iogpu.wired_limit_mb={math.ceil(wanted)}" in fit.notes[-1]
    assert len(judge(FLASH, memory(72, 84, wired=True), 32768, is_asked=False).notes) == 1
    assert len(judge(FLASH, memory(72, 96), 32768, is_asked=False).notes) == 1


def test_the_largest_context_is_rounded_down() -> None:
    assert largest_ctx(FLASH, memory(80)) == 0
    assert largest_ctx(FLASH, memory(81)) == 0
    assert largest_ctx(FLASH, Memory(usable=FLASH.at(700), total=1, what="")) == 700
    assert largest_ctx(FLASH, Memory(usable=FLASH.at(5000), total=1, what="")) == 4096


def test_the_estimate_bounds_what_a_session_really_holds(tmp_path: Path) -> None:
    with open_pair(tmp_path, options={"ctx": 4096}, **SMALL) as engine:
        loaded = engine._loaded
        assert loaded.drafter is not None
        wants = needs(
            loaded.target.config,
            weights=0,
            itemsize=4,
            n_stages=loaded.drafter.config.n_stages,
            chunk=PREFILL_CHUNK,
        )
        session = engine.session()
        sizes = []
        for n in (10, 300, 1100):
            session.sync(random_ids(engine, n))
            sizes.append(session.kv_bytes())
            assert sizes[-1] < wants.at(n)
        assert sizes[-1] - sizes[0] < wants.token * 1100 < 3 * (sizes[-1] - sizes[0])


@pytest.mark.parametrize("ctx", [100, 4096, 1 << 20])
def test_the_estimate_counts_what_attention_in_chunks_writes(ctx: int) -> None:
    config, block = FLASH_SIZES, FLASH_SIZES.block

    def wants(itemsize: int, heads: int) -> int:
        sized = replace(config, block=replace(block, n_heads=heads))
        found = needs(sized, weights=0, itemsize=itemsize, n_stages=0, chunk=1)
        return found.at(ctx)

    n_chunks = n_chunks_of(ring_size(block.window), padded(ctx // 4))
    chunk = 8 * 64 * (512 + 2) * 4  # of eight rows of a layer
    odd = wants(2, 63)  # no kernel for heads that are not in eights
    grown = odd + 4 * 3 * 4 * block.head_dim  # the working memory of one more head
    assert 2 * n_chunks * chunk <= wants(2, 64) - grown <= 2 * (n_chunks + 2) * chunk
    assert wants(4, 64) - wants(4, 63) == grown - odd


def test_devices_and_the_system_say_what_they_have() -> None:
    metal = of_device(
        {"device_name": "M5", "memory_size": 9, "max_recommended_working_set_size": 7}
    )
    assert metal == Memory(usable=7, total=9, what="M5", wired=True)
    cuda = of_device({"device_name": "H200", "total_memory": 9, "free_memory": 6})
    assert cuda == Memory(usable=6, total=9, what="H200")
    assert of_device({"device_name": "x"}) is None
    text = "MemTotal:  24684084 kB\nHugePages_Total:  0\nMemAvailable:  5 kB\nbad\n"
    assert parse_meminfo(text) == {"MemTotal": 24684084 * 1024, "MemAvailable": 5 * 1024}


def test_an_engine_opens_with_the_context_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tight = Memory(usable=260 << 20, total=GIB, what="this machine")
    monkeypatch.setattr("ds4chat.engine.load.memory_of", lambda backend: tight)
    with open_pair(tmp_path, options={"ctx": 10**9}) as engine:
        assert engine.info.ctx == 10**9
        assert any("largest context that fits" in note for note in engine.info.notes)
    none = Memory(usable=1, total=1 << 20, what="this machine")
    monkeypatch.setattr("ds4chat.engine.load.memory_of", lambda backend: none)
    with pytest.raises(EngineError, match=r"this machine has 1\.0 MB"):
        open_pair(tmp_path)


def test_what_recorded_passes_may_hold_is_counted() -> None:
    def wants(recorded: int) -> int:
        found = needs(
            FLASH_SIZES, weights=0, itemsize=2, n_stages=3, chunk=1, recorded=recorded
        )
        return found.at(4096)

    assert wants(GIB) - wants(0) == GIB
