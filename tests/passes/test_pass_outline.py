"""Outlining repeated layers and inlining them again."""

import time

import numpy as np
import pytest
from support.toy_dialect import Toy

from tx8fast.errors import VerifyError
from tx8fast.ir import Builder, new_context
from tx8fast.ir.program import IRProgram
from tx8fast.passes.outline import Outline
from tx8fast.passes.pipeline import run_pipeline
from tx8fast.passes.repeats import best_cut, find_repeat


def decoder(layers=80, s=64, d=128, heads=4, caches=False) -> IRProgram:
    """A decoder stack; parameter reads stand where they are used, the rotation tables in layer 0 only."""
    ctx = new_context()
    module = ctx.create("module", (), (), n_regions=1)
    top = Builder(ctx, module.regions[0].add_block())
    func = top.op("func", sym_name="main", n_regions=1)
    b = Builder(ctx, func.regions[0].add_block([ctx.tensor((1, s, d), "bf16")]))
    x = func.body.args[0]

    def w(key, *shape):
        return b("get_param", key=key, result_types=[ctx.tensor(shape, "bf16")])

    cos = sin = None
    kept = []
    for n in range(layers):
        h = b("rmsnorm", x, w(f"{n}.norm1", d), loc=f"layers.{n}.norm1")
        q, k, v = (b("gemm", h, w(f"{n}.{name}", d, d)) for name in "qkv")
        if cos is None or sin is None:
            cos, sin = w("cos", s, d // heads), w("sin", s, d // heads)
        q, k = b("rope", q, cos, sin, heads=heads), b("rope", k, cos, sin, heads=heads)
        scores = b("contract", q, k, equation="b s (h d), b t (h d) -> b h s t", sizes=("h", heads))
        mix = b("contract", b("softmax", scores, scale=0.125), v, equation="b h s t, b t (h d) -> b s (h d)",
                sizes=("h", heads))  # fmt: skip
        x = b("add", x, b("gemm", mix, w(f"{n}.o", d, d)))
        h = b("rmsnorm", x, w(f"{n}.norm2", d))
        y = b("swiglu", b("gemm", h, w(f"{n}.up", d, 2 * d)), b("gemm", h, w(f"{n}.gate", d, 2 * d)))
        x = b("add", x, b("gemm", y, w(f"{n}.down", 2 * d, d)))
        if caches:
            kept += [k, v]
    b.op("return", b("rmsnorm", x, w("norm", d)), *kept)
    return IRProgram(ctx, module, None, "decoder")


def names(program):
    return [f.attrs["sym_name"] for f in program.functions]


def test_eighty_layers_become_one_body_of_twelve_arguments():
    """Compiler notes 5.1: hidden state, 9 weights, cos, sin; one result; every repeat found."""
    program = decoder()
    text = program.text()
    stats = run_pipeline(program, "outline")[0].result.stats
    assert stats == {"subgraphs": 1, "calls": 80}
    layer = program.symbols().lookup("layer")
    assert len(layer.body.args) == 12 and len(layer.body.last.operands) == 1
    assert len(layer.body) == 18 and not any(op.kind == "get_param" for op in layer.body)
    calls = [op for op in program.main.body if op.kind == "call"]
    assert len(calls) == 80 and calls[1].operands[0] is calls[0].result
    assert [op.kind for op in program.main.body if op.kind not in ("get_param", "call")] == [
        "rmsnorm",
        "return",
    ]
    back = IRProgram.from_text(program.ctx, program.text())
    assert back.same_as(program)
    for p in (program, back):
        run_pipeline(p, "inline")
        assert p.text() == text, "inlining restores the text byte for byte"


def test_results_used_outside_are_returned():
    program = decoder(layers=5, caches=True)
    text = program.text()
    run_pipeline(program, "outline")
    call = next(op for op in program.main.body if op.kind == "call")
    assert len(call.results) == 3  # keys, values, hidden state
    run_pipeline(program, "inline")
    assert program.text() == text


def test_keys_and_names_do_not_hide_repetition_but_attributes_do():
    program = decoder(layers=4)
    odd = [op for op in program.main.body if op.kind == "softmax"][1]
    odd.attrs["scale"] = 0.25
    text = program.text()
    stats = run_pipeline(program, "outline")[0].result.stats
    assert stats == {"subgraphs": 1, "calls": 2}  # layers 2 and 3
    run_pipeline(program, "inline")
    assert program.text() == text


def test_inline_after_other_passes_is_still_the_same_program():
    program = decoder(layers=6)
    run_pipeline(program, "outline,canonicalize,cse,dce,fold-constants,strip-runtime")
    run_pipeline(program, "inline")
    plain = decoder(layers=6)
    assert names(program) == ["main"] and program.n_ops() == plain.n_ops()
    program.verify()


def toy_layers(layers, wire=None, tail=0) -> Toy:
    """x -> relu -> scale -> add(x) ... ; `wire(n)` names layers whose operands are swapped."""
    t = Toy()
    x = t.args[0]
    for n in range(layers):
        y = t.b("toy.scale", t.b("toy.relu", x), by=2.0)
        z = t.b("toy.sub", y, x) if wire and wire(n) else t.b("toy.sub", x, y)
        x = t.b("toy.relu", z)
    for _ in range(tail):
        x = t.b("toy.scale", x, by=9.0)
    t.ret(x)
    return t


@pytest.mark.parametrize("wire, calls", [(lambda n: n < 3, 5), (lambda n: n >= 6, 6), (lambda n: n == 4, 4)])
def test_windows_of_other_wiring_are_cut_off(wire, calls):
    t = toy_layers(8, wire)
    text = t.program.text()
    Outline(min_ops=4, max_runs=1).run(t.program)
    t.program.verify()
    assert sum(op.kind == "call" for op in t.body) == calls
    run_pipeline(t.program, "inline")
    assert t.program.text() == text


def test_two_runs_and_nested_runs():
    """12 equal blocks inside each of 3 stages: stage bodies are outlined, then the blocks inside them."""
    t = Toy()
    x = t.args[0]
    for _ in range(3):
        for _ in range(12):
            x = t.b("toy.sub", t.b("toy.relu", x), t.args[1])
            x = t.b("toy.scale", x, by=0.5)
        x = t.b("toy.scale", x, by=7.0)
    for _ in range(10):
        x = t.b("toy.sub", t.args[1], t.b("toy.scale", x, by=1.5))
    t.ret(x)
    text, n = t.program.text(), t.program.n_ops()
    stats = Outline(min_ops=2).run(t.program).stats
    t.program.verify()
    assert stats["subgraphs"] >= 3 and t.program.n_ops() < n / 2
    back = IRProgram.from_text(t.ctx, t.program.text())
    run_pipeline(back, "inline")
    assert back.text() == text and names(back) == ["main"]


def test_short_layers_and_single_ones_stay():
    t = toy_layers(8)
    assert not Outline(min_ops=17).run(t.program).changed  # two windows of 17 do not fit into 32
    t = toy_layers(1)
    assert not Outline(min_ops=2).run(t.program).changed


def test_constants_made_once_need_sinking():
    """A constant shared by all layers stands in the first one and becomes an argument; sunk, it is part of the body."""

    def build():
        t = Toy()
        c = t.const(1, 2, 3, 4)
        x = t.args[0]
        for _ in range(6):
            x = t.b("toy.sub", t.b("toy.relu", t.b("toy.sub", x, c)), c)
        t.ret(x)
        return t

    t = build()
    run_pipeline(t.program, "outline{min-ops=3}")
    assert len(t.program.symbols().lookup("layer").body.args) == 2
    t = build()
    run_pipeline(t.program, "sink-constants")
    text = t.program.text()
    run_pipeline(t.program, "outline{min-ops=3}")
    layer = t.program.symbols().lookup("layer")
    assert len(layer.body.args) == 1 and [op.kind for op in layer.body].count("constant") == 2
    run_pipeline(t.program, "inline")
    assert t.program.text() == text


def test_random_programs_survive_outlining_and_inlining():
    """Random repeated and irregular stretches: always valid, inlining always exact."""
    outlined = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        t = Toy()
        live = list(t.args)
        for _ in range(rng.integers(1, 4)):
            pattern = [
                (int(rng.integers(4)), int(rng.integers(1, 4)), int(rng.integers(1, 4)))
                for _ in range(rng.integers(2, 6))
            ]
            for r in range(rng.integers(1, 6)):
                for kind, i, j in pattern:
                    x, y = live[-min(i, len(live))], live[-min(j, len(live))]
                    if kind == 3 or rng.random() < 0.2:
                        y = t.b("get_param", key=f"w{len(live)}", result_types=[t.type])
                    live.append(t.b("toy.relu", x) if kind == 0 else t.b("toy.sub", x, y))
            live.append(t.b("toy.scale", live[-1], by=float(rng.integers(3))))
        t.ret(live[-1], live[len(live) // 2])
        text = t.program.text()
        outlined += Outline(min_ops=2).run(t.program).changed
        t.program.verify()
        run_pipeline(t.program, "inline")
        assert t.program.text() == text, seed
    assert outlined > 30


def test_inline_single_calls_only():
    t = Toy()
    for name in ("once", "twice"):
        op, b = t.subgraph(name)
        b.op("subgraph_return", b("toy.relu", op.body.args[0]))
    x = t.args[0]
    for name in ("once", "twice", "twice"):
        x = t.b("call", x, callee=name, result_types=[t.type])
    t.ret(x)
    run_pipeline(t.program, "inline{single-only=true}")
    assert t.kinds() == ["relu", "call", "call", "return"] and names(t.program) == ["main", "twice"]


def test_inline_refuses_recursion():
    t = Toy()
    op, b = t.subgraph("s")
    b.op("subgraph_return", b("call", op.body.args[0], callee="s", result_types=[t.type]))
    t.ret(t.b("call", t.args[0], callee="s", result_types=[t.type]))
    with pytest.raises(VerifyError, match="recursive: main -> s -> s|recursive: s -> s"):
        run_pipeline(t.program, "inline", verify_between=False)


def test_finding_the_period():
    """Compiler notes 5.1: prefix 9 8, five times 1 2 3 2, suffix 7."""
    tokens = np.array([9, 8] + [1, 2, 3, 2] * 5 + [7])
    assert find_repeat(tokens, 2) == (4, 2, 20)
    assert find_repeat(tokens, 5) == (8, 2, 20)
    assert find_repeat(np.arange(20), 2) is None and find_repeat(np.array([1]), 1) is None
    assert find_repeat(np.array([1, 1, 1, 1]), 1) == (1, 0, 4)


def test_the_cut_crosses_the_fewest_bytes():
    """In x -> wide -> narrow, a border before `wide` carries 16 bytes, one after it 400."""
    t = Toy()
    wide = t.ctx.tensor((100,), "f32")
    x = t.args[0]
    first = t.b.op("toy.any", x, result_types=[wide]).result
    for _ in range(6):  # the stretch begins in the middle of a layer
        x = t.b.op("toy.any", first, result_types=[t.type], a="narrow").result
        first = t.b.op("toy.any", x, result_types=[wide], a="widen").result
    t.ret(t.b("toy.relu", t.b.op("toy.any", first, result_types=[t.type]).result))
    ops = [op for op in t.body][1:13]
    run = best_cut(ops, 2, 0, 12)
    assert (run.start, run.repeats) == (1, 5)


def test_search_time_grows_gently():
    tokens = np.tile(np.arange(110), 80)
    start = time.perf_counter()
    assert find_repeat(tokens, 8) == (110, 0, 8800)
    assert time.perf_counter() - start < 1
