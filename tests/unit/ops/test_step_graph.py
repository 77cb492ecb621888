"""Launches to nodes: edges, places of the state, and what cannot be recorded."""

from __future__ import annotations

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat.ops.dispatch import Launch
from ds4chat.ops.spec import KernelSpec
from ds4chat.ops.step_graph import (
    Memory,
    Node,
    Owner,
    Place,
    Program,
    Spans,
    UnrecordableError,
    located,
    program_of,
)

SIZE = 64


def an_array() -> mx.array:
    return mx.zeros((SIZE // 4,))


def launch(
    inputs: list[mx.array], outputs: list[mx.array], *, in_place: bool = False
) -> Launch:
    spec = KernelSpec(
        name="some",
        source="some.kernel",
        inputs=tuple(f"in_{i}" for i in range(len(inputs))),
        outputs=tuple(f"out_{i}" for i in range(len(outputs))),
        threads=32,
        in_place=in_place,
    )
    return Launch(spec=spec, function=None, inputs=inputs, outputs=outputs, n_blocks=1)


class World:
    """Arrays with made-up addresses: each where nobody else is, unless it is a view."""

    def __init__(self) -> None:
        self.next = 4096
        self.where: dict[int, int] = {}
        self.weight, self.plan = self.array(), self.array()
        self.old, self.new = self.array(), self.array()
        self.kept: list[mx.array] = []

    def array(self) -> mx.array:
        made = an_array()
        self.where[id(made)] = self.next
        self.next += 4 * SIZE
        return made

    def view(self, of: mx.array, offset: int) -> mx.array:
        made = an_array()
        self.where[id(made)] = self.where[id(of)] + offset
        self.kept.append(made)
        return made

    def nodes(self, *launches: Launch, is_changed: bool = True) -> list[Node]:
        return self.program(*launches, is_changed=is_changed).nodes

    def program(
        self, *launches: Launch, is_changed: bool = True, ends: tuple[mx.array, ...] = ()
    ) -> Program:
        return program_of(
            launches,
            Memory(
                ends=ends,
                where=self.where,
                constants=[self.weight],
                plan=self.plan,
                before=[self.old],
                after=[self.new if is_changed else self.old],
            ),
        )


def test_a_node_follows_what_it_reads_but_not_what_that_follows() -> None:
    w = World()
    a, b, c = w.array(), w.array(), w.array()
    made = w.nodes(
        launch([w.weight, w.plan], [a]),
        launch([a], [b]),
        launch([a, b, w.view(w.plan, 8)], [c]),
        is_changed=False,
    )
    assert [node.after for node in made] == [(), (0,), (1,)]
    assert made[2].addresses == [w.where[id(x)] for x in (a, b)] + [
        w.where[id(w.plan)] + 8,
        w.where[id(c)],
    ]
    assert all(not node.places for node in made)


def test_the_state_is_written_where_it_lies() -> None:
    w = World()
    before, after = w.array(), w.array()
    made = w.nodes(
        launch([w.old], [before]),
        launch([w.old, w.weight], [w.new], in_place=True),
        launch([w.view(w.new, 16)], [after]),
    )
    old = w.where[id(w.old)]
    assert made[1].addresses == [old, w.where[id(w.weight)], old]
    assert made[1].places == {0: Place(state=0, offset=0), 2: Place(state=0, offset=0)}
    assert made[1].after == (0,)  # it overwrites what the first one reads
    assert made[2].places == {0: Place(state=0, offset=16)}
    assert made[2].addresses[0] == old + 16
    assert made[2].after == (1,)


def test_an_input_of_a_stock_operation_cannot_be_recorded() -> None:
    w = World()
    with pytest.raises(UnrecordableError, match="in_1 is made by a stock operation"):
        w.nodes(launch([w.weight, w.array()], [w.array()]), is_changed=False)


def test_a_state_that_a_stock_operation_makes_cannot_be_recorded() -> None:
    w = World()
    with pytest.raises(UnrecordableError, match="array 0 of the state"):
        w.nodes(launch([w.old], [w.array()]))


def test_the_state_of_before_is_gone_once_it_is_written() -> None:
    w = World()
    with pytest.raises(UnrecordableError, match="reads state that was written to"):
        w.nodes(
            launch([w.old], [w.new], in_place=True), launch([w.view(w.old, 4)], [w.array()])
        )


def test_only_kernels_that_can_write_in_place() -> None:
    w = World()
    with pytest.raises(UnrecordableError, match="does not write in place"):
        w.nodes(launch([w.old], [w.new]))


@pytest.mark.parametrize("what", ["weight", "plan", "old"])
def test_a_launch_must_not_write_to_memory_of_others(what: str) -> None:
    w = World()
    with pytest.raises(UnrecordableError, match="not its own"):
        w.nodes(launch([w.weight], [w.view(getattr(w, what), 0)]), is_changed=False)


def test_each_array_is_located_once() -> None:
    a, b = an_array(), an_array()
    asked: list[int] = []

    def find(arrays: object) -> list[int]:
        assert isinstance(arrays, list)
        asked.append(len(arrays))
        return list(range(len(arrays)))

    assert located([a, b, a], find) == {id(a): 0, id(b): 1}
    assert asked == [2]


@given(
    spans=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 5)), max_size=20),
    asked=st.integers(-5, 450),
)
def test_spans_know_their_owners(spans: list[tuple[int, int]], asked: int) -> None:
    """Against a walk over all of them; spans that begin elsewhere do not overlap here."""
    kept: dict[int, tuple[int, Owner]] = {}
    book = Spans()
    for i, (slot, n) in enumerate(spans):
        owner = Owner(kind="made", number=i)
        book.add(8 * slot, n, owner)
        kept.setdefault(8 * slot, (n, owner))
    wanted = next(
        ((o, asked - start) for start, (n, o) in kept.items() if start <= asked < start + n),
        None,
    )
    assert book.find(asked) == wanted


