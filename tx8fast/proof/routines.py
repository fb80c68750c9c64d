"""Meanings of kernel-core routines, on strided or channel-blocked tensors in DDR.

May import: numpy, graph_table, proof. Must not: import numerics.

What picks, places, orders or decides is written a second time, here and in `routines_index`. All other routines are the ops of
their names: the chip runs the op's reference function, and the proof shows that it runs it on the right bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.graph_table import OpRecord, TensorSpec
from tx8fast.proof import forms
from tx8fast.proof.cells import UNDEFINED, Elements, choose, join, rounded, truths
from tx8fast.proof.expression import EXPRESSIONS, NotExpressed, Scope, Value, evaluate, moved
from tx8fast.proof.families import load
from tx8fast.proof.forms import FLOATS
from tx8fast.proof.memory import ONE, Memory
from tx8fast.proof.tile import Tile
from tx8fast.records import dataclass


@dataclass
class Operand:
    """A tensor of a routine: `where` holds the byte address of every element, `dtype` its format."""

    tile: Tile
    where: np.ndarray
    dtype: str

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    def elements(self, pick: Any = ...) -> Elements:
        """Return elements, of the shape of the addresses picked; integers as the numbers they are."""
        where = np.asarray(self.where[pick])
        if not self.is_float:
            values, good = self.ints(pick)
            found = self.tile.field.numbers(values)
            return Elements(np.where(good, found.p, np.uint32(UNDEFINED)), found.q)
        if not where.size:
            return self.tile.field.numbers(np.zeros(where.shape))
        size = forms.bytes_of(self.dtype)
        flat, out = where.reshape(-1), Memory(where.size * size)
        # elements that follow one another are read together
        cut = np.flatnonzero(np.diff(flat) != size) + 1
        for first, last in zip([0, *cut.tolist()], [*cut.tolist(), flat.size]):
            if last > first:
                self.tile.ddr.load(int(flat[first]), ONE, (last - first) * size, out, first * size)
        return out.elements(0, forms.dense(where.size, self.dtype)).reshape(*where.shape)

    def ints(self, pick: Any = ...) -> tuple[np.ndarray, np.ndarray]:
        """Return integers and which are known."""
        where = np.asarray(self.where[pick])
        if not where.size:
            return np.zeros(where.shape, forms.INTS[self.dtype]), np.zeros(where.shape, bool)
        return self.tile.ddr.memory(int(where.reshape(-1)[0])).numbers(where, self.dtype)

    def known_ints(self) -> np.ndarray:
        values, good = self.ints()
        if not good.all():
            raise SimulationError("a routine reads integers that are not known")
        return values

    def value(self) -> Value:
        """Return elements, or the integers or truth values that are there."""
        if self.is_float:
            return self.elements()
        return self.known_ints() != 0 if self.dtype == "pred" else self.known_ints()

    def store(self, value: Value) -> None:
        """Store elements, or integers."""
        if isinstance(value, Elements):
            self.put(value)
        elif self.is_float:
            self.put(self.tile.field.numbers(value))
        else:
            self.put_ints(value)

    def put(self, value: Elements) -> None:
        """Store elements of this shape."""
        size = forms.bytes_of(self.dtype)
        value = rounded(value, self.dtype).broadcast_to(self.where.shape)
        flat = self.where.reshape(-1)
        if not flat.size:
            return
        memory = self.tile.ddr.memory(int(flat[0]))
        cut = np.flatnonzero(np.diff(flat) != size) + 1
        flat_value = value.map(lambda x: np.ascontiguousarray(x).reshape(-1))
        for first, last in zip([0, *cut.tolist()], [*cut.tolist(), flat.size]):
            memory.put(int(flat[first]), forms.dense(last - first, self.dtype), flat_value.at(slice(first, last)))

    def put_ints(self, values: np.ndarray, good: np.ndarray | None = None) -> None:
        values = np.broadcast_to(values, self.where.shape)
        memory = self.tile.ddr.memory(int(self.where.reshape(-1)[0]))
        memory.put_numbers(
            self.where, values, self.dtype, None if good is None else np.broadcast_to(good, self.where.shape)
        )


def _operand(tile: Tile, d: Mapping[str, Any]) -> Operand:
    start = tile.slots[d["slot"]] + d["offset"]
    shape = tuple(d["shape"])
    if d.get("layout") == "blocked":
        return Operand(tile, start + forms.offsets(*forms.batches(shape), d["dtype"]).reshape(shape), d["dtype"])
    where = np.full(shape, start, np.int64)
    for axis, (size, step) in enumerate(zip(shape, d["strides"])):
        where += (np.arange(size) * step).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return Operand(tile, where, d["dtype"])


Routine = Callable[[list[Operand], Mapping[str, Any], list[Operand]], None]
ROUTINES: dict[str, Routine] = {}


class WithoutMeaning(SimulationError):
    """A kernel-core routine that the proof has no meaning for; the text names it."""


def run(tile: Tile, descriptor: Mapping[str, Any]) -> None:
    """Execute one routine: by a meaning of its own if it has one, else by the definition of the op of its name, which is what
    the kernel core runs. Raises WithoutMeaning if there is neither."""
    name = descriptor["routine"]
    ins = [_operand(tile, d) if d is not None else None for d in descriptor["inputs"]]
    outs = [_operand(tile, d) for d in descriptor["outputs"]]
    meant = ROUTINES.get(name)
    if meant is not None:
        meant(ins, dict(descriptor["attrs"]), outs)  # type: ignore[arg-type]
    else:
        _defined(tile, name, ins, descriptor["attrs"], outs)
    for d in descriptor["outputs"]:
        if d.get("layout") == "blocked":
            _zero_padding(tile, d)


def _defined(tile: Tile, name: str, ins: list[Operand | None], attrs: Mapping[str, Any], outs: list[Operand]) -> None:
    """Store what the definition of the op `name` makes of the operands."""
    load()
    if name not in EXPRESSIONS:
        raise WithoutMeaning(f"kernel-core routine '{name}' has no meaning in the proof")
    record = OpRecord(
        name,
        tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in attrs.items()),
        tuple(None if x is None else TensorSpec(x.where.shape, x.dtype) for x in ins),
        tuple(TensorSpec(x.where.shape, x.dtype) for x in outs),
        None,
    )
    scope = Scope(tile.field)
    try:
        made = evaluate(scope, record, [None if x is None else x.value() for x in ins])
    except NotExpressed as error:
        raise WithoutMeaning(f"kernel-core routine '{name}' has no meaning in the proof: {error}") from error
    tile.denominators += scope.denominators
    tile.comparisons.take(scope.comparisons)
    for out, value in zip(outs, made, strict=True):
        out.store(value)


def _zero_padding(tile: Tile, d: Mapping[str, Any]) -> None:
    """A blocked result is written whole: what is not an element of it is zero."""
    n, pos, c = forms.batches(d["shape"])
    *_, stride = forms.blocked_sizes(pos, c, d["dtype"])
    start = tile.slots[d["slot"]] + d["offset"]
    free = np.ones(n * stride, bool)
    own = (forms.offsets(n, pos, c, d["dtype"])[..., None] + np.arange(forms.bytes_of(d["dtype"]))).reshape(-1)
    free[own] = False
    where = start + np.flatnonzero(free)
    tile.ddr.memory(start).put_bytes(where, np.zeros(where.size, np.uint8))


def routine(*names: str) -> Callable[[Routine], Routine]:
    def enter(f: Routine) -> Routine:
        for name in names:
            ROUTINES[name] = f
        return f

    return enter


@routine("embedding")
def embedding(ins: list[Operand], attrs: Mapping[str, Any], outs: list[Operand]) -> None:
    """Rows of a table by number; a negative number counts from the end."""
    table, numbers = ins[0], ins[1].known_ints()
    rows = table.where.shape[0]
    if numbers.size and not (-rows <= int(numbers.min()) and int(numbers.max()) < rows):
        raise SimulationError(f"embedding: found numbers {numbers.min()} to {numbers.max()} for a table of {rows} rows")
    outs[0].put(table.elements(numbers.astype(np.int64) % rows))


def _relation(name: str, test: Callable) -> Routine:
    def f(ins: list[Operand], attrs: Mapping[str, Any], outs: list[Operand]) -> None:
        if ins[0].is_float or ins[1].is_float:
            field = ins[0].tile.field
            a, b = ins[0].elements(), ins[1].elements()
            ins[0].tile.comparisons.note(name, a, b, (field.p, field.q))
            held = test(field.order(a), field.order(b))
            outs[0].put_ints(held, ((a.p | b.p) & np.uint32(UNDEFINED)) == 0)
            return
        (a, good_a), (b, good_b) = ins[0].ints(), ins[1].ints()
        outs[0].put_ints(test(a.astype(np.int64), b.astype(np.int64)), good_a & good_b)

    return f


for _name, _test in {
    "le": np.less_equal,
    "lt": np.less,
    "ge": np.greater_equal,
    "gt": np.greater,
    "eq": np.equal,
    "ne": np.not_equal,
}.items():
    routine(_name)(_relation(_name, _test))


def _logic(test: Callable) -> Routine:
    def f(ins: list[Operand], attrs: Mapping[str, Any], outs: list[Operand]) -> None:
        read = [x.ints() for x in ins]
        good = read[0][1]
        for _, more in read[1:]:
            good = good & more
        outs[0].put_ints(
            test(*(values != 0 if x.dtype == "pred" else values for (values, _), x in zip(read, ins))), good
        )

    return f


for _name, _test in {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert}.items():
    routine(_name)(_logic(_test))


@routine("kv_update")
def kv_update(ins: list[Operand], attrs: Mapping[str, Any], outs: list[Operand]) -> None:
    """The cache with new entries from a position on, along an axis."""
    cache, new = ins[0].value(), ins[1].value()
    position, axis = int(ins[2].known_ints().reshape(-1)[0]), int(attrs["axis"])
    size, room = new.shape[axis], cache.shape[axis]
    if not 0 <= position <= room - size:
        raise SimulationError(f"kv_update: found position {position}, required 0 to {room - size}")
    before = moved(cache, lambda x: np.take(x, range(position), axis))
    behind = moved(cache, lambda x: np.take(x, range(position + size, room), axis))
    parts: list = [before, new, behind]
    outs[0].store(join(parts, axis) if isinstance(new, Elements) else np.concatenate(parts, axis))


@routine("select")
def select(ins: list[Operand], attrs: Mapping[str, Any], outs: list[Operand]) -> None:
    """The second where the first, a truth value, holds, else the third."""
    held, good = ins[0].ints()
    if not outs[0].is_float:
        (a, good_a), (b, good_b) = ins[1].ints(), ins[2].ints()
        outs[0].put_ints(np.where(held != 0, a, b), good & np.where(held != 0, good_a, good_b))
        return
    out = choose(held != 0, ins[1].elements(), ins[2].elements())
    outs[0].put(Elements(np.where(good, out.p, np.uint32(UNDEFINED)), out.q))


@routine("convert")
def convert(ins: list[Operand], attrs: Mapping[str, Any], outs: list[Operand]) -> None:
    """Between formats. Which integer a number is depends on its value, so that only truth values are known."""
    if outs[0].is_float:
        outs[0].put(ins[0].elements())
    elif ins[0].is_float:
        if outs[0].dtype == "pred":
            value, tile = ins[0].elements(), ins[0].tile
            tile.comparisons.note("ne", value, tile.field.constant(0.0), (tile.field.p, tile.field.q))
            outs[0].put_ints(value.values() != 0, value.p & np.uint32(UNDEFINED) == 0)
        else:
            outs[0].put_ints(*truths(ins[0].elements()))
    else:
        values, good = ins[0].ints()
        outs[0].put_ints(values != 0 if outs[0].dtype == "pred" else values, good)
