"""The functional simulator on small hand-written programs."""

import numpy as np
import pytest

from tests.support.closeness import compare, contraction_bound
from tx8fast import isa
from tx8fast.errors import SimulationError
from tx8fast.machine import DDR_BASE, load_machine
from tx8fast.numerics.formats import FORMAT_CODES, np_dtype
from tx8fast.numerics.layout import pack
from tx8fast.program.model import Launch, Program, Segment, Tensor
from tx8fast.simulator.functional import FunctionalSimulator

A, B, C = 0x10000, 0x50000, 0x90000
BF16, F32 = FORMAT_CODES["bf16"], FORMAT_CODES["f32"]
M, K, N, TILES = 8, 96, 48, 4


def tensor(name, shape, address, size, dtype="f32", ddr_dtype="bf16", layout="blocked"):
    return Tensor(name, shape, dtype, ddr_dtype, layout, DDR_BASE + address, size)


def gemm_code(psum=False):
    """Every tile multiplies its own rows of x by all of w, through SPM."""
    x_bytes, w_bytes, y_bytes = M * 96 * 2, K * 64 * 2, M * 64 * 4
    rows = [
        isa.make("rdma", dst=A, run_bytes=x_bytes, slot=0),
        isa.make("rdma", dst=B, run_bytes=w_bytes, slot=1),
        isa.make("gemm", left=A, right=B, out=C, m=M, k=K, n=N, r_trs=1, fmt="bf16", out_fmt=F32),
        isa.make("wdma", src=C, run_bytes=y_bytes, slot=2),
        isa.make("wait"),
        isa.make("barrier"),
    ]
    return isa.rows(rows)


def gemm_program(**changes):
    """x: four blocked slices of [M, K] one after the other, w [K, N], y: four slices of [M, N]."""
    x_bytes, y_bytes = M * 96 * 2, M * 64 * 4
    segment = Segment(
        name="gemm", codes=[gemm_code()], tile_code=np.array([0] * TILES + [-1] * 12),
        slot_arg=np.array([0, 1, 2], np.int32),
        tile_offset=np.array([[t * x_bytes, 0, t * y_bytes] for t in range(TILES)] + [[0, 0, 0]] * 12),
        n_args=3, ops=["y"],
    )  # fmt: skip
    x0, w0, y0 = 0, 0x10000, 0x20000
    fields = dict(
        machine=load_machine("tx8").to_dict(),
        segments=[segment],
        launches=[Launch(0, np.array([x0, w0, y0]) + DDR_BASE, "layer/gemm")],
        inputs=[tensor(f"x{t}", (M, K), x0 + t * x_bytes, x_bytes) for t in range(TILES)],
        outputs=[tensor(f"y{t}", (M, N), y0 + t * y_bytes, y_bytes, ddr_dtype="f32") for t in range(TILES)],
        params=[tensor("w", (K, N), w0, K * 64 * 2)],
        ddr_bytes=0x30000,
        meta={},
    )
    return Program(**{**fields, **changes})


@pytest.mark.parametrize("debug", [False, True])
def test_gemm_on_four_tiles(debug):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((TILES, M, K)).astype(np.float32)
    w = rng.standard_normal((K, N)).astype(np_dtype("bf16"))
    sim = FunctionalSimulator(gemm_program(), debug=debug)
    sim.load_params({"w": pack(w[None], "bf16").tobytes()})
    for t in range(TILES):
        sim.write(f"x{t}", x[t])
    sim.run()
    assert sim.instructions_executed == TILES * 6
    for t in range(TILES):
        a, b = x[t].astype(np_dtype("bf16")).astype(np.float64), w.astype(np.float64)
        bound = contraction_bound(np.abs(a) @ np.abs(b), K, a @ b, "f32")
        result = compare(f"y{t}", sim.read(f"y{t}"), (a @ b).astype(np.float32), bound)
        assert result.ok, str(result)
        assert not compare("other", sim.read(f"y{t}") + 1, a @ b, bound).ok


def test_loops_run_and_addresses_advance():
    rows = []
    for i in range(50):
        rows += [
            isa.make("rdma", dst=A, run_bytes=256, slot=0, ddr=i * 256),
            isa.make("add_vs", src0=A, dst=A, n=64, scalar=isa.scalar_pattern(1.0, F32), fmt="f32"),
            isa.make("wdma", src=A, run_bytes=256, slot=1, ddr=i * 256),
        ]
    code = isa.roll(isa.rows(rows))
    assert len(code) == 5
    segment = Segment(
        "inc",
        [code],
        np.array([0] + [-1] * 15),
        np.array([0, 1]),
        np.zeros((16, 2), np.int64),
        2,
        [],
    )
    shape, size = (50, 64), 50 * 256
    program = gemm_program(
        segments=[segment],
        launches=[
            Launch(0, np.array([0, 0x10000]) + DDR_BASE, "a"),
            Launch(0, np.array([0x10000, 0]) + DDR_BASE, "b"),
        ],
        inputs=[tensor("x", shape, 0, size, ddr_dtype="f32", layout="dense")],
        outputs=[tensor("y", shape, 0x10000, size, ddr_dtype="f32", layout="dense")],
        params=[],
    )
    sim = FunctionalSimulator(program)
    x = np.arange(3200, dtype=np.float32).reshape(shape)
    sim.write("x", x)
    sim.run()
    assert np.array_equal(sim.read("y"), x + 1)
    assert np.array_equal(sim.read("x"), x + 2)


