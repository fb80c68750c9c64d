"""Whether launches store their results: which bytes of a chip's DDR have values, and which the running launch has stored.

May import: numpy, numerics, machine, program.model, simulator.sanitizer_addresses, simulator.sanitizer_bytes. Must not: know order.

The bytes of a launch's results have no value when it begins, and at its end every logical element must have one that the
launch stored. Padding lanes and the gaps between batches of a channel-blocked result are nobody's: they may stay as they
are, without a value. An argument that is updated in place keeps its values, and something must be stored to it. Bytes
of a result that an operand of the same launch has keep their values too until they are stored.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tx8fast.machine import DDR_BASE
from tx8fast.numerics.layout import image_bytes
from tx8fast.program.model import Argument, Launch, Segment
from tx8fast.simulator.sanitizer_addresses import first_undefined
from tx8fast.simulator.sanitizer_bytes import Pick, Range


class Memory:
    """One chip's DDR, a flag per byte: `made`, it has a value; `stored`, the running launch has written it."""

    def __init__(self, n_bytes: int) -> None:
        self.made = np.zeros(max(n_bytes, 1), bool)
        self.stored = np.zeros(max(n_bytes, 1), bool)

    def begin(self, launch: Launch, segment: Segment) -> None:
        """A launch starts: its results have no values."""
        spans = list(_spans(launch, segment))
        kept = [span for a, span, _ in spans if a.role == "operand"]
        for a, (lo, hi), _ in spans:
            if a.role == "operand":
                continue
            before = [self.made[max(lo, p) : min(hi, q)].copy() for p, q in kept]
            self.stored[lo:hi] = False
            self.made[lo:hi] = False
            for (p, q), values in zip(kept, before, strict=True):
                self.made[max(lo, p) : max(min(hi, q), max(lo, p))] = values

    def store(self, pick: Pick, defined: np.ndarray | bool) -> None:
        """Bytes are written; `defined`: which of them get a value."""
        pick(self.made)[...] = defined
        pick(self.stored)[...] = True

    def missing(self, launch: Launch, segment: Segment) -> Iterator[tuple[str, bool, Range]]:
        """Yield of every result that is not complete its name, whether the bytes were stored at all, and their range."""
        for a, (lo, hi), number in _spans(launch, segment):
            if a.role == "operand" or lo == hi:
                continue
            if a.role == "update" and launch.args[number] == launch.args[a.replaces]:
                if not self.stored[lo:hi].any():
                    yield f"update (argument {number})", False, (lo + DDR_BASE, hi + DDR_BASE)
                continue
            for flags, stored in ((self.stored, False), (self.made, True)):
                operand = {"shape": a.shape, "dtype": a.dtype, "layout": a.layout}
                if bad := first_undefined(flags[lo:hi], operand, lo + DDR_BASE):
                    yield f"result (argument {number})", stored, bad
                    break


def _spans(launch: Launch, segment: Segment) -> Iterator[tuple[Argument, Range, int]]:
    """Yield every declared argument with the bytes of its image, from the DDR's beginning, and its number."""
    for number, (a, address) in enumerate(zip(segment.arguments, np.asarray(launch.args).tolist(), strict=False)):
        if a is not None:
            lo = address - DDR_BASE
            yield a, (lo, lo + image_bytes(a.shape, a.dtype, a.layout)), number
