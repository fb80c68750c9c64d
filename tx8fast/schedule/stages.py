"""From the ops of a group to its loop script: which loop each op belongs to, and the nested list of steps.

May import: errors. Must not: reorder ops beyond their loop, or know instructions.

A group runs `for NH { for OC { for IC } }`: output slices, output-channel slices, slices of a reduction. An op
belongs to the innermost loop that its slice depends on; a loop of one trip does not exist. Inside its loop an op
comes before the next inner loop unless it needs a result of that loop (back-end notes 11.5, 12.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tx8fast.errors import InfeasibleError, InternalError, raise_all

NH, OC, IC = 1, 2, 4  # bits of a set of loops, outermost lowest
ENGINES = ("ld", "st", "ne", "ct", "tdma", "dte")
LEVELS = 3
LAST = 2 * LEVELS  # phases: 0-2 before the next inner loop, 3 innermost, 4-6 after it


@dataclass(frozen=True)
class LoopOp:
    """One op of a group. reads, writes: scratchpad values; loops: those its slice depends on; sums: those it
    accumulates over; inplace: operand whose bytes the first result may take, -1 for none."""

    name: str
    engine: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    loops: int = 0
    sums: int = 0
    inplace: int = -1

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise InternalError(f"op {self.name!r}: engine {self.engine!r}, known: {', '.join(ENGINES)}")


@dataclass(frozen=True)
class Nest:
    """Ops in topological order that share one OC and one IC loop, with the trip counts of these loops."""

    ops: tuple[LoopOp, ...]
    oc: int = 1
    ic: int = 1


@dataclass(frozen=True)
class Value:
    """A scratchpad value. It is new in every iteration of its `depth` outermost loops and uses `bufs` copies in
    turn. `owner`: the value whose bytes it has (itself unless in place); `psum`: it is accumulated."""

    name: str
    bufs: int = 1
    depth: int = 0
    owner: str = ""
    psum: bool = False

    @property
    def memory(self) -> str:
        return self.owner or self.name


@dataclass(frozen=True)
class Repeat:
    """A loop of the script around steps and inner loops."""

    body: tuple[Item, ...]
    times: int


Item = tuple[LoopOp, ...] | Repeat  # the ops of one initial step, or a loop
Script = tuple[Item, ...]


@dataclass(frozen=True)
class Baskets:
    """Ops of one nest by stage. `once` is outside every loop; where a loop has one trip its stages are empty."""

    once: tuple[LoopOp, ...]
    nh2oc: tuple[LoopOp, ...]
    oc2ic: tuple[LoopOp, ...]
    ic2ic: tuple[LoopOp, ...]
    ic2oc: tuple[LoopOp, ...]
    oc2nh: tuple[LoopOp, ...]
    last: tuple[LoopOp, ...]


@dataclass(frozen=True)
class Place:
    """Where an op stands: its nest, the set of existing loops there, its loop level 0-3 and its phase 0-6."""

    nest: int
    active: int
    level: int
    phase: int

    def depth(self, level: int = -1) -> int:
        """Return the number of existing loops around this level (default: around the op)."""
        return (self.active & ((1 << (self.level if level < 0 else level)) - 1)).bit_count()


def baskets(nest: Nest, nh: int) -> Baskets:
    """Return the stages of one nest. Raises InfeasibleError if an op would have to run inside a closed loop."""
    places = _places((nest,), nh)
    return Baskets(*(tuple(op for op in nest.ops if places[op.name].phase == p) for p in range(LAST + 1)))


def build_script(nests: Sequence[Nest], nh: int, share_loads: bool = True) -> Script:
    """Return the steps of a group with nested repeats, one op per step.

    `share_loads`: neighbouring loads for one NE op form one step. Nests follow each other inside the NH loop.
    Raises InfeasibleError as `baskets` does.
    """
    places = _places(nests, nh)
    ne_of = {v: op.name for nest in reversed(nests) for op in reversed(nest.ops) if op.engine == "ne" for v in op.reads}

    def steps(of: Iterable[Nest], phase: int) -> list[Item]:
        found: list[tuple[LoopOp, ...]] = []
        for op in (op for nest in of for op in nest.ops if places[op.name].phase == phase):
            goal = _load_goal(op, ne_of) if share_loads else ""
            if goal and found and _load_goal(found[-1][-1], ne_of) == goal:
                found[-1] += (op,)
            else:
                found.append((op,))
        return list(found)

    def loop(nest: Nest, level: int) -> list[Item]:
        if level == LEVELS:
            return steps((nest,), level)
        inner = _repeat(loop(nest, level + 1), (nh, nest.oc, nest.ic)[level])
        return [*steps((nest,), level), *inner, *steps((nest,), LAST - level)]

    whole = [item for nest in nests for item in loop(nest, 1)]
    return (*steps(nests, 0), *_repeat(whole, nh), *steps(nests, LAST))


def build_values(
    nests: Sequence[Nest], nh: int, bufs: int = 2, copies: Mapping[str, int] | None = None
) -> dict[str, Value]:
    """Return every value of a group with its depth, copies and owner.

    A value that changes in a loop has `bufs` copies or what `copies` says; any other has one. A value that a shallower
    op reads is collected slice by slice in one buffer. A result takes its operand's bytes if nothing reads
    the operand later and both change in the same loops.
    """
    places, ops = _places(nests, nh), [op for nest in nests for op in nest.ops]
    outer = 1 if nh > 1 else 0
    depth: dict[str, int] = {}
    nest_of: dict[str, int] = {}
    psum: set[str] = set()
    for op in ops:
        at = places[op.name]
        summed = op.sums & at.active
        own = at.depth(_lowest(summed) - 1) if summed else at.depth()
        for v in op.writes:
            depth[v], nest_of[v] = min(own, depth.get(v, own)), at.nest
            if summed:
                psum.add(v)
    for op in ops:
        at = places[op.name]
        for v in op.reads:
            shared = at.depth() if nest_of.get(v) == at.nest else min(outer, at.depth())
            depth[v] = min(depth.get(v, 0), shared)
    values = {v: Value(v, (copies or {}).get(v, bufs if d else 1), d, v, v in psum) for v, d in depth.items()}
    order = sorted(ops, key=lambda op: _serial_key(places[op.name]))  # stable: ops of a phase keep their order
    for k, op in enumerate(order):
        if op.inplace < 0 or not op.writes:
            continue
        old, new = values[op.reads[op.inplace]], values[op.writes[0]]
        later = any(old.name in other.reads or old.name in other.writes for other in order[k + 1 :])
        if not later and old.name in nest_of and old.depth == new.depth == places[op.name].depth() and not new.psum:
            values[new.name] = replace(new, owner=old.memory, bufs=old.bufs)
    return values


def _places(nests: Sequence[Nest], nh: int) -> dict[str, Place]:
    """Return the place of every op by name, or raise InfeasibleError with all reads that no order can serve."""
    found: dict[str, Place] = {}
    writers: dict[str, list[LoopOp]] = {}
    problems: list[str] = []
    for n, nest in enumerate(nests):
        active = (NH if nh > 1 else 0) | (OC if nest.oc > 1 else 0) | (IC if nest.ic > 1 else 0)
        for op in nest.ops:
            if op.name in found:
                raise InternalError(f"building loop stages: two ops are called {op.name!r}")
            level = (op.loops & active).bit_length()
            if not active & NH:
                level = max(level, 1)
            needed = 0
            for v in op.reads:
                for writer in writers.get(v, ()):
                    at = found[writer.name]
                    needed = max(needed, at.phase if at.nest == n or at.phase in (0, LAST) else 1)
                    first = _lowest(writer.sums & at.active)
                    if first and level >= first and (at.nest == n or first == 1):
                        problems.append(f"{op.name!r} reads {v!r} before {writer.name!r} has summed it up")
            phase = level if needed <= level else LAST - level
            if phase < needed:
                problems.append(f"{op.name!r} needs a result that exists only after its own loop has ended")
            summed = op.sums & active
            if summed and op.loops & ~op.sums & active & -(1 << (_lowest(summed) - 1)):
                problems.append(f"{op.name!r} accumulates over a loop outside one it does not accumulate over")
            found[op.name] = Place(n, active, level, phase)
            for v in op.writes:
                writers.setdefault(v, []).append(op)
    raise_all(InfeasibleError, "building loop stages", dict.fromkeys(problems))
    return found


def _serial_key(at: Place) -> tuple[int, int, int]:
    """Order of ops in the script, where the ops outside the NH loop of all nests come first or last."""
    outside = -1 if at.phase == 0 else 1 if at.phase == LAST else 0
    return outside, at.nest, at.phase


def _lowest(loops: int) -> int:
    """Return the level (1 NH, 2 OC, 3 IC) of the outermost loop in a set, 0 for none."""
    return (loops & -loops).bit_length()


def _repeat(body: list[Item], times: int) -> list[Item]:
    return [Repeat(tuple(body), times)] if times > 1 and body else body


def _load_goal(op: LoopOp, ne_of: Mapping[str, str]) -> str:
    """Return the NE op a load feeds, "" for anything else."""
    return next((ne_of[v] for v in op.writes if v in ne_of), "") if op.engine == "ld" else ""
