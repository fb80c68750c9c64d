"""Programs of one or a few ops with chosen layouts, and their comparison with the reference routines.

`Arg` describes one operand; `build` makes the program; `check` runs it on the functional simulator with
poisoned scratchpad and compares every result with what numpy says.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tx8fast.api import CompiledProgram
from tx8fast.graph_table import GraphTable, GroupRecord, OpRecord, Step
from tx8fast.ir import Builder, new_context
from tx8fast.ir.ops.base import reference
from tx8fast.ir.program import IRProgram
from tx8fast.ir.view import build_view
from tx8fast.lower import lower
from tx8fast.lower.base import Lowering
from tx8fast.machine import Machine, load_machine
from tx8fast.numerics.formats import np_dtype
from tx8fast.passes.functional_to_inplace import FunctionalToInplace
from tx8fast.program.model import Program
from tx8fast.program.verify import verify
from tx8fast.schedule.assemble import assemble
from tx8fast.schedule.segment import build_segment
from tx8fast.search.planner import Draft
from tx8fast.search.program import plan_table
from tx8fast.tile import sharing
from tx8fast.tile.tiling import Plan, Tiling
from tx8fast.weights import WeightTable

#: largest error relative to the largest magnitude of the result
TOLERANCE = {"f32": 1e-5, "bf16": 1.5e-2, "f16": 2e-3}
MACHINES = {name: load_machine(name) for name in ("tx8", "test_2x2")}
# all that arrives at a tile goes through one port, and nothing does
MACHINES["port"], MACHINES["no port"] = (load_machine("test_2x2", {"dte.write_port_bytes": n}) for n in (128, 0))


@dataclass(frozen=True)
class Arg:
    """One operand: shape, dtype and DDR layout ("dense" | "blocked"); `lo`, `hi` bound its random values."""

    shape: tuple[int, ...]
    dtype: str = "f32"
    layout: str = "dense"
    lo: float = -2.0
    hi: float = 2.0

    def values(self, rng: np.random.Generator) -> np.ndarray:
        kind = np_dtype(self.dtype)
        if self.dtype == "pred":
            return rng.uniform(-1, 1, self.shape) > 0
        if np.issubdtype(kind, np.integer):
            return rng.integers(int(self.lo), int(self.hi) + 1, self.shape).astype(kind)
        return np.asarray(rng.uniform(self.lo, self.hi, self.shape)).astype(kind)


@dataclass(repr=False)
class Case:
    """A built program with its arguments; `ops` are the compute ops in order, `args` names x0, x1 ..."""

    program: Program
    args: list[Arg]
    ops: list[Any]
    machine: Machine
    records: list[Any]
    fn: Any

    def __repr__(self) -> str:
        results = [f"{s.dtype}{list(s.shape)} {s.layout}" for r in self.records for s in r.results]
        what = [f"{op.kind} {dict(op.attrs)}" for op in self.ops]
        return f"Case({what}, {self.args} -> {results}, {self.machine.n_tiles} tiles)"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    @property
    def segment(self):
        return self.program.segments[0]

    def lowering(self, i: int = 0):
        return lower(self.records[i], self.machine)[0]

    def run(self, inputs: Sequence[np.ndarray], debug: bool = True) -> dict[str, np.ndarray]:
        feed = {f"x{i}": a for i, a in enumerate(inputs)}
        return CompiledProgram(self.program).run(feed, debug=debug)

    def expected(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        known = dict(zip(self.fn.body.args, inputs, strict=True))
        for op in self.ops:
            got = reference(op, [known.get(v) for v in op.operands])
            known.update(zip(op.results, got, strict=True))
        return [known[v] for v in self.fn.body.last.operands]


def build(
    args: Sequence[Arg], body: Callable[..., Any], machine: str = "tx8", opt: int = 2, join: bool = False
) -> Case:
    """Return the program of `body(builder, *values)`, which returns one value or a list of values. join: as `assemble` has it."""
    table, fn, ops = tables(args, body)
    records = [step.record for step in table.functions["main"].steps if step.record is not None]
    chip = MACHINES[machine]
    program = assemble(table, chip, plan_table(table, chip, opt=opt), lambda key: {}, {}, join=join)
    return Case(program, list(args), ops, chip, records, fn)


def tables(args: Sequence[Arg], body: Callable[..., Any]) -> tuple[GraphTable, Any, list[Any]]:
    """Return what the search gets of `body`, with its function and compute ops."""
    ctx = new_context()
    module = ctx.create("module", n_regions=1)
    block = module.regions[0].add_block()
    layouts = tuple(a.layout for a in args)
    names = tuple(f"x{i}" for i in range(len(args)))
    fn = ctx.create("func", n_regions=1, sym_name="main", arg_names=names)
    inner = fn.regions[0].add_block([ctx.tensor(a.shape, a.dtype) for a in args])
    block.append(fn)
    builder = Builder(ctx, inner)
    out = body(builder, *inner.args)
    values = list(out) if isinstance(out, (list, tuple)) else [out]
    builder.op("return", *values)
    fn.attrs["result_names"] = tuple(f"y{i}" for i in range(len(values)))
    ops = [op for op in inner if op.kind not in ("return", "none")]
    ir = IRProgram(ctx, module, WeightTable(), "one op")
    FunctionalToInplace().run(ir)
    table = build_view(ir).table
    main = table.functions["main"]
    main.lay_out(layouts)
    return table, fn, ops


def grouped(case: Case) -> Case:
    """Return the case with all its ops in one group, whatever that costs."""
    module = case.fn.parent
    table = build_view(IRProgram(module.ctx if hasattr(module, "ctx") else None, module, WeightTable(), "group")).table
    main = table.functions["main"]
    main.lay_out([a.layout for a in case.args])
    records = [step.record for step in main.steps if isinstance(step.record, OpRecord)]
    assert len(records) == len(main.steps)
    made = {s.outputs[0]: i for i, s in enumerate(main.steps)}
    inputs = list(dict.fromkeys(v for s in main.steps for v in s.inputs if v >= 0 and v not in made))
    wires = tuple(
        tuple(None if v < 0 else ("op", made[v]) if v in made else ("in", inputs.index(v)) for v in s.inputs)
        for s in main.steps
    )
    outputs = tuple(made[v] for v in main.results)
    group = GroupRecord(tuple(records), wires, tuple(main.values[v] for v in inputs), outputs)
    names = tuple(n for s in main.steps for n in s.op_names)
    main.steps = [Step("group", "group", tuple(inputs), tuple(main.results), group, op_names=names)]
    whole = GraphTable({"main": main})
    program = assemble(whole, case.machine, plan_table(whole, case.machine), lambda key: {}, {})
    return dataclasses.replace(case, program=program, records=[group])


def one_op(kind: str, *args: Arg | None, out: str = "dense", machine: str = "tx8", **attrs: Any) -> Case:
    """Return the program of one op; a None operand is absent. `out` is the layout of its results."""
    given = [a for a in args if a is not None]

    def body(b, *values):
        rest = iter(values)
        operands = [None if a is None else next(rest) for a in args]
        return list(b.op(kind, *operands, mem_layout=out, **attrs).results)

    return build(given, body, machine)


def best_plan(low: Lowering, machine: Machine, name: str = "") -> Plan:
    """Return the plan that the search finds for a lowering. Raises InfeasibleError if there is none."""
    tiling = Draft(low, machine, name).best()
    assert tiling is not None
    return tiling.plan


def check(case: Case, inputs: Sequence[np.ndarray] | None = None, seed: int = 0,
          tolerance: float | None = None) -> list[np.ndarray]:  # fmt: skip
    """Verify the program, run it and compare; return the results."""
    verify(case.program)
    rng = np.random.default_rng(seed)
    feed = list(inputs) if inputs is not None else [a.values(rng) for a in case.args]
    got = case.run(feed)
    for i, want in enumerate(case.expected(feed)):
        compare(got[f"y{i}"], want, tolerance)
    return [got[f"y{i}"] for i in range(len(got))]


def check_drawn(case: Case, low: Any, rng: np.random.Generator, inputs: Sequence[np.ndarray] | None = None, plans: int = 1,
                tolerance: float | None = None) -> None:  # fmt: skip
    """Run the case under the plan that the search found, then under drawn ones of a lowering, None: of the case's own."""
    check(case, inputs, tolerance=tolerance)
    for _ in range(plans):
        plan = random_plan(case, rng, low)
        if plan is not None:
            check(with_plan(case, plan, low), inputs, tolerance=tolerance)


