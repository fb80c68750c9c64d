"""Declarations of op kinds: the `OpDef` record, registration, inference helpers, fact queries.

May import: ir.core, ir.types, graph_table, errors; numerics lazily. Must not: create ops.

A family file lists its `OpDef`s in a tuple `OPS`; `ir/dialect.py` registers every family with a
context. `OpDef.infer(op)` returns one `(shape, dtype)` pair (or a ready `Type`) per result and
raises `VerifyError` through `fail`; registration turns the pairs into interned types.
`OpDef.rule_of` builds the factor rule from plain data: `f(ins, outs, attrs) -> Rule`, where `ins`
holds one shape per operand (None: absent) and `outs` one shape per result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from typing import Any, Protocol

from tx8fast.errors import InternalError, VerifyError
from tx8fast.graph_table import Rule
from tx8fast.ir.core import COMPUTE, INPLACE, REAL, Context, Op, OpInfo
from tx8fast.ir.types import TensorType, Type
from tx8fast.records import dataclass

ALL_ONES = (1 << 64) - 1
#: float formats that the vector and matrix engines take
CT_FLOATS = frozenset({"bf16", "f16", "f32"})
INT_DTYPES = frozenset({"i4", "u4", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"})
ALIGN_MODES = ("align", "nalign", "both")
ENGINES = ("ne", "ct", "tdma", "dma", "dte", "kcore", "none")
#: most channels the reduction instruction takes (TX8 hardware manual 10.1)
MAX_REDUCED = 16384
#: of a row that is normalised in scratchpad, several f32 copies of it at once (a MiB of 3), reduced in pieces
MAX_ROW = 1 << 16
#: attributes every compute op carries
LAYOUT_ATTRS: dict[str, tuple[Any, Any]] = {"layout_str": (str, "Unknown"), "mem_layout": (str, "")}

Shape = tuple[Any, ...]
Shapes = tuple["Shape | None", ...]
InferFn = Callable[[Op], Sequence[Any]]
RuleFn = Callable[[Shapes, Shapes, dict[str, Any]], "Rule | None"]


@dataclass(frozen=True, eq=False)
class OpDef:
    """What is known about one op kind. `ins`: "x?" optional at the tail, "x*" variadic and alone at the tail.

    `engine` and `align` may be functions of the op; ask `engine_of(op)` and `align_of(op)`, which
    also look at element types. Bit i of `need_load` / `need_store`: operand / result i goes through SPM.
    `inplace`: operand whose storage result 0 may take, or -1. `routine`: reference routine, "" = none.
    `masks(rule) -> (shard, split)`: factors the library lets us cut in space and in time (bit sets).
    """

    name: str
    ins: tuple[str, ...]
    outs: tuple[str, ...] = ("y",)
    attrs: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    traits: int = COMPUTE
    infer: InferFn | None = None
    rule_of: RuleFn | None = None
    engine: str | Callable[[Op], str] = "ct"
    align: str | Callable[[Op], str] = "both"
    reads_dense: bool = False  # its kernel, although "align", takes dense rows too, which the transfer puts into blocks
    need_load: int = ALL_ONES
    need_store: int = ALL_ONES
    inplace: int = -1
    need_preset: bool = False
    routine: str | None = None
    align_cx: bool = True
    masks: Callable[[Rule], tuple[int, int]] | None = None
    places: Callable[[Op], Iterable[int]] | None = (
        None  # dimensions along which it matters where an element is: a part needs to know which
    )
    effects: Callable[[Op], list[tuple[str, Any]] | None] | None = None
    interfaces: dict[str, dict[str, Callable]] = field(default_factory=dict)
    since: tuple[int, int] = (1, 0)
    doc: str = ""

    def __post_init__(self) -> None:
        if self.routine is None:
            object.__setattr__(self, "routine", self.name if self.traits & REAL else "")
        for i, n in enumerate(self.ins[:-1]):
            if n.endswith("*") or (n.endswith("?") and not self.ins[i + 1].endswith("?")):
                raise InternalError(f"{self.name}: operand '{n}' must stand at the tail")
        if isinstance(self.engine, str) and self.engine not in ENGINES:
            raise InternalError(f"{self.name}: unknown engine '{self.engine}'")
        if isinstance(self.align, str) and self.align not in ALIGN_MODES:
            raise InternalError(f"{self.name}: unknown align mode '{self.align}'")

    def rule(self, op: Op) -> Rule | None:
        """Return the factor rule of this op instance, or None (no rule, or a shape is not static)."""
        return None if self.rule_of is None else rule_for(op)


def in_place(d: OpDef) -> OpDef:
    """Return the variant of `d` that overwrites operand 0: `d_`, with its operands, results and attributes."""
    return replace(d, name=d.name + "_", traits=INPLACE | REAL, inplace=0, since=(2, 0))


# ---------------------------------------------------------------- registration


def register(ctx: Context, defs: Iterable[OpDef]) -> None:
    """Register `defs` with `ctx`; codes continue the dense numbering."""
    from tx8fast.ir.interfaces import check_interfaces

    for d in defs:
        attrs = {**d.attrs, **LAYOUT_ATTRS} if d.traits & REAL else dict(d.attrs)
        check_interfaces(d)
        impl = {(i, m): f for i, methods in d.interfaces.items() for m, f in methods.items()}
        ctx.register(
            OpInfo(
                "tx8be." + d.name,
                len(ctx.infos),
                d.ins,
                d.outs,
                attrs,
                d.traits,
                _typed_infer(ctx, d),
                d,
                d.since,
                impl,
            )
        )


def _typed_infer(ctx: Context, d: OpDef) -> Callable[[Op], list[Type]] | None:
    if d.infer is None:
        return None
    infer = d.infer
    tensor = ctx.types.tensor

    def typed(op: Op) -> list[Type]:
        check_operands(op)
        kind = "vtensor"  # results are of the operands' kind
        if op.operands and type(op.operands[0].type) is TensorType:
            kind = op.operands[0].type.kind
        return [r if isinstance(r, Type) else tensor(r[0], r[1], kind) for r in infer(op)]

    return typed


def check_operands(op: Op) -> None:
    """Raise VerifyError if the operand count does not fit the declaration."""
    ins, n = op.info.ins, len(op.operands)
    variadic = bool(ins) and ins[-1].endswith("*")
    low = sum(1 for i in ins if not i.endswith(("?", "*")))
    if n < low or (n > len(ins) and not variadic):
        want = f"at least {low}" if variadic else (str(low) if low == len(ins) else f"{low} to {len(ins)}")
        raise VerifyError(f"{where(op)}: found {n} operands, required {want} ({', '.join(ins) or 'none'})")


# ---------------------------------------------------------------- helpers of inference functions


class Ranked(Protocol):
    """A tensor type whose shape is known to be there."""

    shape: Shape
    dtype: str
    kind: str


def where(op: Op) -> str:
    return f"{op.name} '{op.loc}'" if op.loc else op.name


def operand_name(op: Op, i: int) -> str:
    ins = op.info.ins
    if i < len(ins) and not ins[i].endswith("*"):
        return ins[i].rstrip("?")
    return f"{ins[-1].rstrip('*')}[{i - len(ins) + 1}]" if ins else str(i)


def fail(op: Op, i: int | str, found: object, required: object) -> VerifyError:
    """Return the error for operand `i` (index) or for an attribute (name)."""
    what = f"operand '{operand_name(op, i)}'" if isinstance(i, int) else f"attribute '{i}'"
    return VerifyError(f"{where(op)}: {what}: found {found}, required {required}")


def tensor(op: Op, i: int, rank: int | None = None, min_rank: int = 0, dtypes: Iterable[str] | None = None) -> Ranked:
    """Return operand `i`'s ranked tensor type after checking rank and element type."""
    t = op.operands[i].type
    if not isinstance(t, TensorType):
        raise fail(op, i, t, "a tensor")
    if t.shape is None:
        raise fail(op, i, "an unranked tensor", "a ranked tensor")
    n = len(t.shape)
    if rank is not None and n != rank:
        raise fail(op, i, f"rank {n} (shape {list(t.shape)})", f"rank {rank}")
    if n < min_rank:
        raise fail(op, i, f"rank {n} (shape {list(t.shape)})", f"rank {min_rank} or more")
    if dtypes is not None and t.dtype not in dtypes:
        raise fail(op, i, f"element type {t.dtype}", f"one of {', '.join(sorted(dtypes))}")
    return t  # type: ignore[return-value]


