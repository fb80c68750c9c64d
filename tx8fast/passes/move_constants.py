"""Parameters and constants become load_const ops, one per use, with the ids of the numbered container.

May import: ir, passes.base, passes.const_container. Must not: read bytes of weights.

`bypass_codegen` is set where the user takes its operand from DDR. A load_const remembers its data as `rt_key`
or `rt_value`, so `const_container.collect` finds the same payloads before and after.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.ir.core import Op
from tx8fast.ir.interfaces import is_loaded, query_op_attr
from tx8fast.ir.program import IRProgram
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.const_container import collect, source_of
from tx8fast.records import dataclass

_UNDECIDED = frozenset({"tuple"})  # users without a load decision of their own
_IN_DDR = frozenset({"call", "return", "subgraph_return", "set_param"})


@dataclass(frozen=True)
class MoveConstants(CompilerPass):
    name: ClassVar[str] = "move-constants"
    ensures: ClassVar[tuple[str, ...]] = ("load-consts",)

    def run(self, program: IRProgram) -> PassResult:
        container = collect(program)
        loads = 0
        for op in list(program.module.walk()):
            if op.kind not in ("get_param", "constant"):
                continue
            new_id = container.old_to_new[container.ids[source_of(op)[0]]]
            for user, i in list(op.result.uses):
                load = self._load(program, op, new_id, bypasses(user, i))
                user.block.insert_before(user, load)  # type: ignore[union-attr]
                user.set_operand(i, load.result)
                loads += 1
            op.erase()
        return PassResult(loads > 0, {"payloads": len(container.data), "loads": loads})

    @staticmethod
    def _load(program: IRProgram, op: Op, new_id: int, bypass: bool) -> Op:
        name = "key" if "key" in op.attrs else "value"
        return program.ctx.create(
            "load_const",
            (),
            [op.result.type],
            loc=op.loc,
            const_map_id=new_id,
            bypass_codegen=bypass,
            layout_str=op.attrs.get("layout_str", "Tensor"),
            mem_layout=op.attrs.get("mem_layout") or "",
            **{f"rt_{name}": op.attrs[name]},
        )


def bypasses(user: Op, i: int) -> bool:
    """True if `user` reads its operand `i` in DDR, so that nothing loads it."""
    if user.kind in _UNDECIDED:
        return False
    return user.kind in _IN_DDR or not is_loaded(query_op_attr(user), i)
