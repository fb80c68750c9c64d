"""The greedy rewriter: applies patterns from a worklist until none matches.

May import: ir.core, ir.storage, errors. Must not: know particular ops or patterns.

A pattern sees one root op and a `Rewriter`. It returns True if it changed the graph, and changes it
only through the rewriter (so that the worklist stays right) or after telling it with `touch`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tx8fast.errors import InternalError
from tx8fast.ir.core import CONSTANT_LIKE, PURE, TERMINATOR, Context, Op, Value
from tx8fast.ir.storage import touches_storage
from tx8fast.ir.types import Type
from tx8fast.records import dataclass

BUDGET_PER_OP = 10


@dataclass(frozen=True)
class Pattern:
    """`roots`: op names the pattern starts from (empty: any op). A higher `benefit` is tried first."""

    name: str
    roots: tuple[str, ...]
    apply: Callable[[Op, Rewriter], bool]
    benefit: int = 1


def pattern(*roots: str, benefit: int = 1) -> Callable[[Callable[[Op, Rewriter], bool]], Pattern]:
    """Decorator: make a `Pattern` of a function; names without a dialect belong to tx8be."""
    full = tuple(r if "." in r else f"tx8be.{r}" for r in roots)
    return lambda f: Pattern(f.__name__.strip("_").replace("_", "-"), full, f, benefit)


class Rewriter:
    """The only way patterns change the graph. New ops take the location of the op they stand for."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.queue: deque[Op] = deque()
        self.queued: set[Op] = set()
        self.erased: set[Op] = set()

    def touch(self, op: Op) -> None:
        """Look at `op` again; call it after changing the op's attributes or result types."""
        if op not in self.queued and op not in self.erased:
            self.queued.add(op)
            self.queue.append(op)

    def insert(
        self,
        name: str,
        *operands: Value,
        before: Op,
        result_types: Sequence[Type] | None = None,
        **attrs: Any,
    ) -> Op:
        """Create an op before `before`; `result_types=None` infers them."""
        op = self.ctx.create(name, operands, result_types, loc=before.loc, **attrs)
        assert before.block is not None
        before.block.insert_before(before, op)
        self.touch(op)
        return op

    def set_operand(self, op: Op, i: int, value: Value) -> None:
        producer = op.operands[i].op
        op.set_operand(i, value)
        self.touch(op)
        if producer is not None:
            self.touch(producer)  # it may be dead now

    def replace(self, op: Op, values: Sequence[Value]) -> None:
        """Give every use of `op`'s results the corresponding value, then erase `op`.

        Raises InternalError if the counts or types differ.
        """
        if len(values) != len(op.results):
            raise InternalError(f"cannot replace {op.name}: {len(op.results)} results, {len(values)} values")
        for old, new in zip(op.results, values):
            if old.type is not new.type:
                raise InternalError(f"cannot replace {op.name}: result {old.index} is {old.type}, the value {new.type}")
            for user, _ in old.uses:
                self.touch(user)
            old.replace_all_uses_with(new)
            if new.op is not None:
                self.touch(new.op)
        self.erase(op)

    def replace_with(self, op: Op, name: str, *operands: Value, **attrs: Any) -> Op:
        """Replace `op` by a new op of the same result types."""
        new = self.insert(name, *operands, before=op, result_types=[r.type for r in op.results], **attrs)
        self.replace(op, new.results)
        return new

    def erase(self, op: Op) -> None:
        """Erase an unused op; its operands' producers are looked at again."""
        producers = [v.op for v in op.operands]
        op.erase()
        self.erased.add(op)
        for p in producers:
            if p is not None and p is not op:
                self.touch(p)


@dataclass(frozen=True)
class RewriteResult:
    """How often each pattern applied (in order of first use), and how many dead ops went."""

    applied: dict[str, int]
    dead: int

    @property
    def changed(self) -> bool:
        return bool(self.applied) or self.dead > 0


def rewrite_greedily(
    ctx: Context, root: Op, patterns: Iterable[Pattern], *, top_down: bool = True, budget: int | None = None
) -> RewriteResult:
    """Apply `patterns` inside `root` to a fixpoint; unused pure ops met on the way are erased.

    `top_down` visits producers first. `budget` bounds the applications (default: 10 per op, at least
    1000); InternalError names the pattern that applied most when it is used up.
    """
    by_root: dict[str, list[Pattern]] = {}
    anywhere: list[Pattern] = []
    ordered = sorted(patterns, key=lambda p: -p.benefit)
    names = {r for p in ordered for r in p.roots}
    for p in ordered:
        if not p.roots:
            anywhere.append(p)
        for name in dict.fromkeys(p.roots) if p.roots else sorted(names):
            by_root.setdefault(name, []).append(p)
    rw = Rewriter(ctx)
    ops = [op for op in root.walk() if op is not root]
    if not top_down:
        ops.reverse()
    limit = max(1000, BUDGET_PER_OP * len(ops)) if budget is None else budget
    rw.queue.extend(ops)
    rw.queued.update(ops)
    applied: dict[str, int] = {}
    dead = total = 0
    queue, queued, erased = rw.queue, rw.queued, rw.erased
    get = by_root.get
    aliasable = ctx.types.aliasable
    while queue:
        op = queue.popleft()
        queued.discard(op)
        if op in erased or op.block is None:
            continue
        if is_dead(op):
            rw.erase(op)
            dead += 1
            continue
        if aliasable and touches_storage(op):
            continue  # patterns reason about values; these may change behind a reader
        for p in get(op.info.name, anywhere):
            if p.apply(op, rw):
                total += 1
                applied[p.name] = applied.get(p.name, 0) + 1
                if total > limit:
                    worst = max(applied, key=lambda n: applied[n])
                    raise InternalError(
                        f"rewriting does not end: {limit} applications on {len(ops)} ops, "
                        f"{applied[worst]} of them by pattern '{worst}', the last one by '{p.name}'"
                    )
                if op not in erased:
                    rw.touch(op)
                break
    return RewriteResult(applied, dead)


def is_dead(op: Op) -> bool:
    """True for an op without effects whose results nobody uses."""
    traits = op.info.traits
    if not traits & (PURE | CONSTANT_LIKE) or traits & TERMINATOR or op.regions or not op.results:
        return False
    for r in op.results:
        if r.uses:
            return False
    return True