def compare(got: np.ndarray, want: np.ndarray, tolerance: float | None = None) -> None:
    """Fail unless both have one dtype and shape, non-finite values agree and the others are close."""
    assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, want.shape, got.dtype, want.dtype)
    if not got.size:
        return
    name = next((n for n in TOLERANCE if np_dtype(n) == want.dtype), None)
    if name is None:
        np.testing.assert_array_equal(got, want)
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    odd = ~np.isfinite(b)
    np.testing.assert_array_equal(a[odd], b[odd])
    scale = np.abs(b[~odd]).max(initial=0.0)
    error = np.abs(a[~odd] - b[~odd]).max(initial=0.0)
    limit = TOLERANCE[name] if tolerance is None else tolerance
    assert error <= limit * max(scale, 1e-30), f"error {error:.3e}, largest value {scale:.3e}"


def with_plan(case: Case, plan: Plan, low: Any = None, order: str = "free") -> Case:
    """Return the one-op case compiled with `plan`, and another lowering, instead of the searched ones. order: of instructions,
    by default the one that list scheduling makes, whatever it costs."""
    old = case.segment
    made = build_segment(
        Tiling(low or case.lowering(), plan), case.machine, old.name, old.ops, old.barrier, order=order
    )
    made.arguments = old.arguments
    return dataclasses.replace(case, program=dataclasses.replace(case.program, segments=[made]))


