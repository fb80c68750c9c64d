"""Questions that generic passes ask about any op, answered from traits and declared effects.

May import: ir.core, ir.printer, ir.program. Must not: know particular ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tx8fast.ir.core import CONSTANT_LIKE, PURE, SYMBOL, TERMINATOR, Op, OpInfo
from tx8fast.ir.printer import format_attr
from tx8fast.ir.program import IRProgram


def state_effects(op: Op) -> list[tuple[str, Any]] | None:
    """Return the op's declared (verb, state) effects, [] for a pure op, None if nothing is known."""
    if op.info.traits & (PURE | CONSTANT_LIKE):
        return []
    effects: Callable[[Op], list[tuple[str, Any]] | None] | None = getattr(op.info.decl, "effects", None)
    effects = effects or op.info.impl.get(("Effects", "effects"))
    return None if effects is None else effects(op)


def reads_only_state(op: Op) -> list[Any] | None:
    """Return the states a parameter access (named by `key` or `keys`) reads if reading is all it does, else None."""
    if op.operands or op.regions or not ("key" in op.attrs or "keys" in op.attrs):
        return None
    effects = state_effects(op)
    if not effects or any(verb != "read" for verb, _ in effects):
        return None
    return [state for _, state in effects]


def written_states(root: Op) -> set[Any]:
    """Every state that some op inside `root` declares to write; a parameter not in it never changes."""
    return {
        state
        for op in root.walk()
        if not op.info.traits & (PURE | CONSTANT_LIKE)
        for verb, state in state_effects(op) or ()
        if verb == "write"
    }


def states_written_by(program: IRProgram) -> set[Any]:
    """Every state that the program, or the whole it is a part of, declares to write."""
    written = written_states(program.module)
    return written if program.whole is program else written | written_states(program.whole.module)


def is_parameter(op: Op) -> bool:
    """True for an op that reads one weight by its `key`."""
    return type(op.attrs.get("key")) is str and len(op.results) == 1 and reads_only_state(op) is not None


def has_no_effect(op: Op, callee: Callable[[str], bool] | None = None) -> bool:
    """True if erasing an unused `op` changes nothing. Regions count; `callee(name)` answers for calls."""
    if op.info.traits & (TERMINATOR | SYMBOL):
        return False
    if op.regions:
        return all(
            inner.has(TERMINATOR) or has_no_effect(inner, callee)
            for region in op.regions
            for block in region.blocks
            for inner in block
        )
    if op.info.traits & (PURE | CONSTANT_LIKE):
        return True
    name = op.attrs.get("callee")
    if type(name) is str:
        return callee is not None and callee(name)
    return reads_only_state(op) is not None  # a receive reads too, but takes the message away


class AttrKeys:
    """`keys(op)`: the op's listed attributes as a hashable key; equal keys mean equal attributes.

    1 == 1.0 == True and 0.0 == -0.0 in Python, so values that may hide one behind another go by their text.
    """

    def __init__(self) -> None:
        self.scalar: dict[OpInfo, bool] = {}

    def __call__(self, op: Op) -> tuple[Any, ...]:
        info, attrs = op.info, op.attrs
        scalar = self.scalar.get(info)
        if scalar is None:
            scalar = all(kinds in (str, bool, int) for kinds, _ in info.attrs.values())
            self.scalar[info] = scalar
        if scalar:
            if len(attrs) == len(info.attrs):
                return tuple(attrs.values())
            return tuple([attrs.get(n) for n in info.attrs])
        out: list[Any] = []
        for name in info.attrs:
            v = attrs.get(name)
            kind = type(v)
            if kind is str or v is None:
                out.append(v)
            else:
                out.append((kind, v) if kind is int or kind is bool else format_attr(v))
        return tuple(out)
