"""CT vector instructions against scalar loops."""

import math

import numpy as np
import pytest
from isa_state import A, B, C, execute, get, new_state, put, values

from tx8fast import isa
from tx8fast.errors import SimulationError
from tx8fast.isa import scalar_pattern
from tx8fast.numerics.formats import FORMAT_CODES, np_dtype, pack_bits, unpack_bits
from tx8fast.numerics.layout import pack
from tx8fast.simulator.state import run_row

f32 = np.float32
N = 192


def _f32(f):
    """Return f on python floats, rounded to f32."""

    def g(*args):
        try:
            return f32(f(*[float(a) for a in args]))
        except (ZeroDivisionError, ValueError, OverflowError):
            return None

    return g


UNARY = {
    "abs": abs, "recip": lambda x: 1 / x, "square": lambda x: x * x, "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x), "neg": lambda x: -x, "log2": math.log2, "ln": math.log,
    "pow2": lambda x: 2**x, "exp": math.exp, "sin": math.sin, "cos": math.cos, "tanh": math.tanh,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)), "relu": lambda x: max(x, 0.0),
    "satrelu": lambda x: min(max(x, 0.0), 6.0),
    "softplus": lambda x: math.log1p(math.exp(-abs(x))) + max(x, 0.0),
}  # fmt: skip
POSITIVE = {"sqrt", "rsqrt", "ln", "log2"}
BINARY = {
    "max": max, "min": min, "add": lambda a, b: a + b, "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
}  # fmt: skip
RELATION = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "ge": lambda a, b: a >= b,
    "gt": lambda a, b: a > b, "le": lambda a, b: a <= b, "lt": lambda a, b: a < b,
}  # fmt: skip
LOGIC = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}
LOOP = dict(n=128, unit=64, full=192 + 8, full_unit=100)


def index_lists(form):
    """Return (count, unit index per element) of an operand form."""
    if form == "vv":
        return N, list(range(N))
    if form == "vs":
        return N, [0] * N
    if form == "vuv":
        return N, [i % 48 for i in range(N)]
    return 200, loop_units(LOOP["n"], 64, LOOP["full"], LOOP["full_unit"])


