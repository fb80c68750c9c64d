"""Graphs cut over chips by factor rules: every kind of op in parts, random graphs against themselves on one chip, what is chosen, what is refused."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from hunt.draft import Unfit
from hunt.generate import Generator

from tests.ir.op_cases import build, data, make_case
from tests.support.run_graph import run_graph
from tests.support.run_over_chips import joined, run_over_chips
from tx8fast.errors import ConfigError, Tx8Error
from tx8fast.frontend import open_model
from tx8fast.ir import Builder, Context, new_context, reference
from tx8fast.ir.core import REAL
from tx8fast.ir.program import IRProgram
from tx8fast.passes.chip_layouts import rule_of, way
from tx8fast.passes.cut_over_chips import CutOverChips, cut_bytes
from tx8fast.passes.dce import Dce
from tx8fast.passes.pipeline import lifted_passes, run_pipeline
from tx8fast.weights import WeightTable

CTX = new_context()
KINDS = [
    i.kind for i in CTX.infos.values() if i.traits & REAL and make_case(i.kind, np.random.default_rng(0)) is not None
]
TRIES = 60


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_operands_give_parts_of_results(kind):
    """Whatever `way` admits is so: the op on every chip's part gives its part of the result, or a summand of it."""
    rng = np.random.default_rng(7)
    for _ in range(TRIES):
        case = make_case(kind, rng)
        assert case is not None
        try:
            op = build(CTX, case)
        except Tx8Error:
            continue  # a window that nothing is left of
        rule, arrays = rule_of(op), data(case, rng)
        if rule is None:
            continue
        whole = [np.asarray(a) for a in reference(op, arrays)]
        for f, size in enumerate(rule.sizes):
            for n in (p for p in (2, 3) if size % p == 0):
                made = way(CTX, op, ((f, n),))
                if made is not None and not made.late:
                    _same(op, made, arrays, whole, n)


