"""Products that end a launch, checked by a random vector instead of being computed (Freivalds 1977).

May import: numpy, the kernels, graph_table, proof.graph, proof.expression, proof.evaluate, proof.forms. Must not: know rows or how a launch computes.

A result out = s (a b + bias) + x, with all but the matrix b known, is right if (out - x) / s r = a (b r) + bias r for a random
vector r. A wrong row passes with probability 1 / p; what passes is taken to be the result. What does not pass is computed after
all, so that a report names elements. `s`, element by element, must have no zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from tx8fast._kernels import _facade_field as k
from tx8fast.proof import products
from tx8fast.proof.cells import RESIDUE, SPECIAL, Elements
from tx8fast.proof.expression import Drawn, Scope, Value
from tx8fast.proof.expressions_elementwise import activation
from tx8fast.proof.field import Field
from tx8fast.proof.forms import FLOATS
from tx8fast.proof.graph import Graph, Instance
from tx8fast.records import dataclass

Words = np.ndarray


@dataclass(frozen=True)
class End:
    """How a result (root) is made of a product: `added` names what is added, `gate` the factor's name before `act`, "" none."""

    root: str
    product: Instance
    ops: tuple[Instance, ...]
    added: tuple[str, ...] = ()
    gate: str = ""
    act: str = ""


def ends_of(graph: Graph, ops: Sequence[Instance], results: Sequence[str]) -> list[End]:
    """Return the results of a launch that are products and linear in them; what lies between is used for nothing else."""
    inside = {op.number for op in ops}
    uses = Counter(graph.roots[n] for op in ops for n in op.inputs if n)
    uses.update(results)
    found = []
    for root in results:
        end = _end(graph, root, inside, uses) if uses[root] == 1 else None
        if end is not None:
            found.append(end)
    return found


def _end(graph: Graph, root: str, inside: set[int], uses: Counter[str]) -> End | None:
    """Follow a result back to a product."""
    taken, added, gate, act = list[Instance](), list[str](), "", ""
    at = root
    while True:
        op = graph.made.get(at)
        if op is None or op.number not in inside or (at != root and uses[at] != 1):
            return None
        taken.append(op)
        kind = op.record.kind.rstrip("_")
        if kind == "gemm":
            return End(root, op, tuple(taken), tuple(added), gate, act) if _is_plain(op) else None
        if kind == "add":
            i = _way(graph, op, inside, uses)
            if i is None:
                return None
            added.append(op.inputs[1 - i])
            at = graph.roots[op.inputs[i]]
        elif kind == "swiglu" and not added and not gate and _of_one_shape(graph, op):
            gate, act = op.inputs[0], op.record.attr("act")
            at = graph.roots[op.inputs[1]]
        else:
            return None


def _of_one_shape(graph: Graph, op: Instance) -> bool:
    return all(graph.specs[name].shape == op.record.results[0].shape for name in op.inputs)


def _way(graph: Graph, op: Instance, inside: set[int], uses: Counter[str]) -> int | None:
    """Return the operand of a sum that a product comes in by, without being repeated."""
    for i, name in enumerate(op.inputs):
        made = graph.made.get(graph.roots[name])
        same = graph.specs[name].shape == op.record.results[0].shape
        if made is not None and made.number in inside and same and uses[graph.roots[name]] == 1:
            if made.record.kind.rstrip("_") in ("gemm", "add"):
                return i
    return None


def _is_plain(op: Instance) -> bool:
    """Only numbers of the field: products of other formats are evaluated, or left out as a whole."""
    b, kind = op.record.operands[1], op.record.results[0].dtype
    plain = op.record.attr("act") == "none" and not op.record.attr("trans_a")
    return plain and b is not None and len(b.shape) == 2 and kind in FLOATS


def holds(field: Field, graph: Graph, end: End, values: dict[str, Value], found: Value) -> bool:
    """Say whether a result is right. values: of one chip, by root. False also where it takes more than a vector to say."""
    if not isinstance(found, Elements):
        return False
    op = end.product
    operands = [values[graph.roots[n]] if n else None for n in op.inputs]
    a, b = operands[:2]
    n = op.record.results[0].shape[-1]
    r = field.random(f"vector of {end.root}", (n,), sides="p").p
    words: Words = found.p
    if end.gate:
        gate = values[graph.roots[end.gate]]
        if not isinstance(gate, Elements):
            return False
        dtype = end.ops[0].record.results[0].dtype
        factor = activation(Scope(field), end.act, gate.reshape(-1, n), {}, dtype).p
        if not _plain(factor) or not (factor & np.uint32(RESIDUE)).all():
            return False
        words = k.binary("mul_p", words.reshape(factor.shape), k.invert(factor, field.p), field.p)
    left, states = k.dots(words.reshape(-1, n), r, field.p)
    shape = op.record.operands[1].shape  # type: ignore[union-attr]
    through = _times(field, b, shape, r, bool(op.record.attr("trans_b")))
    if states & SPECIAL or through is None or not len(through) or not isinstance(a, Elements):
        return False
    right, states = k.dots(a.p.reshape(-1, len(through)), through, field.p)
    total = right.astype(np.int64)
    for name in (*end.added, *op.inputs[2:]):
        x = values[graph.roots[name]] if name else None
        if isinstance(x, Elements):
            words = np.broadcast_to(x.p.reshape(graph.specs[name].shape), op.record.results[0].shape)
            more, also = k.dots(words.reshape(-1, n), r, field.p)
            total, states = total + more, states | also
        elif name:
            return False
    return not states & SPECIAL and bool((total % field.p == left).all())


def _plain(words: Words) -> bool:
    return not (np.bitwise_or.reduce(words.reshape(-1), initial=0) & SPECIAL)


def _times(field: Field, b: Value | Drawn | None, shape: tuple[int, ...], r: Words, turned: bool) -> Words | None:
    """Return b r, for a matrix [n, k] (turned) or [k, n], of which b may be another view; None if some of it has no residue."""
    if isinstance(b, Drawn) and field.is_thin(b.stream):
        thin, _ = field.factors(b.stream)
        first, then = (thin.left.T, thin.right.T) if turned else (thin.right, thin.left)
        inner = products.total(first, products.centred(r, field.p)[:, None], field.p)
        return products.total(then, products.centred(inner, field.p), field.p)[:, 0]
    if isinstance(b, Drawn):
        key = field.key(b.stream)
        if turned:
            return k.drawn_sums(key, 0, r, shape[1], field.p)
        return k.drawn_dots(key, 0, shape[0], r, field.p)
    if not isinstance(b, Elements):
        return None
    words = b.p.reshape(shape)
    made, states = k.dots(words.T if turned else words, r, field.p)
    return None if states & SPECIAL else made
