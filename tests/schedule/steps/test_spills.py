"""Exact choice of transfers: the worked programs, every small case against trying everything, limits and messages."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tx8fast.errors import ConfigError, InfeasibleError
from tx8fast.schedule.steps.spills import Chosen, Group, Options, choose_transfers, free_bytes
from tx8fast.schedule.steps.table import LOAD, STORE, Move, StepOp

BALANCE = Options(objective="imbalance")


def spell(chosen: Chosen) -> list[str]:
    return [f"{d.kind} {d.value}@{d.step}" for d in chosen.moves]


def three(first: int = 140, second: int = 120) -> Group:
    ops = (StepOp("1", ("X",), ("a",), 40), StepOp("2", ("a", "W"), ("b",), 60), StepOp("3", ("b", "V"), ("Y",), 30))
    cycles = {"X": 30, "W": 35, "V": 50, "Y": 20}
    sizes = {"X": 16, "W": 32, "V": 96, "Y": 16, "a": 16, "b": 16}
    return Group(ops, frozenset("Y"), (first, second, 200), sizes, lambda kind, v: Move(kind, v, cycles[v]))


def test_three_ops_of_the_worked_example() -> None:
    found = choose_transfers(three(), BALANCE)
    assert spell(found) == ["load X@0", "load W@1", "load V@2", "store Y@4"]
    assert (found.objective, found.status, found.spilled) == (95.0, "optimal", ())


def test_too_little_memory_beside_an_op_is_seen_at_once() -> None:
    with pytest.raises(InfeasibleError, match="1 leaves 20 bytes, the next op's loads take 32"):
        choose_transfers(three(first=20), BALANCE)
    with pytest.raises(InfeasibleError, match="2 leaves 90 bytes, the next op's loads take 96"):
        choose_transfers(three(second=90), BALANCE)
    with pytest.raises(InfeasibleError, match="2 problems(.|\n)*1 alone takes 5 bytes more(.|\n)*2 alone takes 6"):
        choose_transfers(three(first=-5, second=-6), BALANCE)


def six(at_four: int) -> Group:
    """R is made by op 1 and read by ops 2 and 6."""
    ops = [StepOp("1", ("X",), ("R",), 50), StepOp("2", ("R",), ("b",), 50)]
    ops += [StepOp(str(k), (chr(96 + k - 1),), (chr(96 + k),), 50) for k in (3, 4, 5)]
    ops += [StepOp("6", ("e", "R"), ("Y",), 50)]
    cycles = {"X": 20, "Y": 20, "R": 30}
    sizes = dict.fromkeys("XYRbcdef", 10) | {"R": 100}
    room = [200] * 6
    room[3] = at_four
    return Group(tuple(ops), frozenset("Y"), tuple(room), sizes, lambda kind, v: Move(kind, v, cycles.get(v, 0)))


SPILLED = ["load X@0", "store R@3", "load R@5", "store Y@7"]
STAYS = ["load X@0", "store Y@7"]


@pytest.mark.parametrize(
    ("at_four", "objective", "value", "moves"),
    [(200, "imbalance", 280, SPILLED), (80, "imbalance", 280, SPILLED), (200, "makespan", 340.04, STAYS),
     (80, "makespan", 340.1, SPILLED)],
)  # fmt: skip
def test_six_ops_of_the_worked_example(at_four: int, objective: str, value: float, moves: list[str]) -> None:
    """Step 4 needs R out of the way, or does not; only the sum of imbalances spills for nothing."""
    found = choose_transfers(six(at_four), Options(objective=objective))
    assert found.objective == pytest.approx(value, abs=1e-6) and found.bound == pytest.approx(value, abs=1e-6)
    assert spell(found) == moves
    assert found.spilled == (("R",) if moves is SPILLED else ())


def test_the_step_without_room_is_named() -> None:
    with pytest.raises(InfeasibleError, match=r"beside 3 \(step 3\) only 80 bytes are free"):
        group = six(200)
        room = (200, 200, 80, 200, 200, 200)  # a store at step 3 is the first there can be, and it holds R there
        choose_transfers(Group(group.ops, group.outputs, room, group.size_bytes, group.transfer))
    reads = {2: "R", 3: "Q", 7: "R", 8: "Q"}
    ops = [
        StepOp(str(k), (f"v{k - 1}", *reads.get(k, ())), (f"v{k}", *("RQ" if k == 1 else "")), 50) for k in range(1, 9)
    ]
    sizes = {v: 10 for op in ops for v in (*op.reads, *op.writes)} | {"R": 100, "Q": 100}
    with pytest.raises(InfeasibleError, match="several steps"):  # R at step 3 and Q at step 4
        choose_transfers(Group(tuple(ops), frozenset({"v8"}), (300, 300, 80, 80, 300, 300, 300, 300), sizes))


def test_a_spilled_output_is_stored_once() -> None:
    group = six(80)
    found = choose_transfers(Group(group.ops, frozenset("YR"), group.free_bytes, group.size_bytes, group.transfer))
    assert [x for x in spell(found) if x.startswith("store R")] == ["store R@3"] and found.spilled == ()


def test_slices_follow_each_other_on_one_axis() -> None:
    group = three()
    twice = Group(group.ops, group.outputs, group.free_bytes, group.size_bytes, group.transfer, slices=2)
    found = choose_transfers(twice)
    assert twice.n_steps == 8
    second = {(d.kind, d.value): d.step for d in found.moves if d.slice == 1}
    assert second["load", "X"] in (2, 3) and second["load", "W"] == 4 and second["store", "Y"] == 7
    first = {(d.kind, d.value): d.step for d in found.moves if d.slice == 0}
    assert first["store", "Y"] in (4, 5), "up to two steps into the next slice"


def test_an_idle_step_makes_room_for_transfers() -> None:
    ops = three().ops
    wait = (*ops[:2], None, ops[2])
    group = Group(wait, frozenset("Y"), (140, 0, 500, 500), three().size_bytes, three().transfer)
    assert "load V@3" in spell(choose_transfers(group))  # nothing fits beside op 2
    assert free_bytes((None, ops[0]), {"X": 100, "a": 10}, 1000) == (1000, 1000 - 128 - 64)


def test_limits_and_wrong_options() -> None:
    with pytest.raises(ConfigError, match="expected one of makespan, imbalance"):
        Options(objective="fast")
    loose = choose_transfers(six(200), Options(gap=0.5))
    assert loose.bound <= loose.objective and loose.objective <= 1.5 * 340.04
    assert choose_transfers(six(80)) == choose_transfers(six(80))


# ---------------------------------------------------------------- against trying everything


@st.composite
def small_groups(draw):
    m = draw(st.integers(2, 7))
    ops, made = [], []
    for k in range(m):
        reads = draw(st.lists(st.sampled_from([f"in{k}", "w", *made]), min_size=1, max_size=2, unique=True))
        ops.append(StepOp(f"op{k}", tuple(reads), (f"v{k}",), draw(st.integers(0, 60))))
        made.append(f"v{k}")
    values = [*dict.fromkeys(v for op in ops for v in (*op.reads, *op.writes))]
    sizes = {v: draw(st.integers(1, 60)) for v in values}
    cycles = {v: draw(st.integers(0, 60)) for v in values}
    outputs = frozenset({made[-1], *draw(st.sets(st.sampled_from(made), max_size=1))})
    room = tuple(draw(st.integers(60, 260)) for _ in ops)
    engines = draw(st.sampled_from([("dma", "dma"), ("rdma", "wdma")]))
    return Group(
        tuple(ops), outputs, room, sizes, lambda kind, v: Move(kind, v, cycles[v], engine=engines[kind == STORE])
    )


def ways(group: Group, value: str):
    """Every way to treat one value: its transfers as (kind, step), and the steps in which it takes bytes beside the ops."""
    m, last = len(group.ops), len(group.ops) + 1
    overlap = 1 if m <= 2 else max(2, int(0.2 * m))
    made = [1 + i for i, op in enumerate(group.ops) if value in op.writes]
    uses = [1 + i for i, op in enumerate(group.ops) if value in op.reads]
    parts: list[list[tuple[list, set]]] = []
    if not made:
        parts.append([([(LOAD, t)], set(range(t, uses[0]))) for t in range(max(0, uses[0] - 4, 1 - overlap), uses[0])])
    points = made + uses
    for a, b in itertools.pairwise(points):
        options = [([], set(range(a + 1, b)))]
        if b - a >= 4:
            for load in range(max(a + 1, b - 4), b):
                after = set(range(load, b))
                options.append(([(LOAD, load)], after))
                if made:
                    for store in range(a + 1, min(a + 4, b - 1) + 1):
                        options.append(([(STORE, store), (LOAD, load)], after | set(range(a + 1, store + 1))))
        parts.append(options)
    if made and value in group.outputs:
        end = points[-1]
        final = range(end + 1, min(max(min(last, m + overlap), end + 1), end + 4) + 1)
        parts.append([([], set()), *(([(STORE, t)], set(range(end + 1, t + 1))) for t in final)])
    for combination in itertools.product(*parts):
        moves = [x for part, _ in combination for x in part]
        stores = sorted(t for kind, t in moves if kind == STORE)
        loads = [t for kind, t in moves if kind == LOAD]
        if made and any(not stores or stores[0] > t - 2 for t in loads):
            continue
        if made and value in group.outputs and not stores:
            continue
        yield moves, [t for _, steps in combination for t in steps]


@settings(max_examples=60, deadline=None)
@given(small_groups())
def test_nothing_cheaper_exists(group: Group) -> None:
    values = [*group.size_bytes]
    options = [list(ways(group, v)) for v in values]
    count = 1
    for o in options:
        count *= len(o)
    if count > 4000:
        return
    best = None
    for choice in itertools.product(*options):
        used = [0] * (len(group.ops) + 2)
        busy: dict = {}
        for v, (moves, steps) in zip(values, choice, strict=True):
            for t in steps:
                used[t] += group.size_bytes[v]
            for kind, t in moves:
                x = group.transfer(kind, v)
                busy[t, x.engine] = busy.get((t, x.engine), 0) + x.cycles
        if any(u > room for u, room in zip(used[1:-1], group.free_bytes, strict=True)):
            continue
        lengths = [0, *(op.cycles for op in group.ops), 0]
        for (t, _), n in busy.items():
            lengths[t] = max(lengths[t], n)
        total = sum(lengths) + 1e-3 * sum(busy.values())
        best = total if best is None else min(best, total)
    try:
        found = choose_transfers(group)
    except InfeasibleError:
        assert best is None
        return
    assert best is not None and found.objective == pytest.approx(best, abs=1e-5)
