"""NE instructions against scalar loops and worked numbers."""

import itertools

import numpy as np
import pytest
from isa_state import A, B, C, D, E, F, execute, get_blocked, new_state, put_blocked

from tx8fast import isa
from tx8fast.isa.quant import pack_quant, unpack_quant
from tx8fast.numerics.formats import FORMAT_CODES, np_dtype
from tx8fast.simulator.state import run_row

f32 = np.float32
BF16, F32, I32, I8 = (FORMAT_CODES[k] for k in ("bf16", "f32", "i32", "i8"))


def small(rng, *shape):
    """Return small integers: every product sum is exact in all formats."""
    return rng.integers(-3, 4, shape).astype(f32)


def matmul(x, y):
    """Return batched products, element by element."""
    batch = max(len(x), len(y))
    out = np.zeros((batch, x.shape[1], y.shape[2]))
    for b, m, n in itertools.product(*map(range, out.shape)):
        a, c = x[b if len(x) > 1 else 0], y[b if len(y) > 1 else 0]
        out[b, m, n] = sum(float(a[m, k]) * float(c[k, n]) for k in range(a.shape[1]))
    return out


@pytest.mark.parametrize("fmt", ["bf16", "f16", "f32", "tf32", "i8"])
@pytest.mark.parametrize(("l_trs", "r_trs"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize(("batch_l", "batch_r"), [(1, 1), (2, 2), (3, 1), (1, 2)])
def test_gemm_forms(fmt, l_trs, r_trs, batch_l, batch_r):
    rng = np.random.default_rng(1)
    m, k, n = 5, 67, 6
    x, y = small(rng, batch_l, m, k), small(rng, batch_r, k, n)
    state = new_state()
    put_blocked(state, A, x.transpose(0, 2, 1) if l_trs else x, fmt)
    put_blocked(state, B, y if r_trs else y.transpose(0, 2, 1), fmt)
    execute(state, "gemm", left=A, right=B, out=C, m=m, k=k, n=n, batch_l=batch_l, batch_r=batch_r,
            l_trs=l_trs, r_trs=r_trs, fmt=fmt, out_fmt=F32)  # fmt: skip
    assert np.array_equal(get_blocked(state, C, max(batch_l, batch_r), m, n, "f32"), matmul(x, y))


@pytest.mark.parametrize("n", [30, 64, 70, 130])
def test_gemm_blocks_and_padding(n):
    rng = np.random.default_rng(2)
    m, k = 9, 128
    x, y = small(rng, 1, m, k), small(rng, 1, n, k)
    state = new_state()
    state.spm[A : A + 0x80000] = 0xFF
    put_blocked(state, A, x, "bf16")
    put_blocked(state, B, y, "bf16")
    execute(state, "gemm", left=A, right=B, out=C, m=m, k=k, n=n, fmt="bf16", out_fmt=BF16)
    want = matmul(x, y.transpose(0, 2, 1)).astype(np_dtype("bf16"))
    assert np.array_equal(get_blocked(state, C, 1, m, n, "bf16"), want)
    from tx8fast.numerics.layout import batch_used_bytes, pack

    # padding lanes are zero
    used = batch_used_bytes(m, n, "bf16")
    assert np.array_equal(state.spm[C : C + used], pack(want, "bf16")[:used])


def test_gemm_psum_bias_activation_scale():
    rng = np.random.default_rng(3)
    m, k, n = 4, 40, 66
    x, y, acc = small(rng, 1, m, k), small(rng, 1, k, n), small(rng, 1, m, n) * 7
    bias, up, down = small(rng, 1, 1, n), small(rng, 1, 1, n), small(rng, 1, 1, n)
    base = dict(left=A, right=B, out=C, m=m, k=k, n=n, r_trs=1, fmt="bf16", out_fmt=F32)
    state = new_state()
    put_blocked(state, A, x, "bf16"), put_blocked(state, B, y, "bf16")
    (
        put_blocked(state, D, bias, "f32"),
        put_blocked(state, E, up, "f32"),
        put_blocked(state, F, down, "f32"),
    )
    for act in (0, 1, 2):
        put_blocked(state, C, acc, "f32")
        # in place over the partial sums
        run_row(state, isa.rows([isa.make(
            "gemm", psum=C, psum_en=1, bias=D, bias_en=1, scale_p=E, scale_n=F, act=act, **base)])[0], 0)  # fmt: skip
        z = (matmul(x, y) + acc + bias).astype(f32)
        z = z * np.where(z >= 0, up, down)
        want = {0: z, 1: np.where(z > 0, z, 0), 2: np.where(z < 0, z * f32(0.01), z)}[act]
        assert np.array_equal(get_blocked(state, C, 1, m, n, "f32"), want)
    put_blocked(state, F + 0x8000, acc, "bf16")
    execute(state, "gemm", psum=F + 0x8000, psum_en=1, psum_fmt=BF16, bias=D, bias_en=1, **base)
    assert np.array_equal(get_blocked(state, C, 1, m, n, "f32"), matmul(x, y) + acc + bias)


def test_split_contraction_equals_one_shot():
    rng = np.random.default_rng(4)
    m, k, n = 7, 256, 33
    x = rng.standard_normal((1, m, k)).astype(np_dtype("bf16"))
    y = rng.standard_normal((1, n, k)).astype(np_dtype("bf16"))
    state = new_state()
    put_blocked(state, A, x, "bf16"), put_blocked(state, B, y, "bf16")
    execute(state, "gemm", left=A, right=B, out=C, m=m, k=k, n=n, fmt="bf16", out_fmt=F32)
    whole = get_blocked(state, C, 1, m, n, "f32")
    # two blocks of 64 channels of each operand follow each other in memory
    for part in range(2):
        run_row(state, isa.rows([isa.make(
            "gemm", left=A + part * 2 * m * 128, right=B + part * 2 * n * 128, out=D, psum=D,
            psum_en=part, m=m, k=128, n=n, fmt="bf16", out_fmt=F32)])[0], 0)  # fmt: skip
    error = np.abs(get_blocked(state, D, 1, m, n, "f32") - whole)
    bound = k * 2.0**-24 * matmul(np.abs(x.astype(f32)), np.abs(y.astype(f32)).transpose(0, 2, 1))
    assert (error <= bound).all()


def test_quantised_worked_example():
    x, y = np.array([[[10, -3], [7, 100]]]), np.array([[[5, -6], [2, 9]]])
    state = new_state()
    put_blocked(state, A, x, "i8"), put_blocked(state, B, y, "i8")
    put_blocked(state, D, np.array([[[20, 40]]]), "i16")
    own = dict(left=A, right=B, m=2, k=2, n=2, r_trs=1, fmt="i8")
    zero = dict(zp_left=3, zp_right=-1)
    execute(state, "gemm", out=C, out_fmt=I32, quant=pack_quant(enabled=False, **zero), **own)
    assert get_blocked(state, C, 1, 2, 2, "i32")[0].tolist() == [[24, -95], [315, 950]]
    execute(
        state,
        "gemm",
        out=C,
        out_fmt=I8,
        scale_p=D,
        quant=pack_quant(q0=6, q1=1, zp_out=4, **zero),
        **own,
    )
    assert get_blocked(state, C, 1, 2, 2, "i8")[0].tolist() == [[7, -26], [53, 127]]
    word = pack_quant(q0=31, q1=7, zp_left=-2048, zp_right=2047, zp_out=-1)
    assert unpack_quant(word) == (True, 31, 7, -2048, 2047, -1)
    with pytest.raises(ValueError, match="0..31"):
        pack_quant(q0=32)


def test_int8_sums_are_exact_and_wrap_into_psum():
    k = 2000
    state = new_state()
    (
        put_blocked(state, A, np.full((1, 1, k), 127), "i8"),
        put_blocked(state, B, np.full((1, 4, k), 127), "i8"),
    )
    put_blocked(state, D, np.array([[[0, 1, 2**31 - 1, -5]]]), "i32")
    own = dict(left=A, right=B, out=C, m=1, k=k, n=4, fmt="i8", out_fmt=I32)
    execute(state, "gemm", psum=D, psum_en=1, psum_fmt=I32, **own)
    total = 127 * 127 * k
    want = [total, total + 1, total + 2**31 - 1 - 2**32, total - 5]
    assert get_blocked(state, C, 1, 1, 4, "i32")[0, 0].tolist() == want


def conv_case(rng, kind):
    p = dict(n=2, h=5, w=4, c=3, kx=2, ky=3, sx=2, sy=1, dx=1, dy=1, top=1, bottom=1, left=1, right=0)
    p["oc"] = 3 if kind == "depthwise" else 6
    if kind == "backward_conv":
        p.update(sx=2, sy=3, dy=2)
        p["oh"] = (p["h"] - 1) * p["sy"] + (p["ky"] - 1) * p["dy"] + 1 - p["top"] - p["bottom"]
        p["ow"] = (p["w"] - 1) * p["sx"] + (p["kx"] - 1) * p["dx"] + 1 - p["left"] - p["right"]
    else:
        if kind == "conv":
            p.update(dx=2)
        p["oh"] = (p["h"] + p["top"] + p["bottom"] - (p["ky"] - 1) * p["dy"] - 1) // p["sy"] + 1
        p["ow"] = (p["w"] + p["left"] + p["right"] - (p["kx"] - 1) * p["dx"] - 1) // p["sx"] + 1
    return p


def conv_loops(kind, p, x, w):
    """Return the result of the three convolution forms by their definition."""
    out = np.zeros((p["n"], p["oh"], p["ow"], p["oc"]))
    taps = list(itertools.product(range(p["ky"]), range(p["kx"])))
    if kind == "backward_conv":
        for n, y, z in itertools.product(range(p["n"]), range(p["h"]), range(p["w"])):
            for j, i in taps:
                r, s = y * p["sy"] + j * p["dy"] - p["top"], z * p["sx"] + i * p["dx"] - p["left"]
                if 0 <= r < p["oh"] and 0 <= s < p["ow"]:
                    out[n, r, s] += x[n, y, z] @ w[j, i]
        return out
    for n, y, z in itertools.product(range(p["n"]), range(p["oh"]), range(p["ow"])):
        for j, i in taps:
            r, s = y * p["sy"] + j * p["dy"] - p["top"], z * p["sx"] + i * p["dx"] - p["left"]
            if 0 <= r < p["h"] and 0 <= s < p["w"]:
                out[n, y, z] += x[n, r, s] * w[j, i] if kind == "depthwise" else w[j, i] @ x[n, r, s]
    return out


@pytest.mark.parametrize("fmt", ["bf16", "i8"])
@pytest.mark.parametrize("kind", ["conv", "depthwise", "backward_conv"])
def test_convolutions(kind, fmt):
    rng = np.random.default_rng(5)
    p = conv_case(rng, kind)
    x = small(rng, p["n"], p["h"], p["w"], p["c"])
    shape = {"conv": (p["oc"], p["c"]), "depthwise": (p["c"],), "backward_conv": (p["c"], p["oc"])}[kind]
    w = small(rng, p["ky"], p["kx"], *shape)
    bias = small(rng, 1, 1, p["oc"])
    state = new_state()
    put_blocked(state, A, x.reshape(p["n"], -1, p["c"]), fmt)
    put_blocked(state, B, w.reshape(1, -1, shape[-1]), fmt)
    put_blocked(state, D, bias, "f32")
    execute(state, kind, src=A, weight=B, out=C, bias=D, bias_en=1, act=1, fmt=fmt, out_fmt=F32, **p)
    want = np.maximum(conv_loops(kind, p, x, w) + bias, 0)
    got = get_blocked(state, C, p["n"], p["oh"] * p["ow"], p["oc"], "f32")
    assert np.array_equal(got, want.reshape(got.shape))
