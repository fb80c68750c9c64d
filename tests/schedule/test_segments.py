"""What must hold for the code of any op under any plan: coverage, disjoint buffers, foldable code, times."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.one_op import Arg, Case, check, one_op, random_plan, with_plan

from tx8fast import isa
from tx8fast.isa.control import END, LOOP
from tx8fast.program.io import save
from tx8fast.program.verify import verify
from tx8fast.schedule.buffers import Buffers
from tx8fast.simulator.cycle import simulate
from tx8fast.tile.tiling import Plan, Tiling

B = "blocked"
CASES = {
    "gemm": lambda: one_op("gemm", Arg((2, 70, 130), "bf16", B), Arg((130, 200), "bf16", B), out=B),
    "contract": lambda: one_op(
        "contract", Arg((1, 40, 256), "f32", B), Arg((1, 33, 64), "f32", B), out=B,
        equation="b s (h g d), b t (h d) -> b (h g) s t", sizes=("h", 2, "d", 32)),
    "conv": lambda: one_op("conv", Arg((2, 17, 15, 20), "f32", B), Arg((3, 3, 70, 20), "f32", B), out=B, pad_lo=(1, 1)),
    "softmax": lambda: one_op("softmax", Arg((3, 4, 20, 100), "f32", B), Arg((20, 100), "f32", B), out=B),
    "rmsnorm": lambda: one_op("rmsnorm", Arg((3, 20, 129), "bf16", B), Arg((129,), "bf16"), out=B),
    "rope": lambda: one_op("rope", Arg((2, 20, 320)), Arg((20, 80)), Arg((20, 80)), heads=4),
    "gelu": lambda: one_op("gelu", Arg((5, 77, 129), "bf16", B), out=B),
    "add": lambda: one_op("add", Arg((5, 77, 129)), Arg((129,))),
    "transpose": lambda: one_op("transpose", Arg((20, 30, 40)), perm=(2, 0, 1)),
    "concat": lambda: one_op("concat", Arg((7, 20, 33)), Arg((7, 9, 33)), axis=1),
    "channel_norm": lambda: one_op("channel_norm", Arg((2, 50, 193)), out=B, to="align"),
    "floor": lambda: one_op("floor", Arg((20, 130))),
}  # fmt: skip
made: dict[str, Case] = {}


def case_of(name: str) -> Case:
    return made.setdefault(name, CASES[name]())


def plan_of(case: Case) -> Plan:
    """Return what the segment says about its plan, as a plan."""
    info, low = case.segment.info, case.lowering()
    parts = tuple(info["parts"])
    shard = tuple(min(-(-(-(-s // p)) // u) * u, s) for s, p, u in zip(low.sizes, parts, low.units, strict=True))
    order = tuple(info.get("order", range(len(parts))))
    return Plan(parts, shard, tuple(info.get("slices", shard)), order, 2, 0, 0, "")


@st.composite
def plans(draw):
    case = case_of(draw(st.sampled_from(sorted(set(CASES) - {"floor"}))))
    plan = random_plan(case, np.random.default_rng(draw(st.integers(0, 1 << 20))))
    return case, plan or plan_of(case)


def solid(low, r):
    """Cut a tile's range where a dimension is built from several factors: its box would have holes."""
    major = sorted({f for w in low.writes for d in w.dims for f, _ in d.terms[:-1]})
    for point in itertools.product(*(range(r.lo[f], r.hi[f]) for f in major)):
        lo, hi = list(r.lo), list(r.hi)
        for f, x in zip(major, point, strict=True):
            lo[f], hi[f] = x, x + 1
        yield lo, hi


