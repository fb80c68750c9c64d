"""Cost of the graph IR per op: build, verify, print, parse, clone, rewrite, sweep, outline.

Run with `pytest benchmarks/bench_ir.py --benchmark-only`. Budgets are in microseconds per op with the
garbage collector frozen; `test_budgets` fails at 1.5 times a budget.
"""

from __future__ import annotations

import gc
import os
import time

import pytest

from tx8fast.ir import Builder, new_context
from tx8fast.ir.clone import clone_op
from tx8fast.ir.parser import parse_op
from tx8fast.ir.printer import print_op
from tx8fast.ir.program import IRProgram
from tx8fast.ir.rewrite import pattern, rewrite_greedily
from tx8fast.ir.verify import verify
from tx8fast.passes.cse import Cse
from tx8fast.passes.dce import Dce
from tx8fast.passes.fold_copies import FoldCopies
from tx8fast.passes.inline import Inline
from tx8fast.passes.inplace_to_functional import InplaceToFunctional
from tx8fast.passes.outline import Outline
from tx8fast.passes.wrap_value import WrapValue

LAYERS = 250  # of 20 ops: 5 000 ops
VALUE_PASSES = (InplaceToFunctional(), WrapValue(), FoldCopies())
BUDGET_US = {
    "build": 6,
    "verify": 3,
    "print": 5,
    "parse": 50,
    "clone": 6,
    "rewrite": 10,
    "sweep": 3,
    "value passes": 3,
    "level 2": 6,
}


def build(layers: int = LAYERS) -> IRProgram:
    """A chain of layers with 20 ops each: parameters, matrix products, pointwise ops, norms."""
    ctx = new_context()
    module = ctx.create("module", (), (), n_regions=1)
    func = Builder(ctx, module.regions[0].add_block()).op("func", sym_name="main", n_regions=1)
    act, weight = ctx.tensor((128, 256), "bf16"), [ctx.tensor((256, 256), "bf16")]
    vector = [ctx.tensor((256,), "bf16")]
    b = Builder(ctx, func.regions[0].add_block([act]))
    x = func.body.args[0]
    same = [act]
    for n in range(layers):
        h = b("rmsnorm", x, b("get_param", key=f"{n}.g", result_types=vector), result_types=same)
        for k in range(4):
            w = b("get_param", key=f"{n}.{k}", result_types=weight)
            h = b("gemm", h, w, trans_b=bool(k & 1), result_types=same)
            h = b("silu" if k < 3 else "relu", h, result_types=same)
        h = b("mul", h, b("sigmoid", h, result_types=same), result_types=same)
        for _ in range(3):
            h = b("gelu", h, result_types=same)
        x = b("add", x, h, result_types=same)
    b.op("return", x)
    return IRProgram(ctx, module, None, "bench")


@pattern("gelu")
def to_tanh(op, rw):
    """Rewrites 15 % of the ops."""
    rw.replace_with(op, "gelu_tanh", op.operands[0])
    return True


@pattern("conv")
def never(op, rw):
    return False


@pytest.fixture(scope="module")
def program():
    made = build()
    gc.collect()
    gc.freeze()
    gc.disable()
    yield made
    gc.enable()
    gc.unfreeze()


def _per_op(program, seconds: float, ops: int | None = None) -> float:
    return seconds * 1e6 / (ops or program.n_ops())


def test_build(benchmark):
    benchmark(build)


def test_verify(benchmark, program):
    benchmark(verify, program.module, 1)


def test_verify_types(benchmark, program):
    benchmark(verify, program.module, 2)


def test_print(benchmark, program):
    benchmark(print_op, program.module)


def test_parse(benchmark, program):
    benchmark(parse_op, program.ctx, program.text())


def test_clone(benchmark, program):
    benchmark(clone_op, program.module)


@pytest.mark.parametrize("compiler_pass", [Cse(), Dce(), Outline()], ids=lambda p: p.name)
def test_pass(benchmark, program, compiler_pass):
    benchmark.pedantic(compiler_pass.run, setup=lambda: ((program.clone(),), {}), rounds=5)


def test_inline(benchmark, program):
    outlined = program.clone()
    Outline().run(outlined)
    benchmark.pedantic(Inline().run, setup=lambda: ((outlined.clone(),), {}), rounds=5)


def measure(program) -> dict[str, float]:
    """Best of five, in CPU microseconds per op."""

    def best(run, setup=lambda: None, ops=None):
        times = []
        for _ in range(5):
            given = setup()
            start = time.process_time()
            run(given)
            times.append(time.process_time() - start)
        return _per_op(program, min(times), ops)

    text = program.text()
    hits = sum(op.kind == "gelu" for op in program.module.walk())
    return {
        "build": best(lambda _: build()),
        "verify": best(lambda _: verify(program.module, 1)),
        "print": best(lambda _: print_op(program.module)),
        "parse": best(lambda _: parse_op(program.ctx, text)),
        "clone": best(lambda _: clone_op(program.module)),
        "rewrite": best(lambda p: rewrite_greedily(p.ctx, p.module, [to_tanh]), program.clone, hits),
        "sweep": best(lambda p: rewrite_greedily(p.ctx, p.module, [never]), program.clone),
        "value passes": best(lambda p: [q.run(p) for q in VALUE_PASSES], program.clone),
        "level 2": best(lambda _: verify(program.module, 2)),
    }


@pytest.mark.feature("IR-52")
@pytest.mark.skipif(not os.environ.get("TX8FAST_BUDGETS"), reason="set TX8FAST_BUDGETS=1 on a quiet machine")
def test_budgets(program):
    found = measure(program)
    late = {k: round(v, 2) for k, v in found.items() if v > 1.5 * BUDGET_US[k]}
    assert not late, f"microseconds per op {found}, budgets {BUDGET_US}"


if __name__ == "__main__":
    gc.disable()
    for name, value in measure(build()).items():
        print(f"{name:12} {value:7.2f} us/op, budget {BUDGET_US[name]}")
