"""Checks a placement pair by pair, sharing nothing with the solver.

May import: `problem`, `errors`. Must not: import `solve` or the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

from tx8fast.alloc.problem import Problem
from tx8fast.errors import AllocationError, raise_all


def find_violations(problem: Problem, offsets: Sequence[int], bank_bytes: int = 0, limit: int = 20) -> list[str]:
    """Return one sentence per broken rule, at most `limit`: count, sign, alignment, capacity, bank, overlap.

    With `bank_bytes`, a buffer starts at a bank if it is at least a bank long or would straddle a
    border. Complexity: O(n^2) at worst; buffers are visited by start time.
    """
    if len(offsets) != len(problem.buffers):
        return [f"{len(offsets)} offsets for {len(problem.buffers)} buffers"]
    found: list[str] = []
    for b, at in zip(problem.buffers, offsets):
        end = at + b.size_bytes
        if at < 0:
            found.append(f"{b.label!r}: offset {at} is negative")
        if at % b.align_bytes:
            found.append(f"{b.label!r}: offset {at} is not a multiple of {b.align_bytes} bytes")
        if problem.capacity_bytes is not None and end > problem.capacity_bytes:
            found.append(f"{b.label!r}: [{at}, {end}) ends above {problem.capacity_bytes} bytes")
        if b.fixed is not None and at != b.fixed:
            found.append(f"{b.label!r}: offset {at}, fixed at {b.fixed}")
        elif bank_bytes and b.size_bytes and b.fixed is None and at % bank_bytes:
            if b.size_bytes >= bank_bytes or at // bank_bytes != (end - 1) // bank_bytes:
                found.append(f"{b.label!r}: [{at}, {end}) straddles a bank of {bank_bytes} bytes")
    spans = sorted((lo, hi, i) for i, b in enumerate(problem.buffers) if b.size_bytes for lo, hi in b.lifetimes)
    alive: list[tuple[int, int]] = []
    for lo, hi, i in spans:
        alive = [(until, k) for until, k in alive if until > lo]
        a0, a1 = offsets[i], offsets[i] + problem.buffers[i].size_bytes
        for _, k in alive:
            b0, b1 = offsets[k], offsets[k] + problem.buffers[k].size_bytes
            if k != i and a0 < b1 and b0 < a1:
                first, second = problem.buffers[k].label, problem.buffers[i].label
                found.append(f"{first!r} [{b0}, {b1}) and {second!r} [{a0}, {a1}) overlap at time {lo}")
        if len(found) >= limit:
            break
        alive.append((hi, i))
    return found[:limit]


def validate(problem: Problem, offsets: Sequence[int], bank_bytes: int = 0) -> None:
    """Raise AllocationError that lists the broken rules, if there are any."""
    raise_all(AllocationError, "checking a placement", find_violations(problem, offsets, bank_bytes))
