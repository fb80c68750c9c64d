"""Canonicalisation: each rule fires, keeps the numbers, and chains end in one form."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tx8fast.ir import Builder, new_context, reference
from tx8fast.ir.attrs import DenseAttr
from tx8fast.ir.program import IRProgram
from tx8fast.numerics.formats import np_dtype
from tx8fast.passes.canonicalize import PATTERNS, is_widening
from tx8fast.passes.pipeline import run_pipeline


class Graph:
    def __init__(self, *args):
        self.ctx = new_context()
        module = self.ctx.create("module", (), (), n_regions=1)
        top = Builder(self.ctx, module.regions[0].add_block())
        func = top.op("func", sym_name="main", n_regions=1)
        types = [self.ctx.tensor(shape, dtype) for shape, dtype in args]
        self.block = func.regions[0].add_block(types)
        self.b = Builder(self.ctx, self.block)
        self.args = self.block.args
        self.program = IRProgram(self.ctx, module, None, "graph")

    def const(self, value, dtype="f32"):
        return self.b("constant", value=DenseAttr(np.array(value, np_dtype(dtype))))

    def kinds(self):
        return [op.kind for op in self.block if op.kind != "return"]

    def run(self, seed=0):
        rng = np.random.default_rng(seed)
        env = {}
        for a in self.args:
            data = rng.standard_normal(a.shape) * 3
            env[a] = (data > 0) if a.dtype == "pred" else data.astype(np_dtype(a.dtype))
        for op in self.block:
            arrays = [env[v] for v in op.operands]
            if op.kind == "return":
                return arrays
            results = [op.attrs["value"].array] if op.kind == "constant" else reference(op, arrays)
            env.update(zip(op.results, results))
        raise AssertionError("no return")


F = ((2, 3, 4), "f32")
M = ((4, 6), "f32")


def check(args, build, kinds, exact=True):
    """Build, canonicalise, and compare the ops left and the numbers."""
    g = Graph(*args)
    out = build(g, g.b, *g.args)
    g.b.op("return", *(out if isinstance(out, tuple) else (out,)))
    before = g.run()
    n_before = len(g.kinds())
    run_pipeline(g.program, "canonicalize,cse")
    assert g.kinds() == kinds
    assert len(g.kinds()) <= n_before
    for x, y in zip(before, g.run(), strict=True):
        np.testing.assert_array_equal(x, y)
    assert not run_pipeline(g.program, "canonicalize")[0].result.changed
    return g


CASES = {
    "identity transpose": ([F], lambda g, b, x: b("transpose", x, perm=(0, 1, 2)), []),
    "identity reshape": ([F], lambda g, b, x: b("reshape", x, shape=(2, 3, 4)), []),
    "identity slice": ([F], lambda g, b, x: b("slice", x, start=(0, 0, 0), size=(2, 3, 4), step=(1, 1, 1)), []),
    "mirrored slice stays": ([F], lambda g, b, x: b("slice", x, start=(1, 0, 0), size=(2, 3, 4), step=(-1, 1, 1)), ["slice"]),
    "identity pad": ([F], lambda g, b, x: b("pad", x, lo=(0, 0, 0), hi=(0, 0, 0)), []),
    "identity broadcast": ([F], lambda g, b, x: b("broadcast", x, shape=(2, 3, 4)), []),
    "identity convert": ([F], lambda g, b, x: b("convert", x, dtype="f32"), []),
    "concat of one": ([F], lambda g, b, x: b("concat", x, axis=1), []),
    "concat of two stays": ([F], lambda g, b, x: b("concat", x, x, axis=1), ["concat"]),
    "unbounded clamp": ([F], lambda g, b, x: b("clamp", x), []),
    "bounded clamp stays": ([F], lambda g, b, x: b("clamp", x, lo=0.0), ["clamp"]),
    "transposes cancel": ([F], lambda g, b, x: b("transpose", b("transpose", x, perm=(1, 2, 0)), perm=(2, 0, 1)), []),
    "transposes combine": ([F], lambda g, b, x: b("transpose", b("transpose", x, perm=(1, 2, 0)), perm=(1, 2, 0)), ["transpose"]),
    "transpose of ones": ([((1, 5, 1), "f32")], lambda g, b, x: b("transpose", x, perm=(1, 2, 0)), ["reshape"]),
    "reshapes combine": ([F], lambda g, b, x: b("reshape", b("reshape", x, shape=(24,)), shape=(6, 4)), ["reshape"]),
    "reshapes cancel": ([F], lambda g, b, x: b("reshape", b("reshape", x, shape=(24,)), shape=(2, 3, 4)), []),
    "broadcasts combine": ([((4,), "f32")], lambda g, b, x: b("broadcast", b("broadcast", x, shape=(3, 4)), shape=(2, 3, 4)), ["broadcast"]),
    "wide and back": ([((8,), "bf16")], lambda g, b, x: b("convert", b("convert", x, dtype="f32"), dtype="bf16"), []),
    "wide and on": ([((8,), "bf16")], lambda g, b, x: b("convert", b("convert", x, dtype="f32"), dtype="f64"), ["convert"]),
    "beyond the last range": (
        [((8,), "i8")], lambda g, b, x: b("convert", b("convert", x, dtype="f32"), dtype="u8"), ["convert", "convert"],
    ),
    "within the last range": ([((8,), "u8")], lambda g, b, x: b("convert", b("convert", x, dtype="f32"), dtype="i16"), ["convert"]),
    "narrow and back stays": ([F], lambda g, b, x: b("convert", b("convert", x, dtype="bf16"), dtype="f32"), ["convert", "convert"]),
    "right operand transposed": ([M, M], lambda g, b, x, y: b("gemm", x, b("transpose", y, perm=(1, 0))), ["gemm"]),
    "both transposed": ([M, M], lambda g, b, x, y: b("gemm", b("transpose", x, perm=(1, 0)), b("transpose", b("transpose", y, perm=(1, 0)), perm=(1, 0))), ["gemm"]),
    "flag and transpose cancel": ([M, M], lambda g, b, x, y: b("gemm", x, b("transpose", y, perm=(1, 0)), trans_b=False), ["gemm"]),
    "batch transpose stays": ([((4, 2, 3), "f32"), ((2, 3, 5), "f32")], lambda g, b, x, y: b("gemm", b("transpose", x, perm=(1, 0, 2)), y), ["transpose", "gemm"]),
    "add zero": ([F], lambda g, b, x: b("add", g.const(0.0), x), []),
    "add zeros": ([F], lambda g, b, x: b("add", x, b("broadcast", g.const([0.0, 0.0, 0.0, 0.0]), shape=(2, 3, 4))), []),
    "add other stays": ([F], lambda g, b, x: b("add", x, g.const([0.0, 1.0, 0.0, 0.0])), ["constant", "add"]),
    "zero that broadcasts x stays": ([((4,), "f32")], lambda g, b, x: b("add", x, g.const(np.zeros((2, 4)))), ["constant", "add"]),
    "sub zero": ([F], lambda g, b, x: b("sub", x, g.const(0.0)), []),
    "zero minus x stays": ([F], lambda g, b, x: b("sub", g.const(0.0), x), ["constant", "sub"]),
    "mul one": ([F], lambda g, b, x: b("mul", g.const(1.0), x), []),
    "div one": ([F], lambda g, b, x: b("div", x, g.const(1.0)), []),
    "one over x stays": ([F], lambda g, b, x: b("div", g.const(1.0), x), ["constant", "div"]),
    "power one": ([F], lambda g, b, x: b("pow", x, g.const(1.0)), []),
    "power two": ([F], lambda g, b, x: b("pow", x, g.const(2.0)), ["square"]),
    "constant goes last": ([F], lambda g, b, x: b("mul", g.const(2.0), x), ["constant", "mul"]),
    "select true": ([F, F], lambda g, b, x, y: b("select", g.const(True, "pred"), x, y), []),
    "select false": ([F, F], lambda g, b, x, y: b("select", g.const([False] * 4, "pred"), x, y), []),
    "select mixed stays": ([F, F], lambda g, b, x, y: b("select", g.const([False, True] * 2, "pred"), x, y), ["constant", "select"]),
    "select same": ([((2, 3, 4), "pred"), F], lambda g, b, p, x: b("select", p, x, x), []),
    "double neg": ([F], lambda g, b, x: b("neg", b("neg", x)), []),
    "double relu": ([F], lambda g, b, x: b("relu", b("relu", x)), ["relu"]),
    "double clamp": ([F], lambda g, b, x: b("clamp", b("clamp", x, lo=0.0), lo=0.0), ["clamp"]),
    "other clamp stays": ([F], lambda g, b, x: b("clamp", b("clamp", x, lo=0.0), hi=1.0), ["clamp", "clamp"]),
    "broadcast into add": ([F, ((4,), "f32")], lambda g, b, x, y: b("add", x, b("broadcast", y, shape=(2, 3, 4))), ["add"]),
    "broadcast into select": ([((4,), "pred"), F, ((), "f32")], lambda g, b, p, x, y: b("select", b("broadcast", p, shape=(2, 3, 4)), x, b("broadcast", y, shape=(2, 3, 4))), ["select"]),
    "one broadcast must stay": ([((4,), "f32"), ((4,), "f32")], lambda g, b, x, y: b("add", b("broadcast", x, shape=(3, 4)), b("broadcast", y, shape=(3, 4))), ["add", "broadcast"]),
    "repeated later": ([((4, 1), "f32"), ((), "f32")], lambda g, b, x, y: b("mul", b("relu", b("broadcast", x, shape=(2, 4, 3))), y), ["relu", "mul", "broadcast"]),
    "slopes give no shape": ([((4,), "f32"), ((4,), "f32")], lambda g, b, x, y: b("prelu", b("broadcast", x, shape=(3, 4)), b("broadcast", y, shape=(3, 4))), ["prelu", "broadcast"]),
    "and true": ([((4, 1), "pred")], lambda g, b, x: b("and", x, g.const([[True] * 3], "pred")), ["broadcast"]),
    "or false": ([((4, 3), "pred")], lambda g, b, x: b("or", g.const(False, "pred"), x), []),
    "and mixed stays": ([((4, 3), "pred")], lambda g, b, x: b("and", x, g.const([True, False, True], "pred")), ["constant", "and"]),
    "or true stays": ([((4, 3), "pred")], lambda g, b, x: b("or", x, g.const(True, "pred")), ["constant", "or"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_rule(name):
    args, build, kinds = CASES[name]
    check(args, build, kinds)


def test_every_pattern_has_a_case():
    seen = set()
    for args, build, _ in CASES.values():
        g = Graph(*args)
        g.b.op("return", build(g, g.b, *g.args))
        seen |= set(run_pipeline(g.program, "canonicalize")[0].result.stats)
    assert {p.name for p in PATTERNS} <= seen


def test_gemm_flags_toggle():
    g = check(
        [M, M],
        lambda g, b, x, y: b("gemm", b("transpose", x, perm=(1, 0)), y, trans_a=True, trans_b=True),
        ["gemm"],
    )
    gemm = g.block.first
    assert gemm.attrs["trans_a"] is False and gemm.attrs["trans_b"] is True


def test_a_transpose_with_other_users_stays_for_them():
    def build(g, b, x, y):
        t = b("transpose", y, perm=(1, 0))
        return b("gemm", x, t), b("relu", t)

    g = check([M, M], build, ["transpose", "gemm", "relu"])
    assert [op.kind for op in g.args[1].users] == ["transpose", "gemm"]


@pytest.mark.parametrize(
    "source, target, lossless",
    [
        ("bf16", "f32", True), ("bf16", "f16", False), ("f16", "bf16", False), ("f16", "tf32", True), ("f32", "tf32", False),
        ("f32", "f64", True), ("i8", "bf16", True), ("i16", "bf16", False), ("i16", "f16", False), ("u8", "i8", False),
        ("u8", "i16", True), ("i8", "u16", False), ("i32", "f32", False), ("i32", "f64", True), ("i64", "f64", False),
        ("pred", "i4", True), ("f32", "i64", False), ("u16", "f32", True), ("i8", "i8", True),
    ],
)  # fmt: skip
def test_widening_table(source, target, lossless):
    assert is_widening(source, target) is lossless


def test_widening_agrees_with_the_numbers():
    """Every 16-bit float survives the conversions the table calls lossless, and only those."""
    bits = np.arange(65536, dtype=np.uint16)
    for source in ("bf16", "f16"):
        x = bits.view(np_dtype(source))
        x = x[np.isfinite(x.astype(np.float64))]
        for target in ("bf16", "f16", "f32", "f64"):
            with np.errstate(all="ignore"):
                kept = np.array_equal(x.astype(np_dtype(target)).astype(np.float64), x.astype(np.float64))
            assert kept is is_widening(source, target), (source, target)


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(["T", "R", "B", "C", "0", "1", "n", "c"]), max_size=14),
    st.integers(0, 5),
)
def test_random_chains_keep_their_numbers_and_reach_a_fixpoint(steps, seed):
    """Numbers stay, nothing grows, and a second run finds nothing."""
    rng = np.random.default_rng(seed)
    g = Graph(((2, 1, 6), "f32"))
    x, b = g.args[0], g.b
    for s in steps:
        n = len(x.shape)
        if s == "T":
            x = b("transpose", x, perm=tuple(int(p) for p in rng.permutation(n)))
        elif s == "R":
            total = math.prod(x.shape)
            x = b("reshape", x, shape=[(total,), (2, total // 2), (1, total // 2, 2)][rng.integers(3)])
        elif s == "B" and math.prod(x.shape) < 1000:
            x = b("broadcast", x, shape=(2, *x.shape) if n < 4 else x.shape)
        elif s == "C":
            x = b("convert", b("convert", x, dtype="f64"), dtype="f32")
        elif s == "c":
            x = b("convert", b("convert", x, dtype="bf16"), dtype="f32")
        elif s == "0":
            x = b("add", g.const(0.0), x)
        elif s == "1":
            x = b("mul", x, b("broadcast", g.const(1.0), shape=x.shape))
        elif s == "n":
            x = b("neg", x)
    b.op("return", x)
    before, n_before = g.run(), len(g.kinds())
    run_pipeline(g.program, "canonicalize")
    np.testing.assert_array_equal(before[0], g.run()[0])
    assert len(g.kinds()) <= n_before
    assert not run_pipeline(g.program, "canonicalize")[0].result.changed


def test_constants_fold_through_the_dialect():
    """A scale computed from constants becomes one inline constant, and its use keeps the numbers."""
    g = Graph(F)
    b = g.b
    s = b("rsqrt", b("mul", g.const(4.0), g.const(16.0)))
    b.op("return", b("mul", b("broadcast", s, shape=(2, 3, 4)), g.args[0]))
    before = g.run()
    run_pipeline(g.program, "canonicalize,fold-constants,dce")
    assert g.kinds() == ["constant", "mul"] and g.block.first.attrs["value"].array == 0.125
    np.testing.assert_array_equal(before[0], g.run()[0])


def test_an_iota_folds_within_the_inline_limit_without_a_table():
    g = Graph(F)
    g.b.op(
        "return",
        g.b("iota", shape=(4,), dtype="i32", axis=0),
        g.b("iota", shape=(4000,), dtype="i32", axis=0),
    )
    run_pipeline(g.program, "fold-constants")
    assert g.kinds() == ["constant", "iota"]
