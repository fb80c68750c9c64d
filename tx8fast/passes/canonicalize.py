"""Local simplifications of the tx8be dialect, applied to a fixpoint.

May import: ir, numerics.layout, passes.base. Must not: change numbers beyond the sign of a zero, or grow the graph.
Every rule removes an op, bypasses one, or orders operands, so the set comes to an end.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from tx8fast.errors import VerifyError
from tx8fast.ir.attrs import DenseAttr
from tx8fast.ir.core import COMMUTATIVE, CONSTANT_LIKE, ELEMENTWISE, IDEMPOTENT, Op, Value
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern
from tx8fast.ir.types import TensorType
from tx8fast.numerics.layout import block_size, staggered
from tx8fast.passes.base import PatternPass
from tx8fast.records import dataclass

_SIGNED = {"i4": 4, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
_UNSIGNED = {"u4": 4, "u8": 8, "u16": 16, "u32": 32, "u64": 64}
#: float format -> (significant bits, exponent bits)
_FLOATS = {"bf16": (8, 8), "f16": (11, 5), "tf32": (11, 8), "f32": (24, 8), "f64": (53, 11)}


def is_widening(source: str, target: str) -> bool:
    """True if every value of `source` is exactly representable in `target`."""
    if source == target:
        return True
    if source == "pred":
        return target in _SIGNED or target in _UNSIGNED or target in _FLOATS
    if source in _FLOATS:
        (bits, exponent), (wide, wide_exponent) = _FLOATS[source], _FLOATS.get(target, (0, 0))
        return bits <= wide and exponent <= wide_exponent
    n = _SIGNED.get(source) or _UNSIGNED.get(source)
    if n is None:
        return False
    if target in _FLOATS:
        significant, exponent = _FLOATS[target]
        return n <= significant and n < 1 << (exponent - 1)
    if source in _SIGNED:
        return n < _SIGNED.get(target, 0)
    return n < _SIGNED.get(target, 0) or n < _UNSIGNED.get(target, 0)


def splat(v: Value) -> float | int | bool | None:
    """The one value of all elements of `v`, seen through broadcasts and reshapes of inline constants; else None."""
    op = v.op
    while op is not None and op.kind in ("broadcast", "reshape"):
        op = op.operands[0].op
    if op is None or not op.has(CONSTANT_LIKE):
        return None
    attr = op.attrs.get("value")
    return attr.splat() if type(attr) is DenseAttr else None


def _producer(op: Op, i: int, kind: str) -> Op | None:
    found = op.operands[i].op
    return found if found is not None and found.kind == kind else None


def _static(*values: Value) -> bool:
    return all(isinstance(v.type, TensorType) and v.type.is_static for v in values)


def _shape(v: Value) -> tuple[Any, ...]:
    return v.type.shape or () if isinstance(v.type, TensorType) else ()


# ---------------------------------------------------------------- ops that do nothing


@pattern("transpose", "reshape", "broadcast", "convert", "slice", "pad", "concat", "clamp", benefit=10)
def _identity(op: Op, rw: Rewriter) -> bool:
    """Movement and conversion whose result is its only operand."""
    if len(op.operands) != 1 or op.operands[0].type is not op.result.type:
        return False
    a, kind = op.attrs, op.kind
    if kind == "transpose":
        dims = _shape(op.operands[0])
        if [p for p in a["perm"] if dims[p] != 1] != [i for i, d in enumerate(dims) if d != 1]:
            return False
    elif kind == "slice":
        if any(s != 1 and n > 1 for s, n in zip(a["step"], a["size"])):
            return False
    elif kind == "clamp":
        if not (a["lo"] == -math.inf and a["hi"] == math.inf):
            return False
    rw.replace(op, [op.operands[0]])
    return True


@pattern("add", "sub", "mul", "div", "pow", benefit=8)
def _neutral(op: Op, rw: Rewriter) -> bool:
    """x + 0, x - 0, x * 1, x / 1, x ** 1."""
    neutral = 0 if op.kind in ("add", "sub") else 1
    for i in (1, 0) if op.has(COMMUTATIVE) else (1,):
        x = op.operands[1 - i]
        if x.type is op.result.type and splat(op.operands[i]) == neutral:
            rw.replace(op, [x])
            return True
    return False


@pattern("and", "or", benefit=8)
def _certain(op: Op, rw: Rewriter) -> bool:
    """x and true, x or false."""
    for i in (1, 0):
        x, known = op.operands[1 - i], splat(op.operands[i])
        if x.dtype != "pred" or known is None or bool(known) != (op.kind == "and") or not _static(x, op.result):
            continue
        if x.type is not op.result.type:
            x = rw.insert("broadcast", x, before=op, shape=op.result.shape).result
        rw.replace(op, [x])
        return True
    return False


@pattern("pow")
def _square(op: Op, rw: Rewriter) -> bool:
    x = op.operands[0]
    if x.type is not op.result.type or splat(op.operands[1]) != 2 or "tx8be.square" not in rw.ctx.infos:
        return False
    if x.dtype not in _FLOATS:
        return False
    rw.replace_with(op, "square", x)
    return True


@pattern("select", benefit=8)
def _select(op: Op, rw: Rewriter) -> bool:
    """A condition that is constant, or both branches the same value."""
    p, a, b = op.operands
    known = splat(p)
    chosen = a if a is b else None if known is None else (a if known else b)
    if chosen is None or chosen.type is not op.result.type:
        return False
    rw.replace(op, [chosen])
    return True


@pattern("neg", "not")
def _involution(op: Op, rw: Rewriter) -> bool:
    inner = _producer(op, 0, op.kind)
    if inner is None:
        return False
    rw.replace(op, [inner.operands[0]])
    return True


@pattern()
def _idempotent(op: Op, rw: Rewriter) -> bool:
    """f(f(x)) = f(x)."""
    if not op.has(IDEMPOTENT) or len(op.operands) != 1 or len(op.results) != 1:
        return False
    inner = op.operands[0].op
    if inner is None or inner.info is not op.info or inner.result.type is not op.result.type:
        return False
    if any(inner.attrs.get(n) != op.attrs.get(n) for n in op.info.attrs):
        return False
    rw.replace(op, [inner.result])
    return True


# ---------------------------------------------------------------- chains


@pattern("transpose", benefit=5)
def _transpose_chain(op: Op, rw: Rewriter) -> bool:
    inner = _producer(op, 0, "transpose")
    if inner is None:
        return False
    first = inner.attrs["perm"]
    rw.replace_with(op, "transpose", inner.operands[0], perm=tuple(first[p] for p in op.attrs["perm"]))
    return True


@pattern("transpose", benefit=4)
def _transpose_of_ones(op: Op, rw: Rewriter) -> bool:
    """A transposition that keeps the order of all dimensions other than 1 moves no data."""
    dims = _shape(op.operands[0])
    if not all(type(d) is int and d >= 0 for d in dims):
        return False
    moved = [p for p in op.attrs["perm"] if dims[p] != 1]
    if moved != sorted(moved):
        return False
    rw.replace_with(op, "reshape", op.operands[0], shape=_shape(op.result))
    return True


@pattern("reshape", benefit=5)
def _reshape_chain(op: Op, rw: Rewriter) -> bool:
    inner = _producer(op, 0, "reshape")
    if inner is None or not all(type(d) is int and d >= 0 for d in _shape(op.result)):
        return False
    rw.replace_with(op, "reshape", inner.operands[0], shape=_shape(op.result))
    return True


@pattern("broadcast", benefit=5)
def _broadcast_chain(op: Op, rw: Rewriter) -> bool:
    inner = _producer(op, 0, "broadcast")
    if inner is None:
        return False
    rw.replace_with(op, "broadcast", inner.operands[0], shape=op.attrs["shape"])
    return True


@pattern("convert", benefit=5)
def _convert_chain(op: Op, rw: Rewriter) -> bool:
    """The inner conversion loses nothing, so one conversion (or none) does."""
    inner = _producer(op, 0, "convert")
    if inner is None:
        return False
    x = inner.operands[0]
    if not is_widening(x.dtype, inner.result.dtype):
        return False
    from_float = inner.result.dtype in _FLOATS and x.dtype not in _FLOATS and op.result.dtype not in _FLOATS
    if from_float and not is_widening(x.dtype, op.result.dtype):
        return False  # a float ends at an integer's range, an integer of more bits loses its upper ones
    if x.type is op.result.type:
        rw.replace(op, [x])
    else:
        rw.replace_with(op, "convert", x, dtype=op.attrs["dtype"])
    return True


# ---------------------------------------------------------------- into the user


def _in_parts(x: Value, w: Value) -> bool:
    """True for several matrices whose columns lie across blocks, and the same second operand for all."""
    if not _static(x, w) or len(_shape(w)) != 2:
        return False
    return math.prod(_shape(x)[:-2]) > 1 and staggered(_shape(x)[-1], block_size(x.dtype))


@pattern("gemm", benefit=5)
def _gemm_transpose(op: Op, rw: Rewriter) -> bool:
    """A transposition of the two last dimensions becomes the operand's flag; but for matrices that would lie beside each other in parts of
    blocks, as rows of one product with a weight."""
    changed = False
    for i, flag in ((0, "trans_a"), (1, "trans_b")):
        t = _producer(op, i, "transpose")
        if t is None or not i and _in_parts(t.operands[0], op.operands[1]):
            continue
        perm = t.attrs["perm"]
        n = len(perm)
        if n < 2 or perm != (*range(n - 2), n - 1, n - 2):
            continue
        op.attrs[flag] = not op.attrs[flag]
        rw.set_operand(op, i, t.operands[0])
        changed = True
    return changed


@pattern()
def _broadcast_into_elementwise(op: Op, rw: Rewriter) -> bool:
    """Elementwise ops broadcast their operands themselves, as long as another one gives the shape."""
    if not op.has(ELEMENTWISE) or len(op.operands) < 2 or op.info.infer is None:
        return False
    for i in range(len(op.operands)):
        b = _producer(op, i, "broadcast")
        if b is None:
            continue
        if _inferred(op, {i: b.operands[0]}) == [r.type for r in op.results]:
            rw.set_operand(op, i, b.operands[0])
            return True
    return False


@pattern()
def _elementwise_before_broadcast(op: Op, rw: Rewriter) -> bool:
    """What is made of repeated elements is made once and repeated then."""
    if not op.has(ELEMENTWISE) or op.info.infer is None or len(op.results) != 1:
        return False
    made = [_producer(op, i, "broadcast") for i in range(len(op.operands))]
    if not any(made) or not _static(op.result):
        return False
    narrow = [v if b is None else b.operands[0] for b, v in zip(made, op.operands, strict=True)]
    found = _inferred(op, dict(enumerate(narrow))) if _static(*narrow) else None
    if found is None or math.prod(found[0].shape) >= math.prod(op.result.shape):
        return False
    attrs = {n: op.attrs[n] for n in op.info.attrs if n in op.attrs}
    rw.replace_with(op, "broadcast", rw.insert(op.kind, *narrow, before=op, **attrs).result, shape=op.result.shape)
    return True


def _inferred(op: Op, instead: dict[int, Value]) -> list[Any] | None:
    """Return the types of the results, were the operands others; None if they do not fit."""
    own = list(op.operands)
    for i, v in instead.items():
        op.set_operand(i, v)
    try:
        return list(op.info.infer(op))  # type: ignore[misc]
    except VerifyError:
        return None
    finally:
        for i, v in enumerate(own):
            op.set_operand(i, v)


@pattern()
def _constant_last(op: Op, rw: Rewriter) -> bool:
    if not op.has(COMMUTATIVE) or len(op.operands) != 2:
        return False
    a, b = op.operands
    if _constancy(a) <= _constancy(b):
        return False
    rw.set_operand(op, 0, b)
    rw.set_operand(op, 1, a)
    return True


def _constancy(v: Value) -> int:
    op = v.op
    if op is None:
        return 0
    return 2 if op.has(CONSTANT_LIKE) else 1 if "key" in op.attrs else 0


PATTERNS: tuple[Pattern, ...] = (
    _identity,
    _neutral,
    _square,
    _certain,
    _select,
    _involution,
    _idempotent,
    _transpose_chain,
    _transpose_of_ones,
    _reshape_chain,
    _broadcast_chain,
    _convert_chain,
    _gemm_transpose,
    _broadcast_into_elementwise,
    _elementwise_before_broadcast,
    _constant_last,
)


@dataclass(frozen=True)
class Canonicalize(PatternPass):
    """Applies `PATTERNS` greedily; dead ops met on the way are erased."""

    name: ClassVar[str] = "canonicalize"
    per_function: ClassVar[bool] = True
    rounds: ClassVar[tuple[tuple[Pattern, ...], ...]] = (PATTERNS,)