def optional(op: Op, i: int) -> Ranked | None:
    """Return operand `i`'s tensor type, or None if it is absent."""
    if i >= len(op.operands) or not isinstance(op.operands[i].type, TensorType):
        return None
    return tensor(op, i)


def same_dtype(op: Op, i: int, dtype: str) -> None:
    found = op.operands[i].type.dtype  # type: ignore[attr-defined]
    if found != dtype:
        raise fail(op, i, f"element type {found}", f"{dtype} as operand '{operand_name(op, 0)}'")


def norm_axis(op: Op, attr: str, axis: int, rank: int) -> int:
    """Return `axis` counted from 0. Raises VerifyError outside [-rank, rank)."""
    if not -rank <= axis < rank:
        raise fail(op, attr, axis, f"a value in [{-rank}, {rank})")
    return axis % rank


def is_num(*dims: Any) -> bool:
    return all(type(d) is int and d >= 0 for d in dims)


def broadcast_dims(op: Op, i: int, a: Shape, b: Shape) -> Shape:
    """Return the broadcast of shapes `a` and `b` (numpy rule); `b` is operand `i`'s. Unknown dims yield to numbers."""
    if a == b:
        return a
    if len(a) < len(b):
        a = (1,) * (len(b) - len(a)) + a
    elif len(b) < len(a):
        b = (1,) * (len(a) - len(b)) + b
    out = []
    for x, y in zip(a, b):
        if x == y or y == 1:
            out.append(x)
        elif x == 1:
            out.append(y)
        elif is_num(x, y):
            raise fail(op, i, f"shape {list(b)}", f"a shape that broadcasts with {list(a)}")
        else:
            out.append(x if is_num(x) else y if is_num(y) else -1)
    return tuple(out)


