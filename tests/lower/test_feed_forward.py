"""Feed-forwards in scratchpad equal numpy for any activation, bias, residual, normalisation and cut."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.one_op import Arg, Case, build, check, grouped, random_plan, with_plan

from tests.simulator.planting import findings
from tx8fast import isa
from tx8fast.api import CompiledProgram
from tx8fast.lower import NotLowerable, lower
from tx8fast.lower.base import Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.fused import Fused
from tx8fast.machine import load_machine
from tx8fast.tile.nest import loop_steps
from tx8fast.tile.order import tile_order
from tx8fast.tile.tiling import Plan, Tiling

LOOSE = {"bf16": 3e-2, "f16": 5e-3, "f32": 2e-5}


def feed_forward(dtype: str, rows: tuple[int, ...], depth: int, hidden: int, cols: int, act: str, bias: tuple[bool, bool],
                 after: tuple[str, ...] = (), machine: str = "tx8", before: str = "") -> Case:  # fmt: skip
    """act: of the hidden values, or "swiglu" for two products; after: "add" (a residual), "self" (what came in),
    "normed" (what the first products read), norms, and "convert" to f32; before: a norm."""
    gated = act == "swiglu"
    small = {"lo": -0.3, "hi": 0.3}
    args = [Arg((*rows, depth), dtype, "blocked"), *[Arg((depth, hidden), dtype, "blocked", **small)] * (1 + gated),
            Arg((hidden, cols), dtype, "blocked", **small)]  # fmt: skip
    args += [Arg((hidden,), dtype)] * (bias[0] * (1 + gated)) + [Arg((cols,), dtype)] * bias[1]
    args += [Arg((*rows, cols), dtype, "blocked")] * ("add" in after)
    args += [Arg((cols,), dtype)] * (2 * ("layernorm" in after) + ("rmsnorm" in after))
    args += [Arg((depth,), dtype, lo=0.5)] * (2 * (before == "layernorm") + (before == "rmsnorm"))

    def body(b, x, *rest):
        op = lambda kind, *x, **a: b.op(kind, *x, mem_layout="blocked", **a).result  # noqa: E731
        weights, more = rest[: 2 + gated], iter(rest[2 + gated :])
        vectors = rest[len(rest) - 2 * (before == "layernorm") - (before == "rmsnorm") :]
        z = op(before, x, *vectors, axes=(-1,), eps=1e-5) if before else x
        made = [op("gemm", z, w, *[next(more) for _ in range(bias[0])]) for w in weights[:-1]]
        h = op("swiglu", *made, act="silu") if gated else op(act, *made)
        y = op("gemm", h, weights[-1], *[next(more) for _ in range(bias[1])])
        for kind in after:
            if kind in ("add", "self", "normed"):
                y = op("add", y, {"self": x, "normed": z}[kind] if kind != "add" else next(more))
            elif kind == "convert":
                y = op("convert", y, dtype="f32")
            else:
                y = op(kind, y, *[next(more) for _ in range(1 + (kind == "layernorm"))], axes=(-1,), eps=1e-5)
        return y

    return build(args, body, machine)


def lowering(case: Case) -> Fused:
    low = lower(grouped(case).records[0], case.machine)[0]
    assert isinstance(low, Fused) and low.closing >= 0
    return low


def agrees(case: Case, seed: int) -> None:
    """Compare under the searched plan of the group and under a random one."""
    case = grouped(case)
    rng = np.random.default_rng(seed)
    feed = [a.values(rng) for a in case.args]
    limit = LOOSE[case.args[0].dtype]
    check(case, feed, tolerance=limit)
    low = lower(case.records[0], case.machine)[0]
    plan = random_plan(case, rng, low)
    if plan is not None:
        made = with_plan(case, plan, low)
        check(made, feed, tolerance=limit)
        CompiledProgram(made.program).run({f"x{i}": a for i, a in enumerate(feed)}, sanitize=True)


DTYPES = st.sampled_from(["bf16", "f16", "f32"])
MACHINES = st.sampled_from(["tx8", "test_2x2"])
ROWS = st.one_of(st.tuples(st.integers(1, 150)), st.tuples(st.integers(1, 5), st.integers(1, 40)))
BIAS = st.tuples(st.booleans(), st.booleans())


@settings(max_examples=20)
@given(DTYPES, ROWS, st.sampled_from([8, 64, 100, 192]), st.sampled_from([32, 64, 200, 256, 640]),
       st.sampled_from([16, 64, 100, 130]), st.sampled_from(["gelu", "relu", "silu", "tanh", "swiglu"]), BIAS,
       st.sampled_from([(), ("add",), ("layernorm",), ("add", "layernorm"), ("add", "rmsnorm")]), MACHINES,
       st.integers(0, 1 << 20))  # fmt: skip
@pytest.mark.slow
def test_any_shape(dtype, rows, depth, hidden, cols, act, bias, after, machine, seed) -> None:
    agrees(feed_forward(dtype, rows, depth, hidden, cols, act, bias, after, machine), seed)


@settings(max_examples=10)
@given(DTYPES, ROWS, st.sampled_from([64, 100, 256]), st.sampled_from([64, 320]), st.sampled_from(["gelu", "swiglu"]), BIAS,
       st.sampled_from(["", "layernorm", "rmsnorm"]), st.sampled_from([("self",), ("normed",), ("normed", "rmsnorm")]), MACHINES,
       st.integers(0, 1 << 20))  # fmt: skip
@pytest.mark.slow
def test_what_comes_in_is_added(dtype, rows, depth, hidden, act, bias, norm, after, machine, seed) -> None:
    """As it came, whether or not a norm of it is what the products read, or normalised."""
    case = feed_forward(dtype, rows, depth, hidden, depth, act, bias, after, machine, norm)
    assert lowering(case).prepared == (0 if norm else -1)
    agrees(case, seed)


@pytest.mark.parametrize("trips", [2, 3, 7])
@pytest.mark.parametrize("bands", [1, 3])
@pytest.mark.parametrize("norm", ["", "rmsnorm"])
@pytest.mark.slow(but_every=5)
def test_shared_weights_for_any_number_of_slices(norm, bands, trips) -> None:
    """Halves of neighbouring slices in different windows, with one result after another."""
    after = ("normed",) if norm else ("add", "layernorm")
    case = grouped(
        feed_forward("bf16", (32 * bands,), 256, 64 * trips, 256, "gelu", (True, True), after, "test_2x2", norm)
    )
    low = lower(case.records[0], case.machine)[0]
    weights = [k for k, a in enumerate(low.reads) if a.factors == {1} and len(a.spec.shape) == 2]
    shared = tuple(4 if k in weights else 1 for k in range(len(low.reads)))
    assert len(weights) == 2
    plan = Plan((4, 1), (8 * bands, 64 * trips), (8, 64), (0, 1), 2, 0, 0, "", shared=shared)
    made = with_plan(case, plan, low)
    assert not findings(made.program)
    feed = [a.values(np.random.default_rng(trips)) for a in made.args]
    check(made, feed, tolerance=LOOSE["bf16"])
    CompiledProgram(made.program).run({f"x{i}": a for i, a in enumerate(feed)}, sanitize=True)


@pytest.mark.parametrize("bands", [1, 2])
@pytest.mark.parametrize("norm", ["", "layernorm"])
def test_second_weights_come_with_the_next_first_ones(norm, bands) -> None:
    """Two copies of each are enough, whatever slice comes next; the rows of another slice of rows wait for this one's end."""
    case = grouped(feed_forward("bf16", (32 * bands,), 256, 320, 256, "gelu", (True, True), (), "test_2x2", norm))
    low = lower(case.records[0], case.machine)[0]
    first, second = [k for k, a in enumerate(low.reads) if a.factors == {1} and len(a.spec.shape) == 2]
    assert low.trailing >= {second} and first not in low.trailing
    shared = tuple(4 if k in (first, second) else 1 for k in range(len(low.reads)))
    made = Tiling(low, Plan((4, 1), (8 * bands, 320), (8, 64), (0, 1), 2, 0, 0, "", shared=shared))
    assert made.behind == {second} and made.copies[first] == made.copies[second] == 2
    steps = 5 * bands
    order = tile_order(made, (0, 0), (8 * bands, 320), (first, second))
    fills = [{k: fill.step_of(k) for k in fill.changed} for fill in order.fills]
    assert fills == [{first: 0, second: 0}, {first: 1}, *[{first: i + 1, second: i} for i in range(1, steps - 1)],
                     {second: steps - 1}]  # fmt: skip
    assert order.last_fills.tolist() == [0, *range(2, steps + 1)]
    held: dict[tuple[int, int], int] = {}  # (read, copy) -> the step whose slice it has
    for kind, i, _, f in order.actions:
        if kind == "exchange":
            fill = order.fills[f]
            held |= {(k, order.steps[fill.step_of(k)].copy[k]): fill.step_of(k) for k in fill.changed}
        elif kind == "emit":
            assert [held[k, order.steps[i].copy[k]] for k in (first, second)] == [i] * 2
    alone = made.but(shared=())
    assert not alone.behind and not tile_order(alone, (0, 0), (8, 320)).fills