def loop_units(elem, u, full, full_unit):
    """Return the unit index of every source element of a loop form, written out literally."""
    out, base = [], 0
    for u0 in range(0, full_unit, u):
        short = min(u, full_unit - u0)
        for _ in range(elem // u):
            out += [u0 + k for k in range(short)]
            base += short
    assert base == full
    return out


def fields(form, count):
    if form == "vuv":
        return dict(n=count, unit=48)
    return LOOP if form == "vuvloop" else dict(n=count)


def test_loop_index_lists():
    chunks = lambda lists: [(x[k], x[k + 63]) for x in lists for k in range(0, len(x), 64)]  # noqa: E731
    first = loop_units(128, 64, 384, 192)
    assert chunks([first]) == [(0, 63), (0, 63), (64, 127), (64, 127), (128, 191), (128, 191)]
    for elem, full, full_unit in [(128, 384, 192), (192, 384, 128), (128, 264, 132)]:
        state = new_state()
        put(state, A, np.zeros(full, f32))
        put(state, B, np.arange(full_unit, dtype=f32))
        execute(state, "add_vuvloop", src0=A, src1=B, dst=C, n=elem, unit=64, full=full,
                full_unit=full_unit, fmt="f32")  # fmt: skip
        assert get(state, C, full, "f32").tolist() == loop_units(elem, 64, full, full_unit)
    assert loop_units(128, 64, 264, 132)[256:] == [128, 129, 130, 131] * 2


def test_loop_counts_are_checked():
    state = new_state()
    with pytest.raises(SimulationError, match="unit 64"):
        execute(
            state,
            "add_vuvloop",
            src0=A,
            src1=B,
            dst=C,
            n=96,
            unit=32,
            full=96,
            full_unit=32,
            fmt="f32",
        )
    with pytest.raises(SimulationError, match="dividing n"):
        execute(state, "add_vuv", src0=A, src1=B, dst=C, n=100, unit=64, fmt="f32")


@pytest.mark.parametrize("fmt", ["f32", "bf16", "f16", "tf32"])
@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary(name, fmt):
    rng = np.random.default_rng(1)
    state = new_state()
    x = values(rng, N, fmt, 2.0)
    if name in POSITIVE:
        x = np.abs(x)
    x[:3] = [0.5, 1.0, 2.0]
    put(state, A, x)
    execute(state, f"{name}_v", src0=A, dst=B, n=N, fmt=fmt)
    got = get(state, B, N, fmt).astype(f32)
    for i in range(N):
        arg = np.array([x[i]], f32)
        if fmt == "tf32":
            arg = (arg.view(np.uint32) & np.uint32(0xFFFFE000)).view(f32)
        want = _f32(UNARY[name])(arg[0])
        if want is not None:
            bits = {"f32": 23, "tf32": 10, "bf16": 7, "f16": 10}[fmt]
            tolerance = abs(float(want)) * 2.0 ** -(bits + (bits != 23)) + (3e-8 if fmt == "f16" else 1e-40)
            assert abs(float(got[i]) - float(want)) <= tolerance


def test_leaky_relu_and_fast_exp():
    state = new_state()
    x = np.linspace(-80, 5, N).astype(f32)
    put(state, A, x)
    execute(state, "leakyrelu_v", src0=A, dst=B, n=N, fmt="f32")
    assert np.array_equal(get(state, B, N, "f32"), np.array([v if v >= 0 else v * f32(0.01) for v in x]))
    execute(state, "exp_lp_v", src0=A, dst=B, n=N, fmt="f32")
    deviation = np.abs(get(state, B, N, "f32") / np.exp(x.astype(np.float64)) - 1)
    assert 1e-6 < deviation.max() < 4e-6


@pytest.mark.parametrize("fmt", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("form", ["vv", "vs", "vuv", "vuvloop"])
@pytest.mark.parametrize("name", sorted(BINARY))
def test_binary(name, form, fmt):
    rng = np.random.default_rng(2)
    state = new_state()
    count, index = index_lists(form)
    x, y = values(rng, count, fmt), values(rng, 256, fmt)
    put(state, A, x), put(state, B, y)
    own = fields(form, count)
    if form == "vs":
        own["scalar"] = scalar_pattern(float(y[0]), FORMAT_CODES[fmt])
        execute(state, f"{name}_{form}", src0=A, dst=C, fmt=fmt, **own)
    else:
        execute(state, f"{name}_{form}", src0=A, src1=B, dst=C, fmt=fmt, **own)
    want = [f32(BINARY[name](float(a), float(y[k]))) for a, k in zip(x, index)]
    assert np.array_equal(get(state, C, count, fmt), np.array(want, f32).astype(np_dtype(fmt)))


@pytest.mark.parametrize("form", ["vv", "vs", "vuv", "vuvloop"])
@pytest.mark.parametrize("name", sorted(RELATION))
def test_relation(name, form):
    rng = np.random.default_rng(3)
    state = new_state()
    count, index = index_lists(form)
    x, y = (rng.integers(-2, 3, n).astype(f32) for n in (count, 256))
    x[5] = np.nan
    put(state, A, x), put(state, B, y)
    own = dict(fields(form, count), src0=A, dst=C, fmt="f32")
    own |= dict(scalar=scalar_pattern(float(y[0]), 5)) if form == "vs" else dict(src1=B)
    want = [RELATION[name](float(a), float(y[k])) for a, k in zip(x, index)]
    execute(state, f"{name}_{form}", **own)
    assert get(state, C, count, "f32").tolist() == [float(w) for w in want]
    execute(state, f"bool_{name}_{form}", **own)
    assert unpack_bits(state.spm[C : C + 64], count).tolist() == want


@pytest.mark.parametrize("form", ["vv", "vuv", "vuvloop"])
@pytest.mark.parametrize("name", sorted(LOGIC))
def test_logic_on_patterns_and_bits(name, form):
    rng = np.random.default_rng(4)
    state = new_state()
    count, index = index_lists(form)
    x, y = (rng.integers(0, 65536, n).astype(np.uint16) for n in (count, 256))
    put(state, A, x), put(state, B, y)
    own = fields(form, count)
    execute(state, f"{name}_{form}", src0=A, src1=B, dst=C, fmt="f16", **own)
    assert get(state, C, count, "u16").tolist() == [LOGIC[name](int(a), int(y[k])) for a, k in zip(x, index)]
    bits_x, bits_y = x % 2 == 1, y % 2 == 1
    put(state, A, pack_bits(bits_x)), put(state, B, pack_bits(bits_y))
    execute(state, f"bool_{name}_{form}", src0=A, src1=B, dst=C, **own)
    want = [bool(LOGIC[name](bool(a), bool(bits_y[k]))) for a, k in zip(bits_x, index)]
    assert unpack_bits(state.spm[C : C + 64], count).tolist() == want


def test_not_and_partial_bytes():
    state = new_state()
    put(state, A, np.array([0, 0xFFFF, 0x1234, 1], np.uint16))
    execute(state, "not_v", src0=A, dst=C, n=4, fmt="f16")
    assert get(state, C, 4, "u16").tolist() == [0xFFFF, 0, 0xEDCB, 0xFFFE]
    # bits beyond the count keep their value
    put(state, A, np.array([0b101], np.uint8)), put(state, C, np.array([0b11111000], np.uint8))
    run_row(state, isa.rows([isa.make("bool_not_v", src0=A, dst=C, n=3)])[0], 0)
    assert state.spm[C] == 0b11111010


def test_bit_unit_repeats_by_bytes():
    state = new_state()
    put(state, A, np.full(4, 0xFF, np.uint8)), put(state, B, np.array([0b111], np.uint8))
    execute(state, "bool_and_vuv", src0=A, src1=B, dst=C, n=32, unit=3)
    assert state.spm[C : C + 4].tolist() == [0b111] * 4


def test_mask_move():
    state = new_state()
    put(state, A, np.arange(8, dtype=f32)), put(state, B, np.array([1, 0, 2, 0, -1, 0, 0, 5], f32))
    put(state, C, np.full(8, 9, f32))
    execute(state, "mask_move", src0=A, src1=B, dst=C, n=8, fmt="f32")
    assert get(state, C, 8, "f32").tolist() == [0, 9, 2, 9, 4, 9, 9, 7]


def test_rounding_modes_of_results():
    state = new_state()
    put(state, A, np.full(64, 1, f32).astype(np_dtype("bf16")))
    small = scalar_pattern(2.0**-10, FORMAT_CODES["bf16"])
    for rnd, want in [(0, 1.0), (1, 1.0), (2, 1.0078125), (3, 1.0)]:
        execute(state, "add_vs", src0=A, dst=C, n=64, scalar=small, fmt="bf16", rnd=rnd)
        assert set(get(state, C, 64, "bf16").astype(f32).tolist()) == {want}
    execute(state, "add_vs", src0=A, dst=C, n=64, scalar=small, fmt="bf16", rnd=4)
    assert set(get(state, C, 64, "bf16").astype(f32).tolist()) <= {1.0, 1.0078125}


def test_nan_spreads_through_extrema():
    state = new_state()
    put(state, A, np.array([np.nan, 1], f32)), put(state, B, np.array([0, np.nan], f32))
    for name in ("max_vv", "min_vv"):
        execute(state, name, src0=A, src1=B, dst=C, n=2, fmt="f32")
        assert np.isnan(get(state, C, 2, "f32")).all()


def test_scaling_a_blocked_tensor_by_a_blocked_vector():
    n, p, c = 1, 224, 129
    rng = np.random.default_rng(11)
    x = rng.standard_normal((n, p, c)).astype(np.float16)
    s = rng.standard_normal((1, 1, c)).astype(np.float16)
    state = new_state()
    packed, vector = pack(x, "f16"), pack(s, "f16")
    put(state, A, packed), put(state, B, vector)
    own = dict(n=p * 64, unit=64, full=p * 132, full_unit=132)
    execute(state, "mul_vuvloop", src0=A, src1=B, dst=C, fmt="f16", **own)
    assert np.array_equal(state.spm[C : C + len(packed)], pack(x * s, "f16"))
