"""TDMA and DMA instructions against scalar loops."""

import itertools

import numpy as np
import pytest
from isa_state import DDR_BASE, A, B, execute, get, new_state, put

from tx8fast import isa
from tx8fast.errors import SimulationError
from tx8fast.numerics.formats import FORMAT_CODES, np_dtype
from tx8fast.numerics.layout import pack

SHAPES = [
    ((2, 2, 131), "f16"), ((4, 224, 30), "f16"), ((2, 15, 97), "f16"), ((3, 4, 65), "f32"),
    ((2, 6, 193), "i8"), ((1, 7, 64), "bf16"), ((2, 3, 100), "i8"),
]  # fmt: skip


def nest(levels):
    """Return run offsets of (s0, n0, s1, n1, s2, n2), innermost fastest."""
    s0, n0, s1, n1, s2, n2 = levels
    return [i * s0 + j * s1 + k * s2 for k in range(n2) for j in range(n1) for i in range(n0)]


def test_gather_scatter_against_loops():
    rng = np.random.default_rng(3)
    for _ in range(60):
        size = int(rng.choice([1, 2, 6, 8, 64]))
        counts = [int(v) for v in rng.integers(1, 5, 3)]
        src = [v for n, s in zip(counts, rng.integers(0, 300, 3)) for v in (int(s), n)]
        order = rng.permutation(3)
        # destinations must not overlap for a defined result: dense nests of permuted counts
        dst, step = [], size + int(rng.integers(0, 5))
        for k in order:
            dst += [step, counts[k]]
            step *= counts[k]
        state = new_state()
        data = rng.integers(0, 256, 4096).astype(np.uint8)
        put(state, A, data)
        names_s = ("ss0", "sn0", "ss1", "sn1", "ss2", "sn2")
        names_d = ("ds0", "dn0", "ds1", "dn1", "ds2", "dn2")
        execute(
            state,
            "gather_scatter",
            src0=A,
            dst=B,
            size=size,
            **dict(zip(names_s, src)),
            **dict(zip(names_d, dst)),
        )
        for a, b in zip(nest(src), nest(dst)):
            assert state.spm[B + b : B + b + size].tolist() == data[a : a + size].tolist()


def test_gather_scatter_counts_must_agree():
    with pytest.raises(SimulationError, match="equally many runs"):
        execute(new_state(), "gather_scatter", src0=A, dst=B, size=4, sn0=4, ss0=8, dn0=2, ds0=4)


@pytest.mark.parametrize(("shape", "fmt"), SHAPES)
def test_channel_norm_is_pack_and_unpack(shape, fmt):
    rng = np.random.default_rng(4)
    n, p, c = shape
    x = rng.integers(1, 100, shape).astype(np_dtype(fmt))
    code = FORMAT_CODES[fmt]
    state = new_state()
    put(state, A, x)
    packed = pack(x, fmt)
    for f in isa.channel_norm(n, p, c, code):
        src, dst = f.pop("src_offset"), f.pop("dst_offset")
        execute(state, "gather_scatter", src0=A + src, dst=B + dst, **f)
    assert np.array_equal(state.spm[B : B + len(packed)], packed)
    state.spm[A : A + x.nbytes] = 0
    for f in isa.channel_norm(n, p, c, code, inverse=True):
        src, dst = f.pop("src_offset"), f.pop("dst_offset")
        execute(state, "gather_scatter", src0=B + src, dst=A + dst, **f)
    assert np.array_equal(get(state, A, x.size, fmt), x.reshape(-1))
    one = dict(n=n, h=1, w=p, c=c, fmt=fmt)
    state.spm[B : B + len(packed)] = 0
    execute(state, "tensor_norm", src0=A, dst=B, **one)
    assert np.array_equal(state.spm[B : B + len(packed)], packed)
    state.spm[A : A + x.nbytes] = 0
    execute(state, "tensor_norm", src0=B, dst=A, inverse=1, **one)
    assert np.array_equal(get(state, A, x.size, fmt), x.reshape(-1))


