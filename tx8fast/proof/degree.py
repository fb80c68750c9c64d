"""How many bits one seed proves of a launch: the degree of the expression whose zeros a wrong program could hide in.

May import: graph_table, proof.graph, proof.evaluate (records only), proof.expressions_mapped, numerics.steps. Must not: know what the launch really computes.

A stored element is a quotient of polynomials in elements that are drawn (operands, hashes, exponentials). A wrong one differs from it
by a quotient whose numerator of degree D is zero at a random place with probability at most D / modulus (Schwartz and Zippel);
a hash or an exponential of an operand that differs is equal with the operand's own degree over the modulus. What the
launch computes instead is taken to have at most twice the graph's degree (docs/proof.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tx8fast.graph_table import OpRecord
from tx8fast.numerics.steps import MOST_STEPS
from tx8fast.proof.evaluate import Slice
from tx8fast.proof.expressions_mapped import step_records
from tx8fast.proof.field import Field
from tx8fast.proof.forms import FLOATS
from tx8fast.proof.graph import Graph
from tx8fast.records import dataclass

#: the launch's own expression is taken to have this many times the graph's degree
FACTOR = 2
#: kinds that multiply two operands and add up
_PRODUCTS = frozenset(
    {
        "mul",
        "gemm",
        "contract",
        "conv",
        "conv_nd",
        "conv_transpose",
        "conv_transpose_nd",
        "rope",
        "swiglu",
        "dequantize",
        "einsum",
    }
)
#: kinds of which only hashes of the operands are left
_HASHED = frozenset(
    "sqrt log sin cos tanh sigmoid abs erf sign tan sinh cosh asin acos atan asinh acosh atanh floor ceil round softplus "
    "leaky_relu gelu gelu_tanh silu hswish hsigmoid mish elu selu celu thresholded_relu prelu clamp pow mod".split()
)
#: kinds whose results are sums of hashes
_MAXIMA = frozenset({"relu", "max", "min", "max_pool", "max_pool_nd"})


@dataclass(frozen=True)
class Degree:
    """above, below: degrees of a quotient's numerator and denominator; apart: how many different denominators the last axis
    holds; nested: the hashes and exponentials inside, as (number of the op, degree of the operand and one), each once however
    often its result is used; exponent: there is an exponential; compared: how many numbers behind one are compared, each of which must
    be found among as many words modulo p alone."""

    above: int = 1
    below: int = 0
    apart: int = 1
    nested: frozenset[tuple[int, int]] = frozenset()
    exponent: bool = False
    compared: int = 0

    @property
    def total(self) -> int:
        """The degree that counts for one comparison; one more, as the end of a product is compared through a random vector."""
        return (1 + FACTOR) * (self.above + self.below) + sum(n for _, n in self.nested) + 1

    def bits(self, field: Field) -> float:
        """Return -log2 of the probability that one seed misses a wrong element."""
        return (
            math.log2(field.q if self.exponent else field.p) - math.log2(self.total) - math.log2(max(1, self.compared))
        )


def _both(parts: list[Degree], product: bool) -> Degree:
    """Return the degree of a product, or of a sum."""
    a = parts[0]
    for b in parts[1:]:
        above = a.above + b.above if product else max(a.above + b.below, b.above + a.below)
        a = Degree(above, a.below + b.below, max(a.apart, b.apart), a.nested | b.nested, a.exponent or b.exponent)
    return a


def _summed(a: Degree) -> Degree:
    """Return the degree of a sum along the last axis: different denominators multiply."""
    more = a.below * (a.apart - 1)
    return Degree(a.above + more, a.below + more, 1, a.nested, a.exponent)


def _hash(number: int, a: Degree, exponent: bool = False) -> Degree:
    """Return the degree of a hash, its inverse, or an exponential, of something: each is drawn itself."""
    return Degree(1, 0, 1, a.nested | {(number, a.above + a.below + 1)}, a.exponent or exponent)


def _of(number: int, record: OpRecord, parts: list[Degree]) -> Degree:
    """Return the degree of the results of op `number`."""
    kind = record.kind.rstrip("_")
    if not parts:
        return Degree()
    if kind == "softmax" or kind == "exp":
        e = _hash(number, _both(parts, False), True)
        return Degree(e.above, 0 if kind == "exp" else 1, 1, e.nested, True)
    if kind in ("rmsnorm", "layernorm"):
        x = parts[0]
        root = _hash(number, _both([x, x], True))
        return _both([x, root, *parts[1:2]], True)
    if kind == "batchnorm_inference":
        x, scale, offset, mean, variance = parts
        return _both([_both([_both([x, mean], False), scale, _hash(number, variance)], True), offset], False)
    if kind in _MAXIMA:
        return _hash(number, _both(parts, False))
    if kind in _HASHED:
        inner = _hash(number, _both(parts, False))
        return Degree(parts[0].above + inner.above, parts[0].below, parts[0].apart, inner.nested, inner.exponent)
    if kind in ("div", "recip", "rsqrt", "softsign"):
        by = parts[-1]
        if kind == "rsqrt":
            return _hash(number, by)
        over = Degree(by.below, by.above, max(by.apart, 1), by.nested, by.exponent)
        return over if kind == "recip" else _both([parts[0], over], True)
    if kind in _PRODUCTS:
        made = _both([_summed(p) for p in parts[:2]], True)
        made = _both([made, *parts[2:]], False)
        heads = _merged(record) if kind == "contract" else 1
        return Degree(made.above, made.below, max(made.apart, heads), made.nested, made.exponent)
    if kind == "map":
        values = list(parts)
        for i, (step, inner) in enumerate(step_records(record)):
            given = [values[o] if type(o) is int else Degree() for o in step.operands]
            values.append(_of(-1 - number * MOST_STEPS - i, inner, given))  # its hashes are its own
        return values[-1]
    if kind == "square":
        return _both([parts[0], parts[0]], True)
    if kind in (
        "add",
        "sub",
        "cumsum",
        "select",
        "concat",
        "scatter",
        "scatter_nd",
        "kv_update",
        "all_reduce",
        "reduce_scatter",
    ):
        return _both(parts, False)
    if kind == "reduce":
        return _summed(parts[0])
    return _both(parts, False) if _compares(record) else parts[0]


def _compares(record: OpRecord) -> bool:
    """Say whether an op makes truth values, or places, of numbers."""
    numbers = any(spec is not None and spec.dtype in FLOATS for spec in record.operands)
    return numbers and record.results[0].dtype not in FLOATS


def _comparisons(record: OpRecord) -> int:
    """Return how often an op compares numbers for an element of its result."""
    inner = (r for _, r in step_records(record)) if record.kind == "map" else (record,)
    return sum(map(_compares, inner))


def _merged(record: OpRecord) -> int:
    """Return how many rows of its own a contraction puts side by side on the last axis: heads."""
    out = record.attr("equation").partition("->")[2].strip()
    last = out.rpartition("(")[2].rstrip(")").split() if out.endswith(")") else []
    sizes = dict(zip(record.attr("sizes")[::2], record.attr("sizes")[1::2], strict=True))
    return math.prod(sizes.get(v, 1) for v in last[:-1])


def degree_of(graph: Graph, part: Slice, given: Mapping[str, int]) -> Degree:
    """Return the largest degree among what the ops of a launch make; given: those of operands (roots) where it is not 1."""
    found = _degrees(graph, part, given)
    behind = (
        math.prod(op.record.results[0].shape) * _comparisons(op.record) for op, d in zip(part.ops, found) if d.exponent
    )
    largest = max(found, default=Degree(), key=lambda d: (d.exponent, d.total))
    return replace(largest, compared=sum(behind))


def power_of(graph: Graph, part: Slice, root: str) -> int:
    """Return the degree, in the elements of one operand alone, of what tells a wrong result or a wrong operand of a hash or an
    exponential from the right one."""
    # so large that no sum of other degrees comes near
    one = 1 << 60
    found = 0
    for d in _degrees(graph, part, {root: one}):
        found = max(found, FACTOR * d.above + d.below, d.above + FACTOR * d.below, *(FACTOR * n for _, n in d.nested))
    return found // one


def _degrees(graph: Graph, part: Slice, given: Mapping[str, int]) -> list[Degree]:
    """Return the degrees of what the ops of a launch make, in order."""
    known = {root: Degree(above=n) for root, n in given.items()}
    found: list[Degree] = []
    for op in part.ops:
        inputs = [known.get(graph.roots[n], Degree()) for n in op.inputs if n]
        made = _of(op.number, op.record, inputs)
        known.update(dict.fromkeys(op.outputs, made))
        found.append(made)
    return found
