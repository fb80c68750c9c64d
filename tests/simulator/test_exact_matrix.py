"""Matrix products in the specified order, status bits, and exact runs of compiled programs."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest

from tests.simulator.planting import feed_of
from tests.support.cli_case import Caller
from tests.support.closeness import contraction_bound
from tests.support.one_op import Arg, build, one_op
from tx8fast import isa
from tx8fast.api import CompiledProgram
from tx8fast.isa.blocked import load, store
from tx8fast.machine import DDR_BASE, load_machine
from tx8fast.numerics.formats import FORMAT_CODES, np_dtype, round_f32
from tx8fast.simulator.exact import run_row as run_exact
from tx8fast.simulator.exact_tensor import ordered_product
from tx8fast.simulator.exact_values import F32, STATUS, f32, round_float
from tx8fast.simulator.memory import Ddr
from tx8fast.simulator.state import TileState, run_row

MACHINE = load_machine("tx8")
BF16 = FORMAT_CODES["bf16"]
A, B, C, D, E = (0x10000 + 0x20000 * k for k in range(5))


def tree(terms):
    """Eight products as the engine adds them."""
    a = [f32(terms[i] + terms[i + 1]) for i in (0, 2, 4, 6)]
    return f32(f32(a[0] + a[1]) + f32(a[2] + a[3]))


def loops(left, right):
    """The manual's order, one addition at a time."""
    m, k = left.shape
    out = np.zeros((m, right.shape[1]), np.float32)
    for i, j in np.ndindex(out.shape):
        acc = 0.0
        for at in range(0, k, 8):
            terms = [float(left[i, q]) * float(right[q, j]) if q < k else 0.0 for q in range(at, at + 8)]
            acc = f32(acc + tree(terms))
        out[i, j] = acc
    return out