def _sharers(low: Any, plan: Plan) -> tuple[int, ...]:
    """Return who shares what, for slices of any size: the search leaves small ones alone."""
    least = sharing.SHARE_MIN_BYTES
    sharing.SHARE_MIN_BYTES = 1
    try:
        return sharing.sharers(Tiling(low, plan))
    finally:
        sharing.SHARE_MIN_BYTES = least


def check_plans(case: Case, seed: int) -> None:
    """Compare the searched plan and a random one, with the same data."""
    rng = np.random.default_rng(seed)
    inputs = [a.values(rng) for a in case.args]
    check(case, inputs)
    plan = random_plan(case, rng)
    if plan is not None:
        check(with_plan(case, plan), inputs)


def random_plan(case: Case, rng: np.random.Generator, low: Any = None) -> Plan | None:
    """Return a plan drawn from all cuts of the one-op case, cheap or not, that scratchpad can hold."""
    low = low or case.lowering()
    capacity = case.machine.spm_limit - case.machine.spm_base
    for _ in range(20):
        parts, left = [], case.machine.n_tiles
        for f in rng.permutation(len(low.sizes)).tolist():
            most = min(left, -(-low.sizes[f] // low.units[f])) if low.shard[f] else 1
            parts.append((f, int(rng.integers(1, most + 1))))
            left //= parts[-1][1]
        parts = [p for _, p in sorted(parts)]
        shard, slices = [], []
        for f, (size, unit) in enumerate(zip(low.sizes, low.units, strict=True)):
            shard.append(min(-(-(-(-size // parts[f])) // unit) * unit, size))
            pieces = int(rng.integers(1, min(4, -(-shard[f] // unit)) + 1)) if low.split[f] else 1
            length = min(-(-(-(-shard[f] // pieces)) // unit) * unit, shard[f])
            slices.append(max(unit, min(length, low.max_len[f] // unit * unit)) if length > low.max_len[f] else length)
        free = [f for f in rng.permutation(len(shard)).tolist() if not low.reduce[f]]
        order = (*free, *(f for f in range(len(shard)) if low.reduce[f]))
        plan = Plan(tuple(parts), tuple(shard), tuple(slices), order, 2, 0, 0, "", 1)
        if any(map(low.may_share, range(len(low.reads)))) and rng.integers(2):
            plan = dataclasses.replace(plan, shared=_sharers(low, plan))
        plan = dataclasses.replace(plan, bufs=int(rng.integers(1, 3)))
        if (made := Tiling(low, plan)).demand_bytes() <= capacity and math.prod(made.trips) <= 64:
            return plan
    return None
