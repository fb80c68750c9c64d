"""How long each of a program's instructions occupies its unit, as C for the machine that the program was compiled for.

May import: numpy, isa, codegen.abi, codegen.formulas, codegen.forms, machine, program. Must not: hold a formula of an instruction.
The formulas are those of the declarations (`Instruction.cycles`, `Dma.transfer`), written down for the formats that the
program uses. What links add to a message, and the time that bytes take to and from DDR, are not known to a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.codegen.abi import calls, steps
from tx8fast.codegen.forms import NAMED
from tx8fast.codegen.formulas import Columns, Expr, SymbolicRow, Tables, written
from tx8fast.isa.base import Instruction
from tx8fast.isa.dma import Dma, Rdma, Wdma
from tx8fast.isa.lookup import Lookup
from tx8fast.isa.record import N_P, N_SPM
from tx8fast.machine import Machine
from tx8fast.program.model import Program

#: units whose rows have a duration here
UNITS = ("ct", "ne", "rdma", "wdma", "tdma", "kcore", "dte")

_HEAD = """/* How long each of the program's instructions occupies its unit, in cycles, from the declarations of the instruction set and
 * the figures of the machine {digest:.16}. Transfers from and to DDR without the time that
 * their bytes take, messages without what links add. Written by tx8fast; do not edit. */
#include "program.h"
#include "tx8_core.h"

"""

#: functions that formulas call, each behind those that it calls
_TOOLS = {
    "most": "static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }\n",
    "least": "static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }\n",
    "floor_div": "static inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }\n",
    "floor_mod": "static inline int64_t floor_mod(int64_t a, int64_t b) { return (a % b + b) % b; }\n",
    "divisor": """static inline int64_t divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}
""",
    "ones": """static inline int64_t ones(int64_t a) {
    int64_t n = 0;
    for (; a; a &= a - 1) n++;
    return n;
}
""",
    "extra_pages": """/* Pages that the runs of a transfer open, one after the other, beyond the fewest that runs of their length can. */
static inline int64_t extra_pages(int64_t ddr, int64_t size, int64_t s0, int64_t n0, int64_t s1, int64_t n1, int64_t s2, int64_t n2,
                                  int64_t page) {
    int64_t opened = 0, last = -1, fewest = (size + page - 1) / page;
    for (int64_t k = 0; k < n2; k++)
        for (int64_t j = 0; j < n1; j++)
            for (int64_t i = 0; i < n0; i++) {
                int64_t at = ddr + i * s0 + j * s1 + k * s2, begin = at / page, end = (at + size - 1) / page;
                opened += end - begin + 1 - fewest + (last >= 0 && begin != last);
                last = end;
            }
    return opened;
}
""",
}

_BODY = """
int64_t program_duration(const void *given, int64_t ddr, int64_t *ddr_bytes) {
    const tx8_row *row = (const tx8_row *)given;
    const int32_t *spm = row->spm;
    const int64_t *p = row->p;
    (void)row, (void)spm, (void)p, (void)ddr;
    *ddr_bytes = 0;
"""


def duration_text(program: Program) -> Iterator[str]:
    """Yield `durations.c`: the function `program_duration` of `program.h`, which gives -1 for rows that the program has not."""
    machine = Machine.from_dict(program.machine)
    tables, lines = Tables(), []
    for opcode, fmt, named in _kinds(program):
        lines += _case(machine, isa.class_of(opcode), fmt, named, tables)
    yield _HEAD.format(digest=machine.digest)
    for values, name in tables.names.items():
        yield f"static const int64_t {name}[] = {{{', '.join(map(str, values))}}};\n"
    text = "\n".join(lines)
    yield from (tool for name, tool in _TOOLS.items() if f"{name}(" in text)
    yield _BODY
    yield from (f"    {line}\n" for line in lines)
    yield "    return -1;\n}\n"


def _formats(cls: type[Instruction]) -> tuple[str, ...]:
    """Return the fields of an instruction that name a format."""
    own = NAMED.get("conv" if cls.NAME in ("depthwise", "backward_conv") else cls.NAME, ())
    return tuple(f for f in own if f.endswith("_fmt"))


def _kinds(program: Program) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return the distinct (opcode, format, formats that fields name) of a program, ascending."""
    found: set[tuple[int, int, tuple[int, ...]]] = set()
    for segment in program.segments:
        for code in segment.codes:
            code = code[np.isin(isa.units(code), [isa.UNITS.index(u) for u in UNITS])]
            for opcode in np.unique(code["opcode"]).tolist():
                cls = isa.class_of(opcode)
                own = code[code["opcode"] == opcode]
                columns = [own["p"][:, cls.FIELDS_P.index(f)] for f in _formats(cls)]
                fmt = own["fmt"] if _says_format(cls) else np.zeros_like(own["fmt"])
                found |= {(opcode, row[0], tuple(row[1:])) for row in np.stack([fmt, *columns], axis=1).tolist()}
    return sorted(found)


def _says_format(cls: type[Instruction]) -> bool:
    """Tell whether the packet of an instruction has the format of its row."""
    if issubclass(cls, Lookup):
        return True
    if cls.UNIT in ("rdma", "wdma"):
        return False  # bytes
    found = steps().get(cls.NAME) or [c for c in [calls().get(cls.NAME)] if c]
    return any(p.fields == ("fmt",) for call in found for p in call.params)


def _case(machine: Any, cls: type[Instruction], fmt: int, named: tuple[int, ...], tables: Tables) -> Iterator[str]:
    fields = dict(zip((cls.FIELDS_P.index(f) for f in _formats(cls)), named, strict=True))
    spm = [Expr(f"spm[{k}]", tables) for k in range(N_SPM)]
    p = [np.array([fields[k]]) if k in fields else Expr(f"p[{k}]", tables) for k in range(N_P)]
    row: Any = SymbolicRow({"opcode": cls.OPCODE, "fmt": fmt, "rnd": 0}, Columns(spm), Columns(p))
    wanted = [f"row->opcode == {cls.OPCODE:#x}", f"row->fmt == {fmt}", *(f"p[{k}] == {v}" for k, v in fields.items())]
    yield f"if ({' && '.join(wanted)}) {{ /* {cls.NAME} */"
    if issubclass(cls.FAMILY, Dma):
        ddr: Any = Expr("ddr", tables)
        more = {"pages_of": _pages} if cls.FAMILY in (Dma, Rdma, Wdma) else {}
        cycles, charged = cls.FAMILY.transfer(machine, row, ddr, **more)
        yield f"    *ddr_bytes = {written(charged)};"
    else:
        cycles = cls.FAMILY.cycles(machine, row)
    yield f"    return {written(cycles)};"
    yield "}"


def _pages(ddr: Any, runs: Columns, page: int) -> Expr:
    return Expr(f"extra_pages(ddr, {', '.join(written(c) for c in runs)}, {page})", ddr.tables)
