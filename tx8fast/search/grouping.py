"""Which neighbouring ops share one loop nest: interval dynamic programming over each function's steps.

May import: graph_table, lower, machine, search.*. Must not: emit programs.

Steps are first ordered so that consumers follow their producers. Then for every interval of at most
MAX_GROUP steps that can be one group, its planned cost is compared with the best cut of the interval; the
cheapest cut of the whole sequence wins, shorter groups on ties. Costs come from the same planner that plans
the program, so a group is formed only where the estimate says it pays.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import FunctionTable, GraphTable, GroupRecord, OpRecord, Record, Step
from tx8fast.lower import MAX_BANDED, NotLowerable
from tx8fast.lower.chain import WINDOWS
from tx8fast.lower.members import NORMS, is_product, may_follow, may_lead, may_lead_rows
from tx8fast.lower.score_ops import is_attention
from tx8fast.lower.sequences import BINARY, UNARY
from tx8fast.search.barriers import place_barriers
from tx8fast.search.planning import Planner

NO_PLAN = 1e18  # cycles of an op that does not fit: it is left to the end, where all such ops are reported
MAX_GROUP = 4  # ops of a group with one product
MAX_LED = 8  # of one with several: a norm before three of them, norms and rotations of heads behind two; or with none, on rows of tables
MAX_CHAIN = 24  # ops of a chain of convolutions and pools by bands of rows
Option = tuple[int, int, Step]  # steps [start, end) as one group
Parts = tuple[Step, ...]
CHAIN = frozenset({*WINDOWS, *BINARY, *UNARY})


def group_table(
    table: GraphTable, planner: Planner, options: Mapping[str, Sequence[Option]]
) -> dict[str, dict[tuple[int, ...], Parts]]:
    """Replace steps, ordered by `order_steps`, by groups where that is cheaper, and set the barriers anew. options: by
    function, further groups to choose from. Return by function, of a group by its results, what may be nests of a chain in its place."""
    parts = {}
    for fn in table.functions.values():
        steps, given = fn.steps, options.get(fn.name, ())
        chosen = best_cuts(fn, steps, planner, given)
        parts[fn.name] = {option[2].outputs: _parts(fn, steps, option, planner) for option in chosen}
        short = [option for option in chosen if option in given and option[1] - option[0] <= MAX_LED]
        if short:
            others = best_cuts(fn, steps, planner, [option for option in given if option not in short])
            parts[fn.name] |= {option[2].outputs: _within(option, others) for option in short}
        fn.steps = [step for _, _, step in chosen]
        place_barriers(fn)
    return parts


def _within(option: Option, others: Sequence[Option]) -> Parts:
    """Return the groups that would be there instead of a short stream, which a chain may have with what lies before or behind it."""
    start, end, _ = option
    found = [other for other in others if start <= other[0] and other[1] <= end]
    whole = len(found) > 1 and found[0][0] == start and found[-1][1] == end
    return tuple(step for _, _, step in found) if whole else ()


def _parts(fn: FunctionTable, steps: Sequence[Step], option: Option, planner: Planner) -> Parts:
    """Return steps that a chain may have in place of a group, or nothing.

    If the whole waits for transfers, a norm and the group that it leads, which may be cheaper without it. If it waits for operands that
    tiles pass on, or no norm leads, what a closing product sums over, and that product: apart, tiles may be cut by columns too, so that
    an operand goes to fewer of them, and send each other what they have of the sums. So may those of any product without the norm that
    ends its group, and gather what they multiply."""
    start, end, step = option
    if step.record is None or end - start < 3:
        return ()
    used = uses(fn, steps)
    alone = [start + 1] if _kind(steps[start]) in NORMS else []
    closing = _around_closing(steps, start, end, used)
    last = [end - 1] if not alone and _kind(steps[end - 1]) in NORMS and any(map(_is_product, steps[start:end])) else []
    if not alone and not closing and not last:
        return ()
    plan = planner.plan(step.record, step.name).plan
    cuts = (alone or closing or last) if plan.waits else closing if plan.bound == "noc" else []
    ends = [start, *cuts, end]
    found = [
        merge(fn, steps[a:b], set(range(a, b)), used) if b - a > 1 else steps[a]
        for a, b in zip(ends, ends[1:], strict=False)
    ]
    return tuple(s for s in found if s is not None) if cuts and None not in found else ()


def _around_closing(steps: Sequence[Step], start: int, end: int, used: dict[int, set[int]]) -> list[int]:
    """Return where the steps [start, end) of a group are cut before the one product that sums over what others made, and about norms:
    of its result, whose rows stay whole, and of the first rows, if what is normalised is needed by more than the products that it leads."""
    behind = {v for s in steps[start:end] if _kind(s) not in NORMS for v in s.outputs}
    closing = [i for i in range(start + 1, end) if _is_product(steps[i]) and behind & {*steps[i].inputs}]
    if len(closing) != 1:
        return []
    lead = _kind(steps[start]) in NORMS and not used.get(steps[start].outputs[0], set()) <= {*range(start, closing[0])}
    norms = [i for i in range(closing[0] + 1, end) if _kind(steps[i]) in NORMS]
    return [*([start + 1] * lead), *closing, *norms[:1]]


def _kind(step: Step) -> str:
    return step.record.kind if step.record is not None else ""


def _is_product(step: Step) -> bool:
    return isinstance(step.record, OpRecord) and is_product(step.record)


def order_steps(fn: FunctionTable) -> list[Step]:
    """Return the steps depth first from the results, each right behind its producer of the chain with most products, of these the longest:
    what masks and tables are made of stands before the product that they meet."""
    maker = {v: i for i, s in enumerate(fn.steps) for v in s.outputs}
    needs = [list(dict.fromkeys(maker[v] for v in s.inputs if v in maker)) for s in fn.steps]
    height = [(0, 0)] * len(fn.steps)  # products, steps
    for i, before in enumerate(needs):  # steps arrive in a topological order
        products, length = max([height[j] for j in before], default=(0, 0))
        height[i] = products + _is_product(fn.steps[i]), length + 1
    used = {j for before in needs for j in before}
    order: list[int] = []
    done = [False] * len(fn.steps)
    for root in range(len(fn.steps)):
        if done[root] or root in used:
            continue
        stack = [(root, iter(sorted(needs[root], key=lambda j: height[j])))]
        while stack:
            i, rest = stack[-1]
            j = next((j for j in rest if not done[j]), None)
            if j is not None:
                stack.append((j, iter(sorted(needs[j], key=lambda k: height[k]))))
                continue
            stack.pop()
            if not done[i]:
                done[i] = True
                order.append(i)
    return _pair_products([fn.steps[i] for i in order])


def _pair_products(steps: list[Step]) -> list[Step]:
    """Move a product right before the next one of equal shapes on the same operand, where nothing between needs it:
    the two can share a loop nest, which reads the operand once."""
    out = list(steps)
    for step in steps:
        if not isinstance(step.record, OpRecord) or not is_product(step.record):
            continue
        i = out.index(step)
        for j in range(i + 1, len(out)):
            if set(out[j].inputs) & set(step.outputs):
                break
            if _alike(step, out[j]):
                out.insert(j - 1, out.pop(i))
                break
    return out


def _alike(a: Step, b: Step) -> bool:
    x, y = a.record, b.record
    return (
        isinstance(x, OpRecord)
        and isinstance(y, OpRecord)
        and a.inputs[0] == b.inputs[0]
        and x.kind == y.kind
        and x.operands[:2] == y.operands[:2]
        and x.results == y.results
    )


def best_cuts(fn: FunctionTable, steps: Sequence[Step], planner: Planner, given: Sequence[Option] = ()) -> list[Option]:
    """Return the cheapest sequence of groups (dynamic programming over end positions).

    What a group costs is found out by degrees (`LOOKS`), as long as it is part of the cheapest sequence: most groups are
    never tried."""
    found = list(intervals(fn, steps, given))
    number: dict[Record | None, int] = {}
    asked: list[Step] = []  # one step per distinct record
    at: list[list[tuple[int, int]]] = [[] for _ in range(len(steps) + 1)]  # by end: (start, number)
    step_of: dict[tuple[int, int, int], Step] = {}  # start, end, number
    for start, end, step in found:
        record = None if step.is_empty else step.record
        if record not in number:
            number[record] = len(asked)
            asked.append(step)
        at[end].append((start, number[record]))
        step_of[start, end, number[record]] = step
    look = [0 if isinstance(step.record, OpRecord) and not step.is_empty else 1 for step in asked]
    cost = [LOOKS[n](step, planner) for n, step in zip(look, asked, strict=True)]
    last = len(LOOKS) - 1
    while True:
        cuts = _cheapest(at, cost)
        open_ = [(end - start, j) for start, end, j in cuts if look[j] < last]
        if not open_:
            planner.forget()
            return [(start, end, step_of[start, end, j]) for start, end, j in cuts]
        vague = {j for _, j in open_ if look[j] + 1 < last}
        # few ops are tried soon, and what is learnt may rule out the others
        for j in sorted(vague) or [min(open_)[1]]:
            look[j] += 1
            cost[j] = LOOKS[look[j]](asked[j], planner)


def _cheapest(at: Sequence[Sequence[tuple[int, int]]], cost: Sequence[float]) -> list[tuple[int, int, int]]:
    """Return the cheapest sequence of groups (start, end, index of cost); at: by end, (start, index of cost). Shorter
    groups on ties."""
    # cost of the first n steps, minus the last group's start, the index of its cost
    best: list[tuple[float, int, int]] = [(0.0, 0, 0)]
    for here in at[1:]:
        best.append(min([(best[start][0] + cost[j], -start, j) for start, j in here]))
    out: list[tuple[int, int, int]] = []
    end = len(at) - 1
    while end:
        _, start, j = best[end]
        out.append((-start, end, j))
        end = -start
    return out[::-1]


def intervals(fn: FunctionTable, steps: Sequence[Step], given: Sequence[Option] = ()) -> Iterator[Option]:
    """Yield (start, end, step) of every single step, every run of steps that may be one group, and `given`."""
    used = uses(fn, steps)
    narrow = narrow_places(fn, steps)
    for end in range(1, len(steps) + 1):
        yield end - 1, end, steps[end - 1]
        for start in range(max(0, end - MAX_CHAIN), end - 1):
            if _worth_trying(steps, start, end, narrow):
                merged = merge(fn, steps[start:end], set(range(start, end)), used)
                if merged is not None:
                    yield start, end, merged
    yield from given


def narrow_places(fn: FunctionTable, steps: Sequence[Step], least_rank: int = 0) -> list[bool]:
    """Say for every place between steps whether at most one value crosses it, parameters aside: there a chain may
    begin or end. Arguments of fewer dimensions than `least_rank` count as parameters."""
    args = [v for v in fn.args if len(fn.values[v].shape) >= least_rank]
    born = {v: 0 for v in args} | {v: i + 1 for i, s in enumerate(steps) for v in s.outputs}
    dies = {v: i for i, s in enumerate(steps) for v in s.inputs if v in born} | {
        v: len(steps) for v in fn.results if v in born
    }
    crossing = [0] * (len(steps) + 2)
    for v, end in dies.items():
        crossing[born[v]] += 1
        crossing[end + 1] -= 1
    return [n <= 1 for n in itertools.accumulate(crossing)][: len(steps) + 1]


def _worth_trying(steps: Sequence[Step], start: int, end: int, narrow: Sequence[bool]) -> bool:
    """Say whether an interval can be a group at all, without building it."""
    kinds = [s.record.kind if s.record is not None else "" for s in steps[start:end]]
    if sum(k in WINDOWS for k in kinds) < 2:
        n_products = sum([is_product(s.record) for s in steps[start:end] if isinstance(s.record, OpRecord)])
        return end - start <= (MAX_GROUP if n_products == 1 else MAX_LED)
    if (
        sum(k in WINDOWS for k in kinds) > MAX_BANDED
        or not (narrow[start] and narrow[end])
        or not CHAIN.issuperset(kinds)
    ):
        return False
    # an activation between two chains belongs to the first one
    following = steps[end].record if end < len(steps) else None
    after = following is not None and following.kind in UNARY and narrow[end + 1]
    return not after and not (start and kinds[0] in UNARY)


def floor_of(step: Step, planner: Planner) -> float:
    """Return cycles that no plan of the step goes below."""
    return _ask(step, planner.floor)


def bound_of(step: Step, planner: Planner) -> float:
    """Return cycles that the step's plan hardly goes below."""
    return _ask(step, lambda record: planner.bound(record, step.name))


