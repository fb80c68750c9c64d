"""A kernel's loops over its op's rule: what a range of them means is what the rule says of the factors, whole ones included."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tx8fast.graph_table import Dim, Rule, TensorSpec
from tx8fast.ir import factors
from tx8fast.lower.links import Link, linked_dim
from tx8fast.lower.loops import Loops

CONV = {"stride": (2, 1), "dilation": (1, 2), "pad_lo": (1, 2), "pad_hi": (1, 2), "groups": 4}


def conv(groups: int = 4, ins: int = 2, outs: int = 3) -> Rule:
    attrs = {**CONV, "groups": groups}
    return factors.conv(
        ((2, 9, 8, groups * ins), (3, 3, groups * outs, ins), (groups * outs,)), ((2, 5, 8, groups * outs),), attrs
    )


@st.composite
def ranges(draw, sizes):
    found = [sorted(draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True))) for n in sizes]
    return [a for a, _ in found], [b for _, b in found]


@given(st.data())
def test_boxes_over_loops_are_those_of_the_rule(data) -> None:
    """Images, output rows and groups loop; columns, taps and a group's channels come whole."""
    rule = conv()
    loops = Loops(rule, [(0,), (1,), (3,)])
    assert loops.sizes == (2, 5, 4) and loops.kinds == "PPP"
    lo, hi = data.draw(ranges(loops.sizes))
    own_lo, own_hi = [0] * len(rule.sizes), list(rule.sizes)
    for k, (f,) in enumerate(loops.runs):
        own_lo[f], own_hi[f] = lo[k], hi[k]
    assert loops.ranges(list(zip(own_lo, own_hi, strict=True))) == (tuple(lo), tuple(hi))
    for dims in (*rule.ins, *rule.outs):
        for d in dims or ():
            mine = loops.dim(d)
            if mine.full:  # nothing that loops: all of it, also what no window reaches
                assert not any(f in loops.of for f, _ in d.terms)
                continue
            assert mine.box(lo, hi) == d.box(own_lo, own_hi)
            a, b = mine.box(lo, hi)
            assert b - a <= mine.extent([y - x for x, y in zip(lo, hi, strict=True)])


def test_dimensions_of_one_loop_are_one() -> None:
    """Rows and columns of an image as positions; summed ones come whole."""
    rule = factors.batchnorm(((2, 4, 5, 64), (64,)), ((2, 4, 5, 64),), {})
    spec, dims = Loops(rule, [(0,), (1, 2), (3,)]).merged(TensorSpec((2, 4, 5, 64), "bf16", "blocked"), rule.outs[0])
    assert spec.shape == (2, 20, 64) and [d.identity for d in dims] == [0, 1, 2]
    summed = factors.reduce(((2, 4, 5, 64),), ((2, 1, 1, 64),), {"axes": (1, 2), "op": "mean", "keepdims": True})
    spec, dims = Loops(summed, [(0,), (3,)]).merged(TensorSpec((2, 4, 5, 64), "bf16", "blocked"), summed.ins[0] or ())
    assert spec.shape == (2, 20, 64) and dims[1] == Dim(20, full=True)


def test_whole_and_summed_factors_tell_the_loop() -> None:
    rule = factors.normalise(((4, 64),), ((4, 64),), {"axes": (-1,), "heads": 1})
    assert Loops(rule, [(0,), (1,)]).kinds == "PW"
    heads = factors.normalise(((4, 64),), ((4, 64),), {"axes": (-1,), "heads": 2})
    assert Loops(heads, [(0,), (1,)]).kinds == "PP", "channels of a head come whole, heads do not"
    product = factors.gemm(((4, 8), (8, 6)), ((4, 6),), {"trans_a": False, "trans_b": False})
    assert Loops(product, [(0,), (1,), (2,)]).kinds == "PPR"


@given(st.integers(1, 6), st.integers(1, 8), st.integers(1, 3))
def test_extent_of_linked_dimensions(heads: int, width: int, many: int) -> None:
    """Columns in heads, and several columns for each of the group's: as many coordinates as points of the group mean."""
    dim = Dim(heads * width, ((0, width),), reach=width - 1)
    columns = linked_dim(dim, [Link(0, heads, scale=width)])
    assert [columns.extent([n * width]) for n in range(1, heads + 1)] == [n * width for n in range(1, heads + 1)]
    wide = linked_dim(Dim(heads * many, ((0, 1),)), [Link(0, heads * many, width=many)])
    assert [wide.extent([n]) for n in range(1, heads + 1)] == [n * many for n in range(1, heads + 1)]


@given(st.data())
def test_a_solid_range_touches_every_coordinate(data) -> None:
    """Counted: over one division by one it is solid exactly if nothing is left out, over others never by mistake."""
    n = data.draw(st.integers(0, 3))
    small = st.integers(1, 6)
    steps = data.draw(st.lists(small, min_size=n, max_size=n))
    lens = data.draw(st.lists(small, min_size=n, max_size=n))
    den, reach, c0 = (
        data.draw(st.sampled_from((1, 1, 2, 3))),
        data.draw(st.integers(0, 2)),
        data.draw(st.integers(0, 3)),
    )
    dim = Dim(1000, tuple(enumerate(steps)), c0, den, reach=reach)
    lo = [data.draw(st.integers(0, 2)) for _ in lens]
    hi = [a + k for a, k in zip(lo, lens, strict=True)]
    seen = {
        (c0 + r + sum(s * x for s, x in zip(steps, point, strict=True))) // den
        for point in itertools.product(*(range(a, b) for a, b in zip(lo, hi, strict=True)))
        for r in range(reach + 1)
    }
    a, b = dim.box(lo, hi)
    solid = dim.is_solid(lo, hi)
    assert not solid or seen == set(range(a, b))
    assert den > 1 or solid == (seen == set(range(a, b)))