def test_channel_norm_worked_example():
    full, tail = isa.channel_norm(2, 2, 131, 2)
    order = (
        "src_offset",
        "dst_offset",
        "size",
        "ss0",
        "sn0",
        "ss1",
        "sn1",
        "ss2",
        "sn2",
        "ds0",
        "dn0",
        "ds1",
        "dn1",
        "ds2",
        "dn2",
    )
    assert [full[k] for k in order] == [0, 0, 128, 262, 2, 128, 2, 524, 2, 128, 2, 256, 2, 768, 2]
    assert [tail[k] for k in order] == [256, 512, 6, 262, 2, 0, 1, 524, 2, 8, 2, 0, 1, 768, 2]
    full, tail = isa.channel_norm(2, 15, 97, 2)
    assert [tail[k] for k in order] == [
        128,
        1920,
        66,
        194,
        15,
        0,
        1,
        2910,
        2,
        128,
        15,
        0,
        1,
        3840,
        2,
    ]


N, H, W, CH = 2, 3, 4, 5
MOVES = {
    "mirror": ((N, H, W, CH), lambda n, y, x, c: (n, y, W - 1 - x, c)),
    "transpose": ((N, W, H, CH), lambda n, y, x, c: (n, x, y, c)),
    "rotate90": ((N, W, H, CH), lambda n, y, x, c: (n, H - 1 - x, y, c)),
    "rotate180": ((N, H, W, CH), lambda n, y, x, c: (n, H - 1 - y, W - 1 - x, c)),
    "rotate270": ((N, W, H, CH), lambda n, y, x, c: (n, x, W - 1 - y, c)),
    "nhwc2nchw": ((N, CH, H, W), lambda n, c, y, x: (n, y, x, c)),
}


@pytest.mark.parametrize("name", sorted(MOVES))
def test_moves(name):
    state = new_state()
    x = np.arange(N * H * W * CH, dtype=np.int16).reshape(N, H, W, CH)
    put(state, A, x)
    execute(state, name, src0=A, dst=B, n=N, h=H, w=W, c=CH, fmt="f16")
    shape, source = MOVES[name]
    got = get(state, B, x.size, "i16").reshape(shape)
    for at in itertools.product(*[range(s) for s in shape]):
        assert got[at] == x[source(*at)]
    if name == "nhwc2nchw":
        execute(state, "nchw2nhwc", src0=B, dst=A + 0x1000, n=N, h=H, w=W, c=CH, fmt="f16")
        assert np.array_equal(get(state, A + 0x1000, x.size, "i16"), x.reshape(-1))


def test_pad_img2col_memset():
    state = new_state()
    x = np.arange(N * H * W * CH, dtype=np.int16).reshape(N, H, W, CH)
    put(state, A, x)
    own = dict(n=N, h=H, w=W, c=CH, top=1, bottom=2, left=0, right=1, fmt="f16")
    execute(state, "pad", src0=A, dst=B, **own)
    oh, ow = H + 3, W + 1
    got = get(state, B, N * oh * ow * CH, "i16").reshape(N, oh, ow, CH)
    for n, y, z in itertools.product(range(N), range(oh), range(ow)):
        inside = 1 <= y < 1 + H and z < W
        assert np.array_equal(got[n, y, z], x[n, y - 1, z] if inside else np.zeros(CH))
    kx, ky, sx, sy = 2, 3, 2, 1
    execute(state, "img2col", src0=A, dst=B, kx=kx, ky=ky, sx=sx, sy=sy, **own)
    oh, ow = (H + 3 - ky) // sy + 1, (W + 1 - kx) // sx + 1
    got = get(state, B, N * kx * ky * oh * ow * CH, "i16").reshape(N, kx * ky, oh * ow, CH)
    for n, j, i, y, z in itertools.product(range(N), range(ky), range(kx), range(oh), range(ow)):
        r, s = y * sy + j - 1, z * sx + i
        want = x[n, r, s] if 0 <= r < H and 0 <= s < W else np.zeros(CH)
        assert np.array_equal(got[n, j * kx + i, y * ow + z], want)
    state.spm[A : A + 256] = 0
    execute(state, "memset", dst=A, value=0x3F80, n=3, s0=10, n0=2, s1=40, n1=2, fmt="bf16")
    want = np.zeros(64, np.uint16)
    for start in (0, 5, 20, 25):
        want[start : start + 3] = 0x3F80
    assert np.array_equal(get(state, A, 64, "u16"), want)


