"""Handlers of reductions: reduce, arg-reductions, windows (pooling, cumulative sums), sort, top-k.

May import: frontend.stablehlo.node. Must not: know lowering.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tx8fast.frontend.common import Tensor
from tx8fast.frontend.stablehlo.node import Handler, Node
from tx8fast.frontend.stablehlo.view import Val, whole
from tx8fast.weights import np_dtype

#: reducing op -> (our reduction, element-wise kind); truth values use or / and
_OPS = {"add": ("add", "add"), "maximum": ("max", "max"), "minimum": ("min", "min"), "multiply": ("mul", "mul")}
_LOGIC = {"and": "min", "minimum": "min", "multiply": "min", "or": "max", "maximum": "max", "add": "max"}
#: windows put together from slices have at most this many places
MAX_PLACES = 256


def is_neutral(name: str, value: float | bool | int | None, dtype: str) -> bool:
    """True if a reduction that starts from `value` is one that starts from nothing."""
    if value is None:
        return False
    if name in ("add", "or"):
        return not value
    if name in ("multiply", "and"):
        return value == 1 or (name == "and" and dtype != "pred" and int(value) == -1)
    low = name == "maximum"
    if "f" in dtype:
        return bool(np.isneginf(value) if low else np.isposinf(value))
    if dtype == "pred":
        return bool(value) != low
    info = np.iinfo({"i": "int", "u": "uint"}[dtype[0]] + dtype[1:])
    return int(value) == (info.min if low else info.max)


def _reduce(n: Node):
    half = len(n) // 2
    if half == 2:
        found = _arg_reduce(n)
        if found is not None:
            return found
    if half != 1:
        raise n.unsupported(
            "a reduction of several operands together is supported for the place of a maximum or minimum only"
        )
    x, start = n[0], n[1]
    name = n.combiner()
    axes = n.ints("dimensions")
    logic = x.dtype == "pred"
    op = _LOGIC.get(name or "") if logic else _OPS.get(name or "", ("",))[0]
    if not op:
        raise n.unsupported(
            f"a reduction by '{name or 'several ops'}' is not supported, only {', '.join(_OPS)}, and, or"
        )
    out = reduced(n, x, op, axes)
    if is_neutral(name or "", start.splat, x.dtype):
        return out
    kind = {"min": "and", "max": "or"}[op] if logic else _OPS[name or ""][1]
    return n.v.elementwise(kind, out, n.v.spread(start, [], out.shape))


def reduced(n: Node, x: Val, op: str, axes: list[int]) -> Val:
    """Reduce over `axes`; the result is a view that drops them."""
    shape = tuple(d for i, d in enumerate(x.shape) if i not in axes)
    if not axes:
        return x
    if all(x.shape[a] == 1 for a in axes):
        return n.v.viewed(x, shape)
    t = n.v.full(x)
    if 0 in t.shape:
        raise n.unsupported("a reduction of an empty tensor is not supported")
    if x.dtype == "pred":
        t = n.v.cast(t, "u8")
    kept = n.op_("reduce", t, op=op, axes=tuple(axes), keepdims=True)
    return n.v.converted(Val(shape, kept, tuple(i for i in range(x.rank) if i not in axes)), x.dtype)


def _sources(n: Node, pairs: list[tuple]) -> dict[Any, tuple[int, int]]:
    """(pair, side) of every value in the region that orders as an argument of `pairs` does."""
    origin = {a: (i, s) for i, pair in enumerate(pairs) for s, a in enumerate(pair)}
    # of floats: a select turns the bits of negative numbers, then they order as the floats do
    bits: dict[Any, tuple[int, int]] = {}
    for o in n.body().operations:
        o = o.operation
        known = {place for v in o.operands if (place := origin.get(v) or bits.get(v)) is not None}
        if len(known) != 1:
            continue
        place, made = known.pop(), o.results[0]
        if o.name == "stablehlo.select":  # the same value, with its NaNs or its zeros put in order
            origin[made] = place
        elif o.name == "stablehlo.bitcast_convert":
            bits[made] = place
        elif o.name == "stablehlo.convert":
            (_, old), (_, new) = (n.importer.types(v.type) for v in (o.operands[0], made))
            if np.can_cast(np_dtype(old), np_dtype(new), "safe"):
                origin[made] = place
    return origin


def _ordering(n: Node, o: Any, origin: dict[Any, tuple[int, int]]) -> tuple[int, str] | None:
    """(pair, "max", "min" or "eq") if `o` compares both sides of one pair."""
    if o is None or o.name != "stablehlo.compare" or any(v not in origin for v in o.operands):
        return None
    (i, side), (j, other) = (origin[v] for v in o.operands)
    way = n.importer.direction(o)
    if i != j or side == other or way == "NE":
        return None
    return i, "eq" if way == "EQ" else "max" if (way[0] == "G") == (side == 0) else "min"


def _comparison(n: Node, pair: tuple) -> str | None:
    """ "max" or "min": the direction of the first ordering of two arguments of the region, by whatever way."""
    origin = _sources(n, [pair])
    found = (_ordering(n, o.operation, origin) for o in n.body().operations)
    return next((way for _, way in (f for f in found if f is not None) if way != "eq"), None)


def _arg_reduce(n: Node):
    """The maximum or minimum and its place: the second operand counts along the reduced axis."""
    axes = n.ints("dimensions")
    if len(axes) != 1 or not _counts(n[1], axes[0]):
        return None
    args = list(n.body().arguments)
    way = _comparison(n, (args[0], args[2]))
    if way is None:
        return None
    if not is_neutral({"max": "maximum", "min": "minimum"}[way], n[2].splat, n[0].dtype) or not _takes_first(
        n, (args[1], args[3])
    ):
        return None
    x, axis = n.full(0), axes[0]
    place = n.op_("arg_reduce", x, op=way, axis=axis, keepdims=True)
    value = reduced(n, n[0], way, axes)
    dims = tuple(i for i in range(x.rank) if i != axis)
    return [value, n.v.converted(Val(value.shape, place, dims), n.result_type(1)[1])]


def _takes_first(n: Node, pair: tuple) -> bool:
    """True unless the region takes the last one of equal places."""
    latest = any(
        o.operation.name == "stablehlo.maximum" and set(o.operation.operands) <= {*pair} for o in n.body().operations
    )
    return not latest and _comparison(n, pair) != "max"


def _counts(v: Val, axis: int) -> bool:
    """True if `v` is 0, 1, 2 ... along `axis` and constant along the others."""
    a = v.core.array
    if (
        a is None
        or a.size != v.shape[axis]
        or any(d >= 0 and v.shape[i] != 1 for i, d in enumerate(v.dims) if i != axis)
    ):
        return False
    return bool((a.reshape(-1) == np.arange(a.size)).all())


# ---------------------------------------------------------------- windows


def _reduce_window(n: Node) -> Tensor | Val:
    if len(n) != 2:
        raise n.unsupported("a window reduction of several operands together is not supported")
    x, name = n.full(0), n.combiner() or ""
    rank = x.rank
    size, stride = n.ints("window_dimensions"), n.ints("window_strides", [1] * rank)
    dilation, pads = n.ints("window_dilations", [1] * rank), n.pairs("padding", rank)
    if any(d != 1 for d in n.ints("base_dilations", [1] * rank)):
        raise n.unsupported("base dilation (the gradient of a strided window) is not supported")
    if name not in _OPS or x.dtype == "pred":
        raise n.unsupported(f"a window reduction by '{name or 'several ops'}' is not supported, only {', '.join(_OPS)}")
    if not is_neutral(name, n[1].splat, x.dtype):
        raise n.unsupported(f"a window reduction by {name} must start from its neutral value")
    if name == "add" and (axis := _running(x.shape, size, stride, dilation, pads)) is not None:
        return n.op_("cumsum", x, axis=axis[0], reverse=axis[1])
    used = [d for d in range(rank) if (size[d], stride[d]) != (1, 1) or pads[d] != (0, 0)]
    negative = any(p < 0 for pair in pads for p in pair)
    if name in ("add", "maximum") and len(used) <= 2 and rank - len(used) >= 1 and x.is_float and not negative:
        return _pool(n, x, name, used, size, stride, dilation, pads)
    return _by_slices(n, x, name, size, stride, dilation, pads)


def _running(shape, size, stride, dilation, pads) -> tuple[int, bool] | None:
    """(axis, reverse) if the window is everything up to here."""
    used = [d for d in range(len(shape)) if size[d] != 1 or pads[d] != (0, 0)]
    if len(used) != 1 or any(s != 1 for s in (*stride, *dilation)):
        return None
    d = used[0]
    if size[d] != shape[d] or pads[d] not in ((size[d] - 1, 0), (0, size[d] - 1)):
        return None
    return d, pads[d][0] == 0


def _pool(n: Node, x: Tensor, name: str, used: list[int], size, stride, dilation, pads) -> Tensor:
    """Two dimensions slide as height and width; of the others the last is the channel, the rest the batch."""
    rest = [d for d in range(x.rank) if d not in used]
    while len(used) < 2:
        used = [min(rest[:-1], default=-1), *used] if len(rest) > 1 and rest[0] > 0 else [-1, *used]
        rest = [d for d in rest if d not in used]
    order = [*rest[:-1], *[d for d in used if d >= 0], rest[-1]]
    moved = n.v.transpose(x, order)
    plane = [1 if d < 0 else x.shape[d] for d in used]
    flat = n.v.reshape(moved, (math.prod(x.shape[d] for d in rest[:-1]), *plane, x.shape[rest[-1]]))

    def pick(values, default):
        return tuple(default if d < 0 else values[d] for d in used)

    window = {"kernel": pick(size, 1), "stride": pick(stride, 1), "dilation": pick(dilation, 1)}
    window["pad_lo"], window["pad_hi"] = pick([a for a, _ in pads], 0), pick([b for _, b in pads], 0)
    if name == "maximum":
        out = n.op_("max_pool", flat, **window)
    else:
        out = n.op_("avg_pool", flat, **window, count_pad=True)
        out = n.op_("mul", out, n.const(float(math.prod(window["kernel"])), x.dtype))
    return n.v.transpose(n.v.reshape(out, [n.shape[d] for d in order]), [order.index(d) for d in range(x.rank)])


def _by_slices(n: Node, x: Tensor, name: str, size, stride, dilation, pads) -> Tensor:
    """Combine one strided slice per place of the window."""
    from tx8fast.frontend.stablehlo.shape import edged

    if math.prod(size) > MAX_PLACES:
        raise n.unsupported(
            f"a window of {math.prod(size)} places reduced by {name} is not supported, at most {MAX_PLACES}"
        )
    fill = n[1].splat
    if any(p for pair in pads for p in pair):
        x = edged(n, x, [a for a, _ in pads], [b for _, b in pads], float(fill))  # type: ignore[arg-type]
    out = None
    for place in np.ndindex(*size):
        part = n.v.slice(x, [p * d for p, d in zip(place, dilation)], n.shape, stride)
        out = part if out is None else n.op_(_OPS[name][1], out, part)
    return out  # type: ignore[return-value]


# ---------------------------------------------------------------- order


def _keys(n: Node, value: Any, origin: dict[Any, tuple[int, int]]) -> list[tuple[int, str]] | None:
    """(operand, "max" or "min") of each key by which `value` says that the first side precedes: a comparison, or one where equal
    values are told apart by further keys."""
    made = getattr(value.owner, "operation", None)  # None: an argument
    found = _ordering(n, made, origin)
    if found is not None:
        return None if found[1] == "eq" else [found]
    operands = list(made.operands) if made is not None else []
    if made is not None and made.name == "stablehlo.select":  # equal ? further : first
        equal, further, first = operands
    elif made is not None and made.name == "stablehlo.or":  # first or (equal and further)
        both = next((v for v in operands if getattr(v.owner, "name", "") == "stablehlo.and"), None)
        if both is None:
            return None
        first = operands[1] if operands[0] == both else operands[0]
        inner = list(both.owner.operands)
        tells = [v for v in inner if _equal(n, v, origin) is not None]
        if not tells:
            return None
        equal = tells[0]
        further = inner[1] if inner[0] == equal else inner[0]
    else:
        return None
    head, rest = _keys(n, first, origin), _keys(n, further, origin)
    if head is None or rest is None or len(head) != 1 or _equal(n, equal, origin) != head[0][0]:
        return None
    return head + rest


def _equal(n: Node, value: Any, origin: dict[Any, tuple[int, int]]) -> int | None:
    """The operand whose two sides `value` says are equal, or None."""
    found = _ordering(n, getattr(value.owner, "operation", None), origin)
    return found[0] if found is not None and found[1] == "eq" else None


def _sort(n: Node):
    """Stable sorts by one key after the other, the last one first."""
    axis = n.int("dimension")
    args, last = list(n.body().arguments), list(n.body().operations)[-1].operation
    keys = _keys(n, last.operands[0], _sources(n, list(zip(args[::2], args[1::2]))))
    if keys is None:
        raise n.unsupported("a sort is supported by the order of one operand, or of several one after the other, only")
    out = list(n.vals)
    for i, way in reversed(keys):
        x = n.v.full(out[i])
        values, places = _top(n, x, x.shape[axis], axis, way == "max")
        for j, v in enumerate(out):
            if j == i:
                made = values
            elif _counts(v, axis):
                made = n.v.cast(places, v.dtype)
            else:
                made = n.op_("gather_elements", n.v.full(v), places, axis=axis)
            out[j] = whole(made)
    return out


def _top(n: Node, x: Tensor, k: int, axis: int, largest: bool) -> list[Tensor]:
    return n.importer.emitter.ops("topk", x, k=k, axis=axis, largest=largest)


def _top_k(n: Node):
    x = n.full(0)
    values, places = _top(n, x, n.int("k"), x.rank - 1, True)
    return [values, n.v.cast(places, n.result_type(1)[1])]


HANDLERS: dict[str, Handler] = {
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.sort": _sort,
    "chlo.top_k": _top_k,
}
