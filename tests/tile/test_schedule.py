"""Orders of instructions: all compute the same, the sanitizer finds nothing, and `best` takes the better one of each code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tx8fast
from tests.simulator.planting import findings
from tests.support.one_op import Arg, build, check, one_op, random_plan, with_plan
from tx8fast import isa
from tx8fast._kernels import byte_dependences, list_order
from tx8fast.api import CompiledProgram
from tx8fast.errors import ConfigError
from tx8fast.machine import QUEUE_DEPTH, load_machine
from tx8fast.numerics.formats import FORMAT_CODES, np_dtype
from tx8fast.simulator.cycle import simulate
from tx8fast.tile import schedule
from tx8fast.tile.blocks import Code, Columns
from tx8fast.tile.epochs import LOADS, STORES, time_steps
from tx8fast.tile.fills import Multicasts, no_multicasts
from tx8fast.tile.joined import TileCode
from tx8fast.tile.nodes import Nodes
from tx8fast.tile.ranks import Way
from tx8fast.tile.schedule import ORDERS, TileOrder, free_ranks, list_orders, measured

MODEL = Path(__file__).resolve().parent.parent / "data" / "onnx" / "bert-encode-op23.onnx"
EXPS = 4  # vector steps of a slice before the move
F32 = FORMAT_CODES["f32"]
LOAD, STORE = {"slot": 0, "run_bytes": 4096}, {"slot": 1, "run_bytes": 4096}


def inputs(program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {t.name: rng.integers(0, 8, t.shape).astype(np_dtype(t.dtype)) for t in program.inputs}


@pytest.mark.slow
def test_orders_compute_the_same() -> None:
    made = {order: tx8fast.compile(MODEL, order=order) for order in ORDERS}
    given = inputs(made["nest"].program)
    want = made["nest"].run(given, sanitize=True)
    for order in ("free", "stepped", "best"):
        found = made[order].run(given, sanitize=True)
        assert all(np.array_equal(found[name], want[name], equal_nan=True) for name in want)
    codes = {order: [c.tobytes() for s in made[order].program.segments for c in s.codes] for order in ORDERS}
    assert codes["free"] != codes["nest"]
    cycles = {order: made[order].simulate().cycles for order in ORDERS}
    assert cycles["best"] <= min(cycles["free"], cycles["nest"])


def nest(slices: int = 6) -> np.ndarray:
    """Slices in which the vector engine waits for a move of its own result; two buffers of everything."""
    rows = []
    for i in range(slices):
        a, y = (256 + (i % 2) * 8192, 65536 + (i % 2) * 8192)
        rows.append(isa.make("rdma", dst=a, ddr=4096 * i, n0=1, n1=1, n2=1, s0=0, s1=0, s2=0, op=0, **LOAD))
        rows += [*[isa.make("exp_v", src0=a, dst=a, n=1024, fmt=F32)] * EXPS, isa.make("gather_scatter", src0=a, dst=y, size=4096),
                 isa.make("neg_v", src0=y, dst=y, n=1024, fmt=F32)]  # fmt: skip
        rows.append(isa.make("wdma", src=y, ddr=4096 * i, n0=1, n1=1, n2=1, s0=0, s1=0, s2=0, op=0, **STORE))
    return isa.rows(rows)


def steps_of(rows: np.ndarray) -> np.ndarray:
    """The slice of each row: all begin with a load."""
    return np.cumsum(isa.units(rows) == LOADS) - 1


def code(rows: np.ndarray) -> Code:
    return Code(rows, np.arange(len(rows)), np.zeros(len(rows), np.int64), Columns(load_machine("tx8"), rows))


def ordered(order: TileOrder, rows: np.ndarray, step: np.ndarray) -> np.ndarray:
    """The rows, which share no operands with other tiles, in the wanted order."""
    return rows[order.of_tile(TileCode(code(rows), step, no_multicasts(), step)).at]


def test_an_engine_works_on_the_next_slice_where_it_would_wait() -> None:
    order = TileOrder(load_machine("tx8"), "free", 30.0)
    rows = nest()
    found = ordered(order, rows, steps_of(rows))
    assert sorted(map(bytes, found)) == sorted(map(bytes, rows))
    exp, neg = (isa.INSTRUCTIONS[name].OPCODE for name in ("exp_v", "neg_v"))
    vector = [opcode for opcode in found["opcode"].tolist() if opcode in (exp, neg)]
    assert vector[: EXPS + 2] == [exp] * (EXPS + 1) + [neg]
    assert ordered(order, rows, steps_of(rows)).tobytes() == found.tobytes()
    (made, again) = order.made
    assert made == again
    vectors = Columns(load_machine("tx8"), rows).took(30.0)[isa.units(rows) == 0].sum()
    assert vectors <= made.least <= made.cycles["free"]
    assert order.facts() == {"policy": ["free"], "policy_cycles": dict(made.cycles), "order_bound_cycles": made.least}


def test_in_time_steps_transfers_go_beside_the_slice_before_and_behind() -> None:
    """Two buffers: a load goes beside the slice in front of its own, the first two before all; a store behind its slice."""
    rows = nest(4)
    columns, step = Columns(load_machine("tx8"), rows), steps_of(rows)
    took, kind = columns.took(30.0), columns.kind
    before = byte_dependences(columns.read, columns.write)
    found = time_steps(kind, took, step, before)
    assert (found[kind < 2] == step[kind < 2]).all()
    assert found[kind == LOADS].tolist() == [0, 0, 1, 2] and found[kind == STORES].tolist() == [1, 2, 3, 3]
    took[kind == LOADS] = [
        1,
        1,
        1,
        2 * took[(step == 2) & (kind == 0)].sum(),
    ]  # no room beside slice 2, none beside slice 1
    assert time_steps(kind, took, step, before)[kind == LOADS].tolist() == [0, 0, 1, 2]
    slow = time_steps(kind, np.where((kind < 2) & (step == 2), 1, took), step, before)
    assert slow[kind == LOADS].tolist() == [0, 0, 0, 1]  # slice 1 has room that slice 2 has not, and makes more
    found = ordered(TileOrder(load_machine("tx8"), "stepped", 30.0), rows, step)
    assert sorted(map(bytes, found)) == sorted(map(bytes, rows))


def product(left: int, out: int, k: int, dtype: str) -> tuple:
    """A product of 256 x k and k x 256; in f32, added to what is there."""
    formats = {
        "fmt": FORMAT_CODES["bf16"],
        "out_fmt": FORMAT_CODES[dtype],
        "psum_fmt": F32,
        "psum_en": int(dtype == "f32"),
    }
    return isa.make("gemm", left=left, right=256, out=out, psum=out, m=256, n=256, k=k, **formats)


def bound_by_vectors(slices: int = 5) -> np.ndarray:
    """Slices of a product, vector work on it, and a product that adds what came out to sums: the vector engine has most to do. What keeps
    it busy is the next slice's first product, and not the second one of the slice at hand."""
    rows = []
    for i in range(slices):
        s = 65536 + (i % 2) * 262144
        rows.append(product(256, s, 128, "bf16"))
        rows += [isa.make("exp_v", src0=s, dst=s, n=65536, fmt=FORMAT_CODES["bf16"])] * 2
        rows.append(product(s, 1 << 20, 256, "f32"))
    return isa.rows(rows)