def _same(op, made, arrays, whole, n):
    found = []
    for chip in range(n):
        own = [part(a, need, chip, n) for a, need in zip(arrays, made.needs)]
        types = [op.operands[i].type for i in range(len(own))]
        block = new_block(CTX, [(a.shape, t.dtype) for a, t in zip(own, types)])
        found.append(reference(block.op(op.kind, *block.block.args, **made.attrs), own))
    for r, want in enumerate(whole):
        parts = np.stack([np.asarray(f[r]) for f in found])
        if made.outs[r].kind == "sum":
            got = parts.astype(np.float64).sum(0)
        else:
            cut = made.outs[r]
            wide = [np.split(p, want.shape[cut.dim] // cut.block, axis=cut.dim) for p in parts]
            got = np.concatenate([p for pieces in zip(*wide) for p in pieces], axis=cut.dim)
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=1e-4, atol=1e-5, err_msg=str((op, made))
        )


def part(array, lies, chip, n):
    if lies.kind == "whole":
        return array
    blocks = np.split(array, array.shape[lies.dim] // lies.block, axis=lies.dim)
    return np.concatenate(
        [np.split(b, lies.parts, axis=lies.dim)[chip * lies.parts // n] for b in blocks], axis=lies.dim
    )


def new_block(ctx: Context, specs) -> Builder:
    func = ctx.create("func", n_regions=1, sym_name="main")
    return Builder(ctx, func.regions[0].add_block([ctx.tensor(s, d) for s, d in specs]))


def lifted(path) -> IRProgram:
    program = open_model(path)
    run_pipeline(program, lifted_passes(), verify_between=False)
    return program


def cut(program: IRProgram, parts: int, **options) -> tuple[IRProgram, dict[str, int]]:
    other = program.clone()
    stats = CutOverChips(parts, **options).run(other).stats
    Dce().run(other)
    other.verify(2, "cut over chips")
    return other, stats


def compare(program: IRProgram, other: IRProgram, feeds, parts: int, tolerance: float):
    """... or as near as the results are when the inputs are off by their last bits: a reciprocal near its pole shows every order of a sum."""
    found = run_over_chips(other, feeds, parts)
    moved = run_graph(
        program, {n: a * a.dtype.type(1 + 2**-21) if a.dtype == np.float32 else a for n, a in feeds.items()}
    )
    for name, want in run_graph(program, feeds).items():
        got = joined(found[name], want.shape, parts).astype(np.float64)
        seen = np.isfinite(want.astype(np.float64))
        error = np.abs(got - want)[seen].max(initial=0) / max(1e-30, np.abs(want[seen]).max(initial=0))
        shift = np.abs(moved[name].astype(np.float64) - want)[seen].max(initial=0)
        shift /= max(1e-30, np.abs(want[seen]).max(initial=0))
        assert error <= max(tolerance, 10 * np.nan_to_num(shift)), (name, parts, error)


@pytest.mark.parametrize("make", ["program", "products"])
@pytest.mark.slow
def test_random_graphs_are_themselves(make):
    """Models of the hunt in f32, over 2 to 6 chips; gathers for nothing, so that there are some, and at their price."""
    done: Counter[str] = Counter()
    path = Path(tempfile.mkdtemp()) / "m.onnx"
    enough = {"runs": 50, "sums": 20, "gathers": 50}
    for seed in range(600):
        if seed >= 45 and all(done[what] > n for what, n in enough.items()):
            break
        try:
            made = getattr(Generator(), make)(seed)
            onnx.save(made.model, path)
            program = lifted(path)
        except (Unfit, Tx8Error):
            continue
        if any(v.dtype in ("bf16", "f16") for op in program.main.body for v in op.results):
            continue  # rounding of summands is larger than what one looks for
        for parts in (2, 3, 4, 6):
            for price in (0, 1 << 20):
                try:
                    other, stats = cut(program, parts, gather_bytes=price)
                except ConfigError:
                    continue
                compare(program, other, made.feeds, parts, 2e-5)
                done += Counter(stats) + Counter(runs=1)
    assert all(done[what] > n for what, n in enough.items()), done


# ------------------------------------------------------------ what is chosen


def graph(inputs, weights, fill) -> IRProgram:
    """Return a program: inputs {name: shape}, weights {name: shape}, `fill(b, values)` gives results by name."""
    ctx = new_context()
    table, rng = WeightTable(), np.random.default_rng(1)
    module = ctx.create("module", n_regions=1)
    func = ctx.create("func", n_regions=1, sym_name="main", arg_names=tuple(inputs))
    module.regions[0].add_block().append(func)
    block = func.regions[0].add_block([ctx.tensor(s, "f32") for s in inputs.values()])
    b, values = Builder(ctx, block), dict(zip(inputs, block.args))
    for name, shape in weights.items():
        table.add_array(name, rng.standard_normal(shape).astype(np.float32))
        values[name] = b("get_param", key=name, result_types=[ctx.tensor(shape, "f32")])
    results = fill(b, values)
    func.attrs["result_names"] = tuple(results)
    b.op("return", *results.values())
    return IRProgram(ctx, module, table, "made")


def feeds_of(program: IRProgram):
    rng = np.random.default_rng(2)
    args = zip(program.main.attrs["arg_names"], program.main.body.args)
    return {n: rng.standard_normal(v.shape).astype(np.float32) for n, v in args}


def mlp(b, v):
    h = b("gelu", b("gemm", v["x"], v["up"], v["b1"]))
    return {"y": b("add", b("gemm", h, v["down"], v["b2"]), v["x"])}


MLP = {"up": (32, 48), "b1": (48,), "down": (48, 32), "b2": (32,)}


def test_columns_then_rows_and_one_sum():
    """The bias of columns is cut with them, that of rows is added once, behind the sum."""
    program = graph({"x": (4, 32)}, MLP, mlp)
    for parts in (2, 3, 4, 16):
        other, stats = cut(program, parts)
        assert stats == {"products": 2, "sums": 1, "gathers": 0}
        compare(program, other, feeds_of(program), parts, 2e-6)
        held, _ = cut_bytes(program, parts)
        assert held == 4 * ((2 * 32 * 48 + 48) // parts + 32)


def attention(heads: int, kv: int, dim: int = 8, seq: int = 6):
    """A layer of grouped heads as exporters write it: reshapes, repeated keys, a mask spread over heads."""

    def fill(b, v):
        def heads_of(x, n):
            return b("transpose", b("reshape", x, shape=(1, seq, n, dim)), perm=(0, 2, 1, 3))

        def repeated(x):
            wide = b("broadcast", b("reshape", x, shape=(1, kv, 1, seq, dim)), shape=(1, kv, heads // kv, seq, dim))
            return b("reshape", wide, shape=(1, heads, seq, dim))

        q, k, w = (heads_of(b("gemm", v["x"], v[n]), heads if n == "q" else kv) for n in "qkv")
        mask = b("broadcast", v["mask"], shape=(1, heads, seq, seq))
        scores = b("softmax", b("add", b("gemm", q, repeated(k), trans_b=True), mask))
        joined = b(
            "reshape", b("transpose", b("gemm", scores, repeated(w)), perm=(0, 2, 1, 3)), shape=(1, seq, heads * dim)
        )
        return {"y": b("gemm", joined, v["o"]), "key": k, "value": w}

    weights = {"q": (32, heads * dim), "k": (32, kv * dim), "v": (32, kv * dim), "o": (heads * dim, 32)}
    return graph({"x": (1, seq, 32), "mask": (1, 1, seq, seq)}, weights, fill)


@pytest.mark.parametrize(
    "heads, kv, parts, keys, products, sums",
    [(4, 4, 2, 2, 4, 1), (4, 4, 4, 1, 4, 1), (8, 2, 2, 1, 4, 1), (4, 1, 2, 1, 2, 1), (8, 2, 4, 1, 2, 1), (3, 3, 2, 3, 1, 0)],
)  # fmt: skip
def test_heads_stay_whole(heads, kv, parts, keys, products, sums):
    """Keys are cut along heads or not at all, and stay so as results; each chip spreads the mask, and keys that are for all, over its own
    heads. Heads that do not divide stay whole, and the columns of the last product are gathered. Fewer key heads than chips are shared, once keys
    are not repeated any more."""
    program = attention(heads, kv)
    if kv < parts and kv > 1:
        run_pipeline(program, lifted_passes(), verify_between=False)
    other, stats = cut(program, parts)
    assert stats == {"products": products, "sums": sums, "gathers": 1 - sums}
    end = other.main.body.last
    assert end is not None and [v.shape for v in end.operands[1:]] == [(1, keys, 6, 8)] * 2
    compare(program, other, feeds_of(program), parts, 2e-6)


def test_sums_of_sums_are_formed_once():
    """Parallel branches, as of experts: what chips have is scaled and added up before it crosses the links."""

    def fill(b, v):
        def one(n):
            return b("mul", b("gemm", b("relu", b("gemm", v["x"], v["up" + n])), v["down" + n]), v["g" + n])

        return {"y": b("add", b("neg", one("0")), one("1"))}

    weights = {f"{w}{n}": s for n in "01" for w, s in (("up", (32, 48)), ("down", (48, 32)))}
    program = graph({"x": (4, 32), "g0": (4, 1), "g1": (4, 1)}, weights, fill)
    other, stats = cut(program, 2)
    assert stats == {"products": 4, "sums": 1, "gathers": 0}
    compare(program, other, feeds_of(program), 2, 2e-6)


def test_a_weight_with_two_readers():
    """A table that is looked up stays whole, and chips have parts of it besides for the product."""

    def fill(b, v):
        ids = b("convert", v["ids"], dtype="i64")
        return {"y": b("gemm", b("gather", v["table"], ids), v["table"], trans_b=True)}

    program = graph({"ids": (5,)}, {"table": (24, 16)}, fill)
    other, stats = cut(program, 4)
    assert stats == {"products": 1, "sums": 0, "gathers": 1}
    compare(program, other, {"ids": np.arange(5.0)}, 4, 2e-6)
    assert cut_bytes(program, 4)[0] == 4 * 24 * 16 * 5 // 4


def test_what_is_refused():
    program = graph({"x": (4, 32)}, MLP, mlp)
    with pytest.raises(ConfigError, match=r"no size of a weight of a product divides by 5, there are 32, 48"):
        cut(program, 5)
    with pytest.raises(ConfigError, match="none of its products has a weight.*--constants"):
        cut(graph({"x": (4, 8), "w": (8, 8)}, {}, lambda b, v: {"y": b("gemm", v["x"], v["w"])}), 2)
    with pytest.raises(ConfigError, match="none of its products has a weight"):
        cut(graph({"x": (4, 8)}, {"w": (8,)}, lambda b, v: {"y": b("add", v["x"], v["w"])}), 2)
    normed = graph({"x": (4, 32)}, {"w": (32, 32)}, lambda b, v: {"y": b("softmax", b("gemm", v["x"], v["w"]))})
    with pytest.raises(
        ConfigError, match="of 1 products with weights, none gives results that so many chips can go on with"
    ):
        cut(normed, 2)
    assert cut(normed, 2, gather_bytes=0)[1]["gathers"] == 1
    shared = graph({"x": (4, 32)}, MLP, lambda b, v: {"y": b("all_reduce", b("gemm", v["x"], v["up"]))})
    with pytest.raises(ConfigError, match="says itself what its devices exchange"):
        cut(shared, 2)
