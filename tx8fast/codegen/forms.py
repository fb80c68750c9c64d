"""Codes of a segment that can share one text: equal but for numbers, which become entries of a table with a row per tile.

May import: numpy, isa, codegen.abi, program.model, errors. Must not: write C beyond names and numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast import isa
from tx8fast.codegen.abi import steps
from tx8fast.isa.control import END, LOOP
from tx8fast.isa.record import N_P, N_SPM
from tx8fast.program.model import Segment

#: the fields in which rows of one text agree, beside those that decide which members are called
SAME = ["opcode", "fmt", "rnd", "slot", "depth", "worker"]
#: instructions whose text depends on which fields have their usual values
OPTIONAL = (*steps(), "gather_scatter", "rdma", "wdma")
#: instructions whose text depends on whether they name another chip
BETWEEN_CHIPS = ("send", "handshake")
#: fields that name a format, or a set of workers
NAMED = {"gemm": ("out_fmt", "psum_fmt", "bias_fmt"), "conv": ("out_fmt", "psum_fmt"), "wait_worker": ("workers",)}


def _usual(name: str) -> np.ndarray:
    """Return the usual values of the fields of an instruction, addresses first."""
    cls = isa.INSTRUCTIONS[name]
    out = np.zeros(N_SPM + N_P, np.int64)
    for k, field in enumerate(cls.FIELDS_P):
        out[N_SPM + k] = cls.DEFAULTS.get(field, 0)
    return out


def skeleton(code: np.ndarray) -> bytes:
    """Return what codes have in common that share a text."""
    parts = [np.ascontiguousarray(code[field]).tobytes() for field in SAME]
    for name in OPTIONAL:
        at = np.flatnonzero(code["opcode"] == isa.INSTRUCTIONS[name].OPCODE)
        values = np.concatenate([code["spm"][at].astype(np.int64), code["p"][at]], axis=1)
        parts.append((values == _usual(name)).tobytes())
    for cls in (isa.INSTRUCTIONS[name] for name in BETWEEN_CHIPS):
        parts.append((code["p"][code["opcode"] == cls.OPCODE, cls.FIELDS_P.index("chip")] == 0).tobytes())
    for name, fields in NAMED.items():
        for cls in {isa.INSTRUCTIONS[n] for n in (name, *(["depthwise", "backward_conv"] if name == "conv" else []))}:
            at = np.flatnonzero(code["opcode"] == cls.OPCODE)
            parts += [code["p"][at, cls.FIELDS_P.index(field)].tobytes() for field in fields]
    return b"|".join([str(len(code)).encode(), *parts])


class Form:
    """Tiles that run one text. codes: (n,) RECORD rows of each tile, equal but for numbers; `rows`: those of the first.

    Numbers that differ become columns: name -> value per tile."""

    def __init__(self, tiles: Sequence[int], codes: Sequence[np.ndarray]) -> None:
        self.tiles, self.codes = list(tiles), list(codes)
        self.rows = self.codes[0]
        self.columns: dict[str, tuple[int, ...]] = {}
        self._names: dict[tuple[int, ...], str] = {}
        distinct = {id(c): c for c in self.codes}
        self._distinct, order = list(distinct.values()), list(distinct)
        self._which = np.array([order.index(id(c)) for c in self.codes])
        self._spm = np.stack([c["spm"] for c in self._distinct])
        self._p = np.stack([c["p"] for c in self._distinct])

    def column(self, name: str, values: Sequence[int]) -> str | None:
        """Return the name of the table's column that holds these values, one per tile; None if all are equal."""
        key = tuple(int(v) for v in values)
        if len(set(key)) == 1:
            return None
        if key not in self._names:
            name = f"{name}_{len(self.columns)}"
            self._names[key] = name
            self.columns[name] = key
        return self._names[key]

    def values(self, at: int, field: str) -> np.ndarray:
        """Return what `field` of row `at` is on every tile: "ddr", a step "ddr_step0", or a field of the instruction."""
        if field == "ddr" or field.startswith("ddr_step"):
            level = int(field[8:] or 0) if field != "ddr" else 0
            own = [c["ddr"][at] if field == "ddr" else c["ddr_step"][at, level] for c in self._distinct]
            return np.array(own, np.int64)[self._which]
        cls = isa.class_of(int(self.rows["opcode"][at]))
        if field in cls.FIELDS_SPM:
            return self._spm[:, at, cls.FIELDS_SPM.index(field)].astype(np.int64)[self._which]
        return self._p[:, at, cls.FIELDS_P.index(field)][self._which]

    def table(self) -> tuple[list[tuple[str, str]], list[list[int]]]:
        """Return (type, name) of the columns, and the rows of the table, one per tile."""
        types = []
        for name, values in self.columns.items():
            wide = max(values) >= 1 << 32
            types.append(("int64_t" if min(values) < 0 else "uint64_t" if wide else "uint32_t", name))
        return types, [list(row) for row in zip(*self.columns.values(), strict=True)]


def forms(segment: Segment, tiles: int) -> list[Form]:
    """Return the forms of a segment, by their first tile; tiles without code are in none."""
    found: dict[bytes, list[int]] = {}
    keys = [skeleton(c) for c in segment.codes]
    for tile, index in enumerate(np.asarray(segment.tile_code).tolist()[:tiles]):
        if index >= 0:
            found.setdefault(keys[index], []).append(tile)
    return [Form(own, [segment.codes[segment.tile_code[t]] for t in own]) for own in found.values()]


def barriers(code: np.ndarray) -> int:
    """Return how many barriers of all tiles a code passes, loops written out."""
    total, times = 0, [1]
    barrier = isa.INSTRUCTIONS["barrier"].OPCODE
    for opcode, count in zip(code["opcode"].tolist(), code["p"][:, 0].tolist()):
        if opcode == LOOP:
            times.append(times[-1] * count)
        elif opcode == END:
            times.pop()
        elif opcode == barrier:
            total += times[-1]
    return total
