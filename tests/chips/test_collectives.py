"""Collectives of compiled programs: every kind bit for bit against its numpy model, times and bytes against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.collective_reference import collective
from support.small_graph import SmallGraph

from tx8fast.api import compile_ir
from tx8fast.errors import ConfigError, InfeasibleError
from tx8fast.graph_table import TensorSpec
from tx8fast.lower.collective import _flat
from tx8fast.lower.transfer import spec_bytes
from tx8fast.machine import ChipGrid, load_machine, topology
from tx8fast.numerics.formats import ITEM_BYTES, np_dtype
from tx8fast.numerics.layout import batch_used_bytes, npc
from tx8fast.options import CompileOptions
from tx8fast.program.verify import verify

SMALL = load_machine("tx8", {"chip.tiles_x": 2, "chip.tiles_y": 1})
ONE = load_machine("tx8", {"chip.tiles_x": 1, "chip.tiles_y": 1})


def compiled(kind, shape, dtype, chips, machine=SMALL, **attrs):
    g = SmallGraph(x=(shape, dtype))
    return compile_ir(g.done(y=g(kind, g.args["x"], **attrs)), machine, CompileOptions(chips=chips))


def values(shape, dtype, n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-2, 2, (n, *shape)).astype(np_dtype(dtype))


def check(kind, shape, dtype, chips, machine=SMALL, seed=0, **attrs):
    """Compare a compiled collective with its model, bit for bit; return the program."""
    made = compiled(kind, shape, dtype, chips, machine, **attrs)
    verify(made.program)
    x = values(shape, dtype, made.program.n_chips, seed)
    grid = ChipGrid(*chips, topology(machine.chip.tiles_x, machine.chip.tiles_y))
    got = made.run({"x": x}, debug=True)["y"]
    (segment,) = [s for s in made.program.segments if s.info["engine"] == "dte"]
    want = collective(kind, x, attrs, grid.ring, tiles=machine.n_tiles, rounds=segment.info["rounds"])
    assert got.shape == want.shape
    assert np.array_equal(got.view(np.uint8), np.ascontiguousarray(want).view(np.uint8))
    return made


CASES = {
    "sum": ("all_reduce", (37, 24), {"combine": "add"}),
    "max": ("all_reduce", (300,), {"combine": "max"}),
    "gather": ("all_gather", (5, 3, 8), {"dim": 1, "parts": 4}),
    "gather0": ("all_gather", (5, 24), {"dim": 0, "parts": 4}),
    "scatter": ("reduce_scatter", (8, 4, 6), {"dim": 1, "parts": 4, "combine": "add"}),
    "turn": ("all_to_all", (8, 12), {"split_dim": 1, "concat_dim": 0, "parts": 4}),
    "same": ("all_to_all", (8, 12), {"split_dim": 0, "concat_dim": 0, "parts": 4}),
    "shift": ("permute", (8, 12), {"pairs": (0, 1, 1, 2, 3, 3)}),
    "copy": ("broadcast_dev", (8, 12), {"root": 2}),
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("chips", [(4, 1), (2, 2)])
@pytest.mark.parametrize("name", CASES)
def test_every_kind_on_four_chips(name, chips, dtype):
    kind, shape, attrs = CASES[name]
    check(kind, shape, dtype, chips, **attrs)


@pytest.mark.parametrize("dtype", ["i32", "pred", "u8", "i64"])
def test_what_only_moves_has_any_format(dtype):
    g = SmallGraph(x=((6, 8), dtype))
    made = compile_ir(g.done(y=g("all_gather", g.args["x"], dim=0, parts=3)), SMALL, CompileOptions(chips=(3, 1)))
    x = np.random.default_rng(1).integers(0, 2, (3, 6, 8)).astype(np_dtype(dtype))
    assert np.array_equal(made.run({"x": x})["y"], np.stack([x.reshape(18, 8)] * 3))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_random_shapes_grids_and_groups(data):
    chips = data.draw(st.sampled_from([(2, 1), (3, 1), (1, 5), (3, 2), (4, 2)]))
    n = chips[0] * chips[1]
    parts = data.draw(st.sampled_from([p for p in range(2, n + 1) if n % p == 0]))
    groups = tuple(data.draw(st.permutations(range(n))))
    kind = data.draw(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast_dev"]))
    shape = [data.draw(st.integers(1, 9)) for _ in range(data.draw(st.integers(1, 3)))]
    dim = data.draw(st.integers(0, len(shape) - 1))
    attrs = {"groups": groups, "parts": parts}
    if kind in ("all_reduce", "reduce_scatter"):
        attrs["combine"] = data.draw(st.sampled_from(["add", "mul", "max", "min"]))
    if kind in ("all_gather", "reduce_scatter"):
        attrs["dim"] = dim
    if kind == "all_to_all":
        attrs |= {"split_dim": dim, "concat_dim": data.draw(st.integers(0, len(shape) - 1))}
    if kind in ("reduce_scatter", "all_to_all"):
        shape[dim] *= parts
    if kind == "broadcast_dev":
        attrs["root"] = data.draw(st.integers(0, parts - 1))
    check(
        kind,
        tuple(shape),
        data.draw(st.sampled_from(["f32", "bf16", "f16"])),
        chips,
        seed=data.draw(st.integers(0, 99)),
        **attrs,
    )


@pytest.mark.parametrize("name", ["sum", "gather", "scatter", "turn", "shift", "copy"])
def test_what_exceeds_the_scratchpad_goes_in_rounds(name):
    tiny = load_machine("tx8", {"chip.tiles_x": 2, "chip.tiles_y": 1, "tile.spm_bytes": 131072 + 4096})
    kind, shape, attrs = CASES[name]
    made = check(kind, (shape[0] * 16, *shape[1:]), "f32", (4, 1), tiny, **attrs)
    (segment,) = [s for s in made.program.segments if s.info["engine"] == "dte"]
    assert segment.info["rounds"] > 1
    assert segment.spm_peak_bytes <= 4096
    assert made.simulate().cycles > 0


def test_an_exact_run_gives_the_same_bits():
    made = compiled("all_reduce", (100,), "bf16", (3, 1), combine="add")
    x = values((100,), "bf16", 3)
    plain, exact = (made.run({"x": x}, exact=e)["y"] for e in (False, True))
    assert np.array_equal(plain.view(np.uint16), exact.view(np.uint16))
    assert made.status == ["inexact"]


def test_groups_of_different_sizes():
    check("all_reduce", (40,), "f32", (5, 1), combine="add", groups=(4, 0, 2, 1, 3, -1), parts=3)


def test_inputs_of_one_shape_go_to_all_chips():
    made = compiled("all_reduce", (8, 8), "f32", (4, 1), combine="add")
    x = values((8, 8), "f32", 1)[0]
    assert np.array_equal(made.run({"x": x})["y"], np.stack([4 * x] * 4))


# ---- time and bytes


def ring_all_reduce_cycles(m, n, chunk):
    """Cycles of a ring of n neighbouring chips of one tile each, for chunks of so many bytes that the last load hides nothing:
    loads and handshakes, then n - 1 messages with an addition each, n - 1 without, then stores and the barrier."""
    issue = lambda registers: m.kcore.issue_base + registers * m.kcore.issue_per_reg  # noqa: E731
    moved = lambda startup: n * (startup + m.dma.run_overhead + chunk // m.dma.port_bytes)  # noqa: E731
    loaded = issue(5) + moved(m.rdma.startup)
    met = n * issue(5) + (1 if n == 2 else 2) * (m.sync.handshake + m.c2c.latency)  # n is even: two turns do for a ring
    wire = m.dte.setup_hw + m.c2c.latency + -(-chunk // m.c2c.link_bytes)
    step = issue(6) + m.dte.setup_sw + wire + m.kcore.recv_cycles
    added = issue(6) + m.ct.startup + chunk // m.ct.bytes_per_cycle + m.kcore.wait_cycles
    ends = issue(5) + moved(m.wdma.startup) + m.kcore.wait_cycles + m.sync.barrier_base
    return m.kcore.launch_cycles + max(loaded, met) + m.kcore.wait_cycles + (n - 1) * (2 * step + added) + ends


@pytest.mark.parametrize(("chips", "kib"), [((2, 1), 16), ((2, 1), 64), ((2, 2), 16), ((1, 2), 100), ((2, 2), 512)])
def test_a_ring_all_reduce_takes_what_its_closed_form_says(chips, kib):
    n = chips[0] * chips[1]
    made = compiled("all_reduce", (kib * 256,), "f32", chips, ONE, combine="add")
    assert made.simulate().cycles == ring_all_reduce_cycles(ONE, n, kib * 1024 // n)


def test_bytes_between_chips_are_those_of_the_algorithm():
    for n in (2, 4):
        kinds = {
            "all_reduce": ({"combine": "add"}, 2 * (n - 1) / n),
            "reduce_scatter": ({"combine": "add", "dim": 0, "parts": n}, (n - 1) / n),
            "all_gather": ({"dim": 0, "parts": n}, n - 1),
        }
        for kind, (attrs, share) in kinds.items():
            elems = 4096 // n // 64 * 64 * n  # so that all chunks are equal
            grid = ChipGrid(n, 1, topology(2, 1))
            ring = grid.ring(range(n))
            crossings = [abs(a - b) for a, b in zip(ring, [*ring[1:], ring[0]])]
            result = compiled(kind, (elems,), "f32", (n, 1), **attrs).simulate()
            assert result.c2c_bytes == round(share * elems * 4) * sum(crossings), (kind, n)


def test_links_bound_a_large_all_reduce():
    """16 rings share the links: at 16 MiB time is that of the bytes, 2 (n - 1) / n of them over every link."""
    machine = load_machine("tx8")
    made = compiled("all_reduce", (1 << 22,), "f32", (2, 2), machine, combine="add")
    result = made.simulate()
    bound = 2 * 3 / 4 * (1 << 24) / machine.c2c.link_bytes / 2  # half of it each way
    assert bound < result.cycles < 1.45 * bound
    assert result.utilisation["c2c"] == pytest.approx(bound / result.cycles, rel=1e-6)
    (segment,) = made.program.segments
    assert 0.7 < segment.estimate_cycles / result.cycles < 1.3


def test_the_same_bytes_for_the_same_program(tmp_path):
    files = []
    for i in range(2):
        compiled("all_reduce", (40, 40), "bf16", (4, 2), combine="add").save(tmp_path / f"{i}.tx8")
        files.append((tmp_path / f"{i}.tx8").read_bytes())
    assert files[0] == files[1]


# ---- what cannot be


def test_groups_that_do_not_fit_the_chips():
    with pytest.raises(ConfigError, match=r"names chip 4, 5; there are chips 0 to 3"):
        compiled("all_reduce", (8,), "f32", (4, 1), combine="add", groups=(0, 4, 1, 5), parts=2)
    with pytest.raises(ConfigError, match=r"chip 1, 3 is in none of its groups"):
        compiled("all_reduce", (8,), "f32", (4, 1), combine="add", groups=(0, 2), parts=2)
    with pytest.raises(ConfigError, match=r"its shapes are those of 2 chips; found 4"):
        compiled("all_gather", (8,), "f32", (4, 1), dim=0, parts=2)
    with pytest.raises(ConfigError, match="root 7 is outside its groups"):
        compiled("broadcast_dev", (8,), "f32", (4, 1), root=7)
    with pytest.raises(ConfigError, match=r"permute .*names chip 9"):
        compiled("permute", (8,), "f32", (4, 1), pairs=(0, 9))


def test_sums_of_other_formats_have_no_engine():
    with pytest.raises(InfeasibleError, match="all_reduce by add of i32: the vector engine combines bf16, f16, f32"):
        compiled("all_reduce", (8,), "i32", (2, 1), combine="add")


@pytest.mark.parametrize("shape", [(11, 64), (1, 64), (3, 5, 36), (3, 8, 64), (2, 7, 200)])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_bytes_behind_the_last_position_stay_out(shape: tuple[int, ...], dtype: str, n: int) -> None:
    """All others are in one chunk, and come once, in whatever parts they are moved."""
    spec = TensorSpec(shape, dtype, "blocked")
    batches, positions, channels = npc(shape)
    stride, used = spec_bytes(spec) // batches, batch_used_bytes(positions, channels, dtype)
    times = np.zeros(spec_bytes(spec), int)
    for k in range(n):
        chunk = _flat(spec, k, n, ITEM_BYTES[dtype])
        for lo in range(0, chunk.nbytes, 384):
            hi = min(lo + 384, chunk.nbytes)
            moves = list(chunk.moves(lo, hi))
            assert [at for _, at, _, _ in moves] == np.cumsum(
                [0, *[run * runs for *_, run, runs in moves[:-1]]]
            ).tolist()
            assert sum(run * runs for *_, run, runs in moves) == hi - lo
            for ddr, _, run, runs in moves:
                for i in range(runs):
                    times[ddr + i * chunk.stride : ddr + i * chunk.stride + run] += 1
    assert (times.reshape(batches, stride) == (np.arange(stride) < used)).all()
