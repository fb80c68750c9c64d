"""Contraction equations: parsing, size binding and the factor rule of `contract`.

May import: graph_table, errors. Must not: know ops other than for messages.

Grammar: `tensor, tensor -> tensor`; a tensor is a list of dimensions separated by blanks; a dimension is
a name, `1`, or `(name name ...)`: names merged into one dimension, major to minor. Example:
"b s (h g d), b t (h d) -> b (h g) s t". Sizes that the shapes leave open come from `sizes`, a
flat (name, size, name, size, ...) tuple. A factor's name starts with its role: b in both operands
and the result, m in lhs and result, n in rhs and result, k in no result.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any

from tx8fast.errors import VerifyError
from tx8fast.graph_table import Dim, Rule
from tx8fast.records import dataclass

_TOKEN = re.compile(r"\(([^()]*)\)|([A-Za-z_]\w*|1)")
Dims = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """An equation with sizes: one tuple of names per dimension of each tensor."""

    tensors: tuple[Dims, Dims, Dims]
    sizes: dict[str, int]
    out_shape: tuple[int, ...]


@lru_cache(maxsize=1024)
def parse(equation: str) -> tuple[Dims, Dims, Dims]:
    """Return the dimensions of lhs, rhs and result. Raises VerifyError on a malformed equation."""
    left, arrow, right = equation.partition("->")
    parts = [*left.split(","), right]
    if not arrow or len(parts) != 3 or "," in right:
        raise VerifyError(f"equation '{equation}': expected 'lhs, rhs -> result'")
    tensors = []
    for part in parts:
        if _TOKEN.sub("", part).strip():
            raise VerifyError(f"equation '{equation}': cannot read '{part.strip()}'")
        dims = tuple(
            tuple(n for n in (g or s).split() if n != "1") for g, s in (m.groups() for m in _TOKEN.finditer(part))
        )
        names = [n for d in dims for n in d]
        if len(set(names)) != len(names):
            raise VerifyError(f"equation '{equation}': a name occurs twice in '{part.strip()}'")
        tensors.append(dims)
    inputs = {n for t in tensors[:2] for d in t for n in d}
    lost = [n for d in tensors[2] for n in d if n not in inputs]
    if lost:
        raise VerifyError(f"equation '{equation}': result names {', '.join(lost)} are in no operand")
    return tensors[0], tensors[1], tensors[2]


def bind(equation: str, shapes: tuple[Any, Any], sizes: tuple[Any, ...], op: object = None) -> Bound:
    """Return the equation with every factor's size. Raises VerifyError if shapes contradict it or leave a size open."""
    try:
        tensors = parse(equation)
        if len(sizes) % 2:
            raise VerifyError(f"sizes {sizes}: expected name, size pairs")
        known: dict[str, int] = dict(zip(sizes[::2], sizes[1::2]))
        todo: list[tuple[tuple[str, ...], int, int, int]] = []
        for side, (dims, shape) in enumerate(zip(tensors, shapes)):
            if len(dims) != len(shape):
                name = ("lhs", "rhs")[side]
                raise VerifyError(f"operand '{name}': found rank {len(shape)} {list(shape)}, required rank {len(dims)}")
            todo += [(names, size, side, i) for i, (names, size) in enumerate(zip(dims, shape))]
        while todo:
            left = [entry for entry in todo if not _solve(entry, known)]
            if len(left) == len(todo):
                open_names = sorted({n for names, *_ in left for n in names if n not in known})
                raise VerifyError(
                    f"sizes of {', '.join(open_names)} do not follow from the shapes: give them in 'sizes'"
                )
            todo = left
    except VerifyError as error:
        where = f"{op.name} '{op.loc or ''}': " if op is not None else ""  # type: ignore[attr-defined]
        raise VerifyError(f"{where}equation '{equation}': {error}") from None
    out = tuple(math.prod(known[n] for n in names) for names in tensors[2])
    return Bound(tensors, known, out)


def _solve(entry: tuple[tuple[str, ...], int, int, int], known: dict[str, int]) -> bool:
    """Use one dimension: check it, or derive its single open name; return False if more are open."""
    names, size, side, i = entry
    missing = [n for n in names if n not in known]
    if len(missing) > 1:
        return False
    product = math.prod(known[n] for n in names if n in known)
    if missing:
        known[missing[0]] = size // product if product else 0
        product *= known[missing[0]]
    if product != size:
        found = " * ".join(f"{n}={known[n]}" for n in names) or "1"
        raise VerifyError(f"operand '{('lhs', 'rhs')[side]}': dimension {i} is {size}, required {found}")
    return True


def rule(ins: tuple[Any, ...], outs: tuple[Any, ...], attrs: dict[str, Any]) -> Rule:
    """Factor rule of `contract`: result names in result order, then the reduced ones."""
    return _rule(attrs["equation"], tuple(ins[:2]), attrs["sizes"])


def _rule(equation: str, shapes: tuple[Any, Any], sizes: tuple[Any, ...]) -> Rule:
    eq = bind(equation, shapes, sizes)
    lhs, rhs, out = ([n for d in t for n in d] for t in eq.tensors)
    order = [*out, *dict.fromkeys(n for n in [*lhs, *rhs] if n not in out)]
    index = {n: f for f, n in enumerate(order)}
    fsize = tuple(eq.sizes[n] for n in order)

    def dim(names: tuple[str, ...]) -> Dim:
        terms, coef = [], 1
        for n in reversed(names):
            if eq.sizes[n] != 1 or len(names) == 1:
                terms.append((index[n], coef))
            coef *= eq.sizes[n]
        return Dim(coef, tuple(reversed(terms)))

    def role(n: str) -> str:
        return "k" if n not in out else "b" if n in lhs and n in rhs else "m" if n in lhs else "n"

    return Rule(
        fsize,
        "".join("P" if n in out else "R" for n in order),
        tuple(tuple(dim(d) for d in t) for t in eq.tensors[:2]),
        (tuple(dim(d) for d in eq.tensors[2]),),
        (("ne", 1, tuple(range(len(order)))),),
        tuple(f"{role(n)}.{n}" for n in order),
    )
