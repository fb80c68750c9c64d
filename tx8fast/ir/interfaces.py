"""Interfaces of op kinds: signatures, op facts, layout inference, effects, cuts.

May import: ir.core, ir.ops.base, ir.sharding, errors. Must not: name particular kinds beyond the layout rule.
A kind may override a method through `OpDef.interfaces`; everything has a default from rule, traits and facts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tx8fast.errors import InternalError
from tx8fast.ir.core import CONSTANT_LIKE, INPLACE, READ_ONLY, TERMINATOR, VIEW, Op
from tx8fast.ir.ops.base import ALL_ONES, OpDef, align_of, engine_of, reference
from tx8fast.ir.sharding import back_window, temporal_slice, tile_sharding_split
from tx8fast.ir.types import TensorType
from tx8fast.records import dataclass

__all__ = [
    "INTERFACES",
    "OpAttr",
    "back_window",
    "check_interfaces",
    "compute",
    "contraction_roles",
    "effects",
    "infer_layout_backward",
    "infer_layout_forward",
    "infer_shapes",
    "is_loaded",
    "is_stored",
    "query_op_attr",
    "shape_operand",
    "temporal_slice",
    "tile_sharding_split",
]

#: interface -> method -> positional parameters of an implementation
INTERFACES: dict[str, dict[str, tuple[str, ...]]] = {
    "ShapeInference": {
        "infer_layout_forward": ("op", "layouts"),
        "infer_layout_backward": ("op", "layout"),
    },
    "Sharding": {
        "tile_sharding_split": ("op", "out_sharding", "out_split"),
        "temporal_slice": ("op", "out_sharding", "out_split"),
        "back_window": ("op", "box"),
    },
    "OpLib": {"query_op_attr": ("op",)},
    "Compute": {"compute": ("op", "arrays")},
    "Fold": {"fold": ("op", "consts")},
    "Canonicalize": {"patterns": ()},
    "Expand": {"expand": ("op", "builder")},
    "Decompose": {"two_phase": ("op",)},
    "StreamConfig": {"stream_config": ("op", "ctx")},
}


def check_interfaces(d: OpDef) -> None:
    """Raise InternalError if `d` declares an unknown interface, misses a method, or has another signature."""
    for name, methods in d.interfaces.items():
        wanted = INTERFACES.get(name)
        if wanted is None:
            raise InternalError(f"{d.name}: unknown interface '{name}', expected one of {', '.join(INTERFACES)}")
        for method, params in wanted.items():
            f = methods.get(method)
            if f is None:
                raise InternalError(f"{d.name}: interface '{name}' lacks method '{method}'")
            found = f.__code__.co_varnames[: f.__code__.co_argcount]
            if found != params:
                raise InternalError(
                    f"{d.name}: interface '{name}', method '{method}': found parameters ({', '.join(found)}),"
                    f" required ({', '.join(params)})"
                )
        extra = [m for m in methods if m not in wanted]
        if extra:
            raise InternalError(f"{d.name}: interface '{name}' has no method '{extra[0]}'")


def _override(op: Op, interface: str, method: str) -> Callable[..., Any] | None:
    return op.info.impl.get((interface, method))


# ---------------------------------------------------------------- facts


@dataclass(frozen=True, slots=True)
class OpAttr:
    """What layout, grouping and search ask about one op. Masks are 64-bit: bit i is operand, result or factor i."""

    align_mode: str = "unknown"  # align: channel-blocked, nalign: dense, both, unknown
    default_layout: str = "Tensor"
    need_preset_to_npu: bool = False  # instructions describe the operand as NHWC
    engine: str = "ct"
    mem_inplace: int = -1  # operand whose storage result 0 may take
    need_load: int = ALL_ONES
    need_store: int = ALL_ONES
    parallel: bool = True  # may overlap with its neighbours in the software pipeline
    align_cx: bool = True  # cuts of the last dimension are multiples of the channel block
    shard_mask: int = ALL_ONES
    split_mask: int = ALL_ONES


def query_op_attr(op: Op) -> OpAttr:
    """Return the op's facts; all defaults for a kind without a declaration."""
    override = _override(op, "OpLib", "query_op_attr")
    if override is not None:
        return override(op)
    d: OpDef | None = op.info.decl
    if d is None:
        return OpAttr()
    rule = d.rule(op) if d.masks is not None else None
    shard, split = d.masks(rule) if d.masks is not None and rule is not None else (ALL_ONES, ALL_ONES)
    engine = engine_of(op)
    on_ddr = engine == "kcore"  # the kernel core works on DDR: nothing passes through SPM
    t = op.results[0].type if op.results else None
    batch = t.shape[0] if isinstance(t, TensorType) and t.shape and len(t.shape) > 1 else 1
    return OpAttr(
        align_of(op),
        "Tensor" if batch == 1 else "NTensor",
        d.need_preset,
        engine,
        d.inplace,
        0 if on_ddr else d.need_load,
        0 if on_ddr else d.need_store,
        not on_ddr,
        d.align_cx,
        shard,
        split,
    )


def is_loaded(facts: OpAttr, operand: int) -> bool:
    """True if this operand is brought to SPM before the op."""
    return bool(facts.need_load >> operand & 1)


def is_stored(facts: OpAttr, result: int) -> bool:
    return bool(facts.need_store >> result & 1)


