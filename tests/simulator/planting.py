"""Planting faults in programs: codes without loops, edits of rows by name, and the sanitizer's findings."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np

from tests.support.one_op import Case
from tx8fast import isa
from tx8fast.api import CompiledProgram
from tx8fast.isa.base import instruction
from tx8fast.numerics.formats import np_dtype
from tx8fast.program.model import Program
from tx8fast.simulator.sanitizer_report import Finding, SanitizerError


def feed_of(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    out = {}
    for t in program.inputs:
        whole = t.dtype in ("i64", "i32", "i16", "i8", "u8", "pred")
        values = rng.integers(0, 2, t.shape) if whole else rng.uniform(-1, 1, t.shape)
        out[t.name] = np.asarray(values).astype(np_dtype(t.dtype))
    return out


def findings(program: Program, feed: dict[str, np.ndarray] | None = None) -> list[Finding]:
    """Return what the sanitizer finds; results must be those of a plain run if it finds nothing."""
    feed = feed_of(program) if feed is None else feed
    try:
        got = CompiledProgram(program).run(feed, sanitize=True)
    except SanitizerError as error:
        assert error.findings and str(error).startswith("sanitizer: ")
        for f in error.findings:
            assert f.line() in str(error)
        return error.findings
    want = CompiledProgram(program).run(feed)
    for name, array in want.items():
        np.testing.assert_array_equal(np.atleast_1d(got[name]).view(np.uint8), np.atleast_1d(array).view(np.uint8))
    return []


def kinds(program: Program) -> set[str]:
    return {f.kind for f in findings(program)}


class Edit:
    """A copy of a program with loops written out, one code array per tile of one segment."""

    def __init__(self, program: Program | Case, segment: int = 0) -> None:
        self.program = copy.deepcopy(program.program if isinstance(program, Case) else program)
        for s in self.program.segments:
            s.codes = [isa.expand(s.codes[c]) if c >= 0 else isa.rows([]) for c in s.tile_code.tolist()]
            s.tile_code = np.where(s.tile_code >= 0, np.arange(len(s.tile_code)), -1)
        self.segment = self.program.segments[segment]

    def at(self, name: str, tile: int = 0) -> list[int]:
        """Positions of a tile's rows of that name."""
        return np.flatnonzero(self.segment.codes[tile]["opcode"] == instruction(name).OPCODE).tolist()

    @property
    def tiles(self) -> list[int]:
        return [t for t, code in enumerate(self.segment.codes) if len(code)]

    def drop(self, name: str, which: int = 0, tiles: list[int] | None = None) -> Edit:
        """Delete the which-th row of that name."""
        users = [t for t in self.tiles if self.at(name, t) and (tiles is None or t in tiles)]
        assert users
        for t in users:
            self.segment.codes[t] = np.delete(self.segment.codes[t], self.at(name, t)[which])
        return self

    def drop_all(self, name: str) -> Edit:
        for t in self.tiles:
            self.segment.codes[t] = np.delete(self.segment.codes[t], self.at(name, t))
        return self

    def move(self, name: str, which: int, behind: str, other: int) -> Edit:
        """Put a row behind another one."""
        for t in (t for t in self.tiles if self.at(name, t)):
            code = self.segment.codes[t]
            a, b = self.at(name, t)[which], self.at(behind, t)[other]
            order = [i for i in range(len(code)) if i != a]
            order.insert(order.index(b) + 1, a)
            self.segment.codes[t] = code[order]
        return self

    def set(self, name: str, which: int | None = 0, tiles: list[int] | None = None, *, worker: int | None = None,
            **fields: int | Callable[[int], int]) -> Edit:  # fmt: skip
        """Change fields of the which-th row of that name (None: all); a callable gets the old value."""
        cls = instruction(name)
        users = [t for t in self.tiles if self.at(name, t) and (tiles is None or t in tiles)]
        assert users
        for t in users:
            found = self.at(name, t)
            for i in found if which is None else [found[which]]:
                row = self.segment.codes[t][i : i + 1]
                if worker is not None:
                    row["worker"] = worker
                for key, value in fields.items():
                    table, k = ("spm", cls.FIELDS_SPM.index(key)) if key in cls.FIELDS_SPM else (
                        ("p", cls.FIELDS_P.index(key)) if key in cls.FIELDS_P else (key, None))  # fmt: skip
                    cell = row[table] if k is None else row[table][:, k]
                    cell[...] = value(int(cell.reshape(-1)[0])) if callable(value) else value
        return self

    def no_barrier(self) -> Edit:
        """Take the segment's final barrier away."""
        for t in self.tiles:
            self.segment.codes[t] = self.segment.codes[t][:-1]
        self.segment.barrier = False
        return self

    def found(self) -> dict[str, Finding]:
        """Return the first finding of each kind."""
        out: dict[str, Finding] = {}
        for f in findings(self.program):
            out.setdefault(f.kind, f)
        return out
