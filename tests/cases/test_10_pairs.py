"""Files that do not fit together: run without, with the reason on the screen, or refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ds4chat.engine.host_open import HostedEngine, LoadProgress
from ds4chat.errors import EngineError
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.values import ARRAY, STRING
from ds4chat.protocol.commands import Load
from ds4chat.protocol.events import Notice
from ds4chat.tui import commands
from ds4chat.tui.controller import Phase
from tests.cases.real_chat import RealChat, real_chat
from tests.cases.replies import VERY_SMALL
from tests.cases.test_09_contents import refused
from tests.gguf_sketch import U16, U32, Array, Sketch
from tests.grammar import read_turns
from tests.make_pair import PairPaths, make_pair
from tests.scripted_engine import TALE
from tests.unit.engine.test_host import Hosting, submit

QUESTION = "The quick brown"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    return make_pair(tmp_path_factory.mktemp("pair"), seed=51, **VERY_SMALL)


@pytest.fixture(scope="module")
def wanted(pair: PairPaths, tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """What the model says alone."""
    import asyncio  # noqa: PLC0415 - only here is a loop begun

    async def ask() -> list[int]:
        async with real_chat(pair, tmp_path_factory.mktemp("alone"), support_path="") as chat:
            return await chat.ask(QUESTION)

    return asyncio.run(ask())


Change = Callable[[Sketch], None]


def another_checkpoint(sketch: Sketch) -> None:
    sketch.keys["deepseek4.checkpoint_variant"] = (STRING, "Vision-Exp")


def other_provenance(sketch: Sketch) -> None:
    sketch.keys["dspark.target_layer_ids"] = (ARRAY, Array(U32, [0, 7]))


def a_tensor_less(sketch: Sketch) -> None:
    del sketch.tensors["mtp.0.attn_norm.weight"]


def another_noise_token(sketch: Sketch) -> None:
    sketch.keys["dspark.noise_token_id"] = (U32, 100_000)


UNFIT: dict[str, tuple[Change, str]] = {
    "checkpoint": (another_checkpoint, "is 'Vision-Exp', the model has none"),
    "layers": (other_provenance, "target layers [0, 7]"),
    "tensor": (a_tensor_less, "tensor mtp.0.attn_norm.weight is missing"),
    "vocabulary": (another_noise_token, "noise_token_id is 100000"),
}


NO_FILE = {"cut": "cut off or damaged", "nowhere": "no such file", "folder": "a folder"}


async def answers_without(chat: RealChat, words: str, wanted: list[int]) -> None:
    """The reason is on the screen, /why has it, and the reply is that of the model alone."""
    first = words.partition(" (and")[0]
    await chat.until(lambda: "No speculation" in chat.words())
    assert words in chat.words()
    assert first in chat.chat.support_trouble
    assert chat.chat.info is not None
    assert chat.chat.info.block_size == 0
    assert await chat.ask(QUESTION) == wanted
    commands.execute(chat.screen, "why", "")
    await chat.until(lambda: chat.words().count(first) > 1)


@pytest.mark.parametrize(
    "what", [w if w == "checkpoint" else pytest.param(w, marks=pytest.mark.slow) for w in UNFIT]
)
async def test_a_support_file_that_does_not_fit(
    pair: PairPaths, wanted: list[int], tmp_path: Path, what: str
) -> None:
    change, words = UNFIT[what]
    sketch = Sketch.read(pair.support)
    change(sketch)
    path = sketch.write(tmp_path / "s.gguf")
    async with real_chat(pair, tmp_path, support_path=str(path)) as chat:
        await answers_without(chat, words, wanted)


async def test_a_support_file_of_other_dimensions(
    pair: PairPaths, wanted: list[int], tmp_path: Path
) -> None:
    wide = make_pair(tmp_path / "wide", seed=51, **{**VERY_SMALL, "dim": 96})
    async with real_chat(pair, tmp_path, support_path=str(wide.support)) as chat:
        await answers_without(chat, "shape [24, 384], [24, 256] wanted (and 18 more)", wanted)


@pytest.mark.parametrize(
    "what", [pytest.param(w, marks=pytest.mark.slow) for w in ("itself", *NO_FILE)]
)
async def test_a_support_file_that_is_none(
    pair: PairPaths, wanted: list[int], tmp_path: Path, what: str
) -> None:
    path = tmp_path / "s.gguf"
    if what == "cut":
        path.write_bytes(pair.support.read_bytes()[:-50])
    elif what == "folder":
        path.mkdir()
    elif what == "itself":
        path = pair.base
    words = NO_FILE.get(what, "not a DSpark support file but a model")
    async with real_chat(pair, tmp_path, support_path=str(path)) as chat:
        await answers_without(chat, words, wanted)


async def test_one_that_is_needed_is_refused(pair: PairPaths, tmp_path: Path) -> None:
    async with real_chat(
        pair, tmp_path, support_path=str(pair.base), needs_support=True
    ) as chat:
        assert chat.chat.phase is Phase.REFUSED
        assert "not a DSpark support file but a model" in chat.words()


def test_a_support_file_that_memory_has_no_room_for() -> None:
    """The model alone has room: the chat goes on without speculation, and says why."""
    hosting = Hosting()
    load = Load(request_id=100, model_path="scripted.gguf", support_path="large.gguf")
    real = hosting.host._opener

    def small_machine(command: Load, progress: LoadProgress) -> HostedEngine:
        if command.support_path:
            raise EngineError("the weights take 96.0 GB, the GPU has 90.0 GB", "Use a smaller.")
        return real(command, progress)

    hosting.host._opener = small_machine
    log = read_turns(hosting.run(load, submit()))[1]
    (notice,) = [event for event in hosting.events if isinstance(event, Notice)]
    assert notice.message == "no speculation: the weights take 96.0 GB, the GPU has 90.0 GB"
    assert log.answer == TALE


def parts_of(sketch: Sketch, folder: Path, stem: str) -> list[Path]:
    """The model in two files, as it may be published."""
    names = list(sketch.tensors)
    half = len(names) // 2
    paths = []
    for number, own in enumerate((names[:half], names[half:])):
        keys = dict(sketch.keys) if number == 0 else {}
        keys |= {"split.no": (U16, number), "split.count": (U16, 2)}
        keys["split.tensors.count"] = (U32, len(names))
        part = replace(sketch, keys=keys, tensors={n: sketch.tensors[n] for n in own})
        paths.append(part.write(folder / f"{stem}-{number + 1:05}-of-00002.gguf"))
    return paths


def test_a_part_of_another_model_is_refused(pair: PairPaths, tmp_path: Path) -> None:
    """Equal tensor counts hide it; what the model's sizes want does not."""
    other = make_pair(tmp_path / "other", seed=52, **{**VERY_SMALL, "dim": 96})
    first, second = parts_of(Sketch.read(pair.base), tmp_path, "m")
    with GgufFile.open(first) as gguf:
        assert gguf.parts == (first, second)
    _, foreign = parts_of(Sketch.read(other.base), tmp_path, "o")
    foreign.replace(second)
    lines = refused(first)
    assert any("shape" in line and "wanted" in line for line in lines)


def test_more_outputs_than_words_are_refused(pair: PairPaths, tmp_path: Path) -> None:
    sketch = Sketch.read(pair.base)
    kind, tokens = sketch.keys["tokenizer.ggml.tokens"]
    sketch.keys["tokenizer.ggml.tokens"] = (kind, Array(tokens.kind, tokens.values[:-3]))
    lines = refused(sketch.write(tmp_path / "v.gguf"))
    assert any("509 entries; 512 wanted" in line for line in lines)
