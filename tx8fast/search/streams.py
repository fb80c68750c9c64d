"""Which stretches of a network go through scratchpad as whole images, weights streaming by.

May import: graph_table, lower, machine, search.*. Must not: emit programs.

Repeated blocks arrive as calls; those of convolutions are inlined first, since an image should not leave scratchpad at
the border of a block. Then the longest stretches that fit are found. Where one comes so close to the bound that no
other cut is worth a trial it is taken at once; everything else goes through `grouping`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import FunctionTable, GraphTable, GroupRecord, OpRecord, Record, Step
from tx8fast.lower import NotLowerable
from tx8fast.lower.chain import WINDOWS
from tx8fast.lower.intake import takes_in
from tx8fast.lower.rounds import Stream as LoweredStream
from tx8fast.lower.sequence import may_stream
from tx8fast.lower.sequence_members import NORMS
from tx8fast.lower.sequences import BINARY, UNARY
from tx8fast.lower.transfer import spec_bytes
from tx8fast.machine import Machine
from tx8fast.records import dataclass
from tx8fast.search.grouping import CHAIN, Option, merge, narrow_places, order_steps, uses
from tx8fast.search.planning import Planner
from tx8fast.tile.tiling import Planned

STREAM_RATIO = 0.6  # of the bound
MEMBERS = CHAIN | {"reduce"}
SEQUENCE = frozenset({*BINARY, *UNARY, *NORMS, "gemm", "contract", "softmax", "swiglu"})
MAX_SEQUENCE = 48  # steps of a stream of sequences
ATTENTION_OPS = 3  # in one at least


@dataclass(frozen=True)
class Stream:
    """Steps [start, end) of a function as one stream."""

    start: int
    end: int
    step: Step
    near_bound: bool


def stream_table(table: GraphTable, planner: Planner) -> dict[str, list[Option]]:
    """Order the steps and replace them by streams where that comes close to the bound. Return the other streams by
    function: options that `group_table` compares with all other cuts."""
    options: dict[str, list[Option]] = {}
    for fn in table.functions.values():
        steps, out = order_steps(fn), []
        at = 0
        found = [*_streams(fn, steps, planner), *_sequences(fn, steps, planner)]
        for s in sorted(found, key=lambda s: s.start):
            out += steps[at : s.start]
            at = s.end
            if s.near_bound:
                out.append(s.step)
                continue
            options.setdefault(fn.name, []).append((len(out), len(out) + s.end - s.start, s.step))
            out += steps[s.start : s.end]
        fn.steps = out + steps[at:]
    return options


def inline_table(table: GraphTable) -> None:
    """Inline blocks of convolutions everywhere, and drop functions that nobody calls any more."""
    for fn in table.functions.values():
        inline_chains(fn, table)
    called = {s.callee for fn in table.functions.values() for s in fn.steps if s.kind == "call"}
    for name in [n for n in table.functions if n != "main" and n not in called]:
        del table.functions[name]


def inline_chains(fn: FunctionTable, table: GraphTable) -> None:
    """Replace calls of functions that hold nothing but ops of chains, a convolution or pool among them, by their steps."""
    out: list[Step] = []
    for step in fn.steps:
        callee = table.functions.get(step.callee)
        if step.kind != "call" or callee is None or not _is_chain(callee):
            out.append(step)
            continue
        new = dict(zip(callee.args, step.inputs, strict=True))
        for v, out_id in zip(callee.results, step.outputs, strict=True):
            new[v] = out_id
        for v in range(len(callee.values)):
            if v not in new:
                new[v] = len(fn.values)
                fn.origin[len(fn.values)] = (step.call_number, *callee.path(v))
                fn.values.append(callee.values[v])
                if v in callee.params:
                    fn.params[new[v]] = callee.params[v]
        new[-1] = -1
        move = lambda ids, new=new: tuple(new[v] for v in ids)  # noqa: E731
        out += [
            replace(s, name=f"{step.name}/{s.name}", inputs=move(s.inputs), outputs=move(s.outputs))
            for s in callee.steps
        ]
    fn.steps = out


def _is_chain(callee: FunctionTable) -> bool:
    kinds = [s.record.kind if s.record is not None else "" for s in callee.steps]
    made = {v for s in callee.steps for v in s.outputs}
    own = set(callee.results) <= made and len(set(callee.results)) == len(callee.results)
    return own and CHAIN.issuperset(kinds) and any(k in WINDOWS for k in kinds)


def _streams(fn: FunctionTable, steps: list[Step], planner: Planner) -> list[Stream]:
    """Return the longest runs of convolutions, pools and what lies between them that go through scratchpad as whole
    images."""
    used, narrow = uses(fn, steps), narrow_places(fn, steps)
    kinds = [s.record.kind if s.record is not None else "" for s in steps]
    out: list[Stream] = []
    start = 0
    while start < len(steps):
        begin = start + _intake(steps[start : start + 3])
        end = begin
        while end < len(steps) and kinds[end] in MEMBERS:
            end += 1
        found = None
        if narrow[start]:
            ends = [e for e in range(begin + 2, end + 1) if narrow[e]]
            found = _longest(ends, lambda e, start=start: _stream(fn, steps, start, e, used, planner))
        if found is not None:
            out.append(found)
        start = start + 1 if found is None else found.end
    return out


def _sequences(fn: FunctionTable, steps: Sequence[Step], planner: Planner) -> list[Stream]:
    """Return runs of a transformer's steps, attention among them, that begin and end with one value and go through
    scratchpad as whole sequences: the longest first."""
    used, narrow = uses(fn, steps), narrow_places(fn, steps, 3)
    kinds = [s.record.kind if s.record is not None else "" for s in steps]
    out: list[Stream] = []
    for start in [i for i, one in enumerate(narrow[:-1]) if one]:
        if out and start < out[-1].end:
            continue
        end = start
        while end < len(steps) and kinds[end] in SEQUENCE and end - start < MAX_SEQUENCE:
            end += 1
        ends = [e for e in range(start + ATTENTION_OPS + 1, end + 1) if narrow[e] and "softmax" in kinds[start:e]]
        found = (_sequence(fn, steps, start, e, used, planner) for e in reversed(ends))
        stream = next((s for s in found if s is not None), None)
        if stream is not None:
            out.append(stream)
    return out


def _sequence(
    fn: FunctionTable, steps: Sequence[Step], start: int, end: int, used: dict[int, set[int]], planner: Planner
) -> Stream | None:
    merged = merge(fn, steps[start:end], set(range(start, end)), used, in_stream)
    if merged is None or not isinstance(merged.record, GroupRecord) or not may_stream(merged.record, planner.machine):
        return None
    # other cuts stay options: groups are priced quickly, and only those below the stream are tried
    return Stream(start, end, merged, False) if _planned(merged, planner) is not None else None


def _intake(steps: Sequence[Step]) -> int:
    """Return how many of the first steps turn planes of a model's input into images."""
    for n in (3, 2):
        first = [s.record for s in steps[:n] if isinstance(s.record, OpRecord)]
        linked = all(b.inputs == a.outputs for a, b in itertools.pairwise(steps[:n]))
        if len(first) == n and linked and takes_in(first):
            return n
    return 0