def test_hidden_values_are_made_in_the_place_of_sums() -> None:
    """What the first product makes is read by the activation alone, which writes over it: one buffer in three copies, and scratch."""
    low = lowering(feed_forward("bf16", (64,), 256, 320, 256, "gelu", (True, True), ("add",)))
    assert low.owners[0] == low.owners[1] == 1
    assert low.scratch_bytes((0, 0), (8, 64)) == [8 * 64 * 2] * 4
    apart = lowering(feed_forward("bf16", (64,), 256, 320, 256, "sign", (True, True), ("add",)))
    assert apart.owners[0] == 0 and len(apart.scratch_bytes((0, 0), (8, 64))) == 7


def test_hidden_values_stay_in_scratchpad() -> None:
    low = lowering(feed_forward("bf16", (16, 384), 768, 3072, 768, "gelu", (True, True), ("add",)))
    assert low.sizes == (16, 384, 3072) and low.reduce == (False, False, True)
    assert all(3072 not in a.spec.shape or 768 in a.spec.shape or len(a.spec.shape) == 1 for a in low.reads)
    assert [a.spec.shape for a in low.writes] == [(16, 384, 768)]


@settings(max_examples=10)
@given(
    DTYPES, st.integers(8, 80), st.sampled_from([128, 320]), st.sampled_from(["", "blocked", "dense"]), MACHINES,
    st.integers(0, 1 << 20),
)  # fmt: skip
def test_hidden_values_meet_operands_from_outside(dtype, rows, hidden, beside, machine, seed) -> None:
    """Between the products work members on every slice, putting dense rows into blocks too, or nobody at all."""
    small = {"lo": -0.3, "hi": 0.3}
    args = [Arg((rows, 96), dtype, "blocked"), Arg((96, hidden), dtype, "blocked", **small),
            Arg((hidden, 64), dtype, "blocked", **small), *[Arg((rows, hidden), dtype, beside)] * bool(beside)]  # fmt: skip

    def body(b, x, w, v, *more):
        op = lambda kind, *x, **a: b.op(kind, *x, mem_layout="blocked", **a).result  # noqa: E731
        h = op("gemm", x, w)
        return op("gemm", op("mul", h, *more) if more else h, v)

    case = build(args, body, machine)
    assert len(lowering(case).members) == 2 + bool(beside) + (beside == "dense")
    agrees(case, seed)


