"""Code arrays made ready to run: loops written out, every field read or demanded, addresses left open.

May import: numpy, isa (record and names), proof.meaning. Must not: execute anything.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tx8fast import isa
from tx8fast.errors import SimulationError
from tx8fast.proof.forms import NAMES
from tx8fast.proof.meaning import MEANINGS, ORDER, STOPS, TOGETHER, row_problems

LOOP, END = (isa.instruction(name).OPCODE for name in ("loop", "end"))
#: rows that take exponentials or compare: words modulo q matter to them
TWO_SIDED = frozenset(
    [isa.instruction(f"{name}_v").OPCODE for name in ("exp", "exp_lp", "pow2")]
    + [
        x.OPCODE
        for name, x in isa.INSTRUCTIONS.items()
        if name.partition("_")[0] in ("eq", "ne", "lt", "le", "gt", "ge")
    ]
)
MAX_ROWS = 1 << 24


def written_out(code: np.ndarray) -> np.ndarray:
    """Return the rows in the order they run, loops unrolled; `ddr` holds the sum of the steps so far.

    Raises SimulationError for loops that do not match.
    """
    opcode = code["opcode"].tolist()
    if LOOP not in opcode and END not in opcode:
        return code.copy()

    def body(at: int, depth: int) -> tuple[list[np.ndarray], int]:
        parts, first = [], at
        while at < len(opcode) and opcode[at] != END:
            if opcode[at] != LOOP:
                at += 1
                continue
            parts.append(code[first:at].copy())
            inside, after = body(at + 1, depth + 1)
            if after >= len(opcode):
                raise SimulationError(f"row {at} opens a loop that no row ends")
            once = np.concatenate(inside)
            count = int(code["p"][at, 0])
            if not 0 <= count * len(once) <= MAX_ROWS or depth >= code["ddr_step"].shape[1]:
                raise SimulationError(
                    f"the loop at row {at}, {depth + 1} deep, stands for {count} times {len(once)} rows"
                )
            for turn in range(count):
                again = once.copy()
                again["ddr"] += turn * once["ddr_step"][:, depth]
                parts.append(again)
            at = first = after + 1
        parts.append(code[first:at].copy())
        return parts, at

    parts, at = body(0, 0)
    if at < len(opcode):
        raise SimulationError(f"row {at} ends a loop that no row opens")
    return np.concatenate(parts)


class Code:
    """The rows of one code array. `steps`: (meaning or None, format, spm, p) of each; `stops`: positions that may wait, or that
    several tiles may take together (`together`: by position, what computes it)."""

    def __init__(self, code: np.ndarray, where: str) -> None:
        self.rows = rows = written_out(code)
        problems = row_problems(rows, where)
        if problems:
            raise SimulationError("; ".join(problems))
        names = {op: isa.class_of(op).NAME for op in np.unique(rows["opcode"]).tolist()}
        quiet = ORDER | STOPS
        of = {op: None if name in quiet else MEANINGS[op][0] for op, name in names.items()}
        self.names = [names[op] for op in rows["opcode"].tolist()]
        self.together = {i: TOGETHER[op] for i, op in enumerate(rows["opcode"].tolist()) if op in TOGETHER}
        self.stops = [i for i, name in enumerate(self.names) if name in STOPS or i in self.together]
        self.two_sided = not TWO_SIDED.isdisjoint(names)
        self.steps = list(
            zip(
                [of[op] for op in rows["opcode"].tolist()],
                [NAMES[f] for f in rows["fmt"].tolist()],
                rows["spm"].tolist(),
                rows["p"].tolist(),
            )
        )

    @cached_property
    def addresses(self) -> tuple[np.ndarray, np.ndarray]:
        """Slot (-1 none) and byte offset of every row's DDR operand."""
        return self.rows["slot"], self.rows["ddr"]
