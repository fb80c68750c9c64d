"""What a run says when the data it was given cannot be: which input holds the value, where, and what is allowed.

May import: numpy, errors, isa, numerics, program.model. Must not: execute anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.isa.lookup import RowNumberError
from tx8fast.numerics.formats import np_dtype
from tx8fast.program.model import Tensor

SHOWN_VALUES = 4


def row_fault(error: Exception, row: np.void, where: str, at: int, inputs: Iterable[Tensor]) -> str:
    """Return the message of a row that could not be executed. where: launch, segment and tile; at: the row's place."""
    if isinstance(error, RowNumberError):
        low, high = -error.entries, error.entries - 1
        found = _element(error.address, inputs)
        what = "a computed row number" if found is None else f"input '{found[0]}' at {list(found[1])}"
        behind = f" (or {low} to -1, from the end)" if error.number < 0 else ""
        return f"{what} is {error.number}, required 0 to {high}{behind}: {where} looks up rows of a table"
    decoded = isa.decode(row)
    if decoded["name"] == "kcore":  # its fields say nothing but the number of the routine
        return f"{where}: {error}"
    return f"{where}, instruction {at} ({decoded['name']}): {error}; fields {decoded}"


def routine_inputs(operands: Iterable[tuple[int, Any]], inputs: Iterable[Tensor]) -> str:
    """Return a remark on the integer inputs of the program among a routine's operands (address, array), "" without any."""
    known = {t.address: t.name for t in inputs}
    found = [
        f"input '{known[address]}' is {array.reshape(-1)[:SHOWN_VALUES].tolist()}{'...' if array.size > SHOWN_VALUES else ''}"
        for address, array in operands
        if address in known and array is not None and array.dtype.kind in "iu"
    ]
    return f" ({', '.join(found)})" if found else ""


def _element(address: int, inputs: Iterable[Tensor]) -> tuple[str, tuple[int, ...]] | None:
    """Return the name and the index of the dense input element at a DDR address."""
    for t in inputs:
        if t.layout == "dense" and t.address <= address < t.address + t.size_bytes:
            at = (address - t.address) // np_dtype(t.ddr_dtype).itemsize
            return t.name, tuple(int(i) for i in np.unravel_index(at, t.shape or (1,)))
    return None
