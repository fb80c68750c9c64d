"""Stage checks: what must hold of a graph at the borders of the pipeline, beyond being valid.

May import: ir. Must not: change the graph, or know which passes establish a stage.

legal-front: no back-end kind. legal-value: no aliasable tensor but at the borders of a function. legal-layout: every
form is decided and every edge agrees. legal-group: every compute op is in a group, with loads and stores as its masks
say, and all reads of one constant agree. `check_stage` raises VerifyError; the report is bounded like the verifier's.
"""

from __future__ import annotations

from collections.abc import Callable

from tx8fast.errors import ConfigError, UnsupportedError, raise_all
from tx8fast.ir.clone import structural_key
from tx8fast.ir.core import BACKEND_ONLY, REAL, TERMINATOR, Block, Op, Value
from tx8fast.ir.diagnostics import Collector
from tx8fast.ir.interfaces import effects, is_loaded, is_stored, query_op_attr
from tx8fast.ir.program import IRProgram
from tx8fast.ir.storage import is_aliasable
from tx8fast.ir.symbols import SymbolTable
from tx8fast.ir.types import TensorType

DENSE, BLOCKED = "dense", "blocked"
#: kinds that may hold a buffer in a graph of values: they bring its contents in or out
_BORDERS = frozenset({"to_vtensor", "to_tensor", "call", "set_param", "set_params", "get_param", "get_params"})
_MOVES = frozenset({"load_var", "store_var"})
_ALIASES = frozenset({"reshape", "reshape_view"})
_CONSTANTS = frozenset({"get_param", "constant", "load_const", "none"})


def _front(program: IRProgram, out: Collector) -> None:
    for op in program.module.walk():
        if op.has(BACKEND_ONLY):
            out.add("IR030", op, "kind: expected none of the back end's before layouts and groups")


def _value(program: IRProgram, out: Collector) -> None:
    for op in program.module.walk():
        if op.kind in _BORDERS or op.has(TERMINATOR):
            continue
        for what, values in (("operand", op.operands), ("result", op.results)):
            for i, v in enumerate(values):
                if is_aliasable(v):
                    out.add("IR031", op, f"{what} {i}: expected a value tensor, found {v.type}", v.op)


class _Forms:
    """The form in DDR of every value, and the one an op takes; None where there is no choice (rank 0 and 1)."""

    def __init__(self, program: IRProgram) -> None:
        self.symbols = SymbolTable(program.module)

    def of(self, v: Value) -> str | None:
        if not isinstance(v.type, TensorType) or v.type.rank <= 1:
            return None
        owner = v.owner
        if isinstance(owner, Block):
            parent = owner.region.op if owner.region is not None else None
            if parent is not None and parent.kind == "group":
                return self.of(parent.operands[v.index])
            return self._listed(parent, "arg_layouts", v.index)
        if owner.kind == "call":
            return self._listed(self.symbols.get(owner.attrs["callee"]), "result_layouts", v.index)
        if owner.kind == "group":
            end = owner.body.terminator
            return self.of(end.operands[v.index]) if end is not None else None
        return owner.attrs.get("mem_layout") or DENSE

    @staticmethod
    def _listed(symbol: Op | None, name: str, i: int) -> str:
        layouts = (symbol.attrs.get(name) if symbol is not None else None) or ()
        return layouts[i] if i < len(layouts) else DENSE

    def needed(self, op: Op, i: int) -> str | None:
        if op.kind == "call":
            return self._listed(self.symbols.get(op.attrs["callee"]), "arg_layouts", i)
        if op.kind in ("return", "subgraph_return"):
            return self._listed(op.parent, "result_layouts", i)
        if op.kind == "channel_norm":
            return DENSE if op.attrs["to"] == "align" else BLOCKED
        if op.kind in ("group", "group_return", "tuple") or not op.results:
            return None
        return op.attrs.get("mem_layout") or DENSE


def _layout(program: IRProgram, out: Collector) -> None:
    forms = _Forms(program)
    for op in program.module.walk():
        if op.has(REAL):
            if op.attrs.get("mem_layout") not in (DENSE, BLOCKED):
                out.add("IR032", op, f"mem_layout: expected dense or blocked, found '{op.attrs.get('mem_layout')}'")
            # a conversion takes over its source's name, if that has one: an argument has none
            if op.kind != "channel_norm" and "Unknown" in op.attrs.get("layout_str", "").split("-"):
                out.add("IR032", op, f"layout_str: expected a decided name, found '{op.attrs['layout_str']}'")
        for i, v in enumerate(op.operands):
            found, need = forms.of(v), forms.needed(op, i)
            if found is None or need is None or found == need:
                continue
            if op.kind == "channel_norm":
                out.add(
                    "IR034",
                    op,
                    f"operand {i}: expected a form other than '{op.attrs['to']}' gives, found {found}",
                    v.op,
                )
            else:
                out.add("IR033", op, f"operand {i}: expected the {need} form, found {found}", v.op)


