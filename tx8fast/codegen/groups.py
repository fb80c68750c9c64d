"""A segment as a function of C, with the tables of what differs from tile to tile.

May import: numpy, isa, codegen.folding, codegen.forms, codegen.rows, program, errors. Must not: know launches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.codegen.abi import FORMATS
from tx8fast.codegen.folding import fold
from tx8fast.codegen.forms import Form, barriers, forms
from tx8fast.codegen.rows import lines, literal
from tx8fast.isa.comm import N_MONITORS, mask_tiles
from tx8fast.isa.lookup import NUMBER, numbers
from tx8fast.isa.routines.base import words_of
from tx8fast.numerics.formats import FORMAT_CODES
from tx8fast.program.model import Argument, Segment
from tx8fast.program.streams import segment_streams

#: fields of a segment's plan that a reader wants to see
_FACTS = ("op", "engine", "parts", "slices", "order", "bound")
_NUMBERS_PER_LINE = 16


def comment(text: str) -> str:
    """Return text that cannot end a comment early."""
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\n", " ").replace("\\", "/")


class Group:
    """The text of segment `index`."""

    def __init__(self, segment: Segment, index: int, tiles: int) -> None:
        self.segment, self.index, self.per_chip = segment, index, tiles
        self.tiles = max(tiles, len(segment.tile_code))  # of all chips where a segment spans them
        self.tile = "t->tile" if self.tiles == tiles else "t->all"
        self.name = f"group_{index}"
        self.where = f"writing C for segment '{segment.name}'"
        self.forms = forms(segment, self.tiles)
        self.barriers = max((barriers(c) for f in self.forms for c in f.codes), default=0)
        self.monitors = self._monitors()

    def text(self) -> Iterator[str]:
        """Yield the lines of the group: what it is, tables, a function per form, and the function of the group."""
        yield from self._head()
        yield from self._calls()
        if self.monitors:
            rows = [", ".join(f"{{{a}, {b}}}" for a, b in row) for row in self.monitors]
            yield f"static const op_monitor {self.name}_monitors[{self.tiles}][{N_MONITORS}] = {{"
            yield from (f"    {{{row}}}," for row in rows)
            yield "};"
        for k, form in enumerate(self.forms):
            yield from self._form(form, self._form_name(k))
        yield from self._entry()

    def _form_name(self, k: int) -> str:
        return (
            f"{self.name}_{chr(ord('a') + k) if len(self.forms) <= 26 else k}"
            if len(self.forms) > 1
            else f"{self.name}_all"
        )

    def _head(self) -> Iterator[str]:
        s = self.segment
        yield f"\n/* --- {self.name}: {comment(s.name)} ---"
        facts = [f"{k} {comment(str(s.info[k]))}" for k in _FACTS if k in s.info]
        if facts:
            yield f" * {'; '.join(facts)}"
        for k, a in enumerate(s.arguments):
            if a is not None:
                also = f", takes over argument {a.replaces}" if a.replaces >= 0 else ""
                yield f" * args[{k}]: {a.role} {a.dtype}{list(a.shape)} {a.layout}{also}"
        yield " */"

    def _calls(self) -> Iterator[str]:
        """Yield the calls of routines as words."""
        if not self.segment.routines:
            return
        for k, descriptor in enumerate(self.segment.routines):
            words = [literal(w) if w >= 0 else str(w) for w in words_of(descriptor)]
            yield f"static const int64_t {self.name}_call_{k}[] = {{ /* {comment(descriptor['routine'])} */"
            for at in range(0, len(words), _NUMBERS_PER_LINE):
                yield f"    {', '.join(words[at : at + _NUMBERS_PER_LINE])},"
            yield "};"
        yield f"static const struct {{ const int64_t *words; uint32_t n; }} {self.name}_calls[] = {{"
        for k, descriptor in enumerate(self.segment.routines):
            yield f"    {{{self.name}_call_{k}, {len(words_of(descriptor))}}},"
        yield "};"

    def _monitors(self) -> list[list[tuple[int, int]]]:
        """Return, per tile and monitor, the bytes of the largest message that arrives, and how many do; [] if none does."""
        found = np.zeros((self.tiles, N_MONITORS, 2), np.int64)
        for (source, _, mask, monitor, chip), (n, largest, _) in segment_streams(self.segment).items():
            first = (chip - 1 if chip else source // self.per_chip) * self.per_chip
            for tile in (first + t for t in mask_tiles(mask)):
                found[tile, monitor] = max(found[tile, monitor, 0], largest), found[tile, monitor, 1] + n
        return [[(int(a), int(b)) for a, b in row] for row in found] if found.any() else []

    def _slots(self, form: Form) -> list[int]:
        """Return the DDR slots that a form's rows name."""
        used = set(form.rows["slot"][form.rows["slot"] >= 0].tolist())
        at = numbers(form.rows)[0]
        used |= set(form.rows["p"][at, isa.INSTRUCTIONS["rdma_row"].FIELDS_P.index(NUMBER[0])].tolist())
        if (form.rows["opcode"] == isa.INSTRUCTIONS["kcore"].OPCODE).any():
            used |= set(range(len(self.segment.slot_arg)))
        return sorted(used)

    def _form(self, form: Form, name: str) -> Iterator[str]:
        body = fold(list(lines(form, self.segment.ops, self.where)))
        slots = self._slots(form)
        places = {}
        for k in slots:
            offsets = self.segment.tile_offset[form.tiles, k]
            column = form.column(f"a{k}", offsets.tolist())
            places[k] = f" + g->{column}" if column else f" + {literal(int(offsets[0]), True)}" if offsets[0] else ""
        types, table = form.table()
        if types:
            fields = " ".join(f"{kind} {field};" for kind, field in types)
            yield f"/* {name}: numbers of {_some(form.tiles)} */"
            yield f"static const struct {name}_shape {{ {fields} }} {name}_shapes[] = {{"
            yield from (f"    {{{', '.join(literal(v) if v >= 0 else str(v) for v in row)}}}," for row in table)
            yield "};"
        uses_args = bool(slots)
        yield f"static void {name}(op_tile *t, const uint64_t *args, uint32_t row) {{"
        yield from (
            f"    (void){what};"
            for what, used in (("t", uses_args or self._uses_tile(body)), ("args", uses_args), ("row", types))
            if not used
        )
        if types:
            yield f"    const struct {name}_shape *g = &{name}_shapes[row];"
        for k in slots:
            arg = int(self.segment.slot_arg[k])
            what = self.segment.arguments[arg] if arg < len(self.segment.arguments) else None
            yield f"    const uint64_t a{k} = t->ddr + args[{arg}]{places[k]};{_note(what)}"
        if any("op_routine(" in line for line in body):
            yield f"    const uint64_t slots[] = {{{', '.join(f'a{k}' for k in slots) or '0'}}};"
        yield from (
            line.replace("op_routine(calls[", f"op_routine({self.name}_calls[").replace(
                ", calls[", f", {self.name}_calls["
            )
            for line in body
        )
        own = max(barriers(c) for c in form.codes)
        for _ in range(self.barriers - own):
            yield "    op_barrier(); /* with tiles that do more */"
        yield "}"

    @staticmethod
    def _uses_tile(body: Sequence[str]) -> bool:
        return any("(t," in line or "(t)" in line or "t->" in line for line in body)

    def _entry(self) -> Iterator[str]:
        form_of, row_of = [-1] * self.tiles, [0] * self.tiles
        for k, form in enumerate(self.forms):
            for row, tile in enumerate(form.tiles):
                form_of[tile], row_of[tile] = k, row
        idle = [t for t, k in enumerate(form_of) if k < 0]
        many = len(self.forms) > 1 or bool(idle)
        if many:
            yield f"static const int8_t {self.name}_form[{self.tiles}] = {{{', '.join(map(str, form_of))}}};"
        rows = row_of != list(range(self.tiles)) and any(row_of)
        if rows:
            yield f"static const {'uint8_t' if max(row_of) < 256 else 'uint16_t'} {self.name}_row[{self.tiles}] = {{{', '.join(map(str, row_of))}}};"
        row = f"{self.name}_row[{self.tile}]" if rows else self.tile if any(row_of) else "0"
        yield f"static void {self.name}(op_tile *t, const uint64_t *args) {{"
        if self.monitors:
            yield f"    op_monitors({self.name}_monitors[{self.tile}], {N_MONITORS});"
        if self.tiles > self.per_chip:
            yield f"    op_meet_chips(t, {self.tiles // self.per_chip}, {self.per_chip});"
        if not many:
            yield f"    {self._form_name(0)}(t, args, {row});"
        else:
            yield f"    switch ({self.name}_form[{self.tile}]) {{"
            for k, form in enumerate(self.forms):
                yield f"    case {k}: {self._form_name(k)}(t, args, {row}); break; /* {_some(form.tiles)} */"
            yield "    default: " + "op_barrier(); " * self.barriers + "break;" if idle else "    default: break;"
            yield "    }"
        if self.monitors:
            yield f"    op_monitors_end({self.name}_monitors[{self.tile}], {N_MONITORS});"
        yield "}"


def _note(a: Argument | None) -> str:
    if a is None:
        return ""
    return f" /* {a.role} {FORMATS[FORMAT_CODES[a.dtype]]}, {a.layout} */"


def _some(tiles: Sequence[int]) -> str:
    """Return "tiles 0-3, 5"."""
    runs: list[Any] = []
    for t in tiles:
        if runs and runs[-1][1] == t - 1:
            runs[-1][1] = t
        else:
            runs.append([t, t])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"tile{'s' if len(tiles) > 1 else ''} {text}"
