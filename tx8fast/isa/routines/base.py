"""What a routine of the kernel core is: its declaration, how a call is handed to the C core, and the work it takes.

May import: math, struct, errors, isa.work, numerics. Must not: know any particular routine, or execute one.

A routine is a C function of the run-time library (`host/csrc/routine_*.c`). Its declaration says which attributes it takes, in the
order in which the function reads them, and how much work a call is: closed forms of shapes, checked against what the C code counts.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tx8fast.errors import SimulationError
from tx8fast.isa.work import Work
from tx8fast.numerics.formats import FLOATS, FORMAT_CODES, ITEM_BYTES
from tx8fast.records import dataclass

#: of calls as words in program files: one more whenever a routine's number or what it reads changes (a test tells)
CALLS_VERSION = 1
WORD_BYTES = 8  # the kernel core loads and stores 64 bits at a time (TX8 hardware manual 1)
MAX_RANK = 8


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor of a call: logical shape, bytes between elements per dimension, format, and whether it lies channel-blocked."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    blocked: bool = False

    @property
    def n(self) -> int:
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        return ITEM_BYTES[self.dtype]

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS


@dataclass(frozen=True)
class Call:
    """One call: operands (None: not given), results and attributes."""

    ins: Sequence[Operand | None]
    outs: Sequence[Operand]
    attrs: Mapping[str, Any]

    def given(self, index: int) -> Operand:
        """Return operand `index`. Raises SimulationError if it is missing."""
        found = self.ins[index] if index < len(self.ins) else None
        if found is None:
            raise SimulationError(f"calling a routine of the kernel core: operand {index} is missing")
        return found

    def has(self, index: int) -> bool:
        return index < len(self.ins) and self.ins[index] is not None

    @property
    def out(self) -> Operand:
        return self.outs[0]


#: an attribute of a call as words
Encode = Callable[[Call], Sequence[int]]


@dataclass(frozen=True)
class Routine:
    """`function`: the C function, common to routines of one form. `attrs`: what it reads behind the operands, in this order.
    `updates`: operand 0 may lie where result 0 does. `takes_blocks`: it works on channel blocks as they lie."""

    name: str
    function: str
    code: int
    attrs: tuple[Encode, ...]
    work: Callable[[Call], Work]
    updates: bool
    takes_blocks: bool
    each: Work  # of an element, beside loads and stores; for forms that share a function


#: why the C core refuses a call: name -> text about the numbers it found
WHY: dict[str, str] = {
    "unknown": "number {0} is not known",
    "missing": "operand {0} is missing",
    "rank": "found {0} dimensions or bytes between elements, required others",
    "sizes": "operands of {0} and {1} elements do not fit each other",
    "list": "an attribute has {0} numbers, required one or {1}",
    "index": "{0} indices out of range, first {1}, required [-{2}, {2})",
    "range": "writes [{0}, {1}), required within [0, {2})",
    "empty": "axis {0} has no elements to choose from",
}

ROUTINES: dict[str, Routine] = {}
BY_CODE: list[Routine] = []


def declare(
    name: str,
    function: str,
    *attrs: Encode,
    work: Callable[[Call], Work],
    updates: bool = False,
    takes_blocks: bool = False,
    each: Work = Work(),  # noqa: B008 - immutable
) -> None:
    """Register a routine. Its number is its place: programs hold names, the number is made when they are loaded."""
    made = Routine(name, function, len(BY_CODE), attrs, work, updates, takes_blocks, each)
    ROUTINES[name] = made
    BY_CODE.append(made)


def routine(name: str) -> Routine:
    """Return a routine's declaration. Raises SimulationError if there is none."""
    try:
        return ROUTINES[name]
    except KeyError:
        raise SimulationError(f"kernel-core routine '{name}' does not exist") from None


# --- attributes as words -------------------------------------------------------------------------------


def real_word(value: float) -> int:
    """Return the pattern of a double as a signed word."""
    return struct.unpack("<q", struct.pack("<d", float(value)))[0]


def whole(key: str, default: int | None = None) -> Encode:
    """An integer or a truth value."""
    return lambda call: [int(call.attrs[key] if default is None else call.attrs.get(key, default))]


def real(key: str, default: float) -> Encode:
    """A number, as the pattern of a double."""
    return lambda call: [real_word(call.attrs.get(key, default))]


def wholes(key: str) -> Encode:
    """A list of integers behind its length; missing: no elements."""

    def encode(call: Call) -> list[int]:
        found = call.attrs.get(key)
        found = () if found is None else (found,) if isinstance(found, int) else found
        return [len(found), *(int(v) for v in found)]

    return encode


