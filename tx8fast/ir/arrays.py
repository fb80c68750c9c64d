"""The use-def relation of a block as NumPy arrays, for kernels over whole graphs, and decisions written back.

May import: ir.core, ir.types, numpy, errors. Must not: know particular ops; rules and layouts are in `ir/view.py`.

Compressed rows: entries `ptr[i] : ptr[i + 1]` of the second array belong to row i. Values are numbered block arguments
first, then results in program order; values of outer blocks follow, at their first use.
"""

from __future__ import annotations

import numpy as np

from tx8fast.errors import InternalError
from tx8fast.ir.core import Block, Op, Value
from tx8fast.ir.types import TensorType
from tx8fast.records import dataclass


@dataclass(frozen=True)
class BlockArrays:
    """`ops`, `values`: the objects behind the indices. All arrays are i32 except `val_bytes` (i64, -1: not known).

    op_code [ops]; opr_ptr [ops + 1], opr_val: operands; res_ptr [ops + 1]: results of op i are the values
    `first_result + res_ptr[i] : first_result + res_ptr[i + 1]`; val_def [values]: defining op, -1 for others;
    use_ptr [values + 1], use_op, use_idx: uses in program order.
    """

    ops: list[Op]
    values: list[Value]
    first_result: int
    op_code: np.ndarray
    opr_ptr: np.ndarray
    opr_val: np.ndarray
    res_ptr: np.ndarray
    val_def: np.ndarray
    use_ptr: np.ndarray
    use_op: np.ndarray
    use_idx: np.ndarray
    val_bytes: np.ndarray

    def write_back(self, name: str, decisions: np.ndarray, undecided: int = -1) -> int:
        """Set the run-time attribute `name` (rt_...) of each op to its decision; `undecided` ones lose it. Return how many are set."""
        if not name.startswith("rt_") or len(decisions) != len(self.ops):
            raise InternalError(
                f"writing '{name}' back: {len(decisions)} decisions for {len(self.ops)} ops, the name must begin with rt_"
            )
        count = 0
        for op, d in zip(self.ops, decisions.tolist()):
            if d == undecided:
                op.attrs.pop(name, None)
            else:
                op.attrs[name] = d
                count += 1
        return count


def block_arrays(block: Block) -> BlockArrays:
    """Return the arrays of one block; nested blocks are not entered."""
    ids: dict[Value, int] = {}
    values: list[Value] = list(block.args)
    ops = list(block)
    first_result = len(values)
    defs = [-1] * first_result
    res_ptr = [0]
    for n, op in enumerate(ops):
        results = op.results
        values += results
        defs += [n] * len(results)
        res_ptr.append(len(values) - first_result)
    for i, v in enumerate(values):
        ids[v] = i
    opr: list[int] = []
    opr_ptr = [0]
    slots: list[int] = []
    for op in ops:
        operands = op.operands
        for v in operands:
            i = ids.get(v)
            if i is None:
                i = ids[v] = len(values)
                values.append(v)
                defs.append(-1)
            opr.append(i)
        slots += range(len(operands))
        opr_ptr.append(len(opr))
    opr_val = np.array(opr, np.int32)
    order = np.argsort(opr_val, kind="stable")
    use_ptr = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.bincount(opr_val, minlength=len(values)), out=use_ptr[1:])
    counts = np.diff(np.array(opr_ptr, np.int32))
    owner = np.repeat(np.arange(len(ops), dtype=np.int32), counts)
    sizes: dict[object, int] = {}
    for v in values:
        if v.type not in sizes:
            t = v.type
            sizes[t] = t.size_bytes if type(t) is TensorType and t.is_static else -1
    return BlockArrays(
        ops,
        values,
        first_result,
        np.array([op.info.code for op in ops], np.int32),
        np.array(opr_ptr, np.int32),
        opr_val,
        np.array(res_ptr, np.int32),
        np.array(defs, np.int32),
        use_ptr,
        owner[order],
        np.array(slots, np.int32)[order],
        np.array([sizes[v.type] for v in values], np.int64),
    )
