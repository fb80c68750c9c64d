"""Builds one-function programs for tests of passes."""

from __future__ import annotations

import numpy as np

from tx8fast.ir import Builder, Value, new_context
from tx8fast.ir.program import IRProgram
from tx8fast.passes.layout_forms import form_of, needed_form
from tx8fast.weights import WeightTable


class SmallGraph:
    """`g = SmallGraph(x=((2, 8), "f32")); y = g("relu", g.args["x"]); program = g.done(y=y)`."""

    def __init__(self, **args: tuple[tuple[int, ...], str]) -> None:
        self.ctx = new_context()
        self.module = self.ctx.create("module", n_regions=1)
        self.top = self.module.regions[0].add_block()
        self.weights = WeightTable()
        self.begin("func", "main", **args)

    def begin(self, kind: str, name: str, **args: tuple[tuple[int, ...], str]) -> None:
        """Start the next function; the one before must be ended."""
        self.func = self.ctx.create(kind, n_regions=1, sym_name=name, arg_names=tuple(args))
        self.top.append(self.func)
        block = self.func.regions[0].add_block([self.ctx.tensor(s, d) for s, d in args.values()])
        self.args = dict(zip(args, block.args))
        self.b = Builder(self.ctx, block)

    def __call__(self, name: str, *operands: Value | None, **attrs) -> Value:
        return self.b(name, *operands, **attrs)

    def op(self, name: str, *operands: Value | None, **attrs):
        return self.b.op(name, *operands, **attrs)

    def param(self, key: str, shape: tuple[int, ...], dtype: str = "f32") -> Value:
        if key not in self.weights:
            self.weights.add_missing(key, shape, dtype)
        return self.b("get_param", result_types=[self.ctx.tensor(shape, dtype)], key=key)

    def array(self, key: str, array: np.ndarray) -> Value:
        w = self.weights.add_array(key, array)
        return self.b("get_param", result_types=[self.ctx.tensor(w.shape, w.dtype)], key=key)

    def end(self, **results: Value) -> None:
        self.func.attrs["result_names"] = tuple(results)
        name = "return" if self.func.kind == "func" else "subgraph_return"
        self.b.op(name, *results.values(), result_types=[])

    def done(self, **results: Value) -> IRProgram:
        self.end(**results)
        return self.program()

    def program(self) -> IRProgram:
        program = IRProgram(self.ctx, self.module, self.weights, "small")
        program.verify()
        return program


def kinds(program: IRProgram) -> list[str]:
    return [op.kind for op in program.main.body]


def ops_of(program: IRProgram, kind: str) -> list:
    return [op for op in program.module.walk() if op.kind == kind]


def check_forms(program):
    """Every use finds the form it needs; every conversion changes the form."""
    symbols = program.symbols()
    for op in program.module.walk():
        if op.parent is None or op.parent.kind not in ("func", "subgraph"):
            continue
        for i, v in enumerate(op.operands):
            need = needed_form(op, i, symbols)
            assert need is None or need == form_of(v, symbols), (op, i, need)
    for op in ops_of(program, "channel_norm"):
        assert form_of(op.operands[0], symbols) != op.attrs["mem_layout"]