def choice(key: str, names: Sequence[str], default: str) -> Encode:
    """The place of a name among the known ones."""

    def encode(call: Call) -> list[int]:
        found = str(call.attrs.get(key, default))
        if found not in names:
            raise SimulationError(
                f"attribute '{key}' of a routine: found '{found}', required one of {', '.join(names)}"
            )
        return [names.index(found)]

    return encode


def axis(default: int, of: str = "ins") -> Encode:
    """A dimension of the first operand (`of` "outs": of the result), counted from the first."""
    return lambda call: [axis_of(call, default, of)]


def axis_of(call: Call, default: int, of: str = "ins") -> int:
    """Return attribute `axis` counted from the first. Raises SimulationError if there is no such dimension."""
    rank = len((call.given(0) if of == "ins" else call.out).shape)
    found = int(call.attrs.get("axis", default))
    if not -rank <= found < max(rank, 1):
        raise SimulationError(f"running a routine: axis {found} is outside rank {rank}")
    return found % rank if rank else 0


def axes_of(call: Call, default: Sequence[int] = ()) -> tuple[int, ...]:
    """Return attribute `axes`, ascending from the first dimension; none: all."""
    rank = len(call.given(0).shape)
    found = tuple(call.attrs.get("axes", default))
    return tuple(sorted({int(a) % rank for a in found})) if found else tuple(range(rank))


def axes(*default: int) -> Encode:
    """Dimensions of the first operand behind their number."""

    def encode(call: Call) -> list[int]:
        found = axes_of(call, default)
        return [len(found), *found]

    return encode


# --- calls as words --------------------------------------------------------------------------------------


def call_of(descriptor: Mapping[str, Any]) -> Call:
    """Return the call that a segment's routine descriptor stands for."""

    def operand(d: Mapping[str, Any] | None) -> Operand | None:
        if d is None:
            return None
        return Operand(tuple(d["shape"]), tuple(d["strides"]), d["dtype"], d.get("layout") == "blocked")

    outs = [o for o in map(operand, descriptor["outputs"]) if o is not None]
    return Call([operand(d) for d in descriptor["inputs"]], outs, descriptor["attrs"])


def words_of(descriptor: Mapping[str, Any]) -> list[int]:
    """Return a call as the words that the C core reads: routine, numbers of operands and results; of each its slot (-1: missing),
    offset in bytes, format code, whether it is blocked, rank, shape and strides; attributes."""
    declared = routine(descriptor["routine"])
    call = call_of(descriptor)
    inputs, outputs = descriptor["inputs"], descriptor["outputs"]
    words = [declared.code, len(inputs), len(outputs)]
    for d in (*inputs, *outputs):
        if d is None:
            words.append(-1)
            continue
        rank = len(d["shape"])
        if rank > MAX_RANK:
            raise SimulationError(f"routine {declared.name}: found {rank} dimensions, required at most {MAX_RANK}")
        blocked = d.get("layout") == "blocked"
        words += [d["slot"], d["offset"], FORMAT_CODES[d["dtype"]], blocked, rank, *d["shape"], *d["strides"]]
    for encode in declared.attrs:
        words += encode(call)
    return [int(w) for w in words]


def work_of(descriptor: Mapping[str, Any]) -> Work:
    """Return the work of a call, packing and unpacking of channel-blocked tensors included."""
    call, declared = call_of(descriptor), routine(descriptor["routine"])
    total = declared.work(call)
    if declared.takes_blocks:
        return total
    for o in (*call.ins, *call.outs):
        if o is not None and o.blocked and len(o.shape) > 1:
            total += repacked(o)
    return total


def repacked(o: Operand) -> Work:
    """Return the work of taking a tensor out of its channel blocks, or of putting it there: block by block of every position."""
    from tx8fast.numerics.layout import block_size

    channels, block = o.shape[-1], block_size(o.dtype)
    words = channels // block * -(-block * o.size // WORD_BYTES) + -(-(channels % block) * o.size // WORD_BYTES)
    return copied_words(o.n // channels * words if channels else 0)


def copied_words(words: int) -> Work:
    """Return the work of moving words; two operations join and shift what is not aligned."""
    return Work(loads=words, stores=words, ops=2 * words)


def copied(shape: Sequence[int], size: int, *strides: Sequence[int]) -> Work:
    """Return the work of copying elements of `size` bytes, at these strides on every side, as words of the runs that lie together."""
    run, k = 1, len(shape)
    while k and (shape[k - 1] == 1 or all(s[k - 1] == run * size for s in strides)):
        k -= 1
        run *= shape[k]
    return copied_words(math.prod(shape[:k]) * -(-run * size // WORD_BYTES))


def dense_strides(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the strides in bytes of a tensor whose elements lie together."""
    out = []
    for n in reversed(shape):
        out.append(size)
        size *= n
    return tuple(reversed(out))