def test_orders_are_improved_backwards_and_forwards() -> None:
    columns = Columns(load_machine("tx8"), rows := bound_by_vectors())
    before = byte_dependences(columns.read, columns.write)
    took = columns.took(30.0)
    orders = [*list_orders(columns.kind, columns.issue, took, before, free_ranks(took, before))]
    plain, _ = list_order(columns.kind, columns.issue, columns.took(30.0), before, QUEUE_DEPTH)
    assert np.array_equal(orders[0], plain) and all(sorted(o.tolist()) == list(range(len(rows))) for o in orders)
    place = [np.argsort(o) for o in orders]
    after = np.repeat(np.arange(len(rows)), np.diff(before[0]))
    assert all((p[before[1]] < p[after]).all() for p in place)
    order = TileOrder(load_machine("tx8"), "best", 30.0)
    ordered(order, rows, np.zeros(len(rows), np.int64))
    first = measured(columns.of(np.arange(len(rows))), plain, order.share, order.port).cycles
    assert order.made[0].cycles["free"] < first


def test_transfers_of_one_place_in_ddr_keep_their_order() -> None:
    """Where the result has the operand's bytes, a load never overtakes a store into what it loads."""
    rows = nest()
    rows["ddr"] = 0
    found = [
        ordered(TileOrder(load_machine("tx8"), "free", 30.0, aliased), rows, steps_of(rows))
        for aliased in (None, np.zeros(2, np.int64))
    ]
    transfers = [[u for u in isa.units(rows).tolist() if u in (2, 3)] for rows in found]
    assert transfers[1] == [2, 3] * 6 != transfers[0]


