"""Small programs run in the field, without a graph: every compilation of one model must give the same elements."""

from __future__ import annotations

import numpy as np

from tx8fast.program.model import Program
from tx8fast.proof.cells import HIDDEN, UNDEFINED, Elements
from tx8fast.proof.field import Field
from tx8fast.proof.forms import FLOATS
from tx8fast.proof.machine import Machine

#: constants of the models' graphs that are not simple fractions
CONSTANTS = (16**-0.5, 32**-0.5, 1e-5, 1e-12)


def derived(field: Field, machine: Machine, program: Program) -> None:
    """Write the parameters whose values matter: masks, fills, counters."""
    for t in program.params:
        kind, attrs = t.source.get("expr"), t.source.get("attrs", {})
        if kind == "fill":
            machine.write(t, field.constant(attrs["value"], t.ddr_dtype, tuple(t.shape)))
        elif kind == "arange":
            machine.write(t, np.arange(int(np.prod(t.shape))).reshape(t.shape))
        elif kind == "causal_mask":
            rows, keys = t.shape
            seen = np.arange(rows)[:, None] + keys - rows >= np.arange(keys)
            machine.write(t, Elements(np.where(seen, 0, HIDDEN).astype(np.uint32), np.zeros(t.shape, np.uint32)))


def inputs(field: Field, machine: Machine, program: Program) -> None:
    for t in program.inputs:
        if t.ddr_dtype in FLOATS:
            machine.write(t, field.random("input " + t.name, tuple(t.shape)))
        elif t.name == "position":
            machine.write(t, np.full(t.shape, 3))
        else:
            machine.write(t, (np.arange(int(np.prod(t.shape))) * 7 % 2).reshape(t.shape))


def results(program: Program, seed: int = 1) -> dict[str, np.ndarray]:
    """Run all launches unsealed; return the outputs' words modulo p."""
    field = Field(seed)
    for value in CONSTANTS:
        field.constants.register(value)
    machine = Machine(program, field)
    inputs(field, machine, program)
    derived(field, machine, program)
    for number in range(len(program.launches)):
        machine.launch(number, q=True)
    out = {}
    for t in program.outputs:
        value = machine.read(t)
        assert isinstance(value, Elements)
        out[t.name] = value.values()
    return out


def undefined(found: dict[str, np.ndarray]) -> int:
    return sum(int((x & UNDEFINED != 0).sum()) for x in found.values())
