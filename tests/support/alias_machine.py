"""Runs a function whose aliasable tensors really share memory: views are numpy views, in-place ops write through.

The reference for passes that add or remove copies. Results come back together with the arguments' final contents.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tx8fast.ir import reference
from tx8fast.ir.core import INPLACE, VIEW
from tx8fast.ir.program import IRProgram


def run_aliased(program: IRProgram, arguments: list[np.ndarray], reuse: str = "") -> list[np.ndarray]:
    """Run `main` on copies of `arguments`; return its results, then what became of the arguments.

    `reuse` names an attribute: an op that has it writes result 0 over the operand it states, and reshapes are views.
    """
    main = program.main
    args = [np.array(a) for a in arguments]
    env: dict[Any, np.ndarray] = dict(zip(main.body.args, args, strict=True))
    for op in main.body:
        ins = [env[v] for v in op.operands]
        if op.kind == "return":
            return [np.array(a) for a in (*ins, *args)]
        if op.kind == "get_param":
            outs = [program.weights.view(op.attrs["key"])]
        elif op.kind == "constant":
            outs = [op.attrs["value"].array]
        elif op.kind in ("to_tensor", "to_vtensor"):
            outs = [np.array(ins[0])]
        elif op.has(VIEW) or (reuse and op.kind == "reshape"):
            outs = [ins[0].reshape(op.result.shape)]
            assert np.shares_memory(outs[0], ins[0])
        else:
            outs = reference(op, [np.array(a) for a in ins])
            if op.has(INPLACE):
                ins[0][...] = outs[0]
                outs = [ins[0], *outs[1:]]
            elif reuse in op.attrs:
                ins[op.attrs[reuse]][...] = outs[0]
                outs = [ins[op.attrs[reuse]], *outs[1:]]
            else:
                outs = [np.array(a) for a in outs]
        env.update(zip(op.results, outs, strict=True))
    raise AssertionError("main has no return")
