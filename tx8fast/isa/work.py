"""Work of the kernel core: what a routine does, counted.

May import: the standard library. Must not: know routines, instructions or machines.
"""

from __future__ import annotations

from dataclasses import fields

from tx8fast.records import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """What the kernel core does in a call: elements or words loaded and stored, simple operations, divisions and square roots,
    transcendental functions. A product that is added is two loads and two operations."""

    loads: int = 0
    stores: int = 0
    ops: int = 0
    divides: int = 0
    functions: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(*(a + b for a, b in zip(self.values(), other.values(), strict=True)))

    def __mul__(self, times: int) -> Work:
        return Work(*(a * times for a in self.values()))

    def values(self) -> tuple[int, ...]:
        return tuple(getattr(self, name) for name in WORK)

    def to_json(self) -> dict[str, int]:
        return dict(zip(WORK, self.values(), strict=True))

    def cycles(self, kcore) -> int:
        """Return the time in cycles on the machine section `kcore` (section 16 of the hardware manual gives none: assumed)."""
        return sum(n * each for n, each in zip(self.values(), cycles_each(kcore), strict=True))


#: the counts of `Work`, in the order of the fields of the kcore instruction and of the counters of the C core
WORK: tuple[str, ...] = tuple(f.name for f in fields(Work))


def cycles_each(kcore) -> tuple[int, ...]:
    """Return what one of each count takes, in cycles."""
    return tuple(getattr(kcore, f"{name[:-1]}_cycles") for name in WORK)


#: a number of a look-up: it is read, compared with both ends and made an address
NUMBER_WORK = Work(loads=1, ops=3)
