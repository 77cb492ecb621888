from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ds4chat.protocol.types import Channel, Message, Role, Source, ThinkMode, Token
from ds4chat.text.parse import ChannelSplitter
from ds4chat.text.prefixes import EffortPrefixes
from ds4chat.text.prompt import render
from tests.unit.text import vocab

WORDS = st.one_of(st.sampled_from(vocab.MARKERS), st.text("ab <|\n", max_size=5))
TYPED = st.lists(WORDS, max_size=5).map("".join)
REPLIES = st.builds(
    Message,
    role=st.just(Role.ASSISTANT),
    text=TYPED,
    reasoning=TYPED,
    think=st.sampled_from(ThinkMode),
)
TURNS = st.lists(st.tuples(TYPED, REPLIES), max_size=3)
EFFORT = EffortPrefixes(high="high\n\n", max="max\n\n")


def user(text: str) -> Message:
    return Message(role=Role.USER, text=text)


@given(system=TYPED, turns=TURNS, last=TYPED, think=st.sampled_from(ThinkMode))
def test_no_text_changes_the_structure(
    system: str, turns: list[tuple[str, Message]], last: str, think: ThinkMode
) -> None:
    made = vocab.tokenizer()
    s = made.specials
    messages = [Message(role=Role.SYSTEM, text=system)]
    wanted = [s.bos]
    for text, reply in turns:
        messages += [user(text), reply]
        off = reply.think is ThinkMode.OFF
        opening = [s.think_close] if off else [s.think_open, s.think_close]
        wanted += [s.user, s.assistant, *[i for i in opening if i is not None], s.eos]
    opener = s.think_close if think is ThinkMode.OFF else s.think_open
    assert opener is not None
    wanted += [s.user, s.assistant, opener]
    ids = render(made, [*messages, user(last)], think, effort=EFFORT)
    markers = {made.id_of(marker) for marker in vocab.MARKERS}
    assert [i for i in ids if i in markers] == wanted


@given(reasoning=TYPED, text=TYPED, think=st.sampled_from([ThinkMode.OFF, ThinkMode.LOW]))
def test_parse_undoes_render(reasoning: str, text: str, think: ThinkMode) -> None:
    made = vocab.tokenizer()
    shown_reasoning = reasoning if think is not ThinkMode.OFF else ""
    reply = Message(role=Role.ASSISTANT, text=text, reasoning=reasoning, think=think)
    before = render(made, [user("q")], think, effort=EFFORT)
    ids = render(made, [user("q"), reply, user("")], think, effort=EFFORT)
    body = ids[len(before) : ids.index(made.specials.eos)]
    splitter = ChannelSplitter(made, think)
    found = {Channel.THINKING: "", Channel.ANSWER: ""}
    for i in body:
        token = Token(
            id=i, source=Source.PLAIN, round=0, position=0, confidence=None, margin=0.0
        )
        for channel, span in splitter.push(token):
            found[channel] += span.text
    assert found == {Channel.THINKING: shown_reasoning, Channel.ANSWER: text}
