"""Which form a tensor has in DDR, and which forms an op takes: questions that all layout passes ask.

May import: ir, numerics.layout. Must not: change the graph.

Two forms: "dense" (row-major) and "blocked" (channel-blocked). Values of rank 0 and 1 fit both; parameters and
constants are *free*: their bytes are packed into either form when the parameter image is written.
"""

from __future__ import annotations

from tx8fast.ir.core import REAL, SYMBOL, Block, Op, Value
from tx8fast.ir.ops.base import align_of
from tx8fast.ir.program import IRProgram
from tx8fast.ir.symbols import SymbolTable
from tx8fast.ir.types import TensorType
from tx8fast.numerics.layout import npc

DENSE, BLOCKED = "dense", "blocked"
ALIGN, NALIGN, BOTH, FREE, BOUNDARY = "align", "nalign", "both", "free", "boundary"
LEANS = "leans"  # either, and blocked unless dense converts fewer bytes
FORM_OF_MODE = {ALIGN: BLOCKED, NALIGN: DENSE, LEANS: BLOCKED}
LANES = 64  # dense rows of whole blocks leave no padding lane behind
CONSTANTS = frozenset({"get_param", "constant", "load_const"})
#: kernel-core kinds whose routine takes every operand in either form, as a whole
_EITHER_FORM = frozenset({"kv_update", "kv_update_"})
_BOUNDARIES = frozenset({"call", "return", "subgraph_return", "group_return", "group", "tuple"})


def exempt(v: Value) -> bool:
    """True for a value without form: no tensor, or of rank 0 or 1."""
    return not isinstance(v.type, TensorType) or v.type.rank <= 1


def free(v: Value) -> bool:
    """True for a value that fits either form: exempt, or a constant whose form is not decided."""
    return exempt(v) or (v.op is not None and v.op.kind in CONSTANTS and not v.op.attrs.get("mem_layout"))


def keeps_blocks(op: Op) -> bool:
    """True for a reshape that leaves the bytes of the blocked form in place too: [1, S, C] to [S, C], say."""
    x, y = op.operands[0], op.results[0]
    if exempt(x) or exempt(y) or not (x.type.is_static and y.type.is_static):  # type: ignore[attr-defined]
        return False
    return npc(x.shape) == npc(y.shape)


def mode_of(op: Op) -> str:
    """Return which form an op's operands and results have: align, nalign, both, or free / boundary."""
    fixed = op.attrs.get("mem_layout")
    if fixed and op.kind not in CONSTANTS:
        return ALIGN if fixed == BLOCKED else NALIGN
    if op.kind in CONSTANTS or not op.results:
        return BOUNDARY if op.kind in _BOUNDARIES else FREE
    if op.kind == "channel_norm":
        return ALIGN if op.attrs["to"] == "align" else NALIGN
    if op.kind in _BOUNDARIES:
        return BOUNDARY
    if op.kind in _EITHER_FORM:
        return BOTH
    if op.kind in ("reshape", "reshape_view"):
        return BOTH if keeps_blocks(op) else NALIGN
    mode = align_of(op) if op.has(REAL) else NALIGN
    return LEANS if mode == ALIGN and op.info.decl.reads_dense and _whole_blocks(op.operands[0]) else mode


def _whole_blocks(v: Value) -> bool:
    shape = () if exempt(v) else v.type.shape  # type: ignore[attr-defined]
    return bool(shape) and type(shape[-1]) is int and shape[-1] % LANES == 0


def form_of(v: Value, symbols: SymbolTable | None = None) -> str:
    """Return the decided form of a value; `symbols` is needed for results of calls. Exempt values are dense."""
    if exempt(v):
        return DENSE
    owner = v.owner
    if isinstance(owner, Block):
        parent = owner.region.op if owner.region is not None else None
        if parent is not None and parent.kind == "group":
            return form_of(parent.operands[v.index], symbols)
        layouts = (parent.attrs.get("arg_layouts") if parent is not None else None) or ()
        return layouts[v.index] if v.index < len(layouts) else DENSE
    if owner.kind == "call" and symbols is not None:
        layouts = symbols.lookup(owner.attrs["callee"]).attrs.get("result_layouts") or ()
        return layouts[v.index] if v.index < len(layouts) else DENSE
    if owner.kind == "group":
        end = owner.body.terminator
        return form_of(end.operands[v.index], symbols) if end is not None else DENSE
    return owner.attrs.get("mem_layout") or DENSE


def needed_form(op: Op, i: int, symbols: SymbolTable) -> str | None:
    """Return the form in which a decided op takes operand `i`; None if either will do."""
    v = op.operands[i]
    if exempt(v):
        return None
    if op.kind == "call":
        return (symbols.lookup(op.attrs["callee"]).attrs["arg_layouts"] or ())[i]
    if op.kind in ("return", "subgraph_return"):
        parent = op.parent
        return None if parent is None else (parent.attrs["result_layouts"] or ())[i]
    if op.kind == "channel_norm":
        return DENSE if op.attrs["to"] == "align" else BLOCKED
    return op.attrs.get("mem_layout") or DENSE


def is_alias(op: Op) -> bool:
    """True for an op that moves nothing: its result is its operand's bytes. Layouts must be decided."""
    return op.kind in ("reshape", "reshape_view")


def callees_first(program: IRProgram) -> tuple[SymbolTable, list[Op]]:
    """Return the symbol table and all functions, every callee before its callers."""
    table = SymbolTable(program.module)
    done: dict[Op, None] = {}
    busy: set[Op] = set()

    def visit(symbol: Op) -> None:
        if symbol in done or symbol in busy:
            return
        busy.add(symbol)
        for op in symbol.walk():
            callee = op.attrs.get("callee")
            if type(callee) is str:
                target = table.lookup(callee)
                if target.has(SYMBOL):
                    visit(target)
        done[symbol] = None

    for symbol in table.symbols.values():
        visit(symbol)
    return table, list(done)


def donated_pairs(symbol: Op) -> list[tuple[int, int]]:
    """(argument, result) positions of state that is updated in place."""
    flat = symbol.attrs.get("donated") or ()
    return list(zip(flat[0::2], flat[1::2]))
