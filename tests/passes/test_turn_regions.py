"""What several ops read is computed in the order of dimensions that transposes fewest bytes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from passes.lift_check import RNG, lifted
from support.small_graph import SmallGraph, ops_of

from tx8fast.passes.canonicalize import Canonicalize
from tx8fast.passes.min_cut import SINK, SOURCE, MinCut
from tx8fast.passes.sink_transposes import SinkTransposes
from tx8fast.passes.turn_regions import transposed_bytes

LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def moved(program) -> int:
    """Bytes of transpositions that are no views."""
    size = lambda v: v.type.size_bytes if sum(n > 1 for n in v.shape) > 1 else 0  # noqa: E731
    return sum(size(op.operands[0]) for op in ops_of(program, "transpose"))


def convolved(g, x, channels: int, key: str, kernel: int = 1):
    """A convolution as models that are channel-first have it."""
    w = g.array(key, RNG.standard_normal((kernel, kernel, channels, x.shape[1])).astype(np.float32))
    pad = ((kernel // 2,) * 2,) * 2
    y = g("conv", g("transpose", x, perm=LAST), w, pad_lo=pad[0], pad_hi=pad[1])
    return g("transpose", y, perm=FIRST)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("twice", [False, True])
def test_squeeze_and_excite_is_channel_last_throughout(batch, twice):
    g = SmallGraph(x=((batch, 5, 6, 4), "f32"))
    y = convolved(g, g.args["x"], 8, "a", 3)
    y = g("silu", y)
    for i in range(1 + twice):
        mean = g("reduce", y, op="mean", axes=(2, 3), keepdims=True)
        gate = g("sigmoid", convolved(g, g("silu", convolved(g, mean, 2, f"b{i}")), 8, f"c{i}"))
        y = g("add", g("mul", y, gate), y)
    program = g.done(y=convolved(g, y, 3, "d"))
    lifted(program, SinkTransposes(), tolerance=2e-5)
    edges = [
        op
        for op in ops_of(program, "transpose")
        if op.operands[0].op is not None and op.result.users[0].kind != "return"
    ]
    assert not edges, "only what comes in and what leaves is transposed"
    assert {op.attrs["axes"] for op in ops_of(program, "reduce")} == {(1, 2)}
    assert not ops_of(program, "reshape")


def test_what_is_read_as_it_was_stays():
    """Turning the sum would cost as much as it saves: one reader wants each order."""
    g = SmallGraph(x=((2, 4, 5, 3), "f32"))
    x = g("transpose", g.args["x"], perm=FIRST)
    y = g("add", g("exp", x), x)
    program = g.done(y=y, z=g("reshape", y, shape=(24, 5)))
    before = moved(program)
    lifted(program, SinkTransposes())
    assert moved(program) <= before


def test_a_border_is_put_on_before_what_is_larger_is_turned():
    g = SmallGraph(x=((1, 3, 8, 8), "f32"))
    y = g("pad", g.args["x"], lo=(0, 0, 2, 2), hi=(0, 0, 2, 2), mode="reflect", value=0.0)
    program = g.done(y=convolved(g, y, 4, "w", 3))
    lifted(program, SinkTransposes(), tolerance=2e-5)
    (pad,) = ops_of(program, "pad")
    assert pad.attrs["lo"] == (0, 2, 2, 0) and pad.operands[0].shape == (1, 8, 8, 3)


STEPS = (
    "unary",
    "binary",
    "gate",
    "parameter",
    "reduce",
    "concat",
    "slice",
    "pad",
    "turn",
    "turn back",
    "flat",
    "leave",
)


@settings(max_examples=150)
@given(st.data())
def test_numbers_stay_and_no_more_is_transposed(data):
    """Random graphs of what knows no order, of transpositions, and of readers that do."""
    draw = data.draw
    sizes = draw(st.tuples(*[st.sampled_from([1, 2, 3])] * 4))
    perm = draw(st.sampled_from([LAST, FIRST, (0, 1, 3, 2), (1, 0, 2, 3)]))
    g = SmallGraph(x=(sizes, "f32"), y=(sizes, "f32"))
    known, leaving = [g.args["x"], g.args["y"]], []
    pick = lambda: known[draw(st.integers(0, len(known) - 1))]  # noqa: E731
    for n in range(draw(st.integers(2, 12))):
        v, step = pick(), draw(st.sampled_from(STEPS))
        alike = [w for w in known if w.shape == v.shape]
        other = alike[draw(st.integers(0, len(alike) - 1))]
        if step == "unary":
            v = g(draw(st.sampled_from(["tanh", "sigmoid", "neg"])), v)
        elif step == "binary":
            v = g(draw(st.sampled_from(["add", "mul", "max"])), v, other)
        elif step == "gate":
            axes = draw(st.sampled_from([(2, 3), (1, 2), (1,), (3,)]))
            v = g("mul", v, g("reduce", other, op="max", axes=axes, keepdims=True))
        elif step == "parameter":
            shape = draw(st.sampled_from([v.shape, v.shape[-1:], (v.shape[1], 1, 1), (1,)]))
            v = g("add", v, g.array(f"p{n}", RNG.standard_normal(shape).astype(np.float32)))
        elif step == "reduce":
            v = g("reduce", v, op="mean", axes=draw(st.sampled_from([(1,), (2, 3), (-1,)])), keepdims=True)
        elif step == "concat":
            v = g("concat", v, other, axis=draw(st.integers(-4, 3)))
        elif step == "slice":
            start = tuple(s - 1 for s in v.shape)
            v = g("slice", v, start=start, size=(1,) * 4, step=(1,) * 4) if draw(st.booleans()) else v
        elif step == "pad":
            lo = draw(st.tuples(*[st.integers(0, 1)] * 4))
            v = g("pad", v, lo=lo, hi=(0,) * 4, mode="constant", value=0.5) if max(v.shape) < 5 else v
        elif step == "turn":
            v = g("transpose", v, perm=perm)
        elif step == "turn back":
            v = g("transpose", v, perm=tuple(perm.index(i) for i in range(4)))
        elif step == "flat":
            leaving.append(g("reshape", v, shape=(v.shape[0], v.shape[1] * v.shape[2], v.shape[3])))
        else:
            leaving.append(v)
        known.append(v)
    leaving.append(known[-1])
    program = g.done(**{f"r{i}": v for i, v in enumerate(leaving)})
    Canonicalize().run(program)
    before = transposed_bytes(program)
    lifted(program, SinkTransposes(), tolerance=1e-5)
    assert transposed_bytes(program) <= before


@settings(max_examples=200)
@given(st.data())
def test_the_cut_is_the_cheapest(data):
    """Against all ways of choosing sides."""
    n = data.draw(st.integers(1, 5))
    graph, nodes = MinCut(), [SOURCE, SINK]
    nodes += [graph.add() for _ in range(n)]
    ends = st.sampled_from(nodes)
    values = data.draw(st.lists(st.tuples(ends, st.lists(ends, min_size=1, max_size=3), st.integers(0, 9)), max_size=9))
    for producer, users, cost in values:
        graph.share(producer, users, cost)

    def price(first: set[int]) -> int:
        return sum(cost for p, users, cost in values if any((u in first) != (p in first) for u in users))

    found = graph.source_side() & {*nodes}
    ways = [{SOURCE, *some} for k in range(n + 1) for some in itertools.combinations(nodes[2:], k)]
    least = min(map(price, ways))
    assert price(found) == least
    assert len(found) == min(len(way) for way in ways if price(way) == least)


@pytest.mark.parametrize("counts", [(1, 1, 2, 2), (1, 1, 3, 1), (2, 1, 1, 2)])
def test_enlarged_images_are_turned_with_what_reads_them(counts):
    """A view, a broadcast and a view between convolutions, with a second reader of what is enlarged."""
    g = SmallGraph(x=((2, 4, 5, 3), "f32"))
    y = g("relu", convolved(g, g.args["x"], 8, "a"))
    y = g("slice", y, start=(0, 1, 0, 0), size=(2, 7, 5, 3), step=(1, 1, 1, 1))
    apart = [k for n, c in zip(y.shape, counts, strict=True) for k in ((n, c) if c > 1 else (n,))]
    ones = [k for n, c in zip(y.shape, counts, strict=True) for k in ((n, 1) if c > 1 else (n,))]
    wide = g("broadcast", g("reshape", y, shape=tuple(ones)), shape=tuple(apart))
    z = g("reshape", wide, shape=tuple(n * c for n, c in zip(y.shape, counts, strict=True)))
    program = g.done(y=convolved(g, z, 3, "b"), z=convolved(g, y, 2, "c"))
    lifted(program, SinkTransposes(), tolerance=2e-5)
    found = ops_of(program, "transpose")
    assert all(op.operands[0].op is None or op.result.users[0].kind == "return" for op in found)
