"""Issue and service times against the worked numbers of the cost model."""

import numpy as np
import pytest
from support.plain import plain_machine

from tx8fast import isa
from tx8fast.isa.strided import envelope
from tx8fast.machine import DDR_BASE

MACHINE = plain_machine()
A = 0x10000


def cost(name, **fields):
    rows = isa.rows([isa.make(name, **fields)])
    cycles, _ = isa.durations(MACHINE, rows, np.full(1, DDR_BASE))
    return int(cycles[0])


def gemm(m, k, n, fmt, out_fmt=3, **more):
    return cost("gemm", left=A, right=A, out=A, m=m, k=k, n=n, fmt=fmt, out_fmt=out_fmt, r_trs=1, **more)


@pytest.mark.parametrize(("nbytes", "cycles"), [(256, 47), (4096, 77), (16384, 173)])
def test_vector_startup_and_rate(nbytes, cycles):
    assert cost("add_vv", src0=A, src1=A, dst=A, n=nbytes // 2, fmt="bf16") == cycles


def test_vector_factors_and_misalignment():
    assert cost("abs_v", src0=A + 64, dst=A, n=128, fmt="f16") == 50
    # the batch-normalisation example: a loop over a 4x112x2x129 batch in f32 and its companions
    loop = dict(src0=A, src1=A, dst=A, n=14336, unit=64, full=29568, full_unit=132, fmt="f32")
    assert cost("mul_vuvloop", **loop) == 969
    assert cost("rsqrt_v", src0=A, dst=A, n=132, fmt="f32") == 62
    assert cost("add_vs", src0=A, dst=A, n=132, scalar=0, fmt="f32") == 50
    assert cost("cvt_f16_f32", src0=A, dst=A, n=118272) == 3741
    assert cost("exp_v", src0=A, dst=A, n=1024, fmt="bf16") == 45 + 2048 * 8 // 128
    assert cost("bool_and_vv", src0=A, src1=A, dst=A, n=1024) == 46
    assert cost("bool_lt_vv", src0=A, src1=A, dst=A, n=1024, fmt="bf16") == 45 + 16


@pytest.mark.parametrize(
    ("m", "k", "n", "fmt", "cycles"),
    [
        (256, 512, 256, "bf16", 8252),
        (256, 512, 256, "i8", 4156),
        (256, 512, 256, "f32", 49212),
        (65, 129, 129, "bf16", 519),
        (1, 512, 512, "bf16", 4156),
    ],
)
def test_gemm_time(m, k, n, fmt, cycles):
    assert gemm(m, k, n, fmt) == cycles
    if fmt == "bf16" and m > 1:
        mac_only = gemm(m, k, n, fmt, batch_l=3, batch_r=3) - 60
        assert mac_only == 3 * (cycles - 60)


def test_smallest_gemm_is_bound_by_its_ports():
    row = isa.rows([isa.make("gemm", left=A, right=A, out=A, m=8, k=8, n=64, fmt="bf16", out_fmt=3)])
    assert 60 + int(isa.ne.Gemm.array_cycles(MACHINE, row)[0]) == 61
    # 1024 bytes of right operand and of result at 128 bytes per cycle
    assert gemm(8, 8, 64, "bf16") == 60 + 8


def test_conv_time():
    shape = dict(n=2, h=16, w=16, c=64, oh=16, ow=16, oc=128, kx=3, ky=3, top=1, bottom=1, left=1, right=1)
    base = dict(src=A, weight=A, out=A, out_fmt=3, fmt="bf16")
    assert cost("conv", **shape, **base) == 60 + 2 * 32 * 2 * 9 * 8
    deep = {**shape, "oc": 64}
    # two output rows of 8 per line; the operand stream is shorter than the array time
    assert cost("depthwise", **deep, **base) == 60 + 2 * 16 * 2 * 1 * 9


def test_rdma_time_alone_and_shared():
    rows = isa.rows([isa.make("rdma", dst=A, run_bytes=65536, slot=0)] * 2)
    cycles, charged = isa.durations(MACHINE, rows, np.array([DDR_BASE, DDR_BASE + 100]))
    assert cycles[0] + charged[0] // 32 == 2352
    assert cycles[0] + -(-charged[0] * 16 // 150) == 7295
    # one more page is opened, one more burst is read
    assert cycles[1] - cycles[0] == 24
    assert charged[1] - charged[0] == 64


def test_tdma_time():
    assert cost("gather_scatter", src0=A, dst=A, size=65536) == 1064
    fields = isa.channel_norm(2, 2, 131, 2)
    for f in fields:
        f.pop("src_offset"), f.pop("dst_offset")
    assert [cost("gather_scatter", src0=A, dst=A, **f) for f in fields] == [56, 44]
    assert cost("memset", dst=A, value=0, n=1024, fmt="f32") == 40 + 64
    shape = dict(src0=A, dst=A, n=1, h=5, w=7, c=64, fmt="bf16")
    assert cost("transpose", **shape) == 40 + 35 * 2
    assert cost("tensor_norm", src0=A, dst=A, n=2, h=1, w=2, c=131, fmt="f16") == 40 + 16 + 4


def test_control_and_reduce_time():
    assert cost("wait") == 180
    assert cost("barrier") == 400 + 2 * 6 * 8
    assert cost("loop", count=5) == 0 and cost("end") == 0
    assert cost("kcore", routine=0, loads=100, stores=50, ops=30, divides=2, functions=3) == 200 + 180 + 40 + 180
    # 10 positions of 64 channels, one extra beat per result
    assert cost("reduce_sum", src0=A, dst=A, dim=0, n=1, h=2, w=5, c=60, fmt="bf16") == 45 + 10 + 10
    assert cost("reduce_sum", src0=A, dst=A, dim=4, n=1, h=2, w=5, c=60, fmt="bf16") == 45 + 10


def test_issue_cycles():
    rows = isa.rows(
        [
            isa.make("add_vv", src0=A, src1=A, dst=A, n=8),
            isa.make("add_vuvloop", src0=A, src1=A, dst=A, n=64, unit=64, full=64, full_unit=64),
            isa.make("reduce_sum", src0=A, dst=A, dim=0, n=1, h=1, w=1, c=4),
            isa.make("gemm", left=A, right=A, out=A, m=1, k=1, n=1, out_fmt=3),
            isa.make("rdma", dst=A, run_bytes=64),
            isa.make("wdma", src=A, run_bytes=64, s0=128, n0=2),
            isa.make("memset", dst=A, value=0, n=1),
            isa.make("wait"),
        ]
    )
    regs = [6, 9, 9, 16, 5, 9, 14]
    assert isa.issue_cycles(MACHINE, rows).tolist() == [20 + 4 * r for r in regs] + [0]
    assert isa.units(rows).tolist() == [0, 0, 0, 1, 2, 3, 4, 6]


def test_envelope_reaches_the_last_run():
    assert envelope(10, (100, 3, 0, 1, 1000, 2)) == 10 + 200 + 1000


def test_many_runs_do_not_cost_time():
    import time

    rows = isa.make_rows("rdma", 1000, dst=A, run_bytes=2, s0=np.arange(1000) * 2 + 2, n0=1000, s1=3, n1=3)
    begin = time.perf_counter()
    isa.durations(MACHINE, rows, np.arange(1000) * 777 + DDR_BASE)
    # a run-by-run count of three million runs takes seconds
    assert time.perf_counter() - begin < 1.0
