"""A dialect for tests of the generic parts: nothing in it is known to the product."""

from __future__ import annotations

import numpy as np

from tx8fast.ir.attrs import ATTR_CLASSES, DenseAttr
from tx8fast.ir.builder import Builder
from tx8fast.ir.core import (
    COMMUTATIVE,
    COMPUTE,
    CONSTANT_LIKE,
    IDEMPOTENT,
    ISOLATED,
    PURE,
    READ_ONLY,
    REQUIRED,
    SYMBOL,
    SYMBOL_TABLE,
    TERMINATOR,
    Context,
    OpInfo,
)
from tx8fast.ir.program import IRProgram

ANY = (tuple, str, float, int, bool, dict, DenseAttr, *ATTR_CLASSES.values())


def toy_context() -> Context:
    ctx = Context()

    def op(name, ins=(), outs=("y",), attrs=None, traits=0, infer=None, **impl):
        if not outs and infer is None:
            infer = nothing
        methods = {("Compute", "compute"): impl["compute"]} if "compute" in impl else {}
        methods |= {("Effects", "effects"): impl["effects"]} if "effects" in impl else {}
        info = OpInfo(
            name if "." in name else "tx8be." + name, len(ctx.infos), tuple(ins), tuple(outs), attrs or {}, traits, infer,
            impl=methods,
        )  # fmt: skip
        ctx.register(info)

    def nothing(o):
        return []

    def same(o):
        return [o.operands[0].type]

    op("module", outs=(), traits=SYMBOL_TABLE)
    symbol = {"sym_name": (str, REQUIRED)}
    op("func", outs=(), attrs=symbol, traits=SYMBOL | ISOLATED)
    op("subgraph", outs=(), attrs=symbol, traits=SYMBOL | ISOLATED)
    op("call", ("x*",), ("y*",), {"callee": (str, REQUIRED)})
    op("return", ("x*",), (), traits=TERMINATOR)
    op("subgraph_return", ("x*",), (), traits=TERMINATOR)
    op("group", ("x*",), ("y*",), {"tag": (int, 0)}, ISOLATED)
    op("group_return", ("x*",), (), traits=TERMINATOR)
    op("constant", attrs={"value": (DenseAttr, REQUIRED)}, traits=PURE | CONSTANT_LIKE)
    op("none", traits=PURE | CONSTANT_LIKE)
    key = {"key": (str, REQUIRED)}
    op("get_param", attrs=key, traits=READ_ONLY, effects=lambda o: [("read", o.attrs["key"])])
    op("set_param", ("x",), (), key, effects=lambda o: [("write", o.attrs["key"])])
    op("toy.add", ("a", "b"), traits=COMPUTE | COMMUTATIVE, infer=same,
       compute=lambda o, arrays: [arrays[0] + arrays[1]])  # fmt: skip
    op(
        "toy.sub",
        ("a", "b"),
        traits=COMPUTE,
        infer=same,
        compute=lambda o, arrays: [arrays[0] - arrays[1]],
    )
    op("toy.scale", ("x",), attrs={"by": (float, 1.0)}, traits=COMPUTE, infer=same)
    op("toy.relu", ("x",), traits=COMPUTE | IDEMPOTENT, infer=same)
    op("toy.print", ("x",), ())  # unknown effects
    op("toy.any", ("x*",), ("y*",), {"a": (ANY, None), "b": (float, 1.5)}, traits=PURE)
    op("toy.scope", ("x*",), ("y*",))  # a region that sees the values around it
    op("toy.yield", ("x*",), (), traits=TERMINATOR)
    return ctx


class Toy:
    """A module with one function `main` of `n_args` tensors 4xf32, and a builder at its end."""

    def __init__(self, n_args: int = 2, ctx: Context | None = None, weights=None) -> None:
        self.ctx = ctx or toy_context()
        self.type = self.ctx.tensor((4,), "f32")
        self.module = self.ctx.create("module", (), (), n_regions=1)
        self.top = Builder(self.ctx, self.module.regions[0].add_block())
        self.func = self.top.op("func", result_types=(), n_regions=1, sym_name="main")
        self.body = self.func.regions[0].add_block([self.type] * n_args)
        self.b = Builder(self.ctx, self.body)
        self.args = self.body.args
        self.program = IRProgram(self.ctx, self.module, weights, "toy")

    def subgraph(self, name: str, n_args: int = 1):
        op = self.top.op("subgraph", result_types=(), n_regions=1, sym_name=name)
        block = op.regions[0].add_block([self.type] * n_args)
        return op, Builder(self.ctx, block)

    def const(self, *values: float):
        array = np.array(values, np.float32)
        return self.b("constant", result_types=[self.ctx.tensor(array.shape, "f32")], value=DenseAttr(array))

    def ret(self, *values):
        self.b.op("return", *values, result_types=())
        return self.program

    def kinds(self) -> list[str]:
        return [op.kind for op in self.body]
