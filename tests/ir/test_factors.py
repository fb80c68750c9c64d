"""Factor rules against worked numbers: multiply counts, boxes, refinements, equations, build time."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tx8fast.errors import VerifyError
from tx8fast.ir import Block, Builder, equation, factors, new_context
from tx8fast.ir.interfaces import contraction_roles
from tx8fast.ir.ops import base

CTX = new_context()


def op(kind, *shapes, dtype="bf16", **attrs):
    block = Block()
    values = [block.add_arg(s if not isinstance(s, tuple) else CTX.tensor(s, dtype)) for s in shapes]
    return Builder(CTX, block).op(kind, *values, **attrs)


def rule(*args, **kw):
    made = op(*args, **kw)
    return made.info.decl.rule(made)


def conv(x, o, k, stride=1, pad=0, **kw):
    w = (k, k, o, x[3] // kw.get("groups", 1))
    return op("conv", x, w, stride=(stride,) * 2, pad_lo=(pad,) * 2, pad_hi=(pad,) * 2, **kw)


def test_first_resnet_layer_counts_and_halo():
    """IR notes 3.9: 118013952 MACs; rows 0..8 need input rows 0..18, rows 8..16 need 13..34."""
    r = conv((1, 224, 224, 3), 64, 7, 2, 3)
    assert r.result.shape == (1, 112, 112, 64)
    r = r.info.decl.rule(r)
    assert r.macs() == 118013952
    assert r.names == ("n", "y", "x", "g", "o", "c", "p", "q")
    assert r.kinds == "PHHPPRRR"
    lo, hi = [0] * 8, list(r.sizes)
    hi[1] = 8
    assert r.ins[0][1].box(lo, hi) == (0, 18)
    lo[1], hi[1] = 8, 16
    assert r.ins[0][1].box(lo, hi) == (13, 34)


def test_resnet_50_macs():
    """IR notes 3.10: all convolutions and the classifier of ResNet-50 take 4 089 184 256 MACs."""
    total, x = 0, (1, 224, 224, 3)

    def run(x, o, k, stride=1):
        nonlocal total
        made = conv(x, o, k, stride, k // 2)
        total += made.info.decl.rule(made).macs()
        return made.result.shape

    x = run(x, 64, 7, 2)
    x = op("max_pool", x, kernel=(3, 3), stride=(2, 2), pad_lo=(1, 1), pad_hi=(1, 1)).result.shape
    assert x == (1, 56, 56, 64)
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for i in range(blocks):
            stride = 2 if i == 0 and width != 64 else 1
            y = run(run(run(x, width, 1), width, 3, stride), 4 * width, 1)
            if i == 0:
                assert run(x, 4 * width, 1, stride) == y
            x = y
    assert x == (1, 7, 7, 2048)
    total += rule("gemm", (1, 2048), (2048, 1000)).macs()
    assert total == 4_089_184_256


def test_llama_70b_layer_macs():
    """One layer at 2048 tokens against the closed form (1.821e12)."""
    s, d, kv, ff, heads, dim = 2048, 8192, 1024, 28672, 64, 128
    total = sum(rule("gemm", (1, s, a), (a, b)).macs()
                for a, b in ((d, d), (d, kv), (d, kv), (d, d), (d, ff), (d, ff), (ff, d)))  # fmt: skip
    qk = rule("contract", (1, s, d), (1, s, kv), equation="b s (h g d), b t (h d) -> b (h g) s t",
              sizes=("h", 8, "d", dim))  # fmt: skip
    av = rule(
        "contract",
        (1, heads, s, s),
        (1, s, kv),
        equation="b (h g) s t, b t (h d) -> b s (h g d)",
        sizes=("h", 8),
    )
    total += qk.macs() + av.macs()
    assert total == s * (2 * d * d + 2 * d * kv + 3 * d * ff) + 2 * heads * s * s * dim
    assert total == pytest.approx(1.821e12, rel=1e-3)
    assert qk.names == ("b.b", "b.h", "m.g", "m.s", "n.t", "k.d")
    assert qk.ins[0][2].terms == ((1, 1024), (2, 128), (5, 1))


def test_gemm_names_roles_and_broadcast():
    made = op("gemm", (2, 3, 4, 8), (3, 16, 8), (16,), trans_b=True)
    r = made.info.decl.rule(made)
    assert (r.names, r.kinds, r.sizes) == (("b0", "b1", "m", "n", "k"), "PPPPR", (2, 3, 4, 16, 8))
    assert [d.identity for d in r.ins[1]] == [1, 3, 4] and [d.identity for d in r.ins[2]] == [3]
    assert contraction_roles(made) == {"b": (1,), "m": (0, 2), "n": (3,), "k": (4,)}
    one = rule("gemm", (2, 4, 8), (1, 8, 16))
    assert one.ins[1][0].terms == ()  # a batch of one is shared: no term


def test_conv_plain_positions_are_parallel_and_depthwise_is_per_channel():
    plain = conv((1, 8, 8, 16), 32, 1)
    assert plain.info.decl.rule(plain).kinds == "PPPPPRRR"
    deep = conv((1, 8, 8, 16), 16, 3, pad=1, groups=16)
    r = deep.info.decl.rule(deep)
    assert r.ins[0][3].identity == 3 and r.outs[0][3].identity == 3 and r.macs() == 8 * 8 * 16 * 9


@pytest.mark.parametrize(
    "a, b, sizes, kinds",
    [
        ((4, 6), (24,), (4, 6), "PP"),
        ((2, 128, 64, 16), (2, 128, 1024), (2, 128, 64, 16), "PPPP"),
        ((4, 6), (2, 12), (2, 2, 6), "PPP"),
        ((4, 6), (6, 4), (2, 6, 2, 4, 3), "PWWWW"),
        ((1, 5, 1), (5,), (5,), "P"),
        ((3, 4, 5), (3, 20, 1), (3, 4, 5), "PPP"),
    ],
)
def test_reshape_refinement(a, b, sizes, kinds):
    r = factors.reshape((a,), (b,), {})
    assert (r.sizes, r.kinds) == (sizes, kinds)


@given(st.lists(st.integers(1, 6), max_size=4), st.randoms())
def test_reshape_factors_rebuild_both_shapes(dims, random):
    """Property: any regrouping of the same prime factors is a refinement whose radixes multiply to both shapes."""
    primes = [p for d in dims for p in ([2, 2] if d == 4 else [2, 3] if d == 6 else [d])]
    other, at = [], 0
    while at < len(primes):
        n = random.randint(1, 3)
        other.append(math.prod(primes[at : at + n]))
        at += n
    a, b = tuple(dims), tuple(other)
    r = factors.reshape((a,), (b,), {})
    assert tuple(d.size for d in r.ins[0]) == a and tuple(d.size for d in r.outs[0]) == b
    shared = math.prod(n for n, k in zip(r.sizes, r.kinds) if k == "P")
    whole = [n for n, k in zip(r.sizes, r.kinds) if k == "W"]
    assert math.prod(a) ** 2 == shared**2 * math.prod(whole)


@pytest.mark.parametrize(
    "text, shapes, sizes, message",
    [
        ("a b, b c", ((2, 3), (3, 4)), (), "expected 'lhs, rhs -> result'"),
        ("a b, b c -> a z", ((2, 3), (3, 4)), (), "result names z"),
        ("a a, a c -> a c", ((2, 2), (2, 4)), (), "occurs twice"),
        ("a b, b c -> a c", ((2, 3), (5, 4)), (), "dimension 0 is 5, required b=3"),
        ("a (h d), a -> h d", ((2, 12), (2,)), (), "sizes of d, h do not follow"),
        ("a (h d), a -> h d", ((2, 12), (2,)), ("h", 5), "dimension 1 is 12"),
        ("a b, b -> a", ((2, 3), (3, 4)), (), "required rank 1"),
        ("a.b, b -> a", ((2,), (3,)), (), "cannot read"),
    ],
)
def test_equation_errors(text, shapes, sizes, message):
    with pytest.raises(VerifyError, match=message.replace("(", r"\(").replace(">", ">")):
        equation.bind(text, shapes, sizes)


def test_equation_units_and_major_to_minor():
    eq = equation.bind("a 1 (h d), (d h) -> a h", ((2, 1, 6), (6,)), ("h", 3))
    assert eq.sizes == {"a": 2, "h": 3, "d": 2} and eq.out_shape == (2, 3)
    r = rule("contract", (2, 1, 6), (6,), equation="a 1 (h d), (d h) -> a h", sizes=("h", 3))
    assert r.ins[0][2].terms == ((1, 2), (2, 1)) and r.ins[1][0].terms == ((2, 3), (1, 1)) and r.ins[0][1].terms == ()


def test_concat_pad_slice_boxes():
    r = rule("concat", (4, 2), (6, 2), axis=0)
    assert [d[0].box([3, 0], [7, 2]) for d in r.ins] == [(3, 4), (0, 3)]
    r = rule("slice", (20,), start=(3,), size=(5,), step=(2,))
    assert r.ins[0][0].box([1], [3]) == (5, 8)
    r = rule("slice", (20,), start=(19,), size=(20,), step=(-1,))
    assert r.ins[0][0].box([0], [4]) == (16, 20)
    r = rule("pad", (10,), lo=(3,), hi=(2,))
    assert r.ins[0][0].box([0], [3]) == (0, 0) and r.ins[0][0].box([2], [8]) == (0, 5)


def test_rules_are_remembered_and_cheap():
    a, b = op("gemm", (2, 4, 8), (8, 16)), op("gemm", (2, 4, 8), (8, 16), useful_macs=7)
    assert a.info.decl.rule(a) is b.info.decl.rule(b)
    made, best = conv((1, 56, 56, 64), 64, 3, 1, 1), math.inf
    ins = tuple(v.shape for v in made.operands)
    outs = (made.result.shape,)
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(100):
            factors.conv(ins, outs, made.attrs)
        best = min(best, (time.perf_counter() - start) / 100)
    assert best < 120e-6  # 20 us on an idle core; the bound leaves room for a busy one


def test_symbolic_shapes_have_no_rule():
    made = op("relu", ("tokens", 8))
    assert made.result.shape == ("tokens", 8) and made.info.decl.rule(made) is None
    assert base.rule_for(made) is None
