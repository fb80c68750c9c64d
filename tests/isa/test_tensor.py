"""CT reductions, pooling, conversions and peripheral instructions against scalar loops."""

import itertools

import numpy as np
import pytest
from isa_state import A, B, C, D, E, execute, get, get_blocked, new_state, put, put_blocked, values

from tx8fast import isa
from tx8fast.errors import SimulationError
from tx8fast.isa import scalar_pattern
from tx8fast.isa.convert import PAIRS, overlap_is_legal
from tx8fast.numerics.formats import FORMAT_CODES, convert, np_dtype, pack_bits
from tx8fast.simulator.state import run_row

f32 = np.float32
REDUCE = {"sum": sum, "avg": lambda v: sum(v) / len(v), "max": max, "min": min}


@pytest.mark.parametrize("c", [3, 30, 131])
@pytest.mark.parametrize("dim", [0, 1, 2, 4])
@pytest.mark.parametrize("name", sorted(REDUCE))
def test_reduce(name, dim, c):
    rng = np.random.default_rng(7)
    state = new_state()
    state.spm[A : A + 0x8000] = 0xFF  # padding lanes hold NaN and must not take part
    n, h, w = 2, 3, 2
    x = rng.integers(-8, 9, (n, h, w, c)).astype(f32)
    pad = np.full((n, h * w, 256), np.nan, f32)
    put_blocked(state, A, pad[:, :, :c], "bf16")
    put_blocked(state, A, x.reshape(n, h * w, c), "bf16")
    execute(state, f"reduce_{name}", src0=A, dst=B, dim=dim, n=n, h=h, w=w, c=c, fmt="bf16")
    keep = [range(n), range(h), range(w), range(c)]
    axes = {0: [3], 1: [2], 2: [1], 4: [1, 2]}[dim]
    shape = [1 if a in axes else len(keep[a]) for a in range(4)]
    want = np.zeros(shape, f32)
    for at in itertools.product(*[range(s) for s in shape]):
        free = [keep[a] if a in axes else [at[a]] for a in range(4)]
        want[at] = REDUCE[name]([float(x[i]) for i in itertools.product(*free)])
    got = get_blocked(state, B, n, shape[1] * shape[2], shape[3], "bf16")
    assert np.array_equal(got.reshape(shape), want.astype(np_dtype("bf16")))


def test_reduce_rejects_unknown_axis():
    with pytest.raises(SimulationError, match="dim code 3"):
        execute(new_state(), "reduce_sum", src0=A, dst=B, dim=3, n=1, h=1, w=1, c=4, fmt="bf16")


@pytest.mark.parametrize("name", ["max", "min", "sum", "avg"])
def test_pool(name):
    rng = np.random.default_rng(8)
    state = new_state()
    n, h, w, c, kx, ky, sx, sy = 2, 5, 6, 5, 3, 2, 2, 1
    x = rng.integers(-9, 10, (n, h, w, c)).astype(f32)
    put_blocked(state, A, x.reshape(n, h * w, c), "f16")
    own = dict(n=n, h=h, w=w, c=c, top=1, bottom=0, left=1, right=1, kx=kx, ky=ky, sx=sx, sy=sy)
    execute(state, f"pool_{name}", src0=A, dst=B, fmt="f16", **own)
    oh, ow = (h + 1 - ky) // sy + 1, (w + 2 - kx) // sx + 1
    got = get_blocked(state, B, n, oh * ow, c, "f16").reshape(n, oh, ow, c)
    index = None
    if name in ("max", "min"):
        execute(state, f"pool_{name}_indexed", src0=A, dst=B, index=C, fmt="f16", **own)
        index = get_blocked(state, C, n, oh * ow, c, "u16").reshape(n, oh, ow, c)
    for at in itertools.product(range(n), range(oh), range(ow), range(c)):
        b, y, z, ch = at
        window = []
        for j, i in itertools.product(range(ky), range(kx)):
            r, s = y * sy + j - 1, z * sx + i - 1
            outside = {"max": -np.inf, "min": np.inf}.get(name, 0.0)
            window.append(float(x[b, r, s, ch]) if 0 <= r < h and 0 <= s < w else outside)
        want = {"max": max, "min": min, "sum": sum, "avg": lambda v: sum(v) / 6}[name](window)
        assert got[at] == np.float16(want)
        if index is not None:
            assert index[at] == window.index(want)