def test_hidden_values_do_not_leave_the_group() -> None:
    args = [Arg((64, 64), "f32", "blocked")] * 3

    def body(b, x, w, v):
        op = lambda kind, *x, **a: b.op(kind, *x, mem_layout="blocked", **a).result  # noqa: E731
        h = op("gemm", x, w)
        return [op("gemm", h, v), op("gelu", h)]

    with pytest.raises(NotLowerable, match="leaves the group"):
        grouped(build(args, body, "tx8"))


def test_rows_are_what_sums_begin_with() -> None:
    """A residual that was normalised is loaded once, and its bytes are the result's in the end."""
    case = feed_forward("bf16", (64,), 256, 512, 256, "swiglu", (False, False), ("self",), "test_2x2", "rmsnorm")
    low = lowering(grouped(case))
    assert [a.spec.shape for a in low.reads].count((64, 256)) == 1
    tiling = Tiling(low, Plan((4, 1), (16, 512), (16, 64), (0, 1), 2, 0, 0, ""))
    assert tiling.replaced == {len(low.reads): 0} and tiling.opens
    assert not tiling.but(slices=(8, 64)).replaced, "the next rows come before the result has gone"
    assert not tiling.but(slices=(16, 512)).replaced, "without partial sums the rows are kept where the result will be"


