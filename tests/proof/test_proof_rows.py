"""Single rows on one tile: what hides stays hidden where it should, and is undefined where it would be large."""

from __future__ import annotations

import numpy as np
import pytest

from tx8fast import isa
from tx8fast.proof.cells import HIDDEN, UNDEFINED
from tx8fast.proof.field import Field
from tx8fast.proof.machine import Machine  # every family of rows
from tx8fast.proof.meaning import MEANINGS, Row
from tx8fast.proof.memory import Ddr, Memory
from tx8fast.proof.tile import Tile

assert Machine


def _tile(field: Field) -> Tile:
    return Tile(field, 0, Memory(1 << 12), Ddr(0, 16, [], field.p, field.q), {})


def _run(tile: Tile, name: str, spm: list[int], p: list[int]) -> None:
    MEANINGS[isa.instruction(name).OPCODE][0](tile, Row("f32", spm + [0] * (6 - len(spm)), p + [0] * (24 - len(p)), 0))


@pytest.mark.parametrize("turned", [0, 1])
def test_ones_of_the_matrix_engine_repeat_what_hides(turned):
    """The maximum of a row of which everything hides is brought to all of its places by a product of one term."""
    field = Field(1)
    tile = _tile(field)
    most = field.random("most", (1, 4, 1))
    most.p[0, 2] = HIDDEN
    tile.store_blocked(0, most, "f32")
    tile.store_blocked(512, field.numbers(np.ones((1, 1, 8) if turned else (1, 8, 1), int)), "f32")
    _run(tile, "gemm", [0, 512, 1024], [4, 1, 8, 1, 1, 0, turned, 5, 5, 0, 0, 0, 5])
    assert (tile.load_blocked(1024, 1, 4, 8, "f32").p == np.repeat(most.p, 8, -1)).all()


@pytest.mark.parametrize("turned", [0, 1])
def test_ones_of_the_matrix_engine_repeat_maxima(turned):
    """A maximum that ones have brought to all places is still made of its operands: a further one joins them."""
    field = Field(1)
    tile = _tile(field)
    x, y, z = (field.random(name, (1, 4, 1)) for name in "xyz")
    tile.store_blocked(0, field.maximum(x, y), "f32")
    tile.store_blocked(512, field.numbers(np.ones((1, 1, 8) if turned else (1, 8, 1), int)), "f32")
    _run(tile, "gemm", [0, 512, 1024], [4, 1, 8, 1, 1, 0, turned, 5, 5, 0, 0, 0, 5])
    joined = field.maximum(z.broadcast_to((1, 4, 8)), tile.load_blocked(1024, 1, 4, 8, "f32"))
    assert (joined.p == np.repeat(field.maximum(x, field.maximum(y, z)).p, 8, -1)).all()


def test_a_negative_factor_of_what_hides_is_undefined():
    """It would be larger than all others."""
    field = Field(1)
    tile = _tile(field)
    x = field.random("x", (4,))
    x.p[1] = HIDDEN
    tile.store(0, x, "f32")
    for factor, state in ((0.5, HIDDEN), (-0.5, UNDEFINED)):
        _run(tile, "mul_vs", [0, 64], [4, int(np.float32(factor).view(np.uint32))])
        found = tile.load(64, 4, "f32").p
        assert found[1] == state and not (found[[0, 2, 3]] & np.uint32(UNDEFINED | HIDDEN)).any()
