"""The verifier: level 1 checks structure, level 2 also types against inference and weights.

May import: ir.core, ir.diagnostics, ir.types, ir.verify_symbols, ir.verify_traits. Must not: change the graph, or know particular
ops: everything follows from declarations, traits, and the optional `("Verify", "verify")` method of a kind.
"""

from __future__ import annotations

from typing import Any

from tx8fast.errors import VerifyError
from tx8fast.ir import core
from tx8fast.ir.core import (
    ISOLATED,
    REQUIRED,
    SYMBOL,
    SYMBOL_TABLE,
    TERMINATOR,
    Block,
    Op,
    OpInfo,
    Value,
)
from tx8fast.ir.diagnostics import Collector, Diagnostic, type_list
from tx8fast.ir.types import NoneType, TensorType
from tx8fast.ir.verify_symbols import verify_symbols
from tx8fast.ir.verify_traits import TRAIT_CHECKS, one_kind

_MISSING = object()
#: formats between which packing a parameter converts
PARAM_FLOATS = frozenset({"bf16", "f16", "f32"})


class _Spec:
    """What level 1 needs to know of one op kind, computed once per verification."""

    __slots__ = (
        "low",
        "high",
        "required",
        "out_low",
        "out_high",
        "attrs",
        "listed",
        "checks",
        "terminator",
        "isolated",
    )

    def __init__(self, info: OpInfo) -> None:
        self.low, self.high = _bounds(info.ins)
        self.required = self.low
        self.out_low, self.out_high = _bounds(info.outs)
        self.attrs = [(n, kinds, default is REQUIRED) for n, (kinds, default) in info.attrs.items()]
        self.listed = len(info.attrs)
        # value semantics is checked in the operand loop only for ops that could break it: it implies no bit of others
        self.checks = [c for bit, c in TRAIT_CHECKS.items() if bit != core.VALUE_SEMANTICS and info.traits & bit == bit]
        self.terminator = info.traits & TERMINATOR == TERMINATOR
        self.isolated = info.traits & ISOLATED == ISOLATED


def _bounds(names: tuple[str, ...]) -> tuple[int, float]:
    low = sum(1 for n in names if not n.endswith(("?", "*")))
    return low, float("inf") if any(n.endswith("*") for n in names) else len(names)


