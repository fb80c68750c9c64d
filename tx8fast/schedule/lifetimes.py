"""When each buffer copy of a group is alive, from its list of steps, and the placement problem that follows.

May import: schedule.stages, schedule.pipeline, alloc. Must not: reorder steps.

Lifetimes are half-open ranges of step numbers: written in step 1 and read last in step 3 is (1, 4). A copy that
serves several iterations has one range per iteration, all at one address (back-end notes 13.1-13.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tx8fast.alloc import Buffer, Placement, Problem, merge_intervals
from tx8fast.alloc.problem import Interval
from tx8fast.schedule.pipeline import Step, Values

ALIGN_BYTES = 256


@dataclass(frozen=True, order=True)
class Label:
    """A copy of a value, or, with `is_imm`, the scratch of an op whose result brings no buffer of its own."""

    value: str
    is_imm: bool
    copy: int


@dataclass(frozen=True)
class Life:
    """One buffer: scratch of `imm_bytes` first, then the value; `size_bytes` is both, multiples of 256."""

    label: Label
    lifetimes: tuple[Interval, ...]
    size_bytes: int
    imm_bytes: int = 0


@dataclass(frozen=True)
class Layout:
    """Byte ranges. values: (value, copy) -> its bytes; scratch: (op, buffer index) -> the op's scratch."""

    values: dict[tuple[str, int], range]
    scratch: dict[tuple[str, int], range]


def buffer_lives(steps: Sequence[Step], values: Values, sizes: Mapping[str, int],
                 scratch: Mapping[str, int] | None = None) -> list[Life]:  # fmt: skip
    """Return one entry per buffer copy in the order of first use. sizes: bytes of a slice per value; scratch: per op.

    A chain of in-place results is one buffer of the largest member's size. A value that nothing reads lives in the steps
    that write it; one that nothing writes is there from step 0. Partial sums and scratch without a result's
    buffer keep one range from first to last use.
    """
    scratch = scratch or {}
    size, imm = _sizes(steps, values, sizes, scratch)
    spans: dict[Label, dict[tuple[int, ...], list[int]]] = {}  # label -> iteration of the value -> [first, last]

    def touch(label: Label, key: tuple[int, ...], t: int) -> None:
        spans.setdefault(label, {}).setdefault(key, [t, t])[1] = t

    written = {v for s in steps for w in s.works for v in w.op.writes}
    for t, step in enumerate(steps):
        for w in step.works:
            names = (*w.op.reads, *w.op.writes)
            for v, (owner, copy) in zip(names, (*w.reads, *w.writes), strict=True):
                key = () if values[owner].psum else w.iteration[: values[v].depth]
                label = Label(owner, False, copy)
                if v == owner and v not in written:
                    touch(label, key, 0)
                touch(label, key, t)
            own = _imm_owner(w.op.writes, values)
            if w.op.name in scratch and not own:
                touch(Label(w.op.name, True, 0), (), t)
    lives = []
    for label, by_iteration in spans.items():
        ranges = merge_intervals((a, b + 1) for a, b in by_iteration.values())
        if label.is_imm:
            lives.append(Life(label, ranges, _up(scratch[label.value])))
        else:
            before = imm.get(label.value, 0)
            lives.append(Life(label, ranges, before + size[label.value], before))
    return lives


def to_problem(lives: Sequence[Life], capacity_bytes: int | None = None) -> Problem:
    """Return the placement problem with one buffer per entry of `lives`, in the same order."""
    return Problem(tuple(Buffer(_text(x.label), x.lifetimes, x.size_bytes, ALIGN_BYTES) for x in lives), capacity_bytes)


def layout(lives: Sequence[Life], placement: Placement, steps: Sequence[Step], values: Values, sizes: Mapping[str, int],
           scratch: Mapping[str, int] | None = None, base: int = 0) -> Layout:  # fmt: skip
    """Return where every value and every op's scratch is; `base` is the address of offset 0."""
    scratch = scratch or {}
    offset = {x.label: base + o for x, o in zip(lives, placement.offsets, strict=True)}
    imm = {x.label: x.imm_bytes for x in lives}
    found = Layout({}, {})
    for w in (w for s in steps for w in s.works):
        for v, (owner, copy) in zip((*w.op.reads, *w.op.writes), (*w.reads, *w.writes), strict=True):
            label = Label(owner, False, copy)
            start = offset[label] + imm[label]
            found.values[v, copy] = range(start, start + sizes[v])
        if w.op.name in scratch:
            own = _imm_owner(w.op.writes, values)
            start = offset[Label(own, False, w.copy) if own else Label(w.op.name, True, 0)]
            found.scratch[w.op.name, w.copy] = range(start, start + scratch[w.op.name])
    return found


def _sizes(steps: Sequence[Step], values: Values, sizes: Mapping[str, int], scratch: Mapping[str, int]
           ) -> tuple[dict[str, int], dict[str, int]]:  # fmt: skip
    """Return bytes per owner: of the largest value in it, and of the largest scratch in front of it."""
    size: dict[str, int] = {}
    imm: dict[str, int] = {}
    for op in {w.op.name: w.op for s in steps for w in s.works}.values():
        for v in (*op.reads, *op.writes):
            owner = values[v].memory
            size[owner] = max(size.get(owner, 0), _up(sizes[v]))
        own = _imm_owner(op.writes, values)
        if own and op.name in scratch:
            imm[own] = max(imm.get(own, 0), _up(scratch[op.name]))
    return size, imm


def _imm_owner(writes: Sequence[str], values: Values) -> str:
    """Return the first result if it owns its bytes: scratch stands in front of it. An in-place result has none."""
    return writes[0] if writes and values[writes[0]].memory == writes[0] else ""


def _text(label: Label) -> str:
    return f"{label.value}{' scratch' if label.is_imm else ''}#{label.copy}"


def _up(size_bytes: int) -> int:
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES
