"""The step of every transfer of a group chosen exactly: loads, stores, and which values stay or are spilled in between.

May import: schedule.steps.table, highs, errors, and highspy late. Must not: place buffers.

Ops have fixed steps on one axis over all slices: slice k's op i of m runs at 1 + k * m + i; step 0 is for first loads, the last one
for last stores. An integer program chooses the rest (layer-group notes 8.7, 8.10, 8.14): a value from outside is loaded
once, near its first reader; between two uses at least SPILL_GAP steps apart it may be stored and loaded again, at least two steps
later; a result that leaves is stored once. In no step may the bytes present exceed what the step's op leaves free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

import numpy as np

from tx8fast import highs
from tx8fast.errors import ConfigError, InfeasibleError, raise_all
from tx8fast.records import dataclass
from tx8fast.schedule.steps.table import LOAD, STORE, Move, StepOp

STAY_GAP, SPILL_GAP = 2, 4  # steps between two uses from which a value must be kept, and from which it may be spilled
RELOAD = 2  # steps from a store to the load of the same bytes
ALIGN_BYTES = 64
EPS = 1e-3  # weight of a cycle of transfer beside a cycle of the group: breaks ties against useless ones
OBJECTIVES = ("makespan", "imbalance")


@dataclass(frozen=True)
class Options:
    """window: steps that a load may run ahead and a store behind; overlap: steps that a slice's transfers may reach into its
    neighbours, at least a fifth of its ops; objective: the sum of the steps' lengths, or of their differences between compute and
    transfers. seconds, gap: when the solver may stop with what it has."""

    window: int = 4
    overlap: int = 2
    objective: str = "makespan"
    seconds: float = 5.0
    gap: float = 0.0

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ConfigError(f"objective '{self.objective}' is unknown, expected one of {', '.join(OBJECTIVES)}")


@dataclass(frozen=True)
class Group:
    """What is scheduled. ops: in order, None for an idle step; free_bytes: per op, what it leaves of the scratchpad beside its own
    operands, results and scratch (see `free_bytes`)."""

    ops: tuple[StepOp | None, ...]
    outputs: frozenset[str]
    free_bytes: tuple[int, ...]
    size_bytes: Mapping[str, int]
    transfer: Callable[[str, str], Move] = Move
    slices: int = 1

    @property
    def n_steps(self) -> int:
        return self.slices * len(self.ops) + 2

    def step(self, k: int, i: int) -> int:
        return 1 + k * len(self.ops) + i


@dataclass(frozen=True)
class Decision:
    """One transfer: kind, value, slice, step; spill: it moves a value that the group makes and needs again."""

    kind: str
    value: str
    slice: int
    step: int
    spill: bool = False


@dataclass(frozen=True)
class Chosen:
    """The transfers by step, the objective, its proven lower bound, why the solver stopped, and values that need room in DDR because
    they are spilled."""

    moves: tuple[Decision, ...]
    objective: float
    bound: float
    status: str
    spilled: tuple[str, ...] = ()


def free_bytes(ops: Sequence[StepOp | None], size_bytes: Mapping[str, int], capacity_bytes: int) -> tuple[int, ...]:
    """Return what each op leaves free: an idle step leaves everything."""
    out = []
    for op in ops:
        values = dict.fromkeys((*op.reads, *op.writes)) if op is not None else ()
        own = sum(-(-size_bytes[v] // ALIGN_BYTES) * ALIGN_BYTES for v in values)
        scratch = -(-op.scratch_bytes // ALIGN_BYTES) * ALIGN_BYTES if op is not None else 0
        out.append(capacity_bytes - own - scratch)
    return tuple(out)


def choose_transfers(group: Group, options: Options = Options()) -> Chosen:
    """Return the best transfers.

    Raises InfeasibleError naming the ops that cannot be: too large by themselves, too large beside the loads of the next step,
    or, found by leaving out one step's memory at a time, the first one without whose demand the rest would fit.
    """
    _check(group)
    model = _Model(group, options)
    chosen = _solve(model, options)
    if chosen is not None:
        return chosen
    for t in sorted(model.memory):
        if _solve(model, options, without=t) is not None:
            op = group.ops[(t - 1) % len(group.ops)]
            raise InfeasibleError(
                f"choosing the transfers of a group: beside {op.name if op else 'an idle step'} (step {t}) only "
                f"{model.room[t]:,} bytes are free, too few for what must be there; smaller slices would help"
            )
    raise InfeasibleError(
        "choosing the transfers of a group: several steps have too little memory; smaller slices would help"
    )


def _check(group: Group) -> None:
    """Refuse ops that fit neither alone nor beside what the next one must find loaded."""
    problems = []
    for i, (op, free) in enumerate(zip(group.ops, group.free_bytes, strict=True)):
        if op is None:
            continue
        follower = group.ops[i + 1] if i + 1 < len(group.ops) else None
        new = [v for v in dict.fromkeys(follower.reads) if v not in op.writes and v not in op.reads] if follower else []
        ahead = sum(group.size_bytes[v] for v in new)
        if free < 0:
            problems.append(f"{op.name} alone takes {-free:,} bytes more than there are")
        elif free < ahead:
            problems.append(f"{op.name} leaves {free:,} bytes, the next op's loads take {ahead:,}")
    raise_all(InfeasibleError, "choosing the transfers of a group", problems)


@dataclass
class _Model:
    """Columns and rows of the program. memory: step -> {column: bytes}; room: step -> bytes."""

    group: Group
    options: Options
    moves: list[tuple[Decision, Move] | None] = field(default_factory=list)  # per column; None: a value stays
    fixed: list[float] = field(default_factory=list)  # lower bound per column
    rows: list[tuple[dict[int, float], float, float]] = field(default_factory=list)
    memory: dict[int, dict[int, float]] = field(default_factory=dict)
    room: dict[int, int] = field(default_factory=dict)
    start: list[int] = field(default_factory=list)  # columns of the schedule that loads and stores at the nearest step

    def __post_init__(self) -> None:
        g = self.group
        m = len(g.ops)
        for k in range(g.slices):
            for i, free in enumerate(g.free_bytes):
                self.room[g.step(k, i)] = free
                self.memory[g.step(k, i)] = {}
        overlap = 1 if m <= self.options.overlap else max(self.options.overlap, int(0.2 * m))
        for k in range(g.slices):
            first = max(0, g.step(k, 0) - overlap)
            last = min(g.n_steps - 1, g.step(k, 0) + m + overlap - 1)
            for value in dict.fromkeys(v for op in g.ops if op is not None for v in (*op.reads, *op.writes)):
                self._value(value, k, first, last)

    def _column(self, kind: str, value: str, k: int, t: int, spill: bool) -> int:
        self.moves.append((Decision(kind, value, k, t, spill), self.group.transfer(kind, value)))
        self.fixed.append(0.0)
        return len(self.moves) - 1

    def _present(self, column: int, value: str, steps: range) -> None:
        """Count the value's bytes in these steps if the column is chosen."""
        for t in steps:
            if t in self.memory:
                self.memory[t][column] = float(self.group.size_bytes[value])

    def _value(self, value: str, k: int, first: int, last: int) -> None:
        g, window = self.group, self.options.window
        made = [g.step(k, i) for i, op in enumerate(g.ops) if op is not None and value in op.writes]
        uses = [g.step(k, i) for i, op in enumerate(g.ops) if op is not None and value in op.reads]
        stores: list[tuple[int, int]] = []  # (step, column) of spills so far
        if not made:
            loads = [self._column(LOAD, value, k, t, False) for t in range(max(first, uses[0] - window), uses[0])]
            for c in loads:
                self._present(c, value, range(self._at(c), uses[0]))
            self.rows.append((dict.fromkeys(loads, 1.0), 1.0, 1.0))
            self.start.append(loads[-1])
        points = [*made, *uses]
        for a, b in zip(points, points[1:]):
            if b - a >= STAY_GAP:
                stores += self._gap(value, k, a, b, stores, in_ddr=not made)
        if value in g.outputs and made:
            end = points[-1]
            finals = range(end + 1, min(max(last, end + 1), end + window) + 1)
            columns = [self._column(STORE, value, k, t, False) for t in finals]
            for c in columns:
                self._present(c, value, range(end + 1, self._at(c) + 1))
            self.rows.append((dict.fromkeys(columns, 1.0), 0.0, 1.0))
            self.rows.append((dict.fromkeys([*columns, *(c for _, c in stores)], 1.0), 1.0, np.inf))
            self.start.append(columns[0])

    def _gap(
        self, value: str, k: int, a: int, b: int, before: list[tuple[int, int]], in_ddr: bool
    ) -> list[tuple[int, int]]:
        """Add the choice between staying and being spilled from step a to step b; return the new stores."""
        window = self.options.window
        self.moves.append(None)
        stay = len(self.moves) - 1
        self.start.append(stay)
        self._present(stay, value, range(a + 1, b))
        if b - a < SPILL_GAP:
            self.fixed.append(1.0)
            return []
        self.fixed.append(0.0)
        steps = [] if in_ddr else range(a + 1, min(a + window, b - 1) + 1)
        new = [(t, self._column(STORE, value, k, t, True)) for t in steps]
        loads = [(t, self._column(LOAD, value, k, t, True)) for t in range(max(a + 1, b - window), b)]
        for t, c in new:
            self._present(c, value, range(a + 1, t + 1))
        for t, c in loads:
            self._present(c, value, range(t, b))
        self.rows.append(({stay: 1.0} | {c: 1.0 for _, c in loads}, 1.0, 1.0))
        if not in_ddr:
            self.rows.append(({c: 1.0 for _, c in new} | {c: -1.0 for _, c in loads}, -np.inf, 0.0))
            for t, c in loads:
                ready = {s: -1.0 for u, s in (*before, *new) if u <= t - RELOAD}
                self.rows.append(({c: 1.0} | ready, -np.inf, 0.0))
        return new

    def _at(self, column: int) -> int:
        entry = self.moves[column]
        assert entry is not None
        return entry[0].step


def _solve(model: _Model, options: Options, without: int = -1) -> Chosen | None:
    """Return the solver's choice, None if there is none; `without`: a step whose memory does not count."""
    import highspy

    g = model.group
    n_choice, n_steps = len(model.moves), g.n_steps
    compute = [0] * n_steps
    for k in range(g.slices):
        for i, op in enumerate(g.ops):
            compute[g.step(k, i)] = op.cycles if op is not None else 0
    busy: dict[tuple[int, str], dict[int, float]] = {}
    cost = np.zeros(n_choice + n_steps)
    cost[n_choice:] = 1.0
    makespan = options.objective == "makespan"
    for c, entry in enumerate(model.moves):
        if entry is not None:
            decision, move = entry
            busy.setdefault((decision.step, move.engine if makespan else ""), {})[c] = float(move.cycles)
            cost[c] = EPS * move.cycles if makespan else 0.0
    rows = list(model.rows)
    rows += [(cols, 0.0, float(model.room[t])) for t, cols in sorted(model.memory.items()) if cols and t != without]
    for (t, _), cols in sorted(busy.items()):
        rows.append((cols | {n_choice + t: -1.0}, -np.inf, 0.0 if makespan else float(compute[t])))
        if not makespan:
            rows.append((cols | {n_choice + t: 1.0}, float(compute[t]), np.inf))
    lower = np.concatenate([model.fixed, compute if makespan else np.zeros(n_steps)])
    if not makespan:
        idle = set(range(n_steps)) - {t for t, _ in busy}
        lower[[n_choice + t for t in idle]] = [compute[t] for t in idle]
    upper = np.concatenate([np.ones(n_choice), np.full(n_steps, np.inf)])
    begin = np.cumsum([0, *(len(cols) for cols, _, _ in rows)]).astype(np.int32)
    index = np.array([c for cols, _, _ in rows for c in cols], np.int32)
    entries = np.array([x for cols, _, _ in rows for x in cols.values()], np.float64)
    kinds = np.array(
        [int(highspy.HighsVarType.kInteger)] * n_choice + [int(highspy.HighsVarType.kContinuous)] * n_steps, np.int32
    )
    solver = highs.solver({"mip_rel_gap": options.gap, "mip_abs_gap": 1e-6, "time_limit": options.seconds})
    solver.passModel(
        n_choice + n_steps,
        len(rows),
        len(index),
        int(highspy.MatrixFormat.kRowwise),
        int(highspy.ObjSense.kMinimize),
        0.0,
        cost,
        lower,
        upper,
        np.array([lo for _, lo, _ in rows]),
        np.array([hi for _, _, hi in rows]),
        begin,
        index,
        entries,
        kinds,
    )
    known = np.zeros(n_choice)
    known[model.start] = 1.0
    solver.setSolution(n_choice, np.arange(n_choice, dtype=np.int32), known)
    solver.run()
    info, status = solver.getInfo(), solver.getModelStatus()
    if info.primal_solution_status != int(highspy.SolutionStatus.kSolutionStatusFeasible):
        return None
    values = np.array(solver.getSolution().col_value)
    chosen = [entry[0] for c, entry in enumerate(model.moves) if entry is not None and values[c] > 0.5]
    chosen.sort(key=lambda d: (d.step, d.kind, d.slice, d.value))
    spilled = dict.fromkeys(d.value for d in chosen if d.spill and d.kind == STORE and d.value not in g.outputs)
    optimal = status == highspy.HighsModelStatus.kOptimal
    bound = info.objective_function_value if optimal else info.mip_dual_bound
    reason = "optimal" if optimal else solver.modelStatusToString(status).lower()
    return Chosen(tuple(chosen), info.objective_function_value, bound, reason, tuple(spilled))
