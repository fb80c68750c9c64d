"""Kernel-core routines of the field machine against plain indexing of elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tx8fast.errors import SimulationError
from tx8fast.proof import forms, routines, routines_index  # noqa: F401  (declares routines)
from tx8fast.proof.cells import Elements
from tx8fast.proof.field import Field
from tx8fast.proof.memory import Ddr, Memory
from tx8fast.proof.tile import Tile

BASE = 0x1000


@pytest.fixture
def tile() -> Tile:
    field = Field(4)
    tile = Tile(field, 0, Memory(1 << 12), Ddr(BASE, 1 << 16, [], field.p, field.q), {})
    tile.slots = [BASE + k * (1 << 13) for k in range(6)]
    return tile


def descriptor(slot: int, shape: tuple[int, ...], dtype: str, layout: str = "dense") -> dict[str, Any]:
    return {
        "slot": slot,
        "offset": 0,
        "shape": shape,
        "dtype": dtype,
        "layout": layout,
        "strides": [math.prod(shape[i + 1 :]) * forms.bytes_of(dtype) for i in range(len(shape))],
    }


def call(tile: Tile, name: str, operands: list[Any], results: list[tuple], layout: str = "dense", **attrs) -> list[Any]:
    """Run a routine on elements and integer arrays; return its results."""
    ins = []
    for slot, value in enumerate(operands):
        d = descriptor(slot, tuple(value.shape), "bf16" if isinstance(value, Elements) else "i64", layout)
        operand = routines._operand(tile, d)
        if isinstance(value, Elements):
            operand.put(value)
        else:
            operand.put_ints(value)
        ins.append(d)
    outs = [descriptor(len(ins) + k, shape, dtype, layout) for k, (shape, dtype) in enumerate(results)]
    routines.run(tile, {"routine": name, "inputs": ins, "outputs": outs, "attrs": attrs})
    read = [routines._operand(tile, d) for d in outs]
    return [x.elements() if x.is_float else x.known_ints() for x in read]


def test_picking(tile):
    x = tile.field.random("x", (5, 4))
    rows = np.array([[3, -1], [0, 3]])
    (made,) = call(tile, "gather", [x, rows], [((2, 2, 4), "bf16")], axis=0)
    assert (made.p == x.p[rows]).all() and (made.q == x.q[rows]).all()
    (made,) = call(tile, "embedding", [x, rows], [((2, 2, 4), "bf16")])
    assert (made.p == x.p[rows]).all()
    at = np.array([[0, 1, 2, 4]])
    (made,) = call(tile, "gather_elements", [x, at], [((1, 4), "bf16")], axis=0)
    assert (made.p == np.take_along_axis(x.p, at, 0)).all()
    (made,) = call(tile, "gather_nd", [x, np.array([[1, 2], [4, 0]])], [((2,), "bf16")])
    assert (made.p == x.p[[1, 4], [2, 0]]).all()
    with pytest.raises(SimulationError, match="picks numbers"):
        call(tile, "gather", [x, np.array([5])], [((1, 4), "bf16")], axis=0)


def test_placing(tile):
    x, new = tile.field.random("x", (3, 4)), tile.field.random("new", (2, 4))
    rows = np.array([[1, 1, 0, 2], [1, 0, 0, 2]])
    (made,) = call(tile, "scatter", [x, rows, new], [((3, 4), "bf16")], axis=0)
    expected = x.p.copy()
    np.put_along_axis(expected, rows[:1], new.p[:1], 0)
    np.put_along_axis(expected, rows[1:], new.p[1:], 0)
    assert (made.p == expected).all()
    (made,) = call(tile, "scatter", [x, rows, new], [((3, 4), "bf16")], axis=0, combine="add")
    total = x.p.astype(np.int64)
    np.add.at(total, (rows, np.arange(4)), new.p)
    assert (made.p == total % tile.field.p).all()
    (made,) = call(tile, "scatter_nd", [x, np.array([[2], [0]]), new], [((3, 4), "bf16")])
    assert (made.p == np.stack([new.p[1], x.p[1], new.p[0]])).all()
    cache, entry = tile.field.random("cache", (1, 6, 8)), tile.field.random("entry", (1, 1, 8))
    for layout in ("dense", "blocked"):
        routine_in = [cache, entry, np.array([4])]
        if layout == "dense":
            (made,) = call(tile, "kv_update", routine_in, [((1, 6, 8), "bf16")], layout, axis=1)
            assert (made.p[0, 4] == entry.p[0, 0]).all() and (np.delete(made.p, 4, 1) == np.delete(cache.p, 4, 1)).all()


def test_ordering(tile):
    x = tile.field.random("x", (3, 7))
    values, places = call(tile, "topk", [x], [((3, 2), "bf16"), ((3, 2), "i64")], k=2)
    keys = tile.field.order(x)
    assert (places == np.argsort(-keys, 1)[:, :2]).all() and (values.p == np.take_along_axis(x.p, places, 1)).all()
    (made,) = call(tile, "le", [np.array([1, 5, 3]), np.array([1, 2, 4])], [((3,), "pred")])
    assert made.tolist() == [1, 0, 1]


def test_functions_and_integers(tile):
    x = tile.field.random("x", (6,))
    (made,) = call(tile, "silu", [x], [((6,), "bf16")])
    assert (made.p == tile.field.mul(x, tile.field.atom("sigmoid", x)).p).all()
    (made,) = call(tile, "sub", [np.array([5, 1]), np.array([7, 1])], [((2,), "i64")])
    assert made.tolist() == [-2, 0]
    (made,) = call(tile, "convert", [np.array([5, -1])], [((2,), "f32")])
    assert (made.p == [5, tile.field.p - 1]).all()


def test_routines_without_a_meaning_of_their_own_are_the_op_of_their_name(tile):
    field, x, y = tile.field, tile.field.random("x", (2, 3)), tile.field.random("y", (2, 3))
    (made,) = call(tile, "div", [x, y], [((2, 3), "bf16")])
    assert (made.p == field.div(x, y).p).all() and (tile.denominators[-1].p == y.p).all()
    (made,) = call(tile, "softmax", [x], [((2, 3), "bf16")], axis=-1, scale=1.0, log=False)
    assert (field.sum(made, -1).p == 1).all()
    for name in ("nonsense", "det"):
        with pytest.raises(routines.WithoutMeaning, match=f"'{name}' has no meaning in the proof"):
            call(tile, name, [x], [((2, 3), "bf16")])
    with pytest.raises(routines.WithoutMeaning, match="'convert'|shl of numbers|drawn"):
        call(tile, "shl", [x, y], [((2, 3), "bf16")])


def test_truth_values_become_bytes_and_numbers_do_not(tile):
    x, y = tile.field.random("x", (9,)), tile.field.random("y", (9,))
    (held,) = call(tile, "gt", [x, y], [((9,), "pred")])
    assert 0 < held.sum() < 9 and (held == (tile.field.order(x) > tile.field.order(y))).all()
    (made,) = call(tile, "convert", [tile.field.numbers(held)], [((9,), "i8")])
    assert (made == held).all()
    (made,) = call(tile, "convert", [x], [((9,), "pred")])
    assert made.all()
    with pytest.raises(SimulationError, match="not known"):
        call(tile, "convert", [x], [((9,), "i8")])
