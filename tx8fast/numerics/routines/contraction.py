"""Matrix products: gemm, and einsum-like contractions whose dimensions may be composite.

May import: numpy, the routine helpers. Must not: know layouts or instructions.
Sums of f32 are rounded once (`support.product`); integers are exact and wrap to the result format.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.numerics.routines.activation import apply
from tx8fast.numerics.routines.support import (
    Arrays,
    Attrs,
    OutTypes,
    Routine,
    done,
    double,
    is_float,
    operand,
    optional,
    product,
    total,
    wide,
)


def accumulator(x: np.ndarray, k: int) -> np.ndarray:
    """Return `x` in the format its products with `k` terms are summed in.

    Small integers go to f64, where the sum is exact and a fast matrix product exists.
    """
    x = wide(x)
    if is_float(x):
        return x
    if x.dtype.itemsize == 1 or (x.dtype.itemsize == 2 and k < 1 << 20):
        return x.astype(np.float64)
    return x.astype(np.int64)


def settled(y: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return an accumulator as integers again if the operands were integers."""
    return y if is_float(wide(like)) else y.astype(np.int64)


def gemm(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """act(a @ b + bias), batches broadcast; `trans_a`, `trans_b` swap the last two axes."""
    lhs, rhs, bias = operand(arrays, 0), operand(arrays, 1), optional(arrays, 2)
    a = np.swapaxes(lhs, -1, -2) if attrs.get("trans_a") else lhs
    b = np.swapaxes(rhs, -1, -2) if attrs.get("trans_b") else rhs
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise SimulationError(f"gemm: shapes {a.shape} and {b.shape} do not multiply")
    y = settled(product(accumulator(a, a.shape[-1]), accumulator(b, a.shape[-1]), not is_float(lhs)), lhs)
    if bias is not None:
        y = y + (wide(bias) if is_float(bias) else bias.astype(np.int64))
    return [done(apply(str(attrs.get("act", "none")), y, attrs), out_types)]


_TERM = re.compile(r"\(([^()]*)\)|([A-Za-z_]\w*|1)")


def _side(text: str, equation: str) -> list[list[str]]:
    """Parse one operand of an equation into dimensions, each a list of labels, major first."""
    if _TERM.sub("", text).strip():
        raise SimulationError(f"contract: cannot read '{text.strip()}' in equation '{equation}'")
    dims = [m.group(1).split() if m.group(2) is None else [m.group(2)] for m in _TERM.finditer(text)]
    return [[label for label in dim if label != "1"] for dim in dims]


def parse_equation(equation: str) -> tuple[list[list[str]], list[list[str]], list[list[str]]]:
    """Return (left, right, result) of "b s (h d), t (h d) -> b s t" as lists of label lists.

    Raises SimulationError on bad syntax, a repeated label, or a result label of no operand.
    """
    inputs, arrow, result = equation.partition("->")
    sides = inputs.split(",")
    if not arrow or len(sides) != 2:
        raise SimulationError(f"contract: equation '{equation}' needs two operands and '->'")
    left, right, out = (_side(text, equation) for text in (*sides, result))
    for side in (left, right, out):
        labels = _flat(side)
        if len(set(labels)) != len(labels):
            raise SimulationError(f"contract: a label repeats within one operand of '{equation}'")
    known = set(_flat(left)) | set(_flat(right))
    if lost := [label for label in _flat(out) if label not in known]:
        raise SimulationError(f"contract: result labels {lost} of '{equation}' are in no operand")
    return left, right, out


def _flat(side: Sequence[Sequence[str]]) -> list[str]:
    return [label for dim in side for label in dim]


def solve_sizes(
    operands: Sequence[tuple[list[list[str]], Sequence[int]]], given: Sequence, equation: str
) -> dict[str, int]:
    """Return the size of every label from operand shapes and `given` ("h", 8, "d", 128, ...).

    Raises SimulationError if a rank or size contradicts, or a size stays unknown.
    """
    sizes = {str(given[i]): int(given[i + 1]) for i in range(0, len(given) - 1, 2)}
    for dims, shape in operands:
        if len(dims) != len(shape):
            raise SimulationError(f"contract: '{equation}' has {len(dims)} dims for shape {tuple(shape)}")
    pending = [(dim, size) for dims, shape in operands for dim, size in zip(dims, shape, strict=True)]
    progress = True
    while pending and progress:
        progress, rest = False, []
        for dim, size in pending:
            unknown = [label for label in dim if label not in sizes]
            known = math.prod(sizes[label] for label in dim if label in sizes)
            if len(unknown) > 1:
                rest.append((dim, size))
                continue
            progress = True
            if unknown and known and size % known == 0:
                sizes[unknown[0]] = size // known
            elif unknown or known != size:
                raise SimulationError(
                    f"contract: dimension ({' '.join(dim)}) of '{equation}' has size {size},"
                    + " required "
                    + (f"a multiple of {known}" if unknown else f"{known}")
                )
        pending = rest
    if pending:
        unknown = sorted({label for dim, _ in pending for label in dim if label not in sizes})
        raise SimulationError(f"contract: sizes of {unknown} in '{equation}' are not given")
    return sizes


def _arranged(x: np.ndarray, have: list[str], groups: Sequence[list[str]], sizes: dict[str, int]):
    """Return `x` (one axis per label of `have`) as one axis per group of labels."""
    order = [have.index(label) for group in groups for label in group]
    shape = [math.prod(sizes[label] for label in group) for group in groups]
    return x.transpose(order).reshape(shape)


def contract(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Contract two tensors as `equation` says; a parenthesised dimension is (major .. minor).

    Labels of both operands that are missing in the result are summed; sizes that the shapes do
    not fix come from attribute `sizes`.
    """
    lhs, rhs = operand(arrays, 0), operand(arrays, 1)
    equation = str(attrs["equation"])
    left, right, out = parse_equation(equation)
    sizes = solve_sizes([(left, lhs.shape), (right, rhs.shape)], attrs.get("sizes", ()), equation)
    in_left, in_right, in_out = _flat(left), _flat(right), _flat(out)
    summed = [label for label in in_left if label in in_right and label not in in_out]
    terms = math.prod(sizes[label] for label in summed)
    sides = []
    once = any((v in in_left) != (v in in_right) and v not in in_out for v in (*in_left, *in_right))
    for x, labels, other in ((lhs, in_left, in_right), (rhs, in_right, in_left)):
        x = accumulator(x, terms).reshape([sizes[label] for label in labels])
        x = double(x) if once and is_float(x) else x
        alone = tuple(i for i, v in enumerate(labels) if v not in other and v not in in_out)
        sides.append(
            (
                (total(x, alone, False) if is_float(x) else x.sum(axis=alone)) if alone else x,
                [v for v in labels if v in other or v in in_out],
            )
        )
    (a, in_left), (b, in_right) = sides
    batch = [label for label in in_left if label in in_right and label in in_out]
    rows = [label for label in in_left if label not in in_right]
    cols = [label for label in in_right if label not in in_left]
    a = _arranged(a, in_left, (batch, rows, summed), sizes)
    b = _arranged(b, in_right, (batch, summed, cols), sizes)
    y = settled(product(a, b, not is_float(lhs)), lhs)
    have = batch + rows + cols
    y = y.reshape([sizes[label] for label in have])
    return [done(_arranged(y, have, out, sizes), out_types)]


ROUTINES: dict[str, Routine] = {"gemm": gemm, "contract": contract}