class _Verifier:
    def __init__(self, level: int, weights: Any) -> None:
        self.level = level
        self.weights = weights
        self.out = Collector()
        self.specs: dict[OpInfo, _Spec] = {}

    def op(self, op: Op) -> None:
        """Check one op outside any block, then all it contains."""
        self.local(op, self.spec(op.info))
        for region in op.regions:
            for block in region.blocks:
                self.block(block, op)

    def spec(self, info: OpInfo) -> _Spec:
        found = self.specs.get(info)
        if found is None:
            found = self.specs[info] = _Spec(info)
        return found

    # ------------------------------------------------------------ level 1

    def local(self, op: Op, spec: _Spec) -> None:
        """Everything that can be said about an op without looking at its block."""
        if not spec.low <= len(op.operands) <= spec.high:
            want = f"{spec.low}" if spec.low == spec.high else f"{spec.low} to {spec.high}"
            self.out.add("IR001", op, f"operands: expected {want}, found {len(op.operands)}")
        if not spec.out_low <= len(op.results) <= spec.out_high:
            self.out.add("IR002", op, f"results: expected {len(op.info.outs)}, found {len(op.results)}")
        attrs = op.attrs
        for name, kinds, required in spec.attrs:
            v = attrs.get(name, _MISSING)
            if v.__class__ is not kinds and not (v is None and not required):
                self.attribute(op, name, kinds, v)
        if len(attrs) > spec.listed:
            for name in attrs:
                if name not in op.info.attrs and not name.startswith("rt_"):
                    self.out.add(
                        "IR004",
                        op,
                        f"attribute '{name}': expected a listed or rt_ name, found '{name}'",
                    )
        i = 0
        for v in op.operands:
            if (op, i) not in v.uses:
                self.out.add(
                    "IR005",
                    op,
                    f"operand {i}: expected an entry in the value's use list, found none",
                    v.op,
                )
            if v.type.__class__ is not TensorType and v.type.__class__ is NoneType and i < spec.required:
                self.out.add(
                    "IR016",
                    op,
                    f"operand {i} ({op.info.ins[i]}): expected a tensor, found {v.type}",
                    v.op,
                )
            i += 1
        i = 0
        for r in op.results:
            if r.owner is not op or r.index != i:
                self.out.add("IR005", op, f"result {i}: expected its owner to be this op, found {r.owner!r}")
            if r.uses:
                self.uses(op, r)
            i += 1
        for check in spec.checks:
            if (message := check(op)) is not None:
                self.out.add("IR015", op, f"trait: {message}")

    def uses(self, at: Op, value: Value) -> None:
        for user, i in value.uses:
            if i >= len(user.operands) or user.operands[i] is not value:
                self.out.add(
                    "IR005",
                    at,
                    f"result {value.index}: expected user {user.name} operand {i} to be it",
                    user,
                )
            elif user.block is None:
                self.out.add(
                    "IR005",
                    at,
                    f"result {value.index}: expected users inside the graph, found an erased one",
                    user,
                )

    def attribute(self, op: Op, name: str, kinds: Any, v: Any) -> None:
        if v is _MISSING or v is None:
            self.out.add("IR003", op, f"attribute '{name}': expected a value, found none")
        elif not (type(kinds) is tuple and type(v) in kinds):
            names: Any = kinds if type(kinds) is tuple else (kinds,)
            want = " or ".join(k.__name__ for k in names)
            self.out.add("IR003", op, f"attribute '{name}': expected {want}, found {v!r}")

    def block(self, block: Block, parent: Op) -> None:
        prev: Op | None = None
        order = -(1 << 200)
        count = 0
        specs = self.specs
        level2 = self.level >= 2
        for a in block.args:
            for user, i in a.uses:
                if i >= len(user.operands) or user.operands[i] is not a:
                    self.out.add(
                        "IR005",
                        parent,
                        f"block argument {a.index}: expected {user.name} operand {i} to be it",
                    )
        op = block.first
        while op is not None:
            spec = specs.get(op.info)
            if spec is None:
                spec = self.spec(op.info)
            if op.prev is not prev or op.order <= order or op.block is not block:
                self.out.add(
                    "IR009",
                    op,
                    "block: expected links and rising order numbers, found a broken chain",
                    prev,
                )
                return
            order = op.order
            i = 0
            for v in op.operands:
                owner = v.owner
                if owner is not block and (
                    owner.__class__ is Block or owner.block is not block or owner.order >= order  # type: ignore[union-attr]
                ):
                    self.reach(op, i, v, block)
                i += 1
            self.local(op, spec)
            if spec.terminator and op.next is not None:
                self.out.add(
                    "IR008",
                    op,
                    f"block: expected the terminator last, found {op.next.name} after it",
                    op.next,
                )
            for region in op.regions:
                for inner in region.blocks:
                    self.block(inner, op)
            if level2:
                self.types(op)
            count += 1
            prev = op
            op = op.next
        if block.last is not prev or count != len(block):
            self.out.add("IR009", parent, f"block: expected {len(block)} linked ops, found {count}")
        self.enclosing(block, parent, prev)

    def reach(self, op: Op, i: int, v: Value, block: Block) -> None:
        """Check a use whose definition is not earlier in the same block: it may be in an enclosing one."""
        owner = v.owner
        home = owner if isinstance(owner, Block) else owner.block
        if home is block:
            self.out.add(
                "IR006",
                op,
                f"operand {i}: expected a definition before the use, found it after",
                v.op,
            )
            return
        at, crossed = block, None
        while at.region is not None and home is not None:
            parent = at.region.op
            if parent.has(ISOLATED):
                crossed = crossed or parent
            if parent.block is None:
                break
            at = parent.block
            if at is home:
                if crossed is not None:
                    self.out.add(
                        "IR007",
                        op,
                        f"operand {i}: expected a value of {crossed.name}, found an outer one",
                        v.op,
                    )
                elif isinstance(owner, Op) and not owner.order < parent.order:
                    self.out.add(
                        "IR006",
                        op,
                        f"operand {i}: expected a definition before the use, found it after",
                        v.op,
                    )
                return
        found = "one of an erased op" if home is None else "one of an unrelated region"
        self.out.add("IR006", op, f"operand {i}: expected a value that reaches the use, found {found}", v.op)

    def enclosing(self, block: Block, parent: Op, last: Op | None) -> None:
        """Terminator and signature rules of a region's only block."""
        if parent.has(SYMBOL_TABLE):
            return
        end = last if last is not None and last.has(TERMINATOR) else None
        if end is None:
            found = "an empty block" if last is None else last.name
            self.out.add("IR008", parent, f"block: expected a terminator at the end, found {found}", last)
            return
        if parent.has(ISOLATED) and not parent.has(SYMBOL):  # arguments are the operands, results the returned values
            for what, inner, outer in (
                ("block arguments", block.args, parent.operands),
                ("returned values", end.operands, parent.results),
            ):
                if [v.type for v in inner] != [v.type for v in outer]:
                    self.out.add(
                        "IR014",
                        parent,
                        f"{what}: expected {type_list(outer)}, found {type_list(inner)}",
                        end,
                    )

    # ------------------------------------------------------------ level 2

    def types(self, op: Op) -> None:
        info = op.info
        if info.infer is not None:
            try:
                inferred = list(info.infer(op))
            except Exception as error:  # a damaged op may break inference in any way
                self.out.add("IR021", op, f"inference: {error}")
            else:
                if inferred != [r.type for r in op.results]:
                    want = ", ".join(map(str, inferred))
                    self.out.add(
                        "IR020",
                        op,
                        f"results: expected {want}, found {type_list(op.results)}",
                        *_producers(op),
                    )
        if info.traits & core.VALUE_SEMANTICS == core.VALUE_SEMANTICS and (message := one_kind(op)) is not None:
            self.out.add("IR015", op, f"trait: {message}")
        layout = op.attrs.get("layout_str")
        if type(layout) is str and "-" in layout:
            parts = sum(type(v.type) is not NoneType for v in op.operands) + len(op.results)
            if layout.count("-") + 1 != parts:
                self.out.add("IR024", op, f"layout_str: expected one name or {parts} joined by '-', found '{layout}'")
        check = info.impl.get(("Verify", "verify"))
        if check is not None:
            try:
                check(op)
            except VerifyError as error:
                self.out.add("IR022", op, str(error))
        if self.weights is not None and type(op.attrs.get("key")) is str:
            self.parameter(op, op.attrs["key"])

    def parameter(self, op: Op, key: str) -> None:
        if key not in self.weights:
            self.out.add("IR023", op, f"key '{key}': expected an entry in the weight table, found none")
            return
        entry = self.weights[key]
        for v in (*op.results, *op.operands):
            if not isinstance(v.type, TensorType):
                continue
            # a read takes the program's format: packing the parameter image converts
            converts = v.op is op and {v.type.dtype, entry.dtype} <= PARAM_FLOATS
            same = v.type.dtype == entry.dtype or converts
            if v.type.shape != tuple(entry.shape) or not same:
                want = f"{list(entry.shape)} {entry.dtype}"
                self.out.add("IR023", op, f"key '{key}': expected the table's type {want}, found {v.type}")


def _producers(op: Op) -> list[Op]:
    return [v.op for v in op.operands[:2] if v.op is not None]


def check(root: Op, level: int = 1, weights: Any = None) -> list[Diagnostic]:
    """Return at most 20 findings about `root` and everything in it, in order."""
    return _run(root, level, weights).found


def verify(root: Op, level: int = 1, weights: Any = None, doing: str = "verifying the graph") -> None:
    """Raise VerifyError if `root` breaks a rule.

    Level 1: counts, attributes, use lists, reach of definitions, terminators, symbols. Level 2 adds result
    types against inference, each kind's own check, and parameters against `weights` (if given).
    The error lists at most 20 findings of 4 lines each and carries them as `diagnostics`.
    """
    _run(root, level, weights).raise_any(doing)


def _run(root: Op, level: int, weights: Any) -> Collector:
    verifier = _Verifier(level, weights)
    verifier.op(root)
    if not any(d.code == "IR009" for d in verifier.out.found):  # a broken chain cannot be walked safely
        for op in root.walk() if not root.has(SYMBOL_TABLE) else (root,):
            if op.has(SYMBOL_TABLE):
                verify_symbols(op, verifier.out)
    return verifier.out