def tight_bound_of(step: Step, planner: Planner) -> float:
    """Return a bound that knows what fits scratchpad."""
    return _ask(step, lambda record: planner.bound(record, step.name, tight=True))


def cost_of(step: Step, planner: Planner) -> float:
    """Return the cycles of a step's plan, infinitely many if it cannot be a group."""
    return _ask(step, lambda record: planner.plan(record, step.name).plan.estimate_cycles)


def _ask(step: Step, cycles: Callable[[Record], float]) -> float:
    if step.record is None or step.is_empty:
        return 0.0
    try:
        found = float(cycles(step.record))
    except NotLowerable:
        return math.inf
    except InfeasibleError:
        found = math.inf
    return min(found, NO_PLAN) if isinstance(step.record, OpRecord) else found


#: what is asked about a step's cycles, one after the other; groups begin with the second, which knows whether they can be
LOOKS = (floor_of, bound_of, tight_bound_of, cost_of)


def uses(fn: FunctionTable, steps: Sequence[Step]) -> dict[int, set[int]]:
    """Value id -> positions of the steps that read it; -1 stands for the function's results."""
    used: dict[int, set[int]] = {}
    for i, s in enumerate(steps):
        for v in s.inputs:
            used.setdefault(v, set()).add(i)
    for v in fn.results:
        used.setdefault(v, set()).add(-1)
    return used


