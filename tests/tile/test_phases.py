"""Where buffers begin among the banks: against all choices there are, and by what simulated programs lose."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lower.test_cnn import blocked, grouped
from onnx import TensorProto, helper
from support.one_op import build

import tx8fast
from tx8fast import api, isa
from tx8fast._kernels._facade_banks import JITTER, STEPS, WARM, WINDOW
from tx8fast._kernels.reference import banks as twin
from tx8fast.alloc import Buffer
from tx8fast.lower.base import ALIGN_BYTES
from tx8fast.lower.chain import place
from tx8fast.lower.stream import ConvStream
from tx8fast.machine import Machine, load_machine
from tx8fast.machine.tags import changed
from tx8fast.options import CompileOptions
from tx8fast.schedule import buffers
from tx8fast.search import bands, planning
from tx8fast.search.stream_trial import stream_plan
from tx8fast.simulator.cycle import simulate
from tx8fast.simulator.stretch import total_cycles
from tx8fast.tile import phases as phases_of
from tx8fast.tile.bank_losses import DEPTHS, bank_losses
from tx8fast.tile.phases import FREE, beside, forms, phases, stream_phases, turn_bytes

MACHINE = load_machine("tx8")


def share(streams: list[tuple[int, int]], depth: int) -> float:
    """Return what an instruction with streams (address, rate) gets of its rate, by the plain twin of the arbitration."""
    beats = [(address // 128, rate) for address, rate in streams]
    return twin.shares([beats], 8, 2, depth, STEPS, WARM, WINDOW, JITTER)[0]


def worst(form, phase) -> float:
    return min(share([(phase[k] + at, rate) for k, at, rate in form], d) for d in DEPTHS)


def test_a_product_with_partial_sums() -> None:
    """The rule measured by hand: the left operand in bank 0, the partial sums in bank 2."""
    form = ((0, 0, 32), (1, 0, 8), (2, 0, 32), (2, 0, 32))
    phase = dict(phases(MACHINE, {form: 1}))
    assert (phase[0], phase[2]) == (0, 2 * 256)
    assert buffers._phased(Any, [[]], [], [], Any, (0, 0)) == []  # all are pinned


def test_a_product_beside_a_vector_instruction() -> None:
    """Attention: neither disturbs itself, so that no buffer needs a phase, but where all begin at bank 0 they meet."""
    vector, matrix = ((0, 0, 8), (1, 0, 8)), ((2, 0, 32), (3, 0, 8), (4, 0, 16), (4, 0, 16))

    def worst_together(phase) -> float:
        own = [[((phase[k] + at) // 128, rate) for k, at, rate in f] for f in (vector, matrix)]
        return min(min(twin.shares(own, 8, 2, d, STEPS, WARM, WINDOW, JITTER)) for d in DEPTHS)

    found = {vector: 900, matrix: 1000}
    assert phases(MACHINE, found) == []
    chosen = dict(phases(MACHINE, found, {(vector, matrix): 900}))
    assert set(chosen) == {0, 1, 2, 3, 4}
    assert worst_together(dict.fromkeys(range(5), 0)) < 0.6 and worst_together(chosen) > 0.9
    apart = ((0, 0, 1), (1, 0, 1)), ((2, 0, 1), (3, 0, 1))
    assert phases(MACHINE, dict.fromkeys(apart, 900), {apart: 900}) == []


def test_what_works_beside_what() -> None:
    """Cycles of pairs add up to those of the engine with less work."""
    low = MACHINE.spm_base
    spans = [(low + k * 65536, 65536) for k in range(4)]
    (a, _), (b, _), (c, _), (d, _) = spans
    rows = isa.rows(
        [
            isa.make("gemm", left=a, right=b, out=c, m=64, k=128, n=64, fmt="bf16", out_fmt=3),
            isa.make("add_vv", src0=c, src1=d, dst=d, n=8192, fmt="bf16"),
            isa.make("add_vv", src0=d, src1=b, dst=d, n=8192, fmt="bf16"),
        ]
    )
    pairs = beside(MACHINE, rows, spans)
    took = isa.durations(MACHINE, rows, rows["ddr"])[0]
    assert len(pairs) == 2 and {tuple(k for k, _, _ in m) for _, m in pairs} == {(0, 1, 2)}
    assert abs(sum(pairs.values()) - min(took[0], took[1:].sum())) <= len(pairs)
    assert beside(MACHINE, rows[1:], spans) == {} == beside(MACHINE, rows[:1], spans)


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from((0, 256, 640)), st.integers(1, 32)), min_size=2, max_size=4)
)
def test_none_of_all_choices_is_better(streams) -> None:
    form = tuple(streams)
    owners = sorted({k for k, _, _ in form})
    chosen = dict(phases(MACHINE, {form: 7}))
    level = dict.fromkeys(owners, 0)
    if not chosen:
        assert min(share([(0, rate) for _, _, rate in form], d) for d in DEPTHS) >= FREE - 1e-9
        return
    assert set(chosen) == set(owners)
    spots = range(0, turn_bytes(MACHINE), 256)
    best = max(
        worst(form, level | dict(zip(owners[1:], at, strict=True))) for at in product(spots, repeat=len(owners) - 1)
    )
    assert worst(form, chosen) == pytest.approx(best)


def losses(program) -> list[float]:
    machine = Machine.from_dict(program.machine)

    def cycles(model: int, depth: int = 16) -> int:
        program.machine = changed(machine, {"tile.spm_model": model, "tile.spm_fifo_beats": depth}).to_dict()
        return simulate(program).cycles

    return [cycles(3, d) / cycles(1) for d in (12, 16, 17, 24)]


@pytest.mark.slow
def test_no_depth_is_worse_than_the_default(tmp_path) -> None:
    """Of the depths that phases are chosen for, whatever the true one is: a figure should not be better than the chip, by more than the
    depths of most programs differ. `benchmarks/depths.py` finds the worst one over many."""
    config = json.loads((Path(tx8fast.__file__).parent / "zoo" / "llama-3.2-1b.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    program = tx8fast.compile(tmp_path, phase="prefill", seq=2048).program
    cycles = {
        d: total_cycles(program, changed(Machine.from_dict(program.machine), {"tile.spm_fifo_beats": d}))
        for d in DEPTHS
    }
    assert max(cycles.values()) <= 1.002 * cycles[MACHINE.tile.spm_fifo_beats]
    assert max(cycles.values()) <= 1.01 * min(cycles.values())


def test_what_a_program_loses(monkeypatch, tmp_path) -> None:
    """A product whose sums are cut loses next to nothing at any depth; without phases it depends on the depth."""
    info = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)  # noqa: E731
    inputs = [info("x", 2048, 14336), info("w", 14336, 1024)]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "product", inputs, [info("y", 2048, 1024)]
    )
    path = tmp_path / "product.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())
    make = lambda: api.compile(path, CompileOptions(dtype="bf16")).program  # noqa: E731
    # without plans that take as long and have no such sums
    monkeypatch.setattr(planning, "undisturbed", lambda planned, near, machine: bands.undisturbed(planned, (), machine))
    assert max(losses(make())) < 1.02
    monkeypatch.setattr(buffers, "_phased", lambda tiling, ways, first, plain, at, room: plain)
    assert max(losses(make())) > 1.1


def test_phases_give_way_to_what_must_fit(monkeypatch) -> None:
    """Where bytes are short, the buffers that matter least lose their phase first, and at the end all."""
    monkeypatch.setattr(buffers, "slice_rows", lambda tiling, at: None)
    monkeypatch.setattr(buffers, "forms", lambda machine, rows, kinds: {})
    monkeypatch.setattr(buffers, "beside", lambda machine, rows, kinds: {})
    monkeypatch.setattr(buffers, "phases", lambda machine, found, pairs: [(0, 0), (1, 1024), (2, 512)])
    items = [Buffer(name, ((0, 1),), size, 256) for name, size in (("a", 4096), ("b", 2048), ("c", 2048), ("d", 256))]

    tiling: Any = SimpleNamespace(low=SimpleNamespace(machine=MACHINE))
    named: Any = None

    def placed(room: int) -> list[int]:
        plain = [0, 4096, 6144, 8192]
        out = buffers._phased(tiling, [items], [0, 1, 2, 3], plain, named, (0, room))
        taken = sorted((a, a + i.size_bytes) for a, i in zip(out, items, strict=True))
        assert all(end <= begin for (_, end), (begin, _) in zip(taken, taken[1:])) and taken[-1][1] <= room
        return out

    turn = turn_bytes(MACHINE)
    roomy = placed(1 << 16)
    assert [a % turn for a in roomy[:3]] == [0, 1024, 512]
    tight = placed(10 * 1024)
    assert [a % turn for a in tight[:2]] == [0, 1024] and tight != roomy
    assert placed(8448) == [0, 4096, 6144, 8192]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 9000), st.integers(0, 6), st.integers(1, 3), st.sampled_from([None, 0, 512, 1792])),
        max_size=12,
    )
)
def test_places_of_a_stream_have_their_phases(wanted) -> None:
    wishes = [(k, size, [(a, a + n)]) for k, (size, a, n, _) in enumerate(wanted)]
    phase = {k: p for k, (*_, p) in enumerate(wanted) if p is not None}
    need, at = place(wishes, phase, 2048)
    assert all(at[k] % 2048 == p for k, p in phase.items())
    spans = [(at[k], at[k] + size, lives[0]) for k, size, lives in wishes]
    assert need >= max([b for _, b, _ in spans], default=0)
    for (a, b, x), (c, d, y) in combinations(spans, 2):
        assert b <= c or d <= a or x[1] <= y[0] or y[1] <= x[0]


def test_images_and_weights_of_a_stream() -> None:
    """Two convolutions whose sums are added to an image: where everything begins at bank 0 they lose more."""
    lost = {}
    low = ConvStream(residual().records[0], MACHINE)
    stream_plan(low, MACHINE, "stream")
    for when in ("before", "after"):
        found: Counter[tuple[tuple[int, int], ...]] = Counter()
        for rows, present in low.beside():
            for form, cycles in forms(MACHINE, rows, [(low.at[n], low.held_bytes[n]) for n in present]).items():
                found[tuple([(low.at[present[k]] + at, rate) for k, at, rate in form])] += cycles
        lost[when] = max(sum(n * (1 / share(list(f), d) - 1) for f, n in found.items()) for d in DEPTHS)
        stream_phases(low)
    assert lost["after"] < 0.6 * lost["before"]
    assert low.spm_bytes <= low.capacity and not low.move(dict.fromkeys(low.at, 1 << 30), 1 << 31)


def residual():
    def body(b, x, v, w):
        op = lambda kind, *a: b.op(kind, *a, mem_layout="blocked").result  # noqa: E731
        y = op("conv", x, v, None)
        return op("relu", op("add", op("conv", y, w, None), x))

    args = [blocked("bf16", 16, 32, 32, 64), blocked("bf16", 1, 1, 64, 64), blocked("bf16", 1, 1, 64, 64)]
    return grouped(build(args, body, "tx8"))


def test_sums_below_the_rate_that_is_looked_for_lose_nothing() -> None:
    """Beside a left operand at the full rate and a right one at a quarter of it; from that rate on they lose at some depth."""
    turn = phases_of.turn_bytes(MACHINE)
    spots = range(0, turn, ALIGN_BYTES)

    def least(rate: int) -> float:
        tried = [((a, STEPS), (b, STEPS // 4), (0, rate), (0, rate)) for a in spots for b in spots]
        return float(bank_losses(MACHINE).of([(s,) for s in tried]).max(axis=1).min())

    assert max(map(least, range(8, phases_of.BUSY))) < 1 - phases_of.FREE
    assert min(map(least, range(phases_of.BUSY, STEPS + 1))) > 1 - phases_of.FREE
