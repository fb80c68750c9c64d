"""What a proof found, as facts and as text.

May import: the standard library. Must not: know how it was found.
"""

from __future__ import annotations

import math
from dataclasses import asdict, field
from typing import Any

from tx8fast.records import dataclass

#: bits that the default number of seeds reaches: a wrong program passes with probability at most 2^-40
BITS = 40


@dataclass(frozen=True)
class Failure:
    """launch: number, -1 for a conflict of addresses; value: the name of the graph's value; op: what makes it in the graph."""

    launch: int
    name: str
    value: str
    op: str
    why: str


@dataclass(frozen=True)
class Outside:
    """A launch that is not proved, and why; elements: how many it stores."""

    launch: int
    name: str
    why: str
    elements: int


@dataclass
class Report:
    """elements: that all launches store; compared: over all seeds; bits: of the launch that is proved with the fewest."""

    segments: int = 0
    launches: int = 0
    elements: int = 0
    compared: int = 0
    denominators: int = 0
    comparisons: int = 0
    seeds: int = 0
    bits: float = 0.0
    ran: set[int] = field(default_factory=set)
    failures: list[Failure] = field(default_factory=list)
    outside: dict[int, Outside] = field(default_factory=dict)

    def take(self, other: Report) -> None:
        """Add what was found of one launch."""
        self.compared += other.compared
        self.denominators += other.denominators
        self.comparisons += other.comparisons
        self.ran |= other.ran
        self.failures += other.failures
        for launch, found in other.outside.items():
            self.outside.setdefault(launch, found)

    @property
    def proved(self) -> bool:
        """True if nothing that was compared differs."""
        return not self.failures

    @property
    def complete(self) -> bool:
        """True if all that launches store was compared, and nothing differs."""
        return self.proved and not self.outside

    @property
    def share_outside(self) -> float:
        """The share of stored elements that lie outside the proof."""
        return sum(o.elements for o in self.outside.values()) / self.elements if self.elements else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "proved": self.proved,
            "complete": self.complete,
            "segments": self.segments,
            "launches": self.launches,
            "launches_run": len(self.ran),
            "elements_stored": self.elements,
            "elements_compared": self.compared,
            "denominators_compared": self.denominators,
            "comparisons_compared": self.comparisons,
            "seeds": self.seeds,
            "missed_log2": -self.bits,
            "share_outside": self.share_outside,
            "outside": [asdict(o) for o in self.outside.values()],
            "failures": [asdict(f) for f in self.failures],
        }

    def lines(self) -> list[str]:
        """Return the report as text."""
        if self.failures:
            head = f"not proved: {len(self.failures)} problem{'s' * (len(self.failures) > 1)}"
            return [head, *(f"  - {failure_text(f)}" for f in self.failures), *self._outside_lines()]
        out = [
            f"{'proved' if self.complete else 'PROVED ONLY IN PART'}: {self.launches:,} launches of {self.segments:,} segments, {len(self.ran):,} of them distinct; "
            f"{self.compared:,} elements compared over {self.seeds} seed{'s' * (self.seeds != 1)}",
            f"a wrong program passes with a probability of at most 2^-{math.floor(self.bits)} (docs/proof.md)",
        ]
        return [*out, *self._outside_lines()]

    def _outside_lines(self) -> list[str]:
        if not self.outside:
            return []
        reasons: dict[str, list[Outside]] = {}
        for o in self.outside.values():
            reasons.setdefault(o.why, []).append(o)
        lines = [
            f"outside the proof, what they store may be anything: {len(self.outside):,} of {self.launches:,} launches, "
            f"{100 * self.share_outside:.2g} % of the elements stored"
        ]
        for why, found in reasons.items():
            lines.append(f"  - {found[0].name}{f' and {len(found) - 1} more' if len(found) > 1 else ''}: {why}")
        return lines


def failure_text(f: Failure) -> str:
    """Return one failure in a line."""
    at = f"launch {f.launch} ({f.name})" if f.launch >= 0 else f.name
    value = f", value {f.value}" + (f" of {f.op}" if f.op and f.op != f.name else "") if f.value else ""
    return f"{at}{value}: {f.why}"