def _group(program: IRProgram, out: Collector) -> None:
    keys: dict[int, str] = {}
    constants: dict[int, Op] = {}
    for op in program.module.walk():
        if op.kind == "group":
            if op.attrs["group_id"] >= 0:
                keys.setdefault(op.attrs["group_id"], structural_key(op))
            _one_group(op, out)
        elif op.kind == "load_const":
            _one_constant(op, constants, out)
        elif op.has(REAL) and op.kind not in _ALIASES and op.kind not in _CONSTANTS:
            parent = op.parent
            if parent is None or parent.kind != "group":
                out.add("IR035", op, "place: expected a group around it, found none", parent)
    for op in program.module.walk():
        if op.kind == "group" and op.attrs["template_id"] >= 0:
            key = keys.get(op.attrs["template_id"])
            if key != structural_key(op):
                found = "no such group" if key is None else "a group of another structure"
                out.add("IR038", op, f"template_id: expected the id of an equal group, found {found}")


def _one_group(group: Op, out: Collector) -> None:
    body = group.body
    for op in body:
        if op.kind in _MOVES and group.attrs["group_tag"] == 2:
            out.add("IR036", op, "place: expected no transfers in a group that works in DDR")
        if not op.has(REAL):
            continue
        facts = query_op_attr(op)
        for i, v in enumerate(op.operands):
            loaded = v.op is not None and v.op.kind == "load_var"
            if (loaded or v.owner is body) and loaded != is_loaded(facts, i):
                want = "a load" if is_loaded(facts, i) else "the value in DDR"
                out.add("IR036", op, f"operand {i}: expected {want}, found {'a load' if loaded else 'none'}", v.op)
    end = body.terminator
    for v in end.operands if end is not None else ():
        made, stored = v.op, False
        if made is not None and made.kind == "store_var":
            made, stored = made.operands[0].op, True
        if made is not None and made.has(REAL) and stored != is_stored(query_op_attr(made), 0):
            out.add(
                "IR036", made, f"result: expected {'no store' if stored else 'a store'} before it leaves the group", end
            )


def _one_constant(op: Op, first: dict[int, Op], out: Collector) -> None:
    other = first.setdefault(op.attrs["const_map_id"], op)
    form, known = op.attrs.get("mem_layout"), other.attrs.get("mem_layout")
    if form != known:
        out.add(
            "IR037",
            op,
            f"mem_layout: expected '{known}' as the other load of constant {op.attrs['const_map_id']}, found '{form}'",
            other,
        )
    users = [(u, i) for u, i in op.result.uses if u.has(REAL)]
    if users and op.attrs["bypass_codegen"] == any(is_loaded(query_op_attr(u), i) for u, i in users):
        out.add(
            "IR037",
            op,
            f"bypass_codegen: expected {not op.attrs['bypass_codegen']} for its users' load masks",
            users[0][0],
        )


#: stage -> check
STAGES: dict[str, Callable[[IRProgram, Collector], None]] = {
    "legal-front": _front,
    "legal-value": _value,
    "legal-layout": _layout,
    "legal-group": _group,
}


def check_stage(program: IRProgram, stage: str) -> None:
    """Raise VerifyError, with at most 20 findings, if the graph has not reached `stage`."""
    check = STAGES.get(stage)
    if check is None:
        raise ConfigError(f"unknown stage '{stage}', expected one of {', '.join(STAGES)}")
    out = Collector()
    check(program, out)
    out.raise_any(f"program '{program.name}' has not reached stage {stage}")


def check_closed(program: IRProgram) -> None:
    """Raise UnsupportedError naming every op that changes a weight, or exchanges data with a peer, outside the program."""
    problems = []
    for op in program.module.walk():
        if op.regions:  # has the effects of the ops inside
            continue
        where = f"{op.kind}{f' ({op.loc})' if op.loc else ''}"
        if "channel" in op.attrs:
            problems.append(
                f"{where} exchanges data with peer {op.attrs.get('peer')} on channel {op.attrs['channel']}: programs "
                "exchange data in collectives (all_reduce, all_gather, reduce_scatter) only"
            )
        keys = [target[1] for verb, target in effects(op) or () if verb == "write" and target[0] == "state"]
        if keys and "channel" not in op.attrs:
            problems.append(
                f"{where} changes parameter {', '.join(map(repr, keys))}: programs do not change weights; take the "
                "value as an input and give its new one back as a result"
            )
    raise_all(UnsupportedError, f"compiling '{program.name}'", problems)
