"""A tiny interpreter: runs a program's main function op by op with the reference routines.

It knows no layouts, schedules or machines, so a wrong result means a wrong graph.
"""

from __future__ import annotations

import numpy as np

from tx8fast.ir import Op, reference
from tx8fast.ir.program import IRProgram
from tx8fast.weights import np_dtype


def run_program(program: IRProgram, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Return the results of `main`; `inputs` are keyed by argument name."""
    main = program.main
    args = [np.asarray(inputs[name]) for name in main.attrs["arg_names"]]
    return _run_function(program, main, args)


def _run_function(program: IRProgram, func: Op, args: list[np.ndarray]) -> list[np.ndarray]:
    env = dict(zip(func.body.args, args, strict=True))
    for op in func.body:
        operands = [env[v] for v in op.operands]
        if op.kind in ("return", "subgraph_return", "group_return"):
            return operands
        if op.kind == "constant":
            results = [_plain(op.attrs["value"].array, op.result.dtype)]
        elif op.kind == "get_param":
            results = [_plain(program.weights.view(op.attrs["key"]), op.result.dtype)]
        elif op.kind == "none":
            results = [None]
        elif op.kind == "call":
            callee = program.symbols().lookup(op.attrs["callee"])
            results = _run_function(program, callee, operands)
        else:
            results = reference(op, operands)
        for value, array in zip(op.results, results, strict=True):
            if array is not None:
                assert array.shape == value.shape, f"{op}: {array.shape} instead of {value.shape}"
            env[value] = array
    raise AssertionError("function without return")


def _plain(array: np.ndarray, dtype: str) -> np.ndarray:
    """4-bit integers are computed on as bytes."""
    if dtype in ("i4", "u4"):
        return np.asarray(array).astype(np.int8 if dtype == "i4" else np.uint8)
    return np.asarray(array, np_dtype(dtype))