def in_stream(records: Sequence[OpRecord], part: Sequence[Step], made: dict[int, int]) -> bool:
    """Every result but the last has a reader."""
    read = {v for s in part for v in s.inputs}
    return all(s.outputs[0] in read for s in part[:-1])


def is_sequence(kinds: Sequence[str]) -> bool:
    """True for kinds of ops that may go through scratchpad as whole sequences, attention among them."""
    return "softmax" in kinds and len(kinds) <= MAX_SEQUENCE and SEQUENCE.issuperset(kinds)


def _longest(ends: Sequence[int], stream: Callable[[int], Stream | None]) -> Stream | None:
    """Return the stream with the last end: if one image is too large, that ends all longer runs."""
    found = None
    lo, hi = 0, len(ends)
    at = len(ends) - 1  # all of it first
    while lo < hi:
        longer = stream(ends[at])
        if longer is not None:
            found, lo = longer, at + 1
        else:
            hi = at
        at = (lo + hi) // 2
    return found


def _stream(
    fn: FunctionTable, steps: Sequence[Step], start: int, end: int, used: dict[int, set[int]], planner: Planner
) -> Stream | None:
    """Return the steps as one stream, or None if that does not fit."""
    kinds = [s.record.kind for s in steps[start:end] if s.record is not None]
    if sum(k in WINDOWS for k in kinds) < 2:
        return None
    merged = merge(fn, steps[start:end], set(range(start, end)), used, in_stream)
    if merged is None or not isinstance(merged.record, GroupRecord):
        return None
    found = _planned(merged, planner)
    if found is None:
        return None
    work = found.low.even_cycles() if isinstance(found.low, LoweredStream) else 0.0
    near = found.plan.estimate_cycles * STREAM_RATIO <= _bound(merged.record, work, planner.machine)
    return Stream(start, end, merged, near)


def _planned(merged: Step, planner: Planner) -> Planned | None:
    """Return the plan of merged steps, or None if they are no stream or do not fit."""
    assert merged.record is not None
    try:
        return planner.plan(merged.record, merged.name)
    except (NotLowerable, InfeasibleError):
        return None


def _bound(record: Record, work_cycles: float, machine: Machine) -> float:
    """Cycles that other plans of the group hardly beat: a compute engine's work, spread over all tiles, and all operands and results
    once over DDR."""
    specs = [s for s in (*record.operands, *record.results) if s is not None]
    moved = sum(spec_bytes(s) for s in specs) / machine.ddr_bytes_per_cycle
    return max(moved, work_cycles)