def test_unpool():
    state = new_state()
    x = np.arange(1, 13, dtype=f32).reshape(1, 2, 2, 3)
    put_blocked(state, A, x.reshape(1, 4, 3), "f32")
    own = dict(n=1, h=2, w=2, c=3, oh=4, ow=4, kx=2, ky=2, sx=2, sy=2, fmt="f32")

    def result():
        return get_blocked(state, B, 1, 16, 3, "f32").reshape(4, 4, 3)

    execute(state, "unpool", src0=A, dst=B, index=2, **own)
    got = result()
    for y, z in itertools.product(range(4), range(4)):
        want = x[0, y // 2, z // 2] if (y % 2, z % 2) == (1, 0) else 0
        assert np.array_equal(got[y, z], np.broadcast_to(want, 3))
    execute(state, "unpool_avg", src0=A, dst=B, **own)
    assert np.array_equal(result(), np.repeat(np.repeat(x[0], 2, 0), 2, 1) / 4)
    where = np.arange(12).reshape(1, 4, 3) % 4
    put_blocked(state, C, where, "u32")
    execute(state, "mask_unpool", src0=A, dst=B, index_src=C, **own)
    got = result()
    for y, z, ch in itertools.product(range(4), range(4), range(3)):
        chosen = where[0, y // 2 * 2 + z // 2, ch] == y % 2 * 2 + z % 2
        assert got[y, z, ch] == (x[0, y // 2, z // 2, ch] if chosen else 0)


@pytest.mark.parametrize(("src", "dst"), [(s, d) for _, s, ds in PAIRS for d in ds])
def test_conversion(src, dst):
    rng = np.random.default_rng(9)
    state = new_state()
    x = values(rng, 96, src, 60.0)
    put(state, A, x)
    zp = 5 if src == "i8" else 0
    for rnd in (0, 1):
        execute(state, f"cvt_{src}_{dst}", src0=A, dst=B, n=96, zp=zp, rnd=rnd)
        assert get(state, B, 96, dst).tobytes() == convert(x, src, dst, rnd, zp).tobytes()
    if dst == "f32" and src in ("bf16", "f16"):
        assert get(state, B, 96, dst).tolist() == [float(v) for v in x]
    if src == "f32" and dst == "i8":
        want = [int(np.clip(np.trunc(float(v)), -128, 127)) for v in x]
        assert get(state, B, 96, dst).tolist() == want


def test_conversion_in_place():
    assert overlap_is_legal(0x100, 0, 128, 2, 4) and not overlap_is_legal(0xFE, 0, 128, 2, 4)
    assert overlap_is_legal(0, 0, 128, 4, 2) and not overlap_is_legal(0, 4, 128, 4, 2)
    assert overlap_is_legal(8, 8, 128, 4, 4) and not overlap_is_legal(8, 12, 128, 4, 4)
    state = new_state()
    x = np.arange(128, dtype=f32)
    put(state, A + 256, x.astype(np_dtype("bf16")))
    run_row(state, isa.rows([isa.make("cvt_bf16_f32", src0=A + 256, dst=A, n=128)])[0], 0)
    assert np.array_equal(get(state, A, 128, "f32"), x)
    with pytest.raises(SimulationError, match="right-aligned"):
        run_row(state, isa.rows([isa.make("cvt_bf16_f32", src0=A + 64, dst=A, n=128)])[0], 0)


def test_count_and_extrema():
    state = new_state()
    x = np.array([0, 3, -0.0, np.nan, 7, 7, -9, -9], f32)
    put(state, A, x)
    execute(state, "count", src0=A, n=8, fmt="f32")
    assert state.wb[0] == 6
    execute(state, "argmax", src0=A, n=8, fmt="f32")
    assert state.wb == (scalar_pattern(7.0, 5), 4)
    execute(state, "argmin", src0=A, n=8, fmt="f32")
    assert state.wb == (scalar_pattern(-9.0, 5), 6)
    put(state, A, pack_bits(np.arange(20) % 3 == 0))
    execute(state, "bitcount", src0=A, n=20)
    assert state.wb[0] == 7


def test_factorize_bits_and_tables():
    state = new_state()
    x = np.array([1, -6, 0, 0.375, -1e30, 2**-20], f32)
    put(state, A, x)
    execute(state, "factorize", src0=A, dst0=B, dst1=C, dst2=D, n=6, fmt="f32")
    sign, exponent, mantissa = (get(state, at, 6, "f32") for at in (B, C, D))
    assert exponent.tolist()[:4] == [0, 2, 0, -2] and sign.tolist() == [1, -1, 1, 1, -1, 1]
    assert np.array_equal(sign * mantissa * np.exp2(exponent), x)
    put(state, A, pack_bits(np.array([1, 0, 0, 1, 1, 0, 1, 0, 1], bool)))
    execute(state, "bit2fp", src0=A, dst=B, n=9, fmt="bf16")
    assert get(state, B, 9, "bf16").tolist() == [1, 0, 0, 1, 1, 0, 1, 0, 1]
    for name, dt in (("lut16", np.uint16), ("lut32", np.uint32)):
        table = (np.arange(32) * 1001).astype(dt)
        put(state, B, table)
        put(state, A, np.array([0, 6, 31, 8], dt) * dt(table.itemsize))
        execute(state, name, src0=A, table=B, dst=C, n=4, entries=32)
        assert get(state, C, 4, f"u{table.itemsize * 8}").tolist() == [table[k] for k in (0, 6, 31, 8)]


def test_bilinear():
    state = new_state()
    n, h, w, c, oh, ow = 1, 3, 4, 2, 5, 7
    x = np.random.default_rng(1).standard_normal((n, h, w, c)).astype(f32)
    put(state, A, x)
    sw, sh = (w - 1) / (ow - 1), (h - 1) / (oh - 1)
    execute(state, "bilinear", src0=A, dst=B, n=n, h=h, w=w, c=c, oh=oh, ow=ow, fmt="f32",
            scale_w=scalar_pattern(sw, 5), scale_h=scalar_pattern(sh, 5))  # fmt: skip
    got = get(state, B, n * oh * ow * c, "f32").reshape(oh, ow, c)
    for y, z, ch in itertools.product(range(oh), range(ow), range(c)):
        fy, fx = min(y * sh, h - 1), min(z * sw, w - 1)
        y0, x0 = int(fy), int(fx)
        y1, x1 = min(y0 + 1, h - 1), min(x0 + 1, w - 1)
        a, b = fy - y0, fx - x0
        want = (1 - a) * ((1 - b) * x[0, y0, x0, ch] + b * x[0, y0, x1, ch])
        want += a * ((1 - b) * x[0, y1, x0, ch] + b * x[0, y1, x1, ch])
        assert abs(got[y, z, ch] - want) < 1e-5


def test_random_numbers_and_dropout():
    state = new_state()
    put(state, A, np.array([1], np.uint64)), put(state, B, np.array([2], np.uint64))
    execute(state, "rand_gen", seed0=A, seed1=B, out_seed0=C, out_seed1=C + 8, dst=D, n=1000, fmt="f32")
    first = get(state, D, 1000, "f32")
    assert first[0] == f32((3 >> 40) * 2.0**-24) and 0.45 < first.mean() < 0.55
    execute(
        state,
        "rand_gen",
        seed0=C,
        seed1=C + 8,
        out_seed0=C,
        out_seed1=C + 8,
        dst=D,
        n=10,
        fmt="f32",
    )
    assert not np.array_equal(first[:10], get(state, D, 10, "f32"))
    put(state, A, np.ones(1000, f32)), put(state, B, np.array([2], f32))
    execute(state, "elem_mask", src0=A, scale=B, dst=E, n=1000, prob=scalar_pattern(0.3, 5), fmt="f32")
    kept = get(state, E, 1000, "f32")
    assert set(kept.tolist()) == {0.0, 2.0} and 600 < (kept > 0).sum() < 800


def test_concat_and_compaction():
    state = new_state()
    x, y = (
        np.arange(24, dtype=f32).reshape(2, 2, 2, 3),
        -np.arange(16, dtype=f32).reshape(2, 2, 2, 2),
    )
    put(state, A, x), put(state, B, y)
    execute(state, "concat", src0=A, src1=B, dst=C, dim=0, n=2, h=2, w=2, c=3, size1=2, fmt="f32")
    got = get(state, C, 40, "f32").reshape(2, 2, 2, 5)
    assert np.array_equal(got[..., :3], x) and np.array_equal(got[..., 3:], y)
    mask = np.array([0, 1, 0, 1, 1, 0, 0, 1], f32)
    put(state, B, mask)
    execute(state, "mask_gather", src0=A, src1=B, dst=C, n=8, fmt="f32")
    assert get(state, C, 4, "f32").tolist() == [1, 3, 4, 7]
    put(state, B, pack_bits(mask != 0)), put(state, C, np.zeros(8, f32))
    execute(state, "mask_gather_b", src0=A, src1=B, dst=C, n=8, fmt=FORMAT_CODES["f32"])
    assert get(state, C, 5, "f32").tolist() == [1, 3, 4, 7, 0]