def coverage(case: Case, plan: Plan) -> None:
    low = case.lowering()
    ranges = Tiling(low, plan).ranges
    if hasattr(low, "boxes"):
        boxes = [low.boxes(r.lo, r.hi)[1] for r in ranges if not r.idle]
        found = [[box for _, box in parts] for parts in boxes]
        shapes = [s.shape for s in case.records[0].results]
    else:
        found = [[w.box(lo, hi) for w in low.writes] for r in ranges if not r.idle for lo, hi in solid(low, r)]
        shapes = [tuple(d.size for d in w.dims) for w in low.writes]
    for j, shape in enumerate(shapes):
        count = np.zeros(shape, np.int8)
        for boxes in found:
            count[tuple(slice(a, b) for a, b in boxes[j])] += 1
        assert (count == 1).all(), f"{(count != 1).sum()} of {count.size} elements are not written exactly once"


@pytest.mark.parametrize("name", CASES)
def test_tiles_write_every_result_element_once(name: str) -> None:
    case = case_of(name)
    coverage(case, plan_of(case))


@given(plans())
def test_any_plan_writes_every_result_element_once(made) -> None:
    coverage(*made)


def test_129_channels_in_4_parts() -> None:
    """Channels are cut at whole blocks: 64, 64 and 1, the fourth tile idles; rows in 4 parts have no such unit."""
    case = one_op("gelu", Arg((4, 112, 2, 129), "f16", B), out=B)
    low = case.lowering()
    last = len(low.sizes) - 1
    parts = tuple(4 if f == last else 1 for f in range(len(low.sizes)))
    plan = Plan(parts, (*low.sizes[:-1], 64), (*low.sizes[:-2], 16, 64), tuple(range(last + 1)), 2, 0, 0, "")
    ranges = Tiling(low, plan).ranges
    assert [(r.lo[-1], r.hi[-1]) for r in ranges[:4]] == [(0, 64), (64, 128), (128, 129), (129, 129)]
    assert [r.idle for r in ranges] == [False] * 3 + [True] * 13
    coverage(case, plan)
    check(with_plan(case, plan))


@given(plans())
def test_buffers_that_live_together_are_disjoint(made) -> None:
    case, plan = made
    low = case.lowering()
    tiling = Tiling(low, plan)
    b = Buffers(tiling).at
    zero = (0,) * len(plan.shard)
    accesses = [*low.reads, *low.writes]
    blocks = []  # (first step alive, step after the last, address, bytes)
    for k, a in enumerate(accesses):
        life = (0, 2) if k < len(low.reads) else (1, 3)
        blocks += [(*life, at, tiling.slice_bytes[k]) for at in b.access[k]]
    blocks += [(1, 2, at, n) for at, n in zip(b.scratch, low.scratch_bytes(zero, plan.slices), strict=True)]
    blocks += [(0, 2, at, n) for at, n in zip(b.consts, low.const_bytes(), strict=True)]
    if b.acc:
        blocks.append((1, 2, b.acc, low.acc_bytes(zero, plan.slices)))
    in_loop = any(t > 1 for t in tiling.trips)
    for x, y in itertools.combinations(blocks, 2):
        together = in_loop or (x[0] < y[1] and y[0] < x[1])
        assert not together or x[2] + x[3] <= y[2] or y[2] + y[3] <= x[2], (x, y)
    for _, _, at, n in blocks:
        assert at % 256 == 0 and case.machine.spm_base <= at and at + n <= case.machine.spm_limit


def test_streamed_buffers_have_two_copies_and_others_one() -> None:
    case = case_of("gemm")
    low = case.lowering()
    once = Plan((1, 2, 2, 1), (2, 40, 128, 130), (2, 40, 128, 130), (0, 1, 2, 3), 2, 0, 0, "")
    assert Tiling(low, once).copies == (1, 1, 1)
    columns = Plan((1, 2, 2, 1), (2, 40, 128, 130), (2, 40, 64, 130), (0, 1, 2, 3), 2, 0, 0, "")
    assert Tiling(low, columns).copies == (1, 2, 2)
    split = Plan((1, 2, 2, 1), (2, 40, 128, 130), (2, 40, 64, 64), (0, 1, 2, 3), 2, 0, 0, "")
    assert Tiling(low, split).copies == (2, 2, 2)