@pytest.mark.parametrize("k", [1, 7, 8, 9, 61])
def test_order_of_additions(k):
    rng = np.random.default_rng(k)
    left, right = (
        round_f32(rng.standard_normal(s).astype(np.float32), "bf16").astype(np.float32) for s in ((3, k), (k, 5))
    )
    got = ordered_product(left, right, BF16)
    assert np.array_equal(got, loops(left, right))
    error = np.abs(got.astype(np.float64) - left.astype(np.float64) @ right)
    assert (error <= contraction_bound(np.abs(left) @ np.abs(right), k, got, "f32")).all()
    again = ordered_product(left[:, : k // 8 * 8], right[: k // 8 * 8], BF16)
    assert np.array_equal(ordered_product(left[:, k // 8 * 8 :], right[k // 8 * 8 :], BF16, again), got)


def test_order_shows_in_the_result():
    """One large term swallows small ones that stand beside it, and not those that meet first."""
    left = np.array([[2.0**24, 1, 1, 1, 1, 1, 1, 1]], np.float32)
    ones = np.ones((8, 1), np.float32)
    # ((2^24 + 1) + (1 + 1)) + ((1 + 1) + (1 + 1)); one after the other, every 1 would be lost
    assert ordered_product(left, ones, BF16)[0, 0] == 2.0**24 + 2 + 4


def test_six_passes_of_f32():
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal(s).astype(np.float32) for s in ((4, 19), (19, 3)))
    got = ordered_product(left, right, F32)
    parts = []
    for x in (left, right):
        digits, rest = [], x.astype(np.float64)
        for _ in range(3):
            digits.append(np.vectorize(lambda v: round_float(v, BF16)[0])(rest))
            rest = rest - digits[-1]
        assert np.array_equal(sum(digits), x), "three parts hold an f32"
        parts.append(digits)
    acc = np.zeros((4, 3), np.float32)
    for i, j in ((0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0)):
        for at in range(0, 19, 8):
            for m, n in np.ndindex(4, 3):
                terms = [parts[0][i][m, q] * parts[1][j][q, n] if q < 19 else 0.0 for q in range(at, at + 8)]
                acc[m, n] = f32(float(acc[m, n]) + tree(terms))
    assert np.array_equal(got, acc)
    want = left.astype(np.float64) @ right
    assert (np.abs(got - want) <= contraction_bound(np.abs(left) @ np.abs(right), 6 * 19, want, "f32")).all()


@pytest.mark.parametrize(
    "x", [3.4028234663852886e38, 3.4e38, 3.3961775292304957e38, 3.39617752e38, 3.3895313892515355e38, 1e38]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_parts_of_the_largest_numbers_are_finite(x, sign):
    """Rounded to nearest, the heaviest part of a number beyond the largest one of bf16 would be infinite, and its product NaN."""
    left = np.array([[sign * x], [0.0], [1.5]], np.float32)
    for right in (np.ones((1, 70), np.float32), np.full((1, 70), 0.37, np.float32)):
        got = ordered_product(left, right, F32)
        assert (np.abs(got - left.astype(np.float64) @ right) <= np.abs(left * right) * 6 * 2.0**-24).all()
        own, exact = states([(A, left[None], "f32"), (B, right[None], "f32")])
        for run, state in ((run_row, own), (run_exact, exact)):
            run(
                state,
                isa.rows([isa.make("gemm", left=A, right=B, out=C, m=3, k=1, n=70, r_trs=1, fmt="f32", out_fmt=F32)])[
                    0
                ],
                DDR_BASE,
            )
            assert np.array_equal(load(state.spm, C, 1, 3, 70, F32)[0], got)


def states(operands):
    out = []
    for _ in range(2):
        state = TileState(MACHINE, Ddr(64))
        for addr, x, fmt in operands:
            store(state.spm, addr, x, FORMAT_CODES[fmt])
        out.append(state)
    return out


@pytest.mark.parametrize("fmt", ["bf16", "f16", "tf32", "f32", "i8"])
@pytest.mark.parametrize(("l_trs", "r_trs", "batch_l", "batch_r"), list(product((0, 1), (0, 1), (1, 2), (1, 2))))
def test_every_form_of_a_product_gives_the_same_bytes(fmt, l_trs, r_trs, batch_l, batch_r):
    rng = np.random.default_rng(1)
    m, k, n = 21, 37, 67
    kind = np_dtype(fmt)
    left = (rng.standard_normal((batch_l, *((k, m) if l_trs else (m, k)))) * 9).astype(kind)
    right = (rng.standard_normal((batch_r, *((k, n) if r_trs else (n, k)))) * 9).astype(kind)
    bias = rng.integers(-9, 9, (1, 1, n)).astype(np.float32)
    own, exact = states([(A, left, fmt), (B, right, fmt), (D, bias, "f32")])
    row = isa.rows([isa.make("gemm", left=A, right=B, out=C, bias=D, bias_en=1, act=1, m=m, k=k, n=n, fmt=fmt, l_trs=l_trs,
                             r_trs=r_trs, batch_l=batch_l, batch_r=batch_r, out_fmt=F32)])[0]  # fmt: skip
    run_row(own, row, DDR_BASE)
    run_exact(exact, row, DDR_BASE)
    assert np.array_equal(own.spm, exact.spm) and own.spm[C : C + 64].any()


@pytest.mark.parametrize("kind", ["conv", "depthwise", "backward_conv"])
@pytest.mark.parametrize("fmt", ["bf16", "f32", "i8"])
def test_convolutions_of_small_integers(kind, fmt):
    rng = np.random.default_rng(2)
    n, h, w, c, oc, kx, ky = 2, 5, 6, 11, 11 if kind == "depthwise" else 13, 3, 2
    oh, ow = ((h - 1) * 2 + ky, (w - 1) + kx) if kind == "backward_conv" else ((h - ky) // 2 + 1, w - kx + 1)
    x = rng.integers(-3, 4, (n, h * w, c)).astype(np_dtype(fmt))
    taps = kx * ky
    shape = {"conv": (1, taps * oc, c), "depthwise": (1, taps, c), "backward_conv": (1, taps * c, oc)}[kind]
    wt = rng.integers(-3, 4, shape).astype(np_dtype(fmt))
    own, exact = states([(A, x, fmt), (B, wt, fmt)])
    row = isa.rows([isa.make(kind, src=A, weight=B, out=C, n=n, h=h, w=w, c=c, oh=oh, ow=ow, oc=oc, kx=kx, ky=ky, sy=2,
                             fmt=fmt, out_fmt=F32)])[0]  # fmt: skip
    run_row(own, row, DDR_BASE)
    run_exact(exact, row, DDR_BASE)
    assert np.array_equal(own.spm, exact.spm) and own.spm[C : C + 64].any()
    if kind == "conv":
        got = load(exact.spm, C, n, oh * ow, oc, F32).reshape(n, oh, ow, oc)
        image, kernel = x.reshape(n, h, w, c).astype(int), wt.reshape(ky, kx, oc, c).astype(int)
        assert got[1, 0, 2, 3] == sum(
            int((image[1, y, 2 + z] * kernel[y, z, 3]).sum()) for y in range(ky) for z in range(kx)
        )


@pytest.mark.parametrize(
    ("x", "y", "fmt", "want"),
    [
        (1.0, 2.0, "bf16", set()),
        (1.0, 2.0**-9, "bf16", {"inexact"}),
        (3e38, 3e38, "f32", {"overflow", "infinite result"}),
        (60000.0, 60000.0, "f16", {"overflow", "infinite result"}),
        (np.inf, 1.0, "f32", {"infinite result"}),
        (np.nan, 1.0, "f32", {"NaN operand"}),
        (2.0**-15, 2.0**-16, "f16", {"subnormal result"}),
    ],
)
def test_status_bits_are_sticky(x, y, fmt, want):
    state = TileState(MACHINE, Ddr(64))
    for addr, v in ((A, x), (B, y)):
        state.spm[addr : addr + 4].view(np_dtype(fmt))[0] = v
    row = isa.rows([isa.make("add_vv", src0=A, src1=B, dst=C, n=1, fmt=fmt)])[0]
    run_exact(state, row, DDR_BASE)
    names = {name for k, name in enumerate(STATUS) if state.status >> k & 1}
    assert want <= names and names - want <= {"inexact"}
    state.spm[A:C] = 0
    run_exact(state, row, DDR_BASE)
    assert names == {name for k, name in enumerate(STATUS) if state.status >> k & 1}
    cvt = isa.rows([isa.make("cvt_f32_i8", src0=A, dst=C, n=1)])[0]
    state.spm[A : A + 4].view(np.float32)[0] = 1000
    run_exact(state, cvt, DDR_BASE)
    assert state.status >> STATUS.index("integer overflow") & 1 and state.spm[C] == 127


def test_compiled_programs_give_the_same_bytes():
    case = build([Arg((9, 70), "bf16"), Arg((9, 70), "bf16")], lambda b, x, y: b("silu", b("add", x, y)))
    feed = feed_of(case.program)
    made = CompiledProgram(case.program)
    want = made.run(feed)
    for name, x in made.run(feed, exact=True).items():
        assert np.array_equal(x, want[name])
    assert made.status == ["inexact"]
    made.run(feed)
    assert made.status == []
    case = one_op("gemm", Arg((17, 100), "bf16"), Arg((100, 70), "bf16"))
    feed = feed_of(case.program)
    made = CompiledProgram(case.program)
    want = made.run(feed)
    for name, x in made.run(feed, exact=True).items():
        assert np.array_equal(x.view(np.uint8), want[name].view(np.uint8))


def test_command_line(tmp_path, capsys):
    case = build([Arg((3, 20), "f32")], lambda b, x: b("exp", x))
    made, call = CompiledProgram(case.program), Caller(capsys)
    made.save(tmp_path / "p.tx8")
    feed = feed_of(case.program)
    np.savez(tmp_path / "in.npz", **feed)
    args = [
        "run",
        str(tmp_path / "p.tx8"),
        "--inputs",
        str(tmp_path / "in.npz"),
        "--outputs",
        str(tmp_path / "out.npz"),
    ]
    facts = json.loads(call(*args, "--exact", "--json").out)
    assert facts["status"] == ["inexact"]
    assert "status bits" in call(*args, "--exact").out
    assert "status" not in json.loads(call(*args, "--json").out)
    with np.load(tmp_path / "out.npz") as out:
        assert {n: x.tobytes() for n, x in made.run(feed).items()} == {n: out[n].tobytes() for n in out.files}


@pytest.mark.parametrize(
    ("name", "shape", "more"),
    [
        ("reduce_sum", (1, 1, 1, 40), {"dim": 0}),
        ("reduce_sum", (1, 5, 8, 3), {"dim": 4}),
        ("reduce_sum", (1, 1, 40, 1), {"dim": 1}),
        (
            "pool_sum",
            (1, 5, 8, 3),
            {"kx": 8, "ky": 5, "sx": 1, "sy": 1} | dict.fromkeys(("top", "bottom", "left", "right"), 0),
        ),
    ],
)
def test_sums_run_in_ascending_order(name, shape, more):
    """2^24 swallows every 1 that comes after it; adding the ones first, or pairs, would keep them."""
    n, h, w, c = shape
    x = np.ones((1, h * w, c), np.float32)
    x[:, 0] = 2.0**24
    if more.get("dim") == 0:
        x = np.ones((1, 1, c), np.float32)
        x[0, 0, 0] = 2.0**24
    for state, run in zip(states([(A, x, "f32")]), (run_row, run_exact), strict=True):
        row = isa.rows([isa.make(name, src0=A, dst=B, n=n, h=h, w=w, c=c, fmt="f32", **more)])[0]
        run(state, row, DDR_BASE)
        lanes = 1 if more.get("dim") == 0 else c
        assert (load(state.spm, B, 1, 1, lanes, F32) == 2.0**24).all()
