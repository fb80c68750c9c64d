"""Meanings of kernel-core routines that pick, place and order elements.

May import: numpy, proof. Must not: import numerics; routines are written a second time. Numbers of elements are concrete; what an
order depends on is the keyed order of the field, so a routing is proved as drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.proof.cells import ABSENT, UNDEFINED, Elements
from tx8fast.proof.routines import Operand, routine


def _axis(attrs: Mapping[str, Any], rank: int, default: int) -> int:
    axis = int(attrs.get("axis", default))
    if not -rank <= axis < rank:
        raise SimulationError(f"a routine works along axis {axis} of {rank}")
    return axis % rank


def _wrapped(numbers: np.ndarray, size: int) -> np.ndarray:
    """Return numbers counted from the start; negative ones count from the end."""
    if numbers.size and not (-size <= int(numbers.min()) and int(numbers.max()) < size):
        raise SimulationError(f"a routine picks numbers {numbers.min()} to {numbers.max()} of {size}")
    return numbers.astype(np.int64) % size


def _pick(source: Operand, where: Any, out: Operand) -> None:
    """Store the elements at an index of the source."""
    if source.is_float:
        out.put(source.elements(where))
    else:
        values, good = source.ints(where)
        out.put_ints(values, good)


@routine("gather")
def gather(ins: list[Operand], attrs: Mapping[str, Any], outs: list[Operand]) -> None:
    """Slices of the table by number along an axis, whose place the shape of the numbers takes."""
    axis = _axis(attrs, ins[0].where.ndim, 0)
    numbers = _wrapped(ins[1].known_ints(), ins[0].where.shape[axis])
    _pick(ins[0], (slice(None),) * axis + (numbers,), outs[0])


def _own_places(numbers: np.ndarray, shape: tuple[int, ...], axis: int) -> tuple:
    """Return index arrays: every element at its own place, but along the axis at its number."""
    places = list(np.ogrid[tuple(slice(0, n) for n in numbers.shape)])
    places[axis] = _wrapped(numbers, shape[axis])
    return tuple(places)


@routine("gather_elements")
def gather_elements(ins: list[Operand], attrs: Mapping[str, Any], outs: list[Operand]) -> None:
    axis = _axis(attrs, ins[0].where.ndim, 0)
    _pick(ins[0], _own_places(ins[1].known_ints(), ins[0].where.shape, axis), outs[0])


def _tuples(numbers: np.ndarray, shape: tuple[int, ...], batch: int) -> tuple:
    """Return index arrays of tuples in the last axis, after `batch` axes that go along."""
    lead = [np.arange(shape[b]).reshape([-1 if d == b else 1 for d in range(numbers.ndim - 1)]) for b in range(batch)]
    return (*lead, *(_wrapped(numbers[..., i], shape[batch + i]) for i in range(numbers.shape[-1])))


@routine("gather_nd")
def gather_nd(ins: list[Operand], attrs: Mapping[str, Any], outs: list[Operand]) -> None:
    _pick(ins[0], _tuples(ins[1].known_ints(), ins[0].where.shape, int(attrs.get("batch_dims", 0))), outs[0])


#: how updates combine with what is at their place: on elements (a method of the field) and on integers
COMBINE: dict[str, tuple[str, np.ufunc]] = {
    "add": ("add", np.add),
    "mul": ("mul", np.multiply),
    "max": ("maximum", np.maximum),
    "min": ("minimum", np.minimum),
}


def _place(ins: list[Operand], places: tuple, shape: tuple[int, ...], how: str, out: Operand) -> None:
    """Store the first operand with the updates, of `shape`, put at an index or combined; equal places apply in order."""
    if how not in ("set", "none", *COMBINE):
        raise SimulationError(f"scatter with '{how}' has no meaning in the proof")
    own = np.arange(ins[0].where.size).reshape(ins[0].where.shape)
    numbers = np.broadcast_to(own[places], shape).reshape(-1)
    if not out.is_float:
        values, good = (x.copy() for x in ins[0].ints())
        new, new_good = (x.reshape(-1) for x in ins[2].ints())
        if how in COMBINE:
            COMBINE[how][1].at(values.reshape(-1), numbers, new)
            np.logical_and.at(good.reshape(-1), numbers, new_good)
        else:
            values.reshape(-1)[numbers], good.reshape(-1)[numbers] = new, new_good
        out.put_ints(values, good)
        return
    flat, new = ins[0].elements().reshape(-1).map(np.array), ins[2].elements().reshape(-1)
    if how in COMBINE:
        combine = getattr(out.tile.field, COMBINE[how][0])
        for turn in range(int(np.bincount(numbers).max()) if numbers.size else 0):
            # the turn-th update of every place; places differ within a turn
            order = np.argsort(numbers, kind="stable")
            rank = np.arange(numbers.size) - np.searchsorted(numbers[order], numbers[order])
            mine = order[rank == turn]
            _put(flat, numbers[mine], combine(flat.at(numbers[mine]), new.at(mine)))
    else:
        _put(flat, numbers, new)
    out.put(flat.reshape(*ins[0].where.shape))


def _put(flat: Elements, at: np.ndarray, value: Elements) -> None:
    """Overwrite elements in place; those without a value modulo q lose it."""
    flat.p[at] = value.p
    if flat.q is not None:
        flat.q[at] = ABSENT if value.q is None else value.q


@routine("scatter")
def scatter(ins: list[Operand], attrs: Mapping[str, Any], outs: list[Operand]) -> None:
    axis = _axis(attrs, ins[0].where.ndim, 0)
    places = _own_places(ins[1].known_ints(), ins[0].where.shape, axis)
    _place(ins, places, ins[1].where.shape, str(attrs.get("combine", "set")), outs[0])


@routine("scatter_nd")
def scatter_nd(ins: list[Operand], attrs: Mapping[str, Any], outs: list[Operand]) -> None:
    numbers = ins[1].known_ints()
    places = _tuples(numbers, ins[0].where.shape, 0)
    shape = numbers.shape[:-1] + ins[0].where.shape[numbers.shape[-1] :]
    _place(ins, places, shape, str(attrs.get("combine", "set")), outs[0])


def _keys(x: Operand) -> tuple[np.ndarray, np.ndarray]:
    """Return what an operand is ordered by, and where that is known."""
    if not x.is_float:
        values, good = x.ints()
        return values.astype(np.int64), good  # of a format whose numbers have negatives
    value = x.elements()
    return x.tile.field.order(value), value.p & np.uint32(UNDEFINED) == 0


@routine("topk")
def topk(ins: list[Operand], attrs: Mapping[str, Any], outs: list[Operand]) -> None:
    """The k largest (smallest) along an axis, in order, and their places; of equal ones the first."""
    axis, k = _axis(attrs, ins[0].where.ndim, -1), int(attrs["k"])
    keys, good = _keys(ins[0])
    if not good.all():
        raise SimulationError("topk of elements that are not known")
    order = np.argsort(-keys if attrs.get("largest", True) else keys, axis=axis, kind="stable")
    order = np.take(order, np.arange(k), axis)
    _pick(ins[0], _own_places(order, ins[0].where.shape, axis), outs[0])
    outs[1].put_ints(order)
