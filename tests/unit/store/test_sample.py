"""The committed samples stay readable for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from ds4chat import paths
from ds4chat.protocol.events import RoundVerified
from ds4chat.protocol.types import Channel, FinishReason, Source
from ds4chat.store import codec, transcripts
from ds4chat.store.library import Library
from ds4chat.store.session import Session
from tests.unit.store import build, make_sample


@pytest.fixture(params=["committed", "fresh"])
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> Session:
    """The sample of version 1, as committed and as the generator writes it today."""
    if request.param == "fresh":
        make_sample.write(tmp_path)
        return Library(tmp_path).read(make_sample.NAME)
    return Library(paths.samples_dir()).read(make_sample.NAME)


def test_it_has_no_problems(sample: Session) -> None:
    assert sample.notices == []
    assert sample.tree.header is not None
    assert sample.tree.header.version == 1


def test_its_tree(sample: Session) -> None:
    tree = sample.tree
    ids = {name: [turn.id for turn in tree.path(name)] for name in tree.branches}
    assert ids == {"main": [1, 2], "in code": [1, 3]}
    assert tree.current == "in code"
    assert [turn.id for turn in tree.taken_back()] == [4]
    assert tree.turns[4].reason is FinishReason.CANCELLED


def test_its_texts(sample: Session) -> None:
    turn = sample.tree.turns[3]
    assert (turn.answer_text, turn.reasoning_text) == (build.ANSWER, build.THINKING)
    assert "".join(span.text for span in turn.spans(Channel.ANSWER)) == build.ANSWER
    system, first, reply, second, last = sample.messages()
    assert (system.text, first.text, second.text) == (
        "Answer briefly.", "What is 2 + 2?", "Again, with reasons.",
    )  # fmt: skip
    assert len(last.ids) == turn.usage.n_tokens if turn.usage else False
    assert reply.reasoning != build.THINKING  # answered at once


def test_all_five_sources_and_ghosts_are_in_it(sample: Session) -> None:
    turns = sample.tree.turns.values()
    assert {span.token.source for turn in turns for span in turn.spans()} == set(Source)
    rounds = [e for turn in turns for e in turn.events if isinstance(e, RoundVerified)]
    assert any(e.n_accepted < len(e.proposal_ids) for e in rounds)


def test_lines_are_written_as_they_were() -> None:
    path = paths.samples_dir() / make_sample.NAME / transcripts.FILE_NAME
    for line in path.read_bytes().splitlines(keepends=True):
        again = codec.encode(codec.decode(line[:-1]))
        assert codec.decode(again[:-1]) == codec.decode(line[:-1])
        assert again[:30] == line[:30]
