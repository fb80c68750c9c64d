"""Launches on the field machine: operands are laid out in DDR here, results are read back here.

May import: numpy, numerics.layout, graph_table, program.model, errors, proof.*. Must not: know rows.

How channels are blocked is worked out from the layout's definition, not by whatever moves tensors in the machine. What lies between
the elements of a value that another launch stored is undefined: a launch that relies on it is refused. Parameters and
inputs are padded with zeros, as the host writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.graph_table import TensorSpec
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import blocked_bytes, element_offset, npc
from tx8fast.program.model import Program
from tx8fast.proof.cells import ABSENT, RESIDUE, UNDEFINED, Elements
from tx8fast.proof.evaluate import PerChip
from tx8fast.proof.expression import Drawn, Value
from tx8fast.proof.field import Field
from tx8fast.proof.machine import Machine, View
from tx8fast.proof.prove import Unmodelled
from tx8fast.proof.work import Arg

#: what the machine says of what it has no meaning for
_WITHOUT = "has no meaning in the proof"


class MachineRunner:
    """Runs launches of a program over a field, each from operands of its own."""

    def __init__(self, program: Program, field: Field, concrete: frozenset[str] = frozenset()) -> None:
        """concrete: parameters (names) whose values are constants; all other floats are drawn by the machine itself."""
        self.drawn = {t.address for t in program.params if t.name not in concrete and t.name == t.source.get("key")}
        self.machine = Machine(program, field)
        self.n_chips = program.n_chips
        self.padded = {t.address for t in (*program.params, *program.inputs)}

    def run(
        self, launch: int, operands: Sequence[tuple[Arg, PerChip]], results: Sequence[Arg]
    ) -> tuple[list[PerChip], np.ndarray]:
        """Execute one launch; see `prove.Runner`."""
        taken = {a.address for a, _ in operands}
        for a in results:
            if a.address not in taken:
                self._forget(a)
        for a, values in operands:
            if a.address not in self.drawn or isinstance(values[0], np.ndarray):
                for chip, value in enumerate(values):
                    self._write(a, value, chip)
        try:
            self.machine.launch(launch)
        except SimulationError as err:
            if _WITHOUT in str(err):
                raise Unmodelled(str(err)) from err
            raise
        found = [[self._read(a, chip) for chip in range(self.n_chips)] for a in results]
        parts = [(x.p & np.uint32(RESIDUE)).reshape(-1) for x in self.machine.denominators]
        return found, np.concatenate(parts) if parts else np.zeros(0, np.uint32)

    def _forget(self, a: Arg) -> None:
        """Make the bytes of a result undefined."""
        if a.spec.dtype not in ("f32", "bf16", "f16"):
            return
        for chip in range(self.n_chips):
            n = _stored_cells(a.spec)
            self.machine.write(View(a.address, (n,), a.spec.dtype, "dense", chip), _undefined((n,)))

    def _write(self, a: Arg, value: Value, chip: int) -> None:
        value = value.elements() if isinstance(value, Drawn) else value
        if isinstance(value, np.ndarray) or a.spec.layout != "blocked":
            self.machine.write(View(a.address, a.spec.shape, a.spec.dtype, a.spec.layout, chip), value)
            return
        place, n = _places(a.spec), _stored_cells(a.spec)
        fill = np.uint32(0 if a.address in self.padded else UNDEFINED)
        p = np.full(n, fill, np.uint32)
        p[place] = value.p
        q = np.zeros(n, np.uint32)
        q[place] = ABSENT if value.q is None else value.q
        self.machine.write(View(a.address, (n,), a.spec.dtype, "dense", chip), Elements(p, q))

    def _read(self, a: Arg, chip: int) -> Value:
        if a.spec.layout != "blocked" or a.spec.dtype not in ("f32", "bf16", "f16"):
            return self.machine.read(View(a.address, a.spec.shape, a.spec.dtype, a.spec.layout, chip))
        whole = self.machine.read(View(a.address, (_stored_cells(a.spec),), a.spec.dtype, "dense", chip))
        assert isinstance(whole, Elements)
        return whole.at(_places(a.spec))


def _undefined(shape: tuple[int, ...]) -> Elements:
    return Elements(np.full(shape, UNDEFINED, np.uint32), np.zeros(shape, np.uint32))


def _stored_cells(spec: TensorSpec) -> int:
    """Return how many elements the bytes of a tensor hold, what lies between included."""
    if spec.layout == "blocked":
        n, p, c = npc(spec.shape)
        return blocked_bytes(n, p, c, spec.dtype) // ITEM_BYTES[spec.dtype]
    return int(np.prod(spec.shape))


@lru_cache(maxsize=64)
def _places(spec: TensorSpec) -> np.ndarray:
    """Return the place of every logical element of a blocked tensor among its cells."""
    n, p, c = npc(spec.shape)
    i, j, k = np.indices((n, p, c), sparse=True)
    place = element_offset(i, j, k, p, c, spec.dtype) // ITEM_BYTES[spec.dtype]
    return np.broadcast_to(place, (n, p, c)).reshape(spec.shape)