@pytest.mark.parametrize("slices, tiles", [(4, 1), (1, 1), (4, 4), (2, 4)])
@pytest.mark.slow(but_every=3)
def test_what_normalises_gives_its_room_to_slices(slices, tiles) -> None:
    """Of two machines the smaller one has no room for all buffers at once, and the same results; weights that tiles share and that the
    first slice does not need lie there, too."""
    hidden = 64 * slices
    shape = ((16 * tiles,), 1024, hidden, 1024, "swiglu", (False, False), ("self",))
    results, peaks = [], []
    for part in (0, 1):
        case = grouped(feed_forward("bf16", *shape, "test_2x2", "rmsnorm"))
        low = lower(case.records[0], case.machine)[0]
        weights = [1 < len(a.spec.shape) and low.prepared != k for k, a in enumerate(low.reads)]
        plan = Plan(
            (tiles, 1), (16, hidden), (16, 64), (0, 1), 2, 0, 0, "", shared=tuple(tiles if w else 1 for w in weights)
        )
        tiling = Tiling(low, plan)
        every = tiling.moved_bytes() + tiling.work_bytes()
        assert bool(tiling.behind) == (tiles > 1 < slices)
        opening = sum(low.scratch_bytes((0, 0), (16, 64))[: low.opening])
        assert low.turned_bytes(plan.slices) < opening
        less = part * (opening if tiling.behind else 4096)
        machine = load_machine(
            "test_2x2", {"tile.spm_bytes": case.machine.spm_base + case.machine.tile.spm_reserved_high + every - less}
        )
        case = dataclasses.replace(case, machine=machine)
        low = lower(case.records[0], machine)[0]
        assert Tiling(low, plan).demand_bytes() <= every - less
        made = with_plan(case, plan, low)
        feed = [a.values(np.random.default_rng(3)) for a in made.args]
        check(made, feed, tolerance=LOOSE["bf16"])
        found = CompiledProgram(made.program).run({f"x{i}": a for i, a in enumerate(feed)}, sanitize=True)
        results.append(list(found.values())[0].tobytes())
        peaks.append(made.program.segments[0].spm_peak_bytes)
    assert results[0] == results[1] and peaks[1] < peaks[0]


def touched(low: Fused, plan: Plan) -> list[frozenset[int]]:
    """Return of every row of the first slice the scratch buffers that it reads or writes, each in a place of its own."""
    zero, space, em = (0,) * len(plan.shard), 1 << 22, Emitter()
    scratch = [space * (i + 1) for i in range(len(low.scratch_bytes(zero, plan.slices)))]
    other = iter(range(space * (len(scratch) + 1), 1 << 40, space))
    at = lambda n: [next(other) for _ in range(n)]  # noqa: E731
    first = next(iter(loop_steps(Tiling(low, plan), zero, plan.shard)))
    reads, writes, consts = at(len(low.reads)), at(len(low.writes)), at(len(low.const_bytes()))
    low.emit(em, Slice(first.lo, first.hi, reads, writes, scratch, consts, 0, True, True, 0))
    spans = np.concatenate([r.reshape(len(em.rows), -1, 2) for r in isa.spm_ranges(isa.rows(em.rows))], axis=1)
    return [
        frozenset(i for i, a in enumerate(scratch) if ((row[:, 0] < a + space) & (row[:, 1] > a)).any())
        for row in spans
    ]


@pytest.mark.parametrize("before", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("after", [("self",), ("self", "layernorm"), ("self", "convert"), ("add",), ("convert",), ()])
@pytest.mark.parametrize("depth", [64, 320])
def test_what_opens_is_over_when_other_scratch_is_used(before, after, depth) -> None:
    """Buffers of what prepares rows may lie where those of slices are: then none of the latter is used before, as a residual's would be that
    begins sums which ops behind it take."""
    low = lowering(feed_forward("bf16", (40,), depth, 128, depth, "relu", (False, False), after, before=before))
    plan = Plan(tuple([1] * len(low.sizes)), low.sizes, low.sizes, tuple(range(len(low.sizes))), 1, 0, 0, "")
    used = touched(low, plan)
    opening = [n for n, found in enumerate(used) if any(i < low.opening for i in found)]
    others = [n for n, found in enumerate(used) if any(i >= low.opening for i in found)]
    assert not low.opening or opening and max(opening) < min(others)
    assert low.opening or after[:1] == ("self",)  # where nothing begins early, the room is shared
