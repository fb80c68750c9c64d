"""Readable twin of the arbitration of banks.

May import: the standard library. Must not: be fast, share code with the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

Stream = tuple[int, int]  # first beat, parts of a beat per cycle


def shares(
    asked: Sequence[Sequence[Stream]],
    banks: int,
    per_bank: int,
    fifo: int,
    steps: int,
    warm: int,
    window: int,
    jitter: int,
) -> list[float]:
    """Return the share of its rate that each lane gets; lanes come in order of priority, each with its streams."""
    flat = [(lane, beat, step) for lane, streams in enumerate(asked) for beat, step in streams]
    served, credit = [0] * len(flat), [0] * len(flat)
    beside = [[j for j, other in enumerate(flat) if other[0] == mine[0] and j != k] for k, mine in enumerate(flat)]

    def ahead(k: int) -> bool:
        """Whether one more beat would leave an operand of the same row further behind than the buffers hold."""
        return any((served[k] + 1) * flat[j][2] > (served[j] + fifo) * flat[k][2] for j in beside[k])

    before = served
    for cycle in range(warm + window):
        if cycle == warm:
            before = list(served)
        taken: set[int] = set()
        for k, (_, beat, step) in enumerate(flat):
            credit[k] += step
            bank = (beat + served[k]) // per_bank % banks
            if credit[k] >= steps and bank not in taken and not ahead(k):
                taken.add(bank)
                served[k] += 1
                credit[k] -= steps
    out = [1.0] * len(asked)
    for (lane, _, step), n, old in zip(flat, served, before):
        out[lane] = min(out[lane], (n - old + jitter) / (window * step / steps))
    return [min(1.0, x) for x in out]