def broadcast_into(op: Op, i: int, shape: Shape) -> None:
    """Check that operand `i` broadcasts to `shape` without growing it."""
    s = tensor(op, i).shape or ()
    wide = (1,) * (len(shape) - len(s)) + s
    if len(s) > len(shape) or any(is_num(x, y) and x not in (1, y) for x, y in zip(wide, shape)):
        raise fail(op, i, f"shape {list(s)}", f"a shape that broadcasts to {list(shape)}")


def match(op: Op, i: int, what: str, found: Any, required: Any) -> None:
    """Check that two dimensions agree; unknown and symbolic ones are not compared."""
    if is_num(found, required) and found != required:
        raise fail(
            op,
            i,
            f"{what} {found} in shape {list(tensor(op, i).shape or ())}",
            f"{what} {required}",
        )


def pair_attr(op: Op, name: str, rank: int, low: int | None = None, high: int | None = None) -> tuple[int, ...]:
    """Return an integer tuple attribute of length `rank` whose entries are >= `low` and <= `high`."""
    v = op.attrs[name]
    if len(v) != rank or any(
        type(k) is not int or (low is not None and k < low) or (high is not None and k > high) for k in v
    ):
        bounds = "" if low is None else f" >= {low}" if high is None else f" from {low} to {high}"
        raise fail(op, name, v, f"{rank} integers{bounds}")
    return v


# ---------------------------------------------------------------- facts of an op

_RULES: dict[tuple[Any, ...], Rule | None] = {}
_NOT_IN_KEY = frozenset({"layout_str", "mem_layout", "useful_macs", "eps", "value", "key"})


def rule_for(op: Op) -> Rule | None:
    """Return the op's factor rule; pure in (kind, attributes, shapes) and remembered by them."""
    d: OpDef = op.info.decl
    if d is None or d.rule_of is None:
        return None
    ins = tuple([v.type.shape if type(v.type) is TensorType else None for v in op.operands])  # type: ignore[attr-defined]
    outs = tuple([v.type.shape if type(v.type) is TensorType else None for v in op.results])  # type: ignore[attr-defined]
    key = (op.info.name, ins, outs, *[op.attrs[n] for n in d.attrs if n not in _NOT_IN_KEY])
    try:
        return _RULES[key]
    except KeyError:
        pass
    if all(s is None or is_num(*s) for s in ins) and all(s is not None and is_num(*s) for s in outs):
        rule = d.rule_of(ins, outs, op.attrs)
    else:
        rule = None
    if len(_RULES) > 50_000:  # a bound, not a policy: a rule is cheap to build again
        _RULES.clear()
    _RULES[key] = rule
    return rule


def _data_dtypes(op: Op) -> Iterable[str]:
    """Element types an engine must compute on: not the mask of a select, not the verdict of a comparison."""
    values = op.operands
    kind = op.kind
    if kind == "select":
        values = values[1:]
    if kind not in ("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf"):
        values = [*values, *op.results]
    return [v.type.dtype for v in values if isinstance(v.type, TensorType)]


def engine_of(op: Op) -> str:
    """Return the engine this op instance runs on: the kind's, or "kcore" for element types the engines lack."""
    d: OpDef = op.info.decl
    engine = d.engine if isinstance(d.engine, str) else d.engine(op)
    if engine in ("ct", "ne") and not CT_FLOATS.issuperset(_data_dtypes(op)):
        return "kcore"
    return engine


def align_of(op: Op) -> str:
    """Return "align" (channel-blocked operands), "nalign" (dense) or "both" for this op instance."""
    if engine_of(op) == "kcore":
        return "nalign"
    a = op.info.decl.align
    return a if isinstance(a, str) else a(op)


def on_rows(op: Op, axes: Iterable[int], most: int) -> bool:
    """True if `axes` is operand 0's last dimension alone, of at most so many elements."""
    shape = op.operands[0].type.shape  # type: ignore[attr-defined]
    return bool(shape) and {a % len(shape) for a in axes} == {len(shape) - 1} and shape[-1] <= most


def reference(op: Op, arrays: Sequence[Any]) -> list[Any]:
    """Run the op's numpy reference on `arrays` (one per operand, None: absent); return one array per result.

    Raises VerifyError if the kind has no reference.
    """
    from tx8fast.numerics.routines import ROUTINES

    routine = ROUTINES.get(op.info.decl.routine) if op.info.decl.routine else None
    if routine is None:
        raise VerifyError(f"{where(op)}: this kind has no reference routine")
    types = [(r.shape, r.dtype) for r in op.results]
    return list(routine(list(arrays), dict(op.attrs), types))