def merge(
    fn: FunctionTable,
    part: Sequence[Step],
    inside: set[int],
    used: dict[int, set[int]],
    rule: Callable[..., bool] | None = None,
) -> Step | None:
    """Return the steps (at positions `inside`) as one group, or None if they cannot be. `rule` says which may; by default a
    product leads, and every further member is a product too or works on a result of the group."""
    if not all(groupable(s) for s in part):
        return None
    made = {s.outputs[0]: i for i, s in enumerate(part)}
    if not (rule or follows)([s.record for s in part], part, made):  # type: ignore[misc]
        return None
    group = join(fn, part, inside, used)
    return group if group.outputs else None


def groupable(step: Step) -> bool:
    """True for a step that computes one result and may be a member of a group."""
    single = isinstance(step.record, OpRecord) and len(step.record.results) == 1
    return single and not step.is_empty and not step.fixed


def join(fn: FunctionTable, part: Sequence[Step], inside: set[int], used: dict[int, set[int]]) -> Step:
    """Return groupable steps (at positions `inside`, in order) as one group, whatever they are."""
    made = {s.outputs[0]: i for i, s in enumerate(part)}
    inputs: list[int] = []
    wires = []
    for s in part:
        row: list[tuple[str, int] | None] = []
        for v in s.inputs:
            if v < 0:
                row.append(None)
            elif v in made:
                row.append(("op", made[v]))
            else:
                if v not in inputs:
                    inputs.append(v)
                row.append(("in", inputs.index(v)))
        wires.append(tuple(row))
    outputs = [i for i, s in enumerate(part) if used.get(s.outputs[0], set()) - inside]
    records = tuple(s.record for s in part)
    group = GroupRecord(records, tuple(wires), tuple(fn.values[v] for v in inputs), tuple(outputs))  # type: ignore[arg-type]
    name = part[0].name if len(part) == 1 else f"{part[0].name}+{part[-1].name.rpartition('.')[2]}"
    return Step(
        "group",
        name,
        tuple(inputs),
        tuple(part[i].outputs[0] for i in outputs),
        group,
        op_names=tuple(n for s in part for n in s.op_names),
        nests=(tuple(n for s in part for n in s.members),),
    )