def test_dma_against_loops():
    rng = np.random.default_rng(6)
    names = ("s0", "n0", "s1", "n1", "s2", "n2")
    for _ in range(40):
        size = int(rng.choice([1, 2, 6, 64, 130]))
        counts = [int(v) for v in rng.integers(1, 5, 3)]
        levels, step = [], size + int(rng.integers(0, 9))
        for n in counts:
            levels += [step, n]
            step = step * n + int(rng.integers(0, 9))
        state = new_state()
        state.ddr.data[...] = rng.integers(0, 256, len(state.ddr.data))
        base = int(rng.integers(0, 300))
        own = dict(run_bytes=size, slot=0, **dict(zip(names, levels)))
        execute(state, "rdma", ddr=DDR_BASE + base, dst=A, **own)
        for k, at in enumerate(nest(levels)):
            source = state.ddr.data[base + at : base + at + size]
            assert np.array_equal(state.spm[A + k * size : A + (k + 1) * size], source)
        want = state.ddr.data.copy()
        state.ddr.data[...] = 0
        execute(state, "wdma", ddr=DDR_BASE + base, src=A, **own)
        mask = np.zeros(len(want), bool)
        for at in nest(levels):
            mask[base + at : base + at + size] = True
        assert np.array_equal(state.ddr.data, np.where(mask, want, 0))


def test_dma_repeats_a_run_and_checks_bounds():
    state = new_state(256)
    state.ddr.data[:4] = [1, 2, 3, 4]
    execute(state, "rdma", ddr=DDR_BASE, dst=A, run_bytes=4, s0=0, n0=3)
    assert state.spm[A : A + 12].tolist() == [1, 2, 3, 4] * 3
    with pytest.raises(SimulationError, match="accessing DDR"):
        execute(state, "rdma", ddr=DDR_BASE + 253, dst=A, run_bytes=4)


def test_every_row_decodes_to_its_fields():
    for name, cls in isa.INSTRUCTIONS.items():
        own = {f: 3 + k for k, f in enumerate(cls.FIELDS_SPM + cls.FIELDS_P)}
        row = isa.rows([isa.make(name, fmt="bf16", rnd=2, slot=1, ddr=77, op=5, **own)])[0]
        found = isa.decode(row)
        assert found["name"] == name and found["engine"] == cls.UNIT
        assert {k: found[k] for k in own} == own
        assert (found["fmt"], found["rnd"], found["slot"], found["ddr"], found["op"]) == (
            3,
            2,
            1,
            77,
            5,
        )
        same = isa.make_rows(name, 1, fmt="bf16", rnd=2, slot=1, ddr=77, op=5, **own)
        assert same[0] == row


def test_opcode_space():
    assert [k for k in range(187) if isa.BY_OPCODE[k] is None] == []
    tdma = {124, 125, 126, 127, 128, 129, 130, 132, 133, 135, 138, 179}
    assert {k for k in range(187) if isa.BY_OPCODE[k].UNIT == "tdma"} == tdma
    numbers = {"add_vv": 14, "bool_eq_vuvloop": 37, "lt_vuvloop": 75, "xor_vuvloop": 87, "softplus_v": 110,
               "cvt_tf32_f32": 174, "elem_mask": 186, "gemm": 0x203, "rdma": 0x300, "kcore": 0x400}  # fmt: skip
    assert {name: isa.INSTRUCTIONS[name].OPCODE for name in numbers} == numbers
    with pytest.raises(ValueError, match="missing fields"):
        isa.make("add_vv", src0=1)
    with pytest.raises(ValueError, match="unknown fields"):
        isa.make("add_vv", src0=1, src1=1, dst=1, n=1, m=2)
    with pytest.raises(SimulationError, match="not defined"):
        isa.class_of(0x123)
