"""One spelling for what builders and exporters write in several ways, so that equal layers have equal structural keys.

May import: ir, weights by interface, passes.base, passes.effects, passes.lift_contract, passes.lift_match. Must not: change numbers
beyond the rounding of a constant that went through f32.

Axes count from the end, numbers that went through f32 are the decimal they came from, weights of a product are stored
[out, in], a bias belongs to its product, an equation names factors by their role, masks have no leading ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from tx8fast.ir.core import COMMUTATIVE, Block, Op, Value
from tx8fast.ir.equation import bind
from tx8fast.ir.program import IRProgram
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern, rewrite_greedily
from tx8fast.ir.storage import touches_storage
from tx8fast.ir.types import NoneType
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.effects import reads_only_state, states_written_by
from tx8fast.passes.lift_contract import respelled
from tx8fast.passes.lift_match import (
    Constants,
    is_parameter,
    made_by,
    may_replace,
    reshaped,
    scalar,
    scaled,
    sole_user,
    static,
    used_once,
)
from tx8fast.records import dataclass

#: weight-table keys of a weight stored the other way round, and of rows [a, b) of one: "%part/a:b/<key>"
TRANSPOSED_PREFIX, PART_PREFIX = "%transposed/", "%part/"
#: a root taken of a root in f32 is off by no more than this share
_ROOT_ERROR = 5e-7
_NORMS = ("rmsnorm", "layernorm")


def _attribute(op: Op, rw: Rewriter, name: str, value: Any) -> bool:
    if op.attrs[name] == value:
        return False
    op.attrs[name] = value
    rw.touch(op)
    return True


@pattern(*_NORMS, "reduce")
def _axes(op: Op, rw: Rewriter) -> bool:
    rank = len(op.operands[0].shape)
    return _attribute(op, rw, "axes", tuple(sorted(a % rank - rank for a in op.attrs["axes"])))


@pattern("softmax", "topk", "scatter", "gather_elements")
def _axis(op: Op, rw: Rewriter) -> bool:
    rank = len(op.operands[0].shape)
    return _attribute(op, rw, "axis", op.attrs["axis"] % rank - rank)


@pattern(*_NORMS)
def _epsilon(op: Op, rw: Rewriter) -> bool:
    return _attribute(op, rw, "eps", _decimal(op.attrs["eps"]))


@pattern("softmax")
def _scale(op: Op, rw: Rewriter) -> bool:
    """1 / sqrt(n) is what attention multiplies with, in whatever steps an exporter does it."""
    scale = op.attrs["scale"]
    n = round(scale**-2) if 1e-4 < scale < 1 else 0
    root = n**-0.5 if n else 0.0
    return _attribute(op, rw, "scale", root if math.isclose(scale, root, rel_tol=_ROOT_ERROR) else _decimal(scale))


def _decimal(value: float) -> float:
    """The shortest decimal that rounds to the same f32 if `value` is one, else `value`."""
    return float(str(np.float32(value))) if float(np.float32(value)) == value else value


@pattern("add")
def _bias(op: Op, rw: Rewriter) -> bool:
    """A vector added to a product of activations and a matrix."""
    for product, bias in ((op.operands[0], op.operands[1]), (op.operands[1], op.operands[0])):
        gemm = made_by(product, "gemm")
        if gemm is None or sole_user(product) is not op or not static(product, bias, *gemm.operands[:2]):
            continue
        plain = gemm.attrs["act"] == "none" and not any(type(v.type) is not NoneType for v in gemm.operands[2:])
        width = product.shape[-1]
        fits = len(gemm.operands[1].shape) == 2 and math.prod(bias.shape) == width and bias.shape[-1:] == (width,)
        if not plain or not fits or len(bias.shape) > len(product.shape) or not is_parameter(bias):
            continue
        if bias.dtype != product.dtype or product.type is not op.result.type:
            continue
        vector = reshaped(rw, bias, (width,), op)
        attrs = {n: gemm.attrs[n] for n in ("trans_a", "trans_b", "useful_macs")}
        rw.replace_with(op, "gemm", *gemm.operands[:2], vector, **attrs)
        return True
    return False


@pattern("mul", "div", benefit=2)
def _one_factor(op: Op, rw: Rewriter) -> bool:
    """x * c / d by one number; a quotient by a number is a product."""
    outer = scaled(op.result)
    if outer is None or not op.result.dtype.endswith(("f16", "f32")):
        return False
    inner = scaled(outer[0]) if used_once(outer[0]) else None
    if inner is None and op.kind == "mul":
        return False
    x, factor = (outer[0], outer[1]) if inner is None else (inner[0], inner[1] * outer[1])
    own = [1 / outer[1]] if inner is None else [inner[1], outer[1]]
    if x.type is not op.result.type or not 1e-30 < factor < 1e30 or not may_replace(factor, own, x.dtype):
        return False
    if inner is None and math.frexp(factor)[0] != 0.5:
        return False  # only powers of two are the same either way
    rw.replace_with(op, "mul", x, scalar(rw, factor, x.dtype, op))
    return True


@pattern("contract")
def _equation(op: Op, rw: Rewriter) -> bool:
    if not static(*op.operands, op.result):
        return False
    a, b = op.operands[0].shape, op.operands[1].shape
    found = respelled(bind(op.attrs["equation"], (a, b), op.attrs["sizes"], op))
    if found is None or found == (op.attrs["equation"], op.attrs["sizes"]):
        return False
    op.attrs["equation"], op.attrs["sizes"] = found
    rw.touch(op)
    return True


@pattern()
def _earlier_first(op: Op, rw: Rewriter) -> bool:
    """What was computed first is the first operand."""
    if not op.has(COMMUTATIVE) or len(op.operands) != 2 or any(is_parameter(v) for v in op.operands):
        return False
    a, b = (v.op for v in op.operands)
    if a is None or (b is not None and (a is b or a.block is not b.block or a.is_before(b))):
        return False
    first, second = op.operands
    rw.set_operand(op, 0, second)
    rw.set_operand(op, 1, first)
    return True


def _mask(constants: Constants) -> Pattern:
    def apply(op: Op, rw: Rewriter) -> bool:
        """A known mask without effect goes; of others leading ones say nothing."""
        mask = op.operands[1] if len(op.operands) > 1 else None
        if mask is None or type(mask.type) is NoneType or not static(mask) or not is_parameter(mask):
            return False
        product = made_by(op.operands[0], "gemm", "contract")
        causal = bool(op.attrs["visible"]) or (product is not None and product.attrs["useful_macs"] != -1)
        known = None if causal else constants.array(mask)  # large masks are not read without need
        if known is not None and not known.any():
            rw.replace_with(op, "softmax", op.operands[0], **{n: op.attrs[n] for n in ("axis", "scale", "log")})
            return True
        shape = mask.shape
        first = next((i for i, n in enumerate(shape) if n != 1), len(shape) - 1)
        if first <= 0:
            return False
        rw.set_operand(op, 1, reshaped(rw, mask, shape[first:], op))
        return True

    return Pattern("mask", ("tx8be.softmax",), apply)


class Weights:
    """The weights that one kind of use has for itself, and other forms of them."""

    def __init__(self, program: IRProgram) -> None:
        self.table = program.weights
        self.written = states_written_by(program)
        self.reads: dict[str, list[Op]] = {}
        for op in program.module.walk():
            if op.kind == "get_param":
                self.reads.setdefault(op.attrs["key"], []).append(op)

    def only_used(self, v: Value, good: Callable[[Op, int], bool]) -> str | None:
        """Return the key of the weight `v` if `good(user, operand)` holds for all its uses, wherever it is read."""
        read = made_by(v, "get_param")
        if read is None or self.table is None or read.attrs["key"] not in self.table:
            return None
        reads = self.reads.get(read.attrs["key"], [])
        if read not in reads or not self.written.isdisjoint(reads_only_state(read) or ()):
            return None
        return (
            read.attrs["key"]
            if all(good(*use) for r in reads if r.block is not None for use in r.result.uses)
            else None
        )

    def derived(
        self, rw: Rewriter, v: Value, key: str, expr: str, attrs: dict[str, Any], shape: tuple[int, ...]
    ) -> Value:
        """Read another form of the weight `v` where it is read."""
        read, old = v.op, v.op.attrs["key"]  # type: ignore[union-attr]
        if key not in self.table:
            self.table.add_derived(key, expr, attrs, (old,), shape, self.table[old].dtype)
        kind = rw.ctx.tensor(shape, v.dtype)
        made = rw.insert("get_param", before=read, key=key, result_types=[kind])  # type: ignore[arg-type]
        self.reads.setdefault(key, []).append(made.result.op)  # type: ignore[arg-type]
        return made.result


def _stored_out_in(weights: Weights) -> Pattern:
    def apply(op: Op, rw: Rewriter) -> bool:
        """A weight that only products read, each as [in, out], is stored the other way round."""
        v = op.operands[1]
        if op.attrs["trans_b"] or not static(v) or len(v.shape) != 2:
            return False
        key = weights.only_used(v, lambda user, i: user.kind == "gemm" and i == 1 and not user.attrs["trans_b"])
        if key is None:
            return False
        turned = weights.derived(rw, v, TRANSPOSED_PREFIX + key, "transpose", {}, v.shape[::-1])
        for read in weights.reads[key]:
            for user, i in list(read.result.uses) if read.block is not None else ():
                user.attrs["trans_b"] = True
                rw.set_operand(user, i, turned)
        return True

    return Pattern("stored-out-in", ("tx8be.gemm",), apply)


def _taken_apart(weights: Weights) -> Pattern:
    def apply(op: Op, rw: Rewriter) -> bool:
        """A product whose columns go separate ways, as those of query, key and value do, is one product for each."""
        out, w = op.result, op.operands[1]
        bias = op.operands[2] if len(op.operands) > 2 and type(op.operands[2].type) is not NoneType else None
        if not op.attrs["trans_b"] or not static(out, w) or len(w.shape) != 2 or len(out.users) < 2:
            return False
        parts = sorted((_columns(user), k, user) for k, user in enumerate(out.users))
        if any(a == b for (a, b), _, _ in parts) or any(p[0][1] > q[0][0] for p, q in zip(parts, parts[1:])):
            return False
        alone = lambda user, i: user is op  # noqa: E731
        if any(weights.only_used(v, alone) is None for v in (w, bias) if v is not None):
            return False
        for (a, b), _, user in parts:
            given = [op.operands[0], _part(weights, rw, w, a, b)]
            if bias is not None:
                given.append(_part(weights, rw, bias, a, b))
            rw.replace_with(user, "gemm", *given, trans_b=True, trans_a=op.attrs["trans_a"], act=op.attrs["act"])
        return True

    return Pattern("taken-apart", ("tx8be.gemm",), apply)


def _columns(op: Op) -> tuple[int, int]:
    """Return the range of the last dimension that a slice takes of its operand, (0, 0) if it is none of the kind."""
    if op.kind != "slice" or any(s != 1 for s in op.attrs["step"]):
        return 0, 0
    start, size = op.attrs["start"], op.attrs["size"]
    if any(start[:-1]) or tuple(size[:-1]) != op.operands[0].shape[:-1]:
        return 0, 0
    return start[-1], start[-1] + size[-1]


def _part(weights: Weights, rw: Rewriter, v: Value, a: int, b: int) -> Value:
    """Read rows [a, b) of a weight."""
    shape = (b - a, *v.shape[1:])
    key = f"{PART_PREFIX}{a}:{b}/{v.op.attrs['key']}"  # type: ignore[union-attr]
    start = [a, *[0] * (len(shape) - 1)]
    return weights.derived(rw, v, key, "slice", {"start": start}, shape)


SPELLING: tuple[Pattern, ...] = (_axes, _axis, _epsilon, _scale, _bias, _one_factor, _equation, _earlier_first)


def _sink_views(block: Block) -> bool:
    """Put every view, and every norm of a view, directly before what reads it first."""
    moved = False
    for op in reversed(list(block)):
        anchor = op
        for v in reversed(op.operands):
            view = v.op
            if view is None or view is anchor or view.block is not block or not _is_view(view):
                continue
            if not all(user.block is block and not user.is_before(op) for user in view.result.users):
                continue
            if view.next is not anchor:
                view.detach()
                block.insert_before(anchor, view)
                moved = True
            anchor = view
    return moved


def _is_view(op: Op) -> bool:
    """True for views and norms of them that may stand later; one of a buffer may not, whose bytes change on the way."""
    if touches_storage(op):
        return False
    return op.kind == "reshape" or (op.kind in _NORMS and made_by(op.operands[0], "reshape") is not None)


@dataclass(frozen=True)
class CanonicalForm(CompilerPass):
    """Applies `SPELLING`, gives weights their usual form, puts views where they are read."""

    name: ClassVar[str] = "canonical-form"
    limit_bytes: int = 1 << 26

    def run(self, program: IRProgram) -> PassResult:
        weights = Weights(program)
        patterns = (
            *SPELLING,
            _mask(Constants(program, self.limit_bytes)),
            _stored_out_in(weights),
            _taken_apart(weights),
        )
        result = rewrite_greedily(program.ctx, program.module, patterns)
        moved = [_sink_views(b) for f in program.functions if f.regions for b in f.regions[0].blocks]
        return PassResult(result.changed or any(moved), {**result.applied, "dead": result.dead})
