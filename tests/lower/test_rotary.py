"""Neighbouring lanes change places with few instructions, wherever the columns lie in their channel blocks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tx8fast.lower.emitter import Emitter
from tx8fast.lower.rotary import swap_pairs
from tx8fast.lower.transfer import Local
from tx8fast.numerics.formats import ITEM_BYTES


class Moves(Emitter):
    """Executes what is gathered on bytes, and counts the instructions."""

    def __init__(self, memory: np.ndarray) -> None:
        super().__init__()
        self.memory, self.count = memory, 0

    def gather(self, src, dst, moves):
        for mv in moves:
            self.count += 1
            for at in itertools.product(*(range(n) for *_, n in mv.loops)):
                a = src + mv.src + sum(i * s for i, (s, _, _) in zip(at, mv.loops, strict=True))
                b = dst + mv.dst + sum(i * d for i, (_, d, _) in zip(at, mv.loops, strict=True))
                self.memory[b : b + mv.size] = self.memory[a : a + mv.size]


@pytest.mark.parametrize("fmt", ["bf16", "f32"])
@pytest.mark.parametrize(("cols", "col", "n"), [(256, 0, 256), (192, 96, 96), (80, 0, 80), (130, 63, 66), (34, 2, 32)])
@pytest.mark.parametrize("rows", [1, 3])
def test_pairs_change_places(rows, cols, col, n, fmt):
    local, e = Local(rows, cols, fmt, True), ITEM_BYTES[fmt]
    size = local.size_bytes
    memory = np.zeros(2 * size, np.uint8)
    lanes = np.arange(1, rows * cols + 1).reshape(rows, cols)
    kind = {2: np.uint16, 4: np.uint32}[e]
    place = np.array([[local.offset(r, c) // e for c in range(cols)] for r in range(rows)])
    memory[:size].view(kind)[place] = lanes
    em = Moves(memory)
    swap_pairs(em, local, 0, size, col, n, fmt)
    found = memory[size:].view(kind)[place]
    order = np.arange(col, col + n).reshape(-1, 2)[:, ::-1].ravel()
    assert np.array_equal(found[:, col : col + n], lanes[:, order])
    assert not found[:, :col].any() and not found[:, col + n :].any()
    assert em.count <= 2 * (n // 64 + 3)
