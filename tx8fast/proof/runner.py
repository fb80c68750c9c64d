"""Launches on the field machine: operands are laid out in DDR here, results are read back here.

May import: numpy, numerics.layout, graph_table, program.model, errors, proof.*. Must not: know rows.

How channels are blocked is worked out from the layout's definition, not by whatever moves tensors in the machine. What lies between
the elements of a value that another launch stored is undefined: a launch that relies on it is refused. Parameters and
inputs are padded with zeros, as the host writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tx8fast.graph_table import TensorSpec
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import blocked_bytes, element_offset, npc
from tx8fast.program.model import Program
from tx8fast.proof.cells import ABSENT, RESIDUE, UNDEFINED, Elements
from tx8fast.proof.evaluate import PerChip
from tx8fast.proof.expression import Drawn, Value
from tx8fast.proof.field import Field
from tx8fast.proof.machine import Machine, View
from tx8fast.proof.prove import Noted, Unmodelled
from tx8fast.proof.routines import WithoutMeaning
from tx8fast.proof.work import Arg


class MachineRunner:
    """Runs launches of a program over a field, each from operands of its own."""

    def __init__(self, program: Program, field: Field, concrete: frozenset[str] = frozenset()) -> None:
        """concrete: parameters (names) whose values are constants; all other floats are drawn by the machine itself."""
        self.drawn = {t.address for t in program.params if t.name not in concrete and t.name == t.source.get("key")}
        # every other seed, so that a value that one tile stores and another reads unasked shows in one of them
        self.machine = Machine(program, field, backwards=field.seed % 2 == 0)
        self.n_chips = program.n_chips
        self.padded = {t.address for t in (*program.params, *program.inputs)}

    def run(
        self, launch: int, operands: Sequence[tuple[Arg, PerChip]], results: Sequence[Arg]
    ) -> tuple[list[PerChip], Noted]:
        """Execute one launch; see `prove.Runner`."""
        self.machine.clear()
        for a, values in operands:
            if a.address not in self.drawn or isinstance(values[0], np.ndarray):
                for chip, value in enumerate(values):
                    self._write(a, value, chip)
        try:
            self.machine.launch(launch)
        except WithoutMeaning as err:
            raise Unmodelled(str(err)) from err
        found = [[self._read(a, chip) for chip in range(self.n_chips)] for a in results]
        parts = [(x.p & np.uint32(RESIDUE)).reshape(-1) for x in self.machine.denominators]
        divided = np.concatenate(parts) if parts else np.zeros(0, np.uint32)
        return found, Noted(divided, self.machine.comparisons)

    def _write(self, a: Arg, value: Value, chip: int) -> None:
        value = value.elements() if isinstance(value, Drawn) else value
        if isinstance(value, np.ndarray) or a.spec.layout != "blocked":
            self.machine.write(View(a.address, a.spec.shape, a.spec.dtype, a.spec.layout, chip), value)
            return
        n = _stored_cells(a.spec)
        p = np.full(n, 0 if a.address in self.padded else UNDEFINED, np.uint32)
        q = np.zeros(n, np.uint32)
        own_q = np.full(value.shape, ABSENT, np.uint32) if value.q is None else value.q
        for cells, own in ((p, value.p), (q, own_q)):
            for at, piece in _pieces(cells, a.spec):
                piece[...] = own.reshape(npc(a.spec.shape))[..., at]
        self.machine.write(View(a.address, (n,), a.spec.dtype, "dense", chip), Elements(p, q))

    def _read(self, a: Arg, chip: int) -> Value:
        """Return a result; of floats without their q sides, which nothing is compared with."""
        if a.spec.dtype not in ("f32", "bf16", "f16"):
            return self.machine.read(View(a.address, a.spec.shape, a.spec.dtype, a.spec.layout, chip))
        if a.spec.layout != "blocked":
            return self.machine.read(View(a.address, a.spec.shape, a.spec.dtype, "dense", chip), sides="p")
        whole = self.machine.read(View(a.address, (_stored_cells(a.spec),), a.spec.dtype, "dense", chip), sides="p")
        assert isinstance(whole, Elements)
        out = np.empty(npc(a.spec.shape), np.uint32)
        for at, piece in _pieces(whole.p, a.spec):
            out[..., at] = piece
        return Elements(out.reshape(a.spec.shape), None)


def _stored_cells(spec: TensorSpec) -> int:
    """Return how many elements the bytes of a tensor hold, what lies between included."""
    if spec.layout == "blocked":
        n, p, c = npc(spec.shape)
        return blocked_bytes(n, p, c, spec.dtype) // ITEM_BYTES[spec.dtype]
    return int(np.prod(spec.shape))


def _pieces(cells: np.ndarray, spec: TensorSpec) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield channels of a blocked tensor that lie side by side, with a view (n, positions, channels) of their elements."""
    n, p, c = npc(spec.shape)
    if not n * p * c:
        return
    places = np.concatenate([_place(spec, 0, 0, np.arange(c)), [-1]])
    ends = np.flatnonzero(np.diff(places) != 1) + 1
    step = cells.itemsize
    batch = int(_place(spec, 1, 0, 0)) if n > 1 else 0
    for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        first = int(places[begin])
        along = int(_place(spec, 0, 1, begin)) - first if p > 1 else 0
        shape, strides = (n, p, end - begin), (batch * step, along * step, step)
        yield slice(begin, end), np.lib.stride_tricks.as_strided(cells[first:], shape, strides)


def _place(spec: TensorSpec, i, j, k):
    """Return the place of an element among the cells of a blocked tensor."""
    _, p, c = npc(spec.shape)
    return element_offset(i, j, k, p, c, spec.dtype) // ITEM_BYTES[spec.dtype]
