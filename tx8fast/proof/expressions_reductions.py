"""Expressions of reductions, norms, softmax, running sums and choices by order.

May import: numpy, graph_table, proof.expression, proof.cells. Must not: know in which order anything is added.

A softmax keeps its sums of exponentials as denominators: what is dropped from the maximum alone cancels in the result, and
is seen there. A choice (top-k, the place of a maximum) follows the order that the seed draws: it proves the choice drawn.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast.graph_table import OpRecord
from tx8fast.proof.cells import HIDDEN, Elements, choose, join
from tx8fast.proof.expression import (
    NotExpressed,
    Operands,
    Scope,
    Value,
    axes_of,
    elements,
    expression,
    given,
    hidden,
    moved,
    need,
)
from tx8fast.proof.recipes import magnitude

#: elements that are worked on at a time
PIECE = 1 << 18
_INTEGERS = {"add": np.sum, "mul": np.prod, "max": np.max, "min": np.min}


@expression("reduce")
def reduce(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """One operation along axes."""
    f, x, kind, keep = scope.field, need(operands, 0), op.attr("op"), op.attr("keepdims")
    axes = axes_of(op.attr("axes"), len(x.shape))
    if isinstance(x, np.ndarray):
        if kind not in _INTEGERS or 0 in x.shape:
            raise NotExpressed(f"reduce with '{kind}' of integers")
        wide = x if kind in ("max", "min") else x.astype(np.int64)
        return [np.asarray(_INTEGERS[kind](wide, axis=axes, keepdims=keep))]
    if kind in ("max", "min"):
        return [(f.reduce_max if kind == "max" else f.reduce_min)(x, axes, keep)]
    if kind == "mul":
        return [_product(scope, x, axes, op.results[0].shape)]
    if kind == "logsumexp":
        most = f.reduce_max(x, axes, True)
        total = f.sum(f.exp(_less_greatest(scope, x, axes)), axes, True)
        return [f.add(f.atom("ln", total), most).reshape(*op.results[0].shape)]
    inner = {"l1": lambda a: magnitude(f, a), "l2": f.square, "sumsq": f.square}.get(kind, lambda a: a)(x)
    if kind == "mean":
        return [f.mean(inner, axes, keep)]
    total = f.sum(inner, axes, keep)
    outer = {"l2": "sqrt", "logsum": "ln"}.get(kind)
    return [total if outer is None else f.atom(outer, total)]


def _product(scope: Scope, x: Elements, axes: tuple[int, ...], shape: tuple[int, ...]) -> Elements:
    rest = [d for d in range(len(x.shape)) if d not in axes]
    flat = x.transpose(*axes, *rest).reshape(math.prod(x.shape[a] for a in axes), *[x.shape[d] for d in rest])
    made = scope.number(1.0).broadcast_to(flat.shape[1:])
    for i in range(flat.shape[0]):
        made = scope.field.mul(made, flat.at(i))
    return made.reshape(*shape)


# --- norms ---------------------------------------------------------------------------------------------------------


def _scaled(scope: Scope, y: Elements, operands: Operands) -> list[Elements]:
    """Multiply by gamma and add beta, where they are given."""
    gamma, beta = given(operands, 1), given(operands, 2)
    if gamma is not None:
        y = scope.field.mul(y, elements(scope, gamma))
    return [y if beta is None else scope.field.add(y, elements(scope, beta))]


@expression("rmsnorm", "layernorm")
def norm(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """x over the root of its mean square plus eps; of a layernorm, x without its mean. Heads normalise by themselves."""
    f, x = scope.field, elements(scope, operands[0])
    shape, heads = x.shape, op.attr("heads")
    if heads > 1:
        x = x.reshape(*shape[:-1], heads, shape[-1] // heads)
    axes = axes_of(op.attr("axes"), len(x.shape))
    if op.kind == "layernorm":
        x = f.sub(x, f.mean(x, axes, True))
    power = f.add(f.mean(f.square(x), axes, True), scope.number(op.attr("eps")))
    return [y.reshape(*shape) for y in _scaled(scope, f.mul(x, f.rsqrt(power)), operands)]


@expression("batchnorm_inference")
def batchnorm(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """(x - mean) / sqrt(variance + eps) scale + offset, per channel."""
    f = scope.field
    x, scale, offset, mean, variance = (elements(scope, v) for v in operands)
    factor = f.mul(scale, f.rsqrt(f.add(variance, scope.number(op.attr("eps")))))
    return [f.add(f.mul(f.sub(x, mean), factor), offset)]


@expression("softmax")
def softmax(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """exp(z - max z) over its sum, z = scale x + mask; a mask of truth values keeps where it holds. `visible` only repeats
    what the mask says."""
    x, mask = elements(scope, operands[0]), given(operands, 1)
    axis = op.attr("axis") % len(x.shape)
    if x.p.size <= PIECE or axis != len(x.shape) - 1 or op.attr("log"):
        return [_softmax(scope, op, x, mask, axis)]
    # some rows at a time: fresh memory for all that lies between would take longer than the arithmetic
    out = np.empty(x.shape, np.uint32)
    rows = max(1, PIECE // x.shape[-1])
    if mask is not None:
        mask = moved(mask, lambda a: np.broadcast_to(a, x.shape))
    for lead in np.ndindex(x.shape[:-2]):
        for at in range(0, x.shape[-2], rows):
            some = (*lead, slice(at, at + rows))
            own = None if mask is None else moved(mask, lambda a, some=some: a[some])
            made = _softmax(scope, op, x.at(some), own, 1)
            out[some] = made.p
    return [Elements(out, None)]


def _softmax(scope: Scope, op: OpRecord, x: Elements, mask: Value | None, axis: int) -> Elements:
    f = scope.field
    z = x if op.attr("scale") == 1.0 else f.mul(x, scope.number(op.attr("scale")))
    if isinstance(mask, np.ndarray) and mask.dtype == bool:
        z = choose(np.broadcast_to(mask, z.shape), z, hidden(z.shape))
    elif mask is not None:
        z = f.add(z, elements(scope, mask))
    z = _less_greatest(scope, z, axis)
    e = f.exp(z)
    total = f.sum(e, axis, True)
    if op.attr("log"):
        return f.sub(z, f.atom("ln", total))
    return f.mul(e, scope.inverse(total))


def _less_greatest(scope: Scope, z: Elements, axis: int | tuple[int, ...]) -> Elements:
    """Return z less the maximum; undefined in rows that see nothing, which give equal shares, or NaN, as what hides has it."""
    greatest = scope.field.reduce_max(z, axis, True)
    none = greatest.p & np.uint32(HIDDEN) != 0
    if none.any():
        scope.unseen = True
        greatest = choose(none, scope.field.undefined(()), greatest)
    return scope.field.sub(z, greatest)


# --- running sums --------------------------------------------------------------------------------------------------


@expression("cumsum", "cumprod")
def cumulative(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """Running sums or products along an axis, with or without the own element, from either end."""
    x, product = need(operands, 0), op.kind == "cumprod"
    if not x.shape:
        return [moved(x, lambda a: a) if not op.attr("exclusive") else moved(x, np.zeros_like)]
    axis, n = op.attr("axis") % len(x.shape), x.shape[op.attr("axis")]
    order = range(n - 1, -1, -1) if op.attr("reverse") else range(n)
    lead = (slice(None),) * axis
    if isinstance(x, np.ndarray):
        combine, made = (np.multiply if product else np.add), np.full(np.delete(x.shape, axis), int(product), x.dtype)
    else:
        combine = scope.field.mul if product else scope.field.add
        made = scope.number(float(product)).broadcast_to(tuple(np.delete(x.shape, axis)))
    parts: list = [None] * n
    for i in order:
        after = combine(made, moved(x, lambda a, i=i: a[(*lead, i)]))  # type: ignore[arg-type]
        parts[i] = made if op.attr("exclusive") else after
        made = after
    if isinstance(x, np.ndarray):
        return [np.stack(parts, axis)]
    return [join(parts, axis, stack=True)] if parts else [x]


# --- choices by order ----------------------------------------------------------------------------------------------


def _keys(scope: Scope, x: Value) -> np.ndarray:
    """Return integers in the order of the elements."""
    return scope.field.order(x) if isinstance(x, Elements) else x.astype(np.int64)


@expression("arg_reduce")
def arg_reduce(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """The place of the extreme along an axis; of equal ones the first, or the last.

    No two numbers that are drawn are equal: whether a later one wins then is noted as what neighbours are compared by."""
    x = need(operands, 0)
    keys = _keys(scope, x)
    axis = op.attr("axis") % keys.ndim
    if isinstance(x, Elements):
        before, after = (
            x.map(lambda a, s=s: a[(slice(None),) * axis + (s,)]) for s in (slice(None, -1), slice(1, None))
        )
        wins = "e" if op.attr("select_last") else "t"
        scope.note(f"{'l' if op.attr('op') == 'min' else 'g'}{wins}", after, before)
    keys = -keys if op.attr("op") == "min" else keys
    if op.attr("select_last"):
        at = keys.shape[axis] - 1 - np.argmax(np.flip(keys, axis), axis)
    else:
        at = np.argmax(keys, axis)
    return [np.asarray(np.expand_dims(at, axis) if op.attr("keepdims") else at)]


@expression("topk")
def topk(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """The first k along an axis in falling (rising) order and their places; of equal ones the lower place first."""
    x = need(operands, 0)
    keys = _keys(scope, x)
    axis = op.attr("axis") % keys.ndim
    at = np.argsort(-keys if op.attr("largest") else keys, axis=axis, kind="stable")
    at = np.take(at, np.arange(op.attr("k")), axis)
    values = moved(x, lambda a: np.take_along_axis(a, at, axis))
    return [values, at]
