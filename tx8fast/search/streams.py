"""Which stretches of a network go through scratchpad as whole images, weights streaming by.

May import: graph_table, lower, machine, search.*. Must not: emit programs.

Repeated blocks arrive as calls; those of convolutions are inlined first, since an image should not leave scratchpad at
the border of a block. Then the longest stretches that fit are found, with which `grouping` compares all other cuts: groups are priced
quickly, and only those below the stream are tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import FunctionTable, GraphTable, GroupRecord, OpRecord, Step
from tx8fast.lower import NotLowerable
from tx8fast.lower.chain import WINDOWS, is_chain
from tx8fast.lower.planes import gives_out, takes_in
from tx8fast.lower.sequence import may_stream
from tx8fast.lower.sequence_members import NORMS
from tx8fast.lower.sequences import BINARY, UNARY
from tx8fast.lower.stream_ops import makes_means, moves_channels
from tx8fast.search.grouping import CHAIN, Option, merge, narrow_places, order_steps, uses
from tx8fast.search.planning import Planner

SEQUENCE = frozenset({*BINARY, *UNARY, *NORMS, "gemm", "contract", "softmax", "swiglu"})
MAX_SEQUENCE = 48  # steps of a stream of sequences
ATTENTION_OPS = 3  # in one at least
NEAR = 3  # places before the end of a stream, and behind its begin, where another one ends or begins


def stream_table(table: GraphTable, planner: Planner) -> dict[str, list[Option]]:
    """Order the steps. Return the streams by function: options that `group_table` compares with all other cuts."""
    options: dict[str, list[Option]] = {}
    for fn in table.functions.values():
        fn.steps = steps = order_steps(fn)
        found = [*_streams(fn, steps, planner, False), *_sequences(fn, steps, planner), *_turned(fn, steps, planner)]
        if any(s.record is not None and moves_channels(s.record.kind) for s in steps):
            found += _streams(fn, steps, planner, True)
        if found:
            options[fn.name] = sorted({option[:2]: option for option in found}.values(), key=lambda option: option[:2])
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
    return own and all(_is_member(k, True) for k in kinds) and any(k in WINDOWS for k in kinds)


def _is_member(kind: str, moves: bool) -> bool:
    """True for ops of streams of images; moves: those that put channels together and take them apart among them."""
    return kind in CHAIN or makes_means(kind) or moves and moves_channels(kind)


def _streams(fn: FunctionTable, steps: list[Step], planner: Planner, moves: bool) -> list[Option]:
    """Return the longest runs of convolutions, pools and what lies between them that go through scratchpad as whole
    images, and somewhat shorter ones, for what lies before or behind may do better with an op of theirs."""
    used, narrow = uses(fn, steps), narrow_places(fn, steps)
    kinds = [s.record.kind if s.record is not None else "" for s in steps]
    stream = lambda start, end: _stream(fn, steps, start, end, used, planner)  # noqa: E731
    out: list[Option] = []
    start = 0
    while start < len(steps):
        begin = start + _turns(steps[start : start + 3], takes_in)
        end = begin
        while end < len(steps) and _is_member(kinds[end], moves):
            end += 1
        found = None
        if narrow[start]:
            out_of = _turns(steps[end : end + 3], gives_out)
            ends = [e for e in (*range(begin + 1, end + 1), *([end + out_of] * (out_of > 0))) if narrow[e]]
            found = _longest(ends, lambda e, start=start: stream(start, e))
        if found is None:
            start += 1
            continue
        inside = [e for e in range(begin + 2, found[1]) if narrow[e]]
        shorter = [(start, e) for e in inside[-NEAR:] if found[1] < len(steps)]
        shorter += [(b, found[1]) for b in inside[:NEAR] if start]
        out += [s for s in (found, *(stream(*ends) for ends in shorter)) if s is not None]
        start = found[1]
    return out


def _turned(fn: FunctionTable, steps: Sequence[Step], planner: Planner) -> list[Option]:
    """Return the runs of steps that turn planes into images, or images into planes, and do nothing else."""
    used = uses(fn, steps)
    ends = [(i, i + _turns(steps[i : i + 3], way)) for i in range(len(steps)) for way in (takes_in, gives_out)]
    found = (_group(fn, steps, start, end, used, planner) for start, end in ends if end > start)
    return [option for option in found if option is not None]


def _sequences(fn: FunctionTable, steps: Sequence[Step], planner: Planner) -> list[Option]:
    """Return runs of a transformer's steps, attention among them, that begin and end with one value and go through
    scratchpad as whole sequences: the longest first."""
    used, narrow = uses(fn, steps), narrow_places(fn, steps, 3)
    kinds = [s.record.kind if s.record is not None else "" for s in steps]
    out: list[Option] = []
    for start in [i for i, one in enumerate(narrow[:-1]) if one]:
        if out and start < out[-1][1]:
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
) -> Option | None:
    merged = merge(fn, steps[start:end], set(range(start, end)), used, in_stream)
    if merged is None or not isinstance(merged.record, GroupRecord) or not may_stream(merged.record, planner.machine):
        return None
    return (start, end, merged) if _planned(merged, planner) else None


def _turns(steps: Sequence[Step], found: Callable[[Sequence[OpRecord]], bool]) -> int:
    """Return how many of the first steps are what is looked for: turn planes into images, or images into planes."""
    for n in (3, 2):
        first = [s.record for s in steps[:n] if isinstance(s.record, OpRecord)]
        linked = all(b.inputs == a.outputs for a, b in itertools.pairwise(steps[:n]))
        if len(first) == n and linked and found(first):
            return n
    return 0


def in_stream(records: Sequence[OpRecord], part: Sequence[Step], made: dict[int, int]) -> bool:
    """Every result but the last has a reader."""
    read = {v for s in part for v in s.inputs}
    return all(s.outputs[0] in read for s in part[:-1])


def is_sequence(kinds: Sequence[str]) -> bool:
    """True for kinds of ops that may go through scratchpad as whole sequences, attention among them."""
    return "softmax" in kinds and len(kinds) <= MAX_SEQUENCE and SEQUENCE.issuperset(kinds)


def _longest(ends: Sequence[int], stream: Callable[[int], Option | None]) -> Option | None:
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
) -> Option | None:
    """Return the steps as one stream, or None if that does not fit."""
    if not is_chain([s.record for s in steps[start:end] if isinstance(s.record, OpRecord)]):
        return None
    return _group(fn, steps, start, end, used, planner)


def _group(
    fn: FunctionTable, steps: Sequence[Step], start: int, end: int, used: dict[int, set[int]], planner: Planner
) -> Option | None:
    """Return the steps as one group, or None if they are none that fits."""
    merged = merge(fn, steps[start:end], set(range(start, end)), used, in_stream)
    if merged is None or not isinstance(merged.record, GroupRecord):
        return None
    return (start, end, merged) if _planned(merged, planner) else None


def _planned(merged: Step, planner: Planner) -> bool:
    """Return whether merged steps are a stream that fits."""
    assert merged.record is not None
    try:
        planner.plan(merged.record, merged.name)
    except (NotLowerable, InfeasibleError):
        return False
    return True
