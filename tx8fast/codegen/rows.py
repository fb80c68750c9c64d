"""Rows of code as lines of C.

May import: isa, codegen.abi, codegen.forms, errors. Must not: know segments or launches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.codegen.abi import FORMATS, ROUNDING, STOCHASTIC, Call, Param, calls, steps
from tx8fast.codegen.forms import Form
from tx8fast.errors import ProgramError
from tx8fast.isa.base import Instruction
from tx8fast.isa.control import END, LOOP

INDENT = "    "
_SHAPE_LIMIT = 1 << 16
_WORD_LIMIT = 1 << 32
_HEX_FROM = 256


class Row:
    """A row of a form; `where` begins the messages of errors."""

    def __init__(self, form: Form, at: int, where: str, loops: int) -> None:
        self.form, self.at, self.loops = form, at, loops
        self.cls: type[Instruction] = isa.class_of(int(form.rows["opcode"][at]))
        self.record: Any = form.rows[at]
        self.where = f"{where}, instruction {at} ({self.cls.NAME})"
        self.worker = int(self.record["worker"])

    def values(self, field: str) -> np.ndarray:
        return self.form.values(self.at, field)

    def constant(self, field: str) -> int:
        """Return a field that is the same on all tiles of the form."""
        return int(self.values(field)[0])

    def number(self, field: str, limit: int = _WORD_LIMIT) -> str:
        """Return a field as C: a number, or where the table has it. Raises ProgramError if it does not fit the parameter."""
        values = self.values(field)
        low, high = int(values.min()), int(values.max())
        if low < 0 or high >= limit:
            raise ProgramError(
                f"{self.where}: {field} is {high if high >= limit else low}, the C interface takes 0 to {limit - 1}"
            )
        column = self.form.column(field, values.tolist())
        return literal(low, field in self.cls.FIELDS_SPM or high >= _WORD_LIMIT) if column is None else f"g->{column}"

    def offset(self, field: str) -> str:
        """Return " + number" of a field that is added to something, "" for nothing."""
        values = self.values(field)
        column = self.form.column(field, values.tolist())
        if column is not None:
            return f" + (uint64_t)g->{column}" if values.min() < 0 else f" + g->{column}"
        value = int(values[0])
        return "" if not value else f" {'-' if value < 0 else '+'} {literal(abs(value), True)}"

    def ddr(self) -> str:
        """Return the address in DDR."""
        text = f"a{int(self.record['slot'])}{self.offset('ddr')}"
        for level in range(self.loops):
            step = self.offset(f"ddr_step{level}")
            if step:
                text += f"{step[:2]} i{level} * {step[3:]}" if step[1] == "-" else f" + i{level} * {step[3:]}"
        return text

    def is_usual(self, field: str) -> bool:
        values = self.values(field)
        return bool((values == self.cls.DEFAULTS.get(field, 0)).all())

    def check(self, said: set[str]) -> None:
        """Raise ProgramError if a field that no parameter says is not the usual one."""
        unsaid = [f for f in (*self.cls.FIELDS_SPM, *self.cls.FIELDS_P) if f not in said and not self.is_usual(f)]
        if "rnd" not in said and self.record["rnd"]:
            unsaid.append("rnd")
        if unsaid:
            raise ProgramError(f"{self.where}: the C interface has no parameter for {', '.join(unsaid)}")
        if self.record["rnd"] == STOCHASTIC or self.cls.NAME == "elem_mask":
            raise ProgramError(
                f"{self.where}: its result depends on how many instructions ran before, which C does not know"
            )


def literal(value: int, is_address: bool = False) -> str:
    """Return a number as C writes it."""
    text = f"{value:#x}" if is_address and value >= _HEX_FROM or value >= 1 << 20 else str(value)
    return text + ("u" if value >= 1 << 31 and value < _WORD_LIMIT else "ull" if value >= _WORD_LIMIT else "")


def _argument(row: Row, param: Param) -> str:
    if param.derive is not None:
        found = []
        for k in range(len(row.form.tiles)):
            named = {f: int(row.values(f)[k]) for f in row.cls.FIELDS_P}
            found.append(param.derive(named))
        columns = [(row.form.column(param.name, c), c[0]) for c in zip(*found, strict=True)]
        return f"op_shape({', '.join(str(v) if name is None else f'g->{name}' for name, v in columns)})"
    if param.ctype == "Data_Shape":
        return f"op_shape({', '.join(row.number(f, _SHAPE_LIMIT) for f in param.fields)})"
    (field,) = param.fields
    if field == "fmt":
        return FORMATS[int(row.record["fmt"])]
    if field == "rnd":
        return ROUNDING[int(row.record["rnd"])]
    if field == "type":
        return str(row.cls.OPCODE - isa.INSTRUCTIONS["conv"].OPCODE)
    if field.endswith("_fmt"):
        return FORMATS[row.constant(field)]
    return row.number(field, 1 << 63 if param.ctype == "uint64_t" else _WORD_LIMIT)


def _fields(call: Call) -> set[str]:
    return {f for p in call.params for f in p.fields} | {f for f, _ in call.sets}


def _single(row: Row) -> Iterator[str]:
    call = calls()[row.cls.NAME]
    row.check(_fields(call))
    arguments = ", ".join(_argument(row, p) for p in call.params)
    macro = call.table.upper()
    if row.cls.UNIT == "tdma" and call.table == "peripheral" or row.cls.UNIT == "ct" and call.table == "dataMove":
        macro += f"_{row.cls.UNIT.upper()}"
    yield f"{macro}({row.worker}, {call.member}(P, {arguments}));"


def _several(row: Row) -> Iterator[str]:
    """A packet that several members fill in; those that would say what is usual are left out."""
    found = steps()[row.cls.NAME]
    row.check({f for call in found for f in _fields(call)})
    table = found[0].table
    yield f"{{ PACKET(I_NEUR, {row.worker}, Ne, {found[0].type[3:]}, {table});"
    for call in found:
        if call.sets:
            wanted = all(row.constant(f) == v for f, v in call.sets)
        elif call.params[0].fields == ("type",):
            wanted = row.cls.NAME != "conv"
        else:
            wanted = any(f == "fmt" or not row.is_usual(f) for f in _fields(call))
        if wanted:
            yield f"  F->{call.member}({', '.join(['P', *(_argument(row, p) for p in call.params)])});"
    yield "  TsmExecute(P); }"


_LEVELS = ("s0", "n0", "s1", "n1", "s2", "n2")


def _transfer(row: Row) -> Iterator[str]:
    name = "op_dma_load" if row.cls.UNIT == "rdma" else "op_dma_store"
    own = row.number(row.cls.FIELDS_SPM[0])
    dst, src = (own, row.ddr()) if row.cls.UNIT == "rdma" else (row.ddr(), own)
    if all(row.is_usual(f) for f in _LEVELS):
        yield f"{name}({row.worker}, {dst}, {src}, {row.number('run_bytes')});"
    else:
        yield f"{name}_runs({row.worker}, {dst}, {src}, {', '.join(row.number(f) for f in ('run_bytes', *_LEVELS))});"


def _gather_scatter(row: Row) -> Iterator[str]:
    if all(row.is_usual(f) for f in row.cls.FIELDS_P if f != "size"):
        yield f"op_memcpy({row.worker}, {row.number('dst')}, {row.number('src0')}, {row.number('size')});"
    else:
        yield from _single(row)


def _number_place(row: Row) -> str:
    return f"a{row.constant('index_slot')}{row.offset('index_ddr')}"


def _rdma_row(row: Row) -> Iterator[str]:
    sizes = [row.number("run_bytes"), row.number("stride", 1 << 40), row.number("entries")]
    fmt = FORMATS[int(row.record["fmt"])]
    yield f"op_rdmaGather({row.worker}, {row.number('dst')}, {row.ddr()}, {', '.join(sizes)}, {_number_place(row)}, {fmt});"


def _tdma_row(row: Row) -> Iterator[str]:
    sizes = [row.number("size"), row.number("stride", 1 << 40), row.number("entries")]
    runs = ", ".join(row.number(f) for f in ("ss0", "sn0", "ds0", "dn0"))
    fmt = FORMATS[int(row.record["fmt"])]
    yield (
        f"op_tdmaGather({row.worker}, {row.number('dst')}, {row.number('src0')}, {', '.join(sizes)}, {_number_place(row)}, "
        f"{fmt}, {runs});"
    )


def _kcore(row: Row) -> Iterator[str]:
    routine = row.number("routine")
    work = ", ".join(row.number(f, 1 << 44) for f in ("loads", "stores", "ops", "divides", "functions"))
    yield f"op_routine(calls[{routine}].words, calls[{routine}].n, slots, sizeof slots / 8, {work});"


def _message(row: Row) -> Iterator[str]:
    where = ", ".join(row.number(f) for f in ("dst", "src", "bytes", "mask", "monitor"))
    if row.cls.NAME == "send" and not row.is_usual("chip"):
        yield f"op_send_chip(t, {_chip(row)}, {where});"
        return
    if row.cls.NAME == "send":
        yield f"op_send(t, {where});"
        return
    mode = f"DTE_{row.cls.NAME.upper()}"
    runs = ", ".join(row.number(f) for f in _LEVELS) if row.cls.NAME == "gather" else "0, 1, 0, 1, 0, 1"
    yield f"op_gather_send(t, {mode}, {where}, {runs});"


def _chip(row: Row) -> str:
    """The number of the chip that a row names; rows have one more."""
    return f"{row.number('chip')} - 1"


def _handshake(row: Row) -> Iterator[str]:
    peer = row.number("peer")
    yield (
        f"tile_sync_by_spm_single_direction({peer});"
        if row.is_usual("chip")
        else f"op_sync_chip({_chip(row)}, {peer});"
    )


def _line(text: Callable[[Row], str]) -> Callable[[Row], Iterator[str]]:
    return lambda row: iter((text(row),))


#: how instructions are written that are not one call of one member
SPECIAL: dict[str, Callable[[Row], Iterator[str]]] = {
    "rdma": _transfer,
    "wdma": _transfer,
    **dict.fromkeys(("gemm", "conv", "depthwise", "backward_conv"), _several),
    "gather_scatter": _gather_scatter,
    "rdma_row": _rdma_row,
    "tdma_row": _tdma_row,
    "kcore": _kcore,
    **dict.fromkeys(("send", "scatter", "gather"), _message),
    "recv": _line(lambda r: f"direct_fsm_monitor_receive(t->tile, {r.number('bytes')}, {r.number('monitor')});"),
    "send_wait": _line(lambda r: "op_send_wait(t);"),
    "wait": _line(lambda r: "TsmWaitfinish();"),
    "wait_worker": _line(lambda r: f"op_wait_workers({r.number('workers')});"),
    "barrier": _line(lambda r: "op_barrier();"),
    "barrier_sub": _line(lambda r: f"op_barrier_of({r.number('mask')});"),
    "handshake": _handshake,
    "fence": _line(lambda r: "__sync_synchronize();"),
}


def lines(form: Form, ops: list[str], where: str) -> Iterator[str]:
    """Yield the lines of a form's rows, loops as loops; a comment names the model's op where it changes. Raises ProgramError for
    what C cannot say."""
    depth, op = 0, -1
    for at, (opcode, new) in enumerate(zip(form.rows["opcode"].tolist(), form.rows["op"].tolist())):
        if opcode == END:
            depth -= 1
            yield f"{INDENT * (depth + 1)}}}"
            continue
        margin = INDENT * (depth + 1)
        row = Row(form, at, where, depth)
        if opcode == LOOP:
            yield f"{margin}for (uint32_t i{depth} = 0; i{depth} < {row.number('count')}; i{depth}++) {{"
            depth += 1
            continue
        if new >= 0 and new != op:
            op = new
            yield f"{margin}/* {ops[op] if op < len(ops) else op} */"
        write = SPECIAL.get(row.cls.NAME, _single)
        if write is _single and row.cls.NAME not in calls():
            raise ProgramError(f"{row.where}: the C interface has no function for it")
        yield from (margin + line for line in write(row))