def test_memory_is_given_to_those_who_come_behind_all_readers() -> None:
    w = World()
    a, b, c, d, end = (w.array() for _ in range(5))
    made = w.program(
        launch([w.weight], [a]),
        launch([a], [b]),
        launch([b], [c]),  # a is still to be read
        launch([a, c], [d]),  # takes the place of b, which was read
        launch([d], [end]),
        is_changed=False,
        ends=(end,),
    )
    own = [w.where[id(x)] for x in (a, b, c, d, end)]
    assert [node.addresses[-1] for node in made.nodes] == [*own[:3], own[1], own[4]]
    assert made.memory == dict.fromkeys((*own[:3], own[4]), SIZE)


def test_memory_of_what_is_read_after_the_pass_stays() -> None:
    w = World()
    end, b, c = (w.array() for _ in range(3))
    made = w.program(
        launch([w.weight], [end]), launch([end], [b]), launch([b], [c]),
        is_changed=False, ends=(end,),
    )  # fmt: skip
    assert [node.addresses[-1] for node in made.nodes] == [w.where[id(x)] for x in (end, b, c)]


@given(data=st.data())
def test_no_memory_is_overwritten_before_its_last_reader(data: st.DataObject) -> None:
    """Random passes in random orders that edges allow: each reads what its writers wrote."""
    w = World()
    n = data.draw(st.integers(1, 14))
    made = [w.array() for _ in range(n)]
    launches, reads = [], []
    for i, out in enumerate(made):
        chosen = sorted(data.draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else []
        launches.append(launch([w.weight, *(made[j] for j in chosen)], [out]))
        reads.append(chosen)
    program = w.program(*launches, is_changed=False, ends=(made[-1],))
    held: dict[int, int] = {}
    done: set[int] = set()
    while len(done) < n:
        ready = [
            i
            for i, node in enumerate(program.nodes)
            if i not in done and set(node.after) <= done
        ]
        i = data.draw(st.sampled_from(ready))
        for j, address in zip(reads[i], program.nodes[i].addresses[1:-1], strict=True):
            assert held[address] == j
        held[program.nodes[i].addresses[-1]] = i
        done.add(i)
    assert held[w.where[id(made[-1])]] == n - 1


@given(data=st.data())
def test_edges_order_every_read_behind_its_write(data: st.DataObject) -> None:
    """Random passes: whoever reads an array runs behind its writer, over edges alone."""
    w = World()
    made = [w.array() for _ in range(data.draw(st.integers(1, 12)))]
    launches, wanted = [], []
    for i, out in enumerate(made):
        reads = data.draw(st.sets(st.integers(0, i - 1))) if i else set()
        launches.append(launch([w.weight, *(made[j] for j in sorted(reads))], [out]))
        wanted.append(reads)
    nodes = w.nodes(*launches, is_changed=False)
    behind: list[set[int]] = []
    for node in nodes:
        behind.append({j for i in node.after for j in (i, *behind[i])})
    for reads, before in zip(wanted, behind, strict=True):
        assert reads <= before
    for node in nodes:  # and no edge is there twice
        for i in node.after:
            assert not any(i in behind[j] for j in node.after if j != i)