def follows(records: Sequence[OpRecord], part: Sequence[Step], made: dict[int, int]) -> bool:
    """True for score, softmax and mix of attention, for chains, and for what something leads: ops that read nothing of the group, among
    them at most one product that does, and followers. Products may follow the normalisation of their operand; ops on rows follow
    each other."""
    uses = [sum(v in made for v in s.inputs) for s in part]
    if sum(r.kind in WINDOWS for r in records) > 1:
        read = {v for s in part for v in s.inputs}
        return CHAIN.issuperset(r.kind for r in records) and all(s.outputs[0] in read for s in part[:-1])
    if not any(may_lead(r) for r in records):
        return may_lead_rows(records[0]) and all(
            use and may_follow(r) for r, use in zip(records[1:], uses[1:], strict=True)
        )
    if records[0].kind in NORMS:
        rest = {v: i for v, i in made.items() if i}
        led = all(
            s.inputs[0] == part[0].outputs[0]
            for r, s in zip(records[1:], part[1:], strict=True)
            if is_product(r) and rest.keys().isdisjoint(s.inputs)
        )
        return led and follows(records[1:], part[1:], rest)
    if is_attention(records):
        return all(uses[1:])
    leads = [may_lead(r) for r in records]
    closing = [use for lead, use in zip(leads, uses, strict=True) if lead and use]
    follow = all(lead or use and may_follow(r) for r, lead, use in zip(records, leads, uses, strict=True))
    if not leads[0] or not follow or closing not in ([], [1]):
        return False
    # leaders alone have their operand in common, or one reads what another makes
    return not all(leads) or bool(closing) or len({s.inputs[0] for s in part}) == 1
