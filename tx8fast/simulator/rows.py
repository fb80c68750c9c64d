"""The rows of a stretch as the event kernel takes them: of all tiles and launches, what rows are like kept once.

May import: machine, _kernels, and network and timing beside it. Must not: run anything or know the IR.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast._kernels import EventInput, Routes
from tx8fast.machine import Machine
from tx8fast.simulator import network
from tx8fast.simulator.timing import KCORE, WAIT, Code, Part


def event_input(machine: Machine, parts: Sequence[Part], chips: tuple[int, int] = (1, 1)) -> EventInput:
    """Return the event kernel's rows of a stretch, all parts one after the other on every tile of `chips`."""
    n_tiles = machine.n_tiles * chips[0] * chips[1]
    codes = [[p.code.code(tile) for p in parts] for tile in range(n_tiles)]
    tile_begin = np.cumsum([0, *(sum(len(c.place) for c in own) for own in codes)], dtype=np.int64)
    slot_begin = np.cumsum([0, *(len(p.code.segment.slot_arg) for p in parts)]).tolist()
    forms, code = _Forms(), _CodeRows()
    bodies: dict[tuple[int, ...], tuple[int, np.ndarray]] = {}
    code_begin, tiles = [], []
    fixed, ddr_bytes = np.empty(tile_begin[-1], np.int64), np.empty(tile_begin[-1], np.int64)
    ddr_base = np.zeros((n_tiles, slot_begin[-1]), np.int64)
    for tile, own in enumerate(codes):
        chip = tile // machine.n_tiles
        signature = (chip, *(id(c) for c in own))
        if signature not in bodies:
            begin = code.n
            for k, c in enumerate(own):
                code.add(c, forms.begin(chip, k, slot_begin[k], c))
            kind = np.concatenate([c.kind for c in own])
            bodies[signature] = begin, _hidden_waits(kind) * machine.kcore.wait_cycles
        begin, late = bodies[signature]
        code_begin.append(begin)
        at = int(tile_begin[tile])
        for k, (part, c) in enumerate(zip(parts, own, strict=True)):
            base = part.code.base(part.args, tile)
            ddr_base[tile, slot_begin[k] : slot_begin[k + 1]] = base
            span = slice(at, at + len(c.place))
            fixed[span], ddr_bytes[span] = c.durations(base)
            at = span.stop
        tiles.append(fixed[int(tile_begin[tile]) : at])
        tiles[-1] += late
    for c in {id(c): c for own in codes for c in own}.values():
        c.forget()
    kind, issue, form, ddr_at = code.arrays()
    arg, routes = forms.args(), Routes()
    if arg is not None:
        home = np.concatenate(forms.home)
        routes = network.connect(machine, network.Rows(kind, form, arg, home), code_begin, tiles, chips)
        arg = np.ascontiguousarray(arg[:, :3])
    return EventInput(
        kind=kind,
        issue=issue,
        form=form,
        ddr_at=ddr_at,
        spm_read=forms.joined("spm_read"),
        spm_write=forms.joined("spm_write"),
        ddr_read=forms.joined("ddr_read"),
        ddr_write=forms.joined("ddr_write"),
        worker=forms.joined("worker"),
        arg=arg,
        ddr_slot=np.concatenate(forms.slot),
        ddr_base=ddr_base,
        code_begin=np.array(code_begin, np.int64),
        tile_begin=tile_begin,
        fixed=fixed,
        ddr_bytes=ddr_bytes,
        routes=routes,
        chip_tiles=machine.n_tiles,
    )


class _Forms:
    """The forms of a stretch: the body rows of every code, once for each of its parts that has it, and for each chip."""

    def __init__(self) -> None:
        self.codes: list[Code] = []
        self.slot: list[np.ndarray] = []
        self.home: list[np.ndarray] = []
        self._known: dict[tuple[int, int, int], int] = {}
        self._n = 0

    def begin(self, chip: int, part: int, first_slot: int, code: Code) -> int:
        """Return the number of the first form of a code."""
        key = chip, part, id(code)
        if key not in self._known:
            self._known[key] = self._n
            self._n += len(code.body)
            self.codes.append(code)
            self.slot.append(np.where(code.slot >= 0, code.slot + first_slot, -1))
            self.home.append(np.full(len(code.body), chip, np.int64))
        return self._known[key]

    def joined(self, name: str) -> np.ndarray:
        """Return an array of `Code` over all forms."""
        return np.concatenate([getattr(c, name) for c in self.codes])

    def args(self) -> np.ndarray | None:
        """Return the arguments (n_forms, 4) of rows between tiles, None if there are no such rows."""
        if all(c.arg is None for c in self.codes):
            return None
        return np.concatenate([np.zeros((len(c.body), 4), np.int64) if c.arg is None else c.arg for c in self.codes])


class _CodeRows:
    """What the event kernel knows of the code rows of a stretch, code after code."""

    def __init__(self) -> None:
        self.n = 0
        self._added: list[tuple[Code, int]] = []

    def add(self, code: Code, first_form: int) -> None:
        """Append the rows of a code, whose forms are numbered from `first_form` on."""
        self.n += len(code.place)
        self._added.append((code, first_form))

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return kind, issue, form and ddr_at (n,); launches are issue time of the first row of each."""
        codes = [c for c, _ in self._added]
        kind, issue, ddr_at = (np.concatenate([getattr(c, a) for c in codes]) for a in ("kind", "issue", "ddr"))
        form = np.empty(self.n, np.int32)
        at = 0
        for code, first in self._added:
            form[at : at + len(code.place)] = code.place
            form[at : at + len(code.place)] += first
            if len(code.place):
                issue[at] += code.launch_cycles
            at += len(code.place)
        return kind, issue, form, ddr_at


def _hidden_waits(kind: np.ndarray) -> np.ndarray:
    """Return 1 for every routine that follows engine rows without a wait: it joins the engines itself."""
    at = np.arange(1, len(kind) + 1)
    engine = np.maximum.accumulate(np.where(kind < KCORE, at, 0)) if len(kind) else at
    joined = np.maximum.accumulate(np.where((kind == KCORE) | (kind == WAIT), at, 0)) if len(kind) else at
    before = np.concatenate([[0], joined[:-1]]) if len(kind) else at
    return ((kind == KCORE) & (engine > before)).astype(np.int64)
