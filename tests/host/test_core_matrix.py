"""Products and convolutions of the core against the interpreter's, byte for byte, with everything that is done to their sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tx8fast import isa
from tx8fast.host import core
from tx8fast.isa.blocked import span_bytes, store
from tx8fast.machine import DDR_BASE, load_machine
from tx8fast.numerics.formats import CODE_TO_DTYPE, FORMAT_CODES, np_dtype
from tx8fast.simulator.exact import run_row as run_exact
from tx8fast.simulator.memory import Ddr
from tx8fast.simulator.state import TileState, run_row

MACHINE = load_machine("tx8")
LEFT, RIGHT, OUT, PSUM, BIAS, UP, DOWN = (0x10000 + 0x40000 * k for k in range(7))
FLOATS = ("bf16", "f16", "tf32", "f32")
SPECIAL = np.array([np.inf, -np.inf, np.nan, -0.0, 3e38, 1e-42, -3.4028235e38, 3.3962e38, 3.39615e38], np.float32)
some = st.integers


def numbers(draw, shape, fmt):
    """Random values of a format; floats of mixed sizes, and now and then special ones."""
    rng = np.random.default_rng(draw(some(0, 1 << 20)))
    kind = np_dtype(fmt)
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(kind)
    if kind.kind in "iu":
        return rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, endpoint=True).astype(kind)
    x = (rng.standard_normal(shape) * 2.0 ** rng.integers(-12, 12, shape)).astype(np.float32)
    if draw(some(0, 3)) == 0:
        x = np.where(rng.random(shape) < 0.02, rng.choice(SPECIAL, shape), x)
    with np.errstate(all="ignore"):
        return x.astype(kind)


def after(draw, fmt, n, pos, c, put, any_bias):
    """Draw what is done to the sums; `put` stores an operand."""
    whole = fmt in ("i8", "u8")
    f = {"act": draw(some(0, 2)), "bias_en": draw(some(0, 1)), "psum_en": draw(some(0, 1))}
    if f["bias_en"]:
        kind = draw(st.sampled_from(FLOATS)) if any_bias else "f32"
        put(BIAS, (1, 1, c), kind)
        f |= {"bias": BIAS} | ({"bias_fmt": FORMAT_CODES[kind]} if any_bias else {})
    if f["psum_en"]:
        kind = draw(st.sampled_from(("i32", "f32", "bf16") if whole else FLOATS))
        put(PSUM, (n, pos, c), kind)
        f |= {"psum": PSUM, "psum_fmt": FORMAT_CODES[kind]}
    if whole and draw(st.booleans()):
        f["quant"] = isa.pack_quant(enabled=draw(st.booleans()), q0=draw(some(0, 31)), q1=draw(some(0, 31)),
                                    **{z: draw(some(-2048, 2047)) for z in ("zp_left", "zp_right", "zp_out")})  # fmt: skip
    if draw(st.booleans()):
        put(UP, (1, 1, c), "i16" if f.get("quant", 0) & 1 else "f32"), put(DOWN, (1, 1, c), "f32")
        f |= {"scale_p": UP, "scale_n": DOWN}
    f["out_fmt"] = FORMAT_CODES[
        draw(st.sampled_from(FLOATS + (("i8", "i32") if whole else ("pred",) if fmt == "pred" else ())))
    ]
    return f


def compare(draw, name, fmt, operands, make):
    """Store operands in two equal tiles, run the row in both, compare all bytes."""
    states = [TileState(MACHINE, Ddr(64), 5) for _ in range(2)]

    def put(addr, shape, kind):
        x = numbers(draw, shape, kind)
        for state in states:
            store(state.spm, addr, x, FORMAT_CODES[kind])
        assert span_bytes(*shape, FORMAT_CODES[kind]) <= 0x40000

    for addr, shape in operands:
        put(addr, shape, fmt)
    row = isa.rows([isa.make(name, fmt=fmt, rnd=draw(some(0, 4)), **make(put))])[0]
    own, exact = states
    core.use_level(draw(some(0, core.LEVELS - 1)))
    try:
        run_row(own, row, DDR_BASE)
    finally:
        core.use_level(core.LEVELS - 1)
    with np.errstate(all="ignore"):
        run_exact(exact, row, DDR_BASE)
    differ = np.flatnonzero(own.spm != exact.spm)
    out = CODE_TO_DTYPE[int(row["p"][isa.instruction(name).FIELDS_P.index("out_fmt")])]
    assert not len(differ), (isa.decode(row), out, differ[:8] - OUT)


def check(name):
    return settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))(
        given(st.data())(name)
    )


@check
def test_products(data):
    draw = data.draw
    fmt = draw(st.sampled_from((*FLOATS, "i8", "u8", "pred")))
    m, k, n = draw(some(1, 40)), draw(some(1, 150)), draw(some(1, 150))
    l_trs, r_trs = draw(some(0, 1)), draw(some(0, 1))
    left, right = draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2)]))
    shapes = [(LEFT, (left, k, m) if l_trs else (left, m, k)), (RIGHT, (right, k, n) if r_trs else (right, n, k))]
    compare(draw, "gemm", fmt, shapes, lambda put: {
        "left": LEFT, "right": RIGHT, "out": OUT, "m": m, "k": k, "n": n, "l_trs": l_trs, "r_trs": r_trs, "batch_l": left,
        "batch_r": right, **after(draw, fmt, max(left, right), m, n, put, True)})  # fmt: skip


@pytest.mark.parametrize("name", ["conv", "depthwise", "backward_conv"])
def test_convolutions(name):
    @check
    def one(data):
        draw = data.draw
        fmt = draw(st.sampled_from((*FLOATS, "i8", "u8")))
        n, c, kx, ky, sx, sy, dx, dy = (draw(some(1, high)) for high in (2, 70, 3, 3, 3, 3, 2, 2))
        oc = c if name == "depthwise" else draw(some(1, 70))
        top, bottom, left, right = (draw(some(0, 2)) for _ in range(4))
        if name == "depthwise":
            dx = dy = 1
        high, wide = (ky - 1) * dy + 1, (kx - 1) * dx + 1
        h, w = max(draw(some(1, 7)), high - top - bottom), max(draw(some(1, 7)), wide - left - right)
        if name == "backward_conv":
            h, w = draw(some(1, 4)), draw(some(1, 4))
            top, bottom, left, right = (
                min(p, 1) if s > 1 else 0 for p, s in zip((top, bottom, left, right), (ky, ky, kx, kx))
            )
            oh, ow = (h - 1) * sy + high - top - bottom, (w - 1) * sx + wide - left - right
            if oh < 1 or ow < 1:
                return
        else:
            oh, ow = (h + top + bottom - high) // sy + 1, (w + left + right - wide) // sx + 1
        taps = kx * ky
        weight = {"conv": (1, taps * oc, c), "depthwise": (1, taps, c), "backward_conv": (1, taps * c, oc)}[name]
        compare(draw, name, fmt, [(LEFT, (n, h * w, c)), (RIGHT, weight)], lambda put: {
            "src": LEFT, "weight": RIGHT, "out": OUT, "n": n, "h": h, "w": w, "c": c, "oh": oh, "ow": ow, "oc": oc, "top": top,
            "bottom": bottom, "left": left, "right": right, "kx": kx, "ky": ky, "sx": sx, "sy": sy, "dx": dx, "dy": dy,
            **after(draw, fmt, n, oh * ow, oc, put, False)})  # fmt: skip

    one()
