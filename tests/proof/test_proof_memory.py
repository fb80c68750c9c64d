"""Messages that are written late, and operands of several tiles side by side: both as if everything had happened at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tx8fast.errors import SimulationError
from tx8fast.proof import forms
from tx8fast.proof.field import Field
from tx8fast.proof.memory import Ddr, Memory, Message
from tx8fast.proof.rows_engine import _blocks
from tx8fast.proof.stacks import Stacks
from tx8fast.proof.tile import Tile

CELLS = 64


@given(
    st.lists(
        st.tuples(st.sampled_from(["expect", "look", "write", "send"]), st.integers(0, 40), st.integers(1, 24)),
        max_size=25,
    )
)
@settings(max_examples=120, deadline=None)
def test_messages_are_there_whenever_something_looks(steps):
    late, plain = Memory(2 * CELLS), np.zeros((2, CELLS), np.uint32)
    for number, (what, at, size) in enumerate(steps):
        words = np.arange(size, dtype=np.uint32) + np.uint32(1000 * number)
        own = slice(at, at + size)
        p, q = (None, None) if what in ("expect", "send") else late.planes(at, at + size)
        if what == "expect":
            late.expect(at, Message(words, words + np.uint32(7)))
            plain[:, own] = words, words + np.uint32(7)
        elif what == "write":
            p[own], q[own] = words, words
            plain[:, own] = words
        elif what == "look":
            assert (p[own] == plain[0, own]).all() and (q[own] == plain[1, own]).all()
        else:
            assert (late.message(at, at + size).p == plain[0, own]).all()
    assert (late.p == plain[0]).all() and (late.q == plain[1]).all()


def test_messages_beyond_the_memory_are_errors():
    memory = Memory(2 * CELLS)
    for at in (-1, CELLS - 3):
        with pytest.raises(SimulationError, match="outside"):
            memory.expect(at, Message(np.zeros(4, np.uint32), None))
    with pytest.raises(SimulationError, match="outside"):
        memory.message(CELLS - 1, CELLS + 1)


def test_equal_operands_share_a_place_until_one_is_written():
    field, form = Field(2), forms.blocked(1, 4, 64, "bf16")
    tiles = [Tile(field, i, Memory(1 << 12), Ddr(0, 16, [], field.p, field.q), {}) for i in range(3)]
    values = [field.random(name, (1, 4, 64)) for name in ("a", "a", "b")]
    for tile, value in zip(tiles, values, strict=True):
        tile.store_blocked(0, value, "bf16")
    stacks = Stacks()
    made = stacks.of(tiles, [0, 0, 0], form)
    assert made.place == (0, 0, 1) and made.count == 2 and not made.special
    assert (made.p[0] % field.p == values[0].p[0]).all() and (made.p[1] % field.p == values[2].p[0]).all()
    assert stacks.of(tiles, [0, 0, 0], form) is made
    tiles[1].store_blocked(0, values[2], "bf16")
    assert not tiles[1].holds(made.marks[1]) and tiles[0].holds(made.marks[0])
    assert stacks.of(tiles, [0, 0, 0], form).place == (0, 1, 1)
    tiles[2].spm.expect(5, tiles[0].spm.message(0, 8))
    tiles[2].wrote(10, 16)
    assert stacks.of(tiles, [0, 0, 0], form).place == (0, 1, 2)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20), st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_every_pair_of_operands_is_in_one_block(pairs, most):
    left, right = zip(*pairs)
    blocks = _blocks(left, right, most)
    inside = [(i, j) for a, b in blocks for i in range(a.start, a.stop) for j in range(b.start, b.stop)]
    assert sorted(inside) == sorted(set(pairs))


def test_a_random_tensor_of_no_bytes_takes_no_room():
    memory = Ddr(0, 64, [(16, 0, None), (32, 0, None)], 5, 11)  # type: ignore[list-item]
    memory.clear()
    assert len({id(memory.memory(at)) for at in (0, 16, 32, 48)}) == 1
    assert not memory.streams
