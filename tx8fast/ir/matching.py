"""Sequences of ops along the data flow, found with one trie of integer op codes.

May import: ir.core, errors. Must not: know particular ops, or depend on where in its block an op stands.

A sequence is a list of entries: a set of kinds, perhaps optional, perhaps repeated. It follows *real* ops (see
`is_real`) from producer to user; ops that are not real, and the borders of groups, are looked through. An op's chain
goes on only if all uses of its results belong to one real user, so a match can become one group. Of matches that
share ops the longest wins, then the one of higher priority, then the one nearer to the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field

from tx8fast.errors import InternalError
from tx8fast.ir.core import REAL, TERMINATOR, Block, Context, Op, Value
from tx8fast.records import dataclass


@dataclass(frozen=True)
class Entry:
    """One place of a sequence; `kinds` are op names, with or without dialect."""

    kinds: tuple[str, ...]
    optional: bool = False
    repeated: bool = False


@dataclass(frozen=True)
class Sequence:
    name: str
    entries: tuple[Entry, ...]
    priority: int = 0


@dataclass(frozen=True)
class Match:
    sequence: Sequence
    ops: tuple[Op, ...]


@dataclass(eq=False)
class _Node:
    """`steps`: op code -> nodes; a node of a repeated entry steps to itself."""

    steps: dict[int, list[_Node]] = field(default_factory=dict)
    ends: list[Sequence] = field(default_factory=list)


def real_op(op: Op) -> bool:
    """The usual predicate: the kind counts in pattern search."""
    return op.has(REAL)


class Trie:
    """Compiled sequences of one context. Entries that begin alike share nodes."""

    def __init__(self, ctx: Context, sequences: Iterable[Sequence], is_real: Callable[[Op], bool] = real_op) -> None:
        self.is_real = is_real
        self.root = _Node()
        self._nodes: dict[tuple[int, tuple[int, ...], bool], _Node] = {}
        for s in sequences:
            if all(e.optional for e in s.entries):
                raise InternalError(f"sequence '{s.name}' matches nothing: it has no entry that must be there")
            at = [self.root]
            for e in s.entries:
                codes = tuple(sorted({ctx.info(k).code for k in e.kinds}))
                new = [self._step(node, codes, e.repeated) for node in at]
                at = list(dict.fromkeys([*new, *at] if e.optional else new))
            for node in at:
                node.ends.append(s)

    def _step(self, node: _Node, codes: tuple[int, ...], repeated: bool) -> _Node:
        key = (id(node), codes, repeated)
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = _Node()
            for code in codes:
                node.steps.setdefault(code, []).append(found)
                if repeated:
                    found.steps.setdefault(code, []).append(found)
        return found

    def matches_from(self, head: Op) -> list[Match]:
        """All sequences that begin at `head`, each with its longest match."""
        return list({m.sequence.name: m for m in self.all_from(head)}.values())

    def all_from(self, head: Op) -> list[Match]:
        """All matches that begin at `head`, short ones first."""
        out: list[Match] = []
        chain: list[Op] = []
        nodes = [self.root]
        op: Op | None = head
        while op is not None:
            nodes = list(dict.fromkeys(n for node in nodes for n in node.steps.get(op.info.code, ())))
            if not nodes:
                break
            chain.append(op)
            for node in nodes:
                for s in node.ends:
                    out.append(Match(s, tuple(chain)))
            op = self.only_user(op)
        return out

    def only_user(self, op: Op) -> Op | None:
        """Return the one real op that uses all results of `op`, or None."""
        users = {u for r in op.results for u in self.real_users(r)}
        (user,) = users if len(users) == 1 else (None,)
        return user

    def real_users(self, v: Value) -> list[Op | None]:
        """The real users of `v` in program order, seen through ops that are not real and into and out of groups.

        None stands for a user that is no op to go on with: a return, a call.
        """
        out: dict[Op | None, None] = {}
        for user, i in sorted(v.uses, key=lambda use: (_position(use[0]), use[1])):
            if self.is_real(user):
                out[user] = None
            elif user.regions and user.regions[0].blocks and i < len(user.body.args):
                out.update(dict.fromkeys(self.real_users(user.body.args[i])))
            elif user.has(TERMINATOR) and user.parent is not None and user.parent.results:
                out.update(dict.fromkeys(self.real_users(user.parent.results[i])))
            elif user.results and not user.has(TERMINATOR) and not user.regions and "callee" not in user.attrs:
                for r in user.results:
                    out.update(dict.fromkeys(self.real_users(r)))
            else:
                out[None] = None
        return list(out)

    def find(self, block: Block) -> list[Match]:
        """Return matches of the block that share no op, in program order of their first op.

        The choice depends on the data flow only: two orders of one block give the same groups.
        """
        heads = [op for outer in block for op in outer.walk() if self.is_real(op)]
        depth = self._depths(heads)
        found = [m for head in heads for m in self.all_from(head)]
        found.sort(key=lambda m: (-len(m.ops), -m.sequence.priority, depth[m.ops[0]], self._slots(m.ops)))
        taken: set[Op] = set()
        chosen = []
        for m in found:
            if taken.isdisjoint(m.ops):
                taken.update(m.ops)
                chosen.append(m)
        place = {op: i for i, op in enumerate(heads)}
        return sorted(chosen, key=lambda m: place[m.ops[0]])

    def _depths(self, heads: list[Op]) -> dict[Op, int]:
        """Longest way from a source to each op, in real ops."""
        depth: dict[Op, int] = {}
        for op in heads:  # definitions stand before uses
            depth[op] = 1 + max(
                (depth.get(p, 0) for v in op.operands if (p := self.producer(v)) is not None), default=0
            )
        return depth

    def producer(self, v: Value) -> Op | None:
        """Return the real op behind `v`, through block arguments, group results and ops that are not real."""
        while True:
            owner = v.owner
            if isinstance(owner, Block):
                parent = owner.region.op if owner.region is not None else None
                if parent is None or v.index >= len(parent.operands):
                    return None
                v = parent.operands[v.index]
            elif self.is_real(owner):
                return owner
            elif owner.regions and owner.regions[0].blocks and owner.body.terminator is not None:
                v = owner.body.terminator.operands[v.index]
            elif owner.operands and "callee" not in owner.attrs:
                v = owner.operands[0]
            else:
                return None

    def _slots(self, ops: tuple[Op, ...]) -> tuple[int, ...]:
        """The operand by which each op of a chain takes the one before, from the end: tells equal chains apart."""
        out = []
        for before, op in zip(ops[-2::-1], ops[:0:-1]):
            out.append(next(i for i, v in enumerate(op.operands) if self.producer(v) is before))
        return tuple(out)


def _position(op: Op) -> tuple[int, ...]:
    """Order numbers from the outermost block inwards: comparable over nested blocks of one function."""
    numbers = []
    at: Op | None = op
    while at is not None and at.block is not None:
        numbers.append(at.order)
        at = at.parent
    return tuple(reversed(numbers))