def shape_operand(op: Op) -> int | None:
    """Return the operand that run-time shapes follow: the highest one that is not loaded, or None if all are."""
    facts = query_op_attr(op)
    return next((i for i in reversed(range(len(op.operands))) if not is_loaded(facts, i)), None)


def contraction_roles(op: Op) -> dict[str, tuple[int, ...]]:
    """Return factor indices of a gemm or contract by role: b in all three tensors, m, n, and k in no result."""
    rule = op.info.decl.rule(op)
    if rule is None or len(rule.ins) < 2:
        raise InternalError(f"{op.name} is no contraction")
    lhs, rhs, out = ({f for d in dims for f, _ in d.terms} for dims in (rule.ins[0], rule.ins[1], rule.outs[0]))
    roles: dict[str, list[int]] = {"b": [], "m": [], "n": [], "k": []}
    for f in range(len(rule.sizes)):
        role = "k" if f not in out else "n" if f not in lhs and f in rhs else "m" if f not in rhs else "b"
        roles[role].append(f)
    return {r: tuple(fs) for r, fs in roles.items()}


# ---------------------------------------------------------------- shapes, layouts, values


def infer_shapes(op: Op) -> bool:
    """Recompute the result types from operands and attributes; return True if one changed. Raises VerifyError."""
    if op.info.infer is None:
        return False
    changed = False
    for r, t in zip(op.results, op.info.infer(op)):
        if r.type is not t:
            r.type, changed = t, True
    return changed


_NO_LAYOUT_RULE = frozenset({"reshape", "contract", "embedding", "gather", "gather_nd", "group", "call", "tuple"})


def _known(layout: str | None) -> bool:
    return layout is not None and layout != "Unknown"


def _permute(layout: str, perm: Sequence[int]) -> str:
    """Permute a layout that has one letter per dimension; names such as "Tensor" stay."""
    if len(layout) != len(perm) or len(set(layout)) != len(layout) or not layout.isupper():
        return layout
    return "".join(layout[p] for p in perm)


def infer_layout_forward(op: Op, layouts: Sequence[str | None]) -> str | None:
    """Return result 0's layout from the operands' (None or "Unknown": not known); None if it cannot be told."""
    override = _override(op, "ShapeInference", "infer_layout_forward")
    if override is not None:
        return override(op, layouts)
    own = op.attrs.get("layout_str", "Unknown")
    if "-" in own:
        return own.rpartition("-")[2]
    if op.kind in _NO_LAYOUT_RULE or not op.results:
        return None
    if op.kind == "transpose":
        return _permute(layouts[0], op.attrs["perm"]) if layouts and _known(layouts[0]) else None  # type: ignore[arg-type]
    out = op.results[0].type
    for v, layout in zip(op.operands, layouts):
        if (
            _known(layout)
            and isinstance(v.type, TensorType)
            and isinstance(out, TensorType)
            and v.type.rank == out.rank
        ):
            return layout
    return None


def infer_layout_backward(op: Op, layout: str | None) -> list[str | None]:
    """Return the operands' layouts from result 0's; None entries cannot be told."""
    override = _override(op, "ShapeInference", "infer_layout_backward")
    if override is not None:
        return override(op, layout)
    own = op.attrs.get("layout_str", "Unknown")
    if "-" in own:
        parts = own.split("-")
        return [parts[i] if i < len(parts) - 1 else None for i in range(len(op.operands))]
    if not _known(layout) or op.kind in _NO_LAYOUT_RULE or not op.results:
        return [None] * len(op.operands)
    if op.kind == "transpose":
        perm = op.attrs["perm"]
        return [_permute(layout, sorted(range(len(perm)), key=perm.__getitem__))]  # type: ignore[arg-type]
    rank = getattr(op.results[0].type, "rank", -1)
    return [layout if isinstance(v.type, TensorType) and v.type.rank == rank else None for v in op.operands]


def compute(op: Op, arrays: Sequence[Any]) -> list[Any]:
    """Reference result on numpy arrays. Raises VerifyError if the kind has none."""
    override = _override(op, "Compute", "compute")
    return override(op, arrays) if override is not None else reference(op, arrays)


# ---------------------------------------------------------------- effects


def effects(op: Op) -> list[tuple[str, Any]] | None:
    """Return (verb, target) pairs, or None if they are unknown and everything must be assumed touched.

    Verbs: read, write, alias. Targets: ("operand", i), ("state", key), or for alias (result, operand).
    Constants and terminators answer with their operand reads; a region's effects are those of its ops.
    """
    d: OpDef | None = op.info.decl
    listed: list[tuple[str, Any]] = []
    if d is not None and d.effects is not None:
        special = d.effects(op)
        if special is None:
            return None
        listed += special
    traits = op.info.traits
    if d is None and not traits & (READ_ONLY | INPLACE | TERMINATOR | CONSTANT_LIKE):
        return None
    listed += [("read", ("operand", i)) for i in range(len(op.operands))]
    if traits & INPLACE:
        listed += [("write", ("operand", 0)), ("alias", (0, 0))]
    elif traits & VIEW == VIEW:
        listed.append(("alias", (0, 0)))
    for region in op.regions:
        for block in region.blocks:
            for inner in block:
                nested = effects(inner)
                if nested is None:
                    return None
                listed += [e for e in nested if e[1][0] == "state"]
    return listed
