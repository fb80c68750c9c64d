"""Run a graph that several chips share with the ops' reference routines: all chips in step, what they exchange in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.collective_reference import collective
from tx8fast.ir import reference
from tx8fast.ir.attrs import DENSE_DTYPES
from tx8fast.ir.core import COLLECTIVE
from tx8fast.ir.types import NoneType


def part_of(array: np.ndarray, shape: tuple[int, ...], chip: int, n: int) -> np.ndarray:
    """Return what chip `chip` of `n` has of a whole array, if one chip's has this shape: its part of the dimension that is cut."""
    for d, (whole, own) in enumerate(zip(array.shape, shape, strict=True)):
        if whole != own:
            parts = whole // own
            return np.split(array, parts, axis=d)[chip % n * parts // n]
    return array


def joined(parts: np.ndarray, shape: tuple[int, ...], n: int) -> np.ndarray:
    """Return the array of which the first `n` chips have parts, or all the whole."""
    for d, (whole, own) in enumerate(zip(shape, parts.shape[1:], strict=True)):
        if whole != own:
            return np.concatenate([parts[c] for c in range(0, n, n * own // whole)], axis=d)
    return parts[0]


def run_over_chips(program, inputs: dict[str, np.ndarray], n: int) -> dict[str, np.ndarray]:
    """Return main's results by name, with a leading axis over chips; inputs are whole."""
    main, chips = program.main, program.chips[0] * program.chips[1]
    env: dict[Any, list[Any]] = {}
    for name, v in zip(main.attrs["arg_names"], main.body.args, strict=True):
        array = np.asarray(inputs[name]).astype(DENSE_DTYPES[v.dtype][1])
        env[v] = [part_of(array, v.shape, c, n) for c in range(chips)]
    for op in main.body:
        ins: list[list[Any]] = [
            [None if type(v.type) is NoneType else env[v][c] for v in op.operands] for c in range(chips)
        ]
        if op.kind == "return":
            return {k: np.stack([i[r] for i in ins]) for r, k in enumerate(main.attrs["result_names"])}
        if op.kind == "none":
            continue
        if op.has(COLLECTIVE):
            found = collective(op.kind, np.stack([i[0] for i in ins]), op.attrs, lambda members: members)
            outs = [[found[c]] for c in range(chips)]
        elif op.kind == "get_param":
            key = op.attrs["key"]
            varies = program.weights.varies(key)
            outs = [[program.weights.view(key, c if varies else None)] for c in range(chips)]
        elif op.kind == "constant":
            outs = [[op.attrs["value"].array]] * chips
        else:
            outs = [reference(op, i) for i in ins]
        for r, *arrays in zip(op.results, *outs, strict=True):
            assert all(np.shape(a) == r.shape for a in arrays), (op, [np.shape(a) for a in arrays], r.type)
            env[r] = [np.asarray(a, DENSE_DTYPES[r.dtype][1]) for a in arrays]
    raise AssertionError("the block has no terminator")
