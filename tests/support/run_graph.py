"""Run an IR program with the ops' reference routines: calls, groups and conversions of form included."""

from __future__ import annotations

from typing import Any

import numpy as np

from tx8fast.ir import reference
from tx8fast.ir.attrs import DENSE_DTYPES
from tx8fast.ir.core import Block
from tx8fast.ir.types import NoneType

_COPIES = frozenset({"load_var", "store_var", "channel_norm"})
_RETURNS = frozenset({"return", "subgraph_return", "group_return"})


def run_graph(program, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return main's results by name; a read of a parameter converts to the type it declares."""
    main = program.main
    args = [
        np.asarray(inputs[n]).astype(DENSE_DTYPES[v.dtype][1])
        for n, v in zip(main.attrs["arg_names"], main.body.args, strict=True)
    ]
    found = _block(program, main.body, args)
    return dict(zip(main.attrs["result_names"], found, strict=True))


def _block(program, block: Block, args: list[Any]) -> list[Any]:
    env = dict(zip(block.args, args, strict=True))
    for op in block:
        ins = [None if type(v.type) is NoneType else env[v] for v in op.operands]
        if op.kind in _RETURNS:
            return ins
        if op.kind == "none":
            outs: list[Any] = [None]
        elif op.kind == "get_param" or "rt_key" in op.attrs:
            array = program.weights.view(op.attrs.get("key") or op.attrs["rt_key"])
            outs = [array.astype(DENSE_DTYPES[op.result.dtype][1])]
        elif op.kind == "constant" or "rt_value" in op.attrs:
            outs = [(op.attrs.get("value") or op.attrs["rt_value"]).array]
        elif op.kind == "call":
            outs = _block(program, program.symbols().lookup(op.attrs["callee"]).body, ins)
        elif op.kind == "group":
            outs = _block(program, op.body, ins)
        elif op.kind in _COPIES:
            outs = [ins[0]]
        else:
            outs = reference(op, ins)
        for r, array in zip(op.results, outs, strict=True):
            if array is not None:
                assert np.shape(array) == r.shape, (op, np.shape(array), r.type)
                array = np.asarray(array, DENSE_DTYPES[r.dtype][1])
            env[r] = array
    raise AssertionError("the block has no terminator")
