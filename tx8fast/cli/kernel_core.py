"""How much of the time a program spends on the tiles' kernel cores: told on stderr, and refused if that is asked for.

May import: click, cli.output, errors, machine, program.model, simulator.workload (late). Must not: simulate.

Routines run alone: nothing else of their launch goes on beside them. Their share is that of their cycles on the busiest tile in the
cycles of the whole program: simulated ones, those that the search expects, or (before any search) the least there can be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import click

from tx8fast.cli.output import strict, tell
from tx8fast.errors import UnsupportedError, raise_all
from tx8fast.records import dataclass

if TYPE_CHECKING:
    from tx8fast.program.model import Program

KERNEL_CORE = "kernel-core"
SHOWN = 4


@dataclass
class Row:
    """Ops of one kind: routine cycles of all their launches, how many there are, one of them, and why no engine does it."""

    op: str
    reason: str = ""
    example: str = ""
    count: int = 0
    cycles: int = 0


@dataclass(frozen=True)
class Share:
    """rows: those with most cycles first. cycles: of the whole program. exact: False where these are a lower bound."""

    rows: Sequence[Row] = field(default_factory=list)
    cycles: float = 0.0
    exact: bool = True

    def part(self, cycles: float) -> float:
        """Return a share of the program's time. A bound of the rest does not hold the routines: they come on top of it."""
        whole = self.cycles if self.exact else self.cycles + self.routine_cycles
        return min(1.0, cycles / whole) if whole else 0.0

    @property
    def routine_cycles(self) -> int:
        return sum(r.cycles for r in self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return the share of all and of each kind of op, JSON-able, stable keys."""
        return {
            "share": self.part(self.routine_cycles),
            "at_most": not self.exact,
            "ops": [
                {
                    "op": r.op,
                    "count": r.count,
                    "cycles": r.cycles,
                    "share": self.part(r.cycles),
                    "reason": r.reason,
                    "example": r.example,
                }
                for r in self.rows
            ],
        }


def forbid_option(command: Callable) -> Callable:
    """Add `--forbid` to a command."""
    text = "Refuse what runs on the kernel core, correct but slow; repeatable."
    return click.option("--forbid", multiple=True, type=click.Choice([KERNEL_CORE]), help=text)(command)


def share_of(rows: Sequence[Row], cycles: float, exact: bool = True) -> Share:
    """Return the share of kernel-core work, rows of one op put together."""
    found: dict[str, Row] = {}
    for r in rows:
        kind = found.setdefault(r.op, Row(r.op, r.reason, r.example))
        kind.count += r.count
        kind.cycles += r.cycles
    return Share(sorted(found.values(), key=lambda r: (-r.cycles, r.op)), cycles, exact)


def program_share(program: Program, cycles: float | None = None) -> Share:
    """Return the share of a program that takes `cycles`; without them, of what the search expects of each launch."""
    from tx8fast.machine import Machine
    from tx8fast.simulator.workload import engine_cycles

    machine = Machine.from_dict(program.machine)
    reasons = program.meta.get("kernel_core")
    reasons = reasons if isinstance(reasons, dict) else {}
    times = [0] * len(program.segments)
    for launch in program.launches:
        times[launch.segment] += 1
    rows = []
    for segment, count in zip(program.segments, times, strict=True):
        if segment.routines and count:
            op = str(segment.info.get("op", segment.name))
            busy = engine_cycles(machine, segment)["kcore"]
            rows.append(Row(op, str(reasons.get(op, "")), segment.name, count, busy * count))
    if cycles is None:
        cycles = sum(s.estimate_cycles * n for s, n in zip(program.segments, times, strict=True))
    return share_of(rows, cycles)


def state(share: Share, forbid: Sequence[str], doing: str) -> None:
    """Tell the share if there is any. Raises UnsupportedError that names the ops if it is forbidden, or if warnings are errors."""
    if not share.rows:
        return
    most = "" if share.exact else "at most "
    whole = f"{most}{share.part(share.routine_cycles):.2%} of the time"
    if KERNEL_CORE in forbid:
        each = [
            f"{r.op}, {r.count:,} times, {most}{share.part(r.cycles):.2%} of the time, first '{r.example}'"
            + (f": {r.reason}" if r.reason else "")
            for r in share.rows
        ]
        doing = f"{doing}: --forbid {KERNEL_CORE}: routines on the kernel core take {whole}"
        raise_all(UnsupportedError, doing, each)
    names = [f"{r.op} {share.part(r.cycles):.2%}" for r in share.rows[:SHOWN]]
    more = f", {len(share.rows) - SHOWN} more" if len(share.rows) > SHOWN else ""
    text = f"kernel core: {whole} ({', '.join(names)}{more})"
    if strict():
        raise UnsupportedError(f"{doing}: --strict: {text}")
    tell(text, "kernel_core")
