"""A function of elements, given as steps, as a sequence of vector instructions in few buffers.

May import: lower.emitter, lower.sequences, numerics. Must not: know slices or layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tx8fast.lower.emitter import Emitter
from tx8fast.lower.sequences import SWAPPED, UNARY
from tx8fast.numerics.formats import FORMAT_CODES, ITEM_BYTES
from tx8fast.numerics.steps import ONE, Step, parse_steps
from tx8fast.records import dataclass

WIDE = "f32"


@dataclass(frozen=True)
class Placed:
    """Steps with the buffer of each value by place, as many as live at once; -1: an argument where it was loaded, or the result's own
    buffer. vectors: of each step, the buffers of numbers among its operands that instructions take as vectors, by operand."""

    steps: tuple[Step, ...]
    buffers: tuple[int, ...]
    vectors: tuple[dict[int, int], ...]
    n_buffers: int


@lru_cache(maxsize=1 << 10)
def placed(text: str, arguments: int, convert: bool) -> Placed:
    """Give every value a buffer. convert: arguments and the result are of 16 bits, and are widened and narrowed in buffers."""
    steps = parse_steps(text, arguments)
    last = {o: i for i, s in enumerate(steps) for o in s.operands if type(o) is int}
    buffers = [-1] * (arguments + len(steps))
    free: list[int] = []
    count = 0

    def take() -> int:
        nonlocal count
        if not free:
            free.append(count)
            count += 1
        return free.pop()

    if convert:
        for k in range(arguments):
            buffers[k] = take() if k in last else -1
    vectors = []
    for i, step in enumerate(steps):
        dying = sorted({o for o in step.operands if type(o) is int and last[o] == i and buffers[o] >= 0})
        numbers = {k: take() for k in _vector_operands(step)}
        vectors.append(numbers)
        place = arguments + i
        if i < len(steps) - 1 or convert:
            if step.kind == "select":
                buffers[place] = _kept(step, numbers, {o: buffers[o] for o in dying})
            else:
                buffers[place] = buffers[dying[0]] if dying else -1
            if buffers[place] < 0:
                buffers[place] = take()
        kept = buffers[place]
        free += [b for o in dying if (b := buffers[o]) != kept]
        free += [b for b in numbers.values() if b != kept]
        if place not in last and i < len(steps) - 1 and kept >= 0:
            free.append(kept)  # nobody reads it
    return Placed(steps, tuple(buffers), tuple(vectors), count)


def _kept(step: Step, numbers: dict[int, int], dying: dict[int, int]) -> int:
    """Return the buffer in which a choice is made: that of the value that is kept where nothing is chosen, which lies apart from the
    others. -1: a fresh one."""
    kept = step.operands[-1]
    if type(kept) is float:
        return numbers[2]
    return dying.get(kept, -1) if type(kept) is int and kept not in step.operands[:2] else -1


def _vector_operands(step: Step) -> list[int]:
    """Return which operands of a step are numbers that have to be vectors."""
    if step.kind == "select":
        return [k for k, o in enumerate(step.operands) if type(o) is float]
    return [0] if step.kind == "div" and type(step.operands[0]) is float and step.operands[0] != 1.0 else []


def n_instructions(text: str, arguments: int) -> int:
    """Return about how many vector instructions the steps take."""
    return len(parse_steps(text, arguments)) + 2


def emit_steps(em: Emitter, text: str, srcs: Sequence[int], out: int, n: int, fmt: str, buffers: Sequence[int]) -> None:
    """Emit `n` elements: arguments at `srcs`, the result at `out`, in format `fmt`; buffers: as many as `placed` counts, of f32."""
    convert = fmt != WIDE
    p = placed(text, len(srcs), convert)
    at = [buffers[b] if b >= 0 else out for b in p.buffers]
    for k, src in enumerate(srcs):
        if not convert:
            at[k] = src
        elif p.buffers[k] >= 0:
            em.cvt(src, at[k], n, fmt, WIDE)
    for step, vectors, dst in zip(p.steps, p.vectors, at[len(srcs) :], strict=True):
        for k, buffer in vectors.items():
            em.fill(buffers[buffer], step.operands[k], n, WIDE)
        given = [at[o] if type(o) is int else o for o in step.operands]
        _step(em, step, [buffers[vectors[k]] if k in vectors else o for k, o in enumerate(given)], dst, n)
    if convert:
        em.cvt(at[-1], out, n, WIDE, fmt)


def _step(em: Emitter, step: Step, given: Sequence[int | float], dst: int, n: int) -> None:
    """Emit one step; given: addresses (int), or numbers that instructions hold (float)."""
    kind, a, b = step.kind, given[0], given[-1]
    if kind in ONE:
        recipe = UNARY[kind]
        recipe.emit(em, int(a), dst, n, WIDE, (), {})
    elif kind == "select":
        if b != dst:
            em.copy(int(b), dst, n * ITEM_BYTES[WIDE])
        em.add("mask_move", src0=given[1], src1=a, dst=dst, n=n, fmt=FORMAT_CODES[WIDE])
    elif type(a) is float:
        if kind == "div":
            em.v("recip", int(b), dst, n, WIDE)
        elif kind == "sub":
            em.v("neg", int(b), dst, n, WIDE)
            em.vs("add", dst, a, dst, n, WIDE)
        else:
            em.vs(SWAPPED[kind], int(b), a, dst, n, WIDE)
    elif type(b) is float:
        em.vs(kind, int(a), b, dst, n, WIDE)
    else:
        em.vv(kind, int(a), int(b), dst, n, WIDE)
