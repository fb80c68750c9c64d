"""What a program file holds of its model's parameters, byte by byte.

May import: numpy, program.model, program.params, proof.draw, proof.report. Must not: read weights but through the function it is given.

Constants that the model holds for itself (folded scalars, masks, tables), and weights while they are small, lie in the program as
bytes. The graph's side of a proof knows the model's alone: a program with other bytes would be proved for values that it does not have.
"""

from __future__ import annotations

import numpy as np

from tx8fast.program.model import Program, Tensor
from tx8fast.program.params import pack_param
from tx8fast.proof.draw import Known
from tx8fast.proof.report import Failure


def compare_held(program: Program, bytes_of: Known) -> list[Failure]:
    """Return the parameters whose bytes in the program are not the model's, packed as they lie in DDR. bytes_of: values by key and
    chip (-1: of all), None where there is no file with them."""
    found = []
    for t in program.params:
        own = _image(program, t, bytes_of) if t.embedded >= 0 else None
        if own is None:
            continue
        held = np.frombuffer(memoryview(program.data)[t.embedded : t.embedded + own.size], np.uint8)
        if held.size != own.size:
            why = f"the program holds {held.size:,} bytes of it, the model {own.size:,}"
        elif (differs := np.flatnonzero(held != own)).size:
            why = f"{differs.size:,} of {own.size:,} bytes that the program holds are not the model's, the first is byte {differs[0]:,}"
        else:
            continue
        found.append(Failure(-1, f"parameter '{t.name}'", "", "", why))
    return found


def _image(program: Program, tensor: Tensor, bytes_of: Known) -> np.ndarray | None:
    """Return the bytes of a parameter on all chips, None if they are not at hand."""
    chips = range(program.n_chips) if tensor.per_chip else (-1,)
    values = [bytes_of(tensor.source["key"], chip) for chip in chips]
    if any(v is None for v in values):
        return None
    return np.concatenate([np.frombuffer(pack_param(np.asarray(v), tensor), np.uint8) for v in values])
