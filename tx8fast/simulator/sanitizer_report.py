"""What the sanitizer reports: findings, and the error that carries them.

May import: errors, simulator.sanitizer_bytes. Must not: know how faults are found.
"""

from __future__ import annotations

from collections.abc import Sequence

from tx8fast.errors import SimulationError
from tx8fast.records import dataclass
from tx8fast.simulator.sanitizer_bytes import Range

MAX_FINDINGS = 20


@dataclass
class Finding:
    """One fault class of one segment. tile, instruction: where it first occurs, -1 for the program's end; span: half-open
    byte range in `space` ("SPM" or "DDR"), (0, 0) if none; count: how often it occurs."""

    kind: str
    launch: str
    segment: str
    tile: int
    instruction: int
    name: str
    op: str
    space: str
    span: Range
    text: str
    count: int = 1

    def line(self) -> str:
        """Return the finding as one line."""
        where = [f"launch '{self.launch}'", f"segment '{self.segment}'"] if self.launch else []
        if self.tile >= 0:
            where += [f"tile {self.tile}", f"instruction {self.instruction} ({self.name})"]
        more = f"; {self.count - 1} more of this kind" if self.count > 1 else ""
        return f"{self.kind}: {', '.join(where)}{f' of op {self.op!r}' if self.op else ''} {self.text}{more}".replace(
            "  ", " "
        )


class SanitizerError(SimulationError):
    """The program has faults; `findings` lists them."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = list(findings)
        head = f"sanitizer: {len(findings)} kind{'s' * (len(findings) > 1)} of faults"
        stop = f"\n  stopped after {MAX_FINDINGS}" if len(findings) >= MAX_FINDINGS else ""
        super().__init__(head + "".join(f"\n  - {f.line()}" for f in findings) + stop)


class Enough(Exception):
    """No more findings are wanted, or execution cannot go on."""