@pytest.mark.parametrize("touches", [False, True])
def test_a_row_goes_while_messages_are_under_way(touches: bool) -> None:
    """A tile has sent at 1500 cycles and has all that is sent to it at 9000: meanwhile runs what does not touch the target."""
    machine, target = load_machine("tx8"), 1 << 20
    wait = isa.make("wait_worker", workers=0)
    rows = isa.rows([wait, wait, isa.make("exp_v", src0=target if touches else 256, dst=512, n=64, fmt=F32)])
    columns = Columns(machine, rows)
    begin, end, sending, cycles, reach = np.array([[0], [2], [1500], [9000], [0]])
    reaches = [((), ((target, target + 4096),))]
    multicasts = Multicasts(begin, end, sending, cycles, reach, reaches, np.zeros((3, 0), np.int64))
    nodes = Nodes(machine, columns, (columns.read, columns.write, np.arange(3)), multicasts, np.zeros(3, np.int64))
    order, windows = nodes.seen(*nodes.ordered(30.0, Way("free", better_than="age")))
    found = measured(nodes.costs, order, 30.0, 32.0, windows)
    begin = found.start[order.tolist().index(2)]
    assert (begin >= 9000) == touches and 9000 <= found.cycles < 9000 + 2 * machine.kcore.wait_cycles + found.end[
        2
    ] - found.start[2]
    assert sorted(order[order < 3].tolist()) == [0, 1, 2]


def test_norms_go_on_while_operands_arrive() -> None:
    """Tiles that normalise rows of their own while weights are sent to all of them: right values, nothing for the sanitizer, and rows of
    the engines stand between the last sending and the receiving."""
    wide = Arg((512, 1024), "bf16", "blocked", -0.1, 0.1)

    def body(b, x, weight, gain):
        y = b.op("rmsnorm", x, gain, mem_layout="blocked").results[0]
        return [b.op("gemm", y, weight, mem_layout="blocked").results[0]]

    case = build((Arg((512, 512), "bf16", "blocked"), wide, Arg((512,), "bf16")), body, opt=2)
    check(case, tolerance=0.05)
    assert not findings(case.program)
    receive, send = (isa.INSTRUCTIONS[name].OPCODE for name in ("recv", "send"))
    codes = [isa.expand(c)["opcode"].tolist() for s in case.program.segments for c in s.codes]
    before = [c[i - 1] for c in codes for i, op in enumerate(c) if op == receive]
    assert before and any(op != send for op in before)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow(but_every=4)
def test_multicasts_are_ordered(seed: int) -> None:
    """Under a drawn plan whose tiles pass operands on, all orders compute the same, the sanitizer finds nothing, and the number
    of multicasts is that of the nest."""
    rng = np.random.default_rng(seed)
    case = one_op("gemm", Arg((1, 512, 192), "bf16", "blocked"), Arg((192, 320), "bf16", "blocked"), out="blocked")
    plan = next(p for _ in range(99) if (p := random_plan(case, rng)) is not None and max(p.shared, default=1) > 1)
    feed = [a.values(rng) for a in case.args]
    made = {order: with_plan(case, plan, order=order) for order in ("nest", "free", "stepped")}
    values = {}
    best = with_plan(case, plan, order="best").segment.info
    assert best["policy"][0] in best["policy_cycles"].keys() == {"free", "stepped"}
    for order, one in made.items():
        assert one.segment.info["policy"] == [order] and one.segment.info["order_bound_cycles"] > 0
        values[order] = CompiledProgram(one.program).run({f"x{i}": a for i, a in enumerate(feed)}, sanitize=True)["y0"]
    assert all(np.array_equal(values["nest"], values[order]) for order in ("free", "stepped"))
    codes = {order: [isa.expand(c)["opcode"].tolist() for c in one.segment.codes] for order, one in made.items()}
    receive = isa.INSTRUCTIONS["recv"].OPCODE
    assert (
        [c.count(receive) for c in codes["nest"]]
        == [c.count(receive) for c in codes["free"]]
        != [0] * len(codes["nest"])
    )
    assert simulate(made["free"].program).cycles < 1.5 * simulate(made["nest"].program).cycles


def test_tiles_that_send_elsewhere_have_one_order(monkeypatch) -> None:
    """Codes that differ in where the core's messages lie, and not in what engines touch, are ordered once."""
    case = one_op("gemm", Arg((1, 512, 512), "bf16", "blocked"), Arg((512, 1024), "bf16", "blocked"), out="blocked")
    rng = np.random.default_rng(1)
    plan = next(p for _ in range(99) if (p := random_plan(case, rng)) is not None and max(p.shared, default=1) > 1)
    asked, made = [], []
    shared, nodes = TileOrder._shared, schedule.Nodes
    monkeypatch.setattr(TileOrder, "_shared", lambda self, tile: asked.append(shared(self, tile)) or asked[-1])
    monkeypatch.setattr(schedule, "Nodes", lambda *what: made.append(nodes(*what)) or made[-1])
    with_plan(case, plan)
    assert 1 <= len(made) < len(asked)
    assert len({id(found.nodes) for found in asked}) == len(made)


def test_unknown_orders_are_refused() -> None:
    with pytest.raises(ConfigError, match="order 'fast' is unknown, expected one of nest, free, stepped, best"):
        tx8fast.compile(MODEL, order="fast")