def test_loads_run_ahead_of_the_compute_that_needs_them() -> None:
    """In a streaming loop the next slice is loaded while the present one is worked on: engines overlap."""
    case = one_op("exp", Arg((1, 512, 512), "f32", B), out=B, machine="test_2x2")
    low = case.lowering()
    plan = Plan((1, 4, 1), (1, 128, 512), (1, 16, 512), (0, 2, 1), 2, 0, 0, "")
    result = simulate(with_plan(case, plan).program)
    alone = simulate(with_plan(case, plan).program, serial=True)
    assert low.sizes == (1, 512, 512)
    busiest = max(result.busy[u] for u in ("ct", "rdma", "wdma")) / 4
    assert result.cycles < 1.25 * busiest + 2500 and alone.cycles > 1.5 * result.cycles


@settings(max_examples=30)
@given(plans())
def test_code_times_and_folding(made) -> None:
    case = with_plan(*made)
    verify(case.program)
    for code in case.segment.codes:
        rows = isa.expand(code)
        assert len(rows) == expanded_length(code)
        np.testing.assert_array_equal(isa.expand(isa.roll(rows)), rows)
    result = simulate(case.program)
    assert result.cycles >= result.bound_cycles
    for unit, busy in result.busy.items():
        assert 0 <= busy <= result.cycles * case.machine.n_tiles, unit
    serial = simulate(case.program, serial=True)
    assert serial.cycles >= max(result.busy.values()) / case.machine.n_tiles


def expanded_length(code: np.ndarray) -> int:
    """Count rows with a stack, as opposed to writing them out."""
    totals, counts = [0], []
    for row in code:
        if row["opcode"] == LOOP:
            counts.append(int(row["p"][0]))
            totals.append(0)
        elif row["opcode"] == END:
            body = totals.pop()
            totals[-1] += body * counts.pop()
        else:
            totals[-1] += 1
    return totals[0]


def test_tiles_in_any_order_give_the_same_bytes() -> None:
    """Tiles of a segment do not depend on each other: a second run in the same memory changes nothing."""
    case = case_of("add")
    rng = np.random.default_rng(3)
    inputs = [a.values(rng) for a in case.args]
    once = case.run(inputs, debug=False)["y0"]
    np.testing.assert_array_equal(case.run(inputs, debug=True)["y0"], once)


def test_poisoned_scratchpad_shows_a_missing_load() -> None:
    """Turning the first load into nothing must change the result: the comparison can fail."""
    case = case_of("gelu")
    rng = np.random.default_rng(3)
    inputs = [a.values(rng) for a in case.args]
    check(case, inputs)
    broken = with_plan(case, plan_of(case))
    load = isa.INSTRUCTIONS["rdma"].OPCODE
    broken.program.segments[0].codes = [c[c["opcode"] != load] for c in broken.segment.codes]
    out = broken.run(inputs)["y0"].astype(np.float32)
    assert np.isnan(out).any()


@pytest.mark.parametrize("name", CASES)
def test_two_compiles_give_identical_files(name: str, tmp_path) -> None:
    for i in range(2):
        save(CASES[name]().program, tmp_path / f"{i}.tx8")
    assert (tmp_path / "0.tx8").read_bytes() == (tmp_path / "1.tx8").read_bytes()


def test_hash_seed_does_not_matter(tmp_path, repo_root) -> None:
    script = (
        "import sys; sys.path[:0] = ['tests', 'tests/schedule']\n"
        "from test_segments import CASES, save\n"
        "for name, make in CASES.items(): save(make().program, f'{sys.argv[1]}/{name}.tx8')\n"
    )
    for seed in ("1", "77"):
        (tmp_path / seed).mkdir()
        subprocess.run([sys.executable, "-c", script, str(tmp_path / seed)], cwd=repo_root, check=True,
                       env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(repo_root)})  # fmt: skip
    for name in CASES:
        assert (tmp_path / "1" / f"{name}.tx8").read_bytes() == (tmp_path / "77" / f"{name}.tx8").read_bytes()