def test_debug_mode_exposes_bytes_that_were_never_written():
    code = isa.rows([isa.make("wdma", src=A, run_bytes=64, slot=0)])
    segment = Segment("s", [code], np.array([0] + [-1] * 15), np.array([0]), np.zeros((16, 1), np.int64), 1, [])
    out = tensor("y", (16,), 0, 64, ddr_dtype="f32", layout="dense")
    program = gemm_program(
        segments=[segment],
        launches=[Launch(0, np.array([DDR_BASE]), "a")],
        outputs=[out],
        inputs=[],
        params=[],
    )
    sim = FunctionalSimulator(program, debug=True)
    sim.run()
    assert np.isnan(sim.read("y")).all()


def test_kernel_core_routine_runs_on_strided_ddr_views():
    def operand(slot, offset, strides):
        return {"slot": slot, "offset": offset, "shape": [3, 4], "strides": strides, "dtype": "f32"}

    routine = {
        "routine": "add", "attrs": {},
        "inputs": [operand(0, 0, [4, 12]), operand(0, 0, [0, 4])], "outputs": [operand(1, 16, [16, 4])],
    }  # fmt: skip
    code = isa.rows([isa.make("kcore", routine=0, loads=24, stores=12, ops=12)])
    segment = Segment(
        "s",
        [code],
        np.array([0] + [-1] * 15),
        np.array([0, 1]),
        np.zeros((16, 2), np.int64),
        2,
        [],
        [routine],
    )
    x, y = (tensor(n, (12,), k * 4096, 48, ddr_dtype="f32", layout="dense") for k, n in enumerate("xy"))
    y.address += 16
    program = gemm_program(
        segments=[segment],
        launches=[Launch(0, np.array([0, 4096]) + DDR_BASE, "a")],
        inputs=[x],
        outputs=[y],
        params=[],
    )
    sim = FunctionalSimulator(program)
    values = np.arange(12, dtype=np.float32)
    sim.write("x", values)
    sim.run()
    assert np.array_equal(sim.read("y").reshape(3, 4), values.reshape(4, 3).T + values[:4])


def test_conversion_between_user_and_ddr_types():
    sim = FunctionalSimulator(gemm_program())
    x = np.linspace(-1, 1, M * K, dtype=np.float32).reshape(M, K)
    sim.write("x1", x)
    got = sim.read("x1")
    assert got.dtype == np.float32 and np.array_equal(got, x.astype(np_dtype("bf16")).astype(np.float32))
    with pytest.raises(SimulationError, match="found shape"):
        sim.write("x1", x[:4])
    with pytest.raises(SimulationError, match="no tensor is called 'z'"):
        sim.read("z")


def test_illegal_addresses_name_the_instruction():
    bad = gemm_program()
    bad.segments[0].codes[0]["spm"][2, 0] = 0x2EFFF0
    with pytest.raises(SimulationError, match=r"segment 'gemm'.*instruction 2 \(gemm\).*\[0x2efff0, "):
        FunctionalSimulator(bad).run()
    bad = gemm_program()
    bad.segments[0].codes[0]["ddr"][3] = 0x20000
    with pytest.raises(SimulationError, match=r"'layer/gemm'.*tile 0.*instruction 3 \(wdma\).*0x280040000"):
        FunctionalSimulator(bad).run()
    bad = gemm_program()
    bad.launches[0].args = bad.launches[0].args[:2]
    with pytest.raises(SimulationError, match="found 2 arguments, required 3"):
        FunctionalSimulator(bad).run()
    with pytest.raises(SimulationError, match="loading parameter 'w'"):
        FunctionalSimulator(gemm_program()).load_params({"w": np.zeros(10**6, np.uint8)})


def test_illegal_operation_names_the_instruction():
    bad = gemm_program()
    code = isa.rows([isa.make("gather_scatter", src0=A, dst=B, size=4, sn0=2, ss0=4)])
    bad.segments[0].codes[0] = code
    with pytest.raises(SimulationError, match=r"tile 0, instruction 0 \(gather_scatter\).*equally many runs"):
        FunctionalSimulator(bad).run()


def test_comparison_reports_the_first_difference():
    a = np.array([[1.0, np.nan], [np.inf, 4.0]])
    assert compare("t", a, a, 0.0).ok
    b = a.copy()
    b[1, 1] = 5
    text = str(compare("t", b, a, 0.5))
    assert "1 of 4" in text and "[1, 1]" in text and "found 5" in text
    assert not compare("t", a[0], a, 1.0).ok
