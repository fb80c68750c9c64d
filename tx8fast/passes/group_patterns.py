"""Ops that match a table of patterns form one group.

May import: files, ir, passes.base, passes.pattern_table, passes.group_single. Must not: choose loads or tiles.

From every op the best pattern along the data flow is looked up; of candidates that share ops the one of higher priority
wins, then the longer, then the earlier. A candidate must be convex: no value may leave it and come back
(back-end notes 9.1). Groups stand where the values that they need are there, which is not an order of writes to
buffers: there must be none. A compile runs it when a table is given; the search then adds groups by cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tx8fast.errors import ConfigError, VerifyError
from tx8fast.files import read_input
from tx8fast.ir.core import Block, Op
from tx8fast.ir.interfaces import is_loaded, is_stored, query_op_attr
from tx8fast.ir.order import topological_sort
from tx8fast.ir.program import IRProgram
from tx8fast.ir.storage import touches_storage
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.group_single import make_group, needs_group
from tx8fast.passes.pattern_table import TrieNode, build_trie, parse_table
from tx8fast.records import dataclass

MAX_TABLE_BYTES = 1 << 20
#: built-in tables by number: matrix products and convolutions with what usually follows them
TABLES = {
    "1": """
        gemm add relu = 30 # with a bias
        gemm add OR contract add OR conv add = 20
        gemm relu OR gemm gelu OR gemm silu mul = 20
        conv add relu = 30
        conv relu = 25
        contract softmax contract = 40
    """,
}


@dataclass(frozen=True)
class Candidate:
    """Ops that match, from producer to user, with the place of the first one in its block."""

    ops: tuple[Op, ...]
    priority: int
    start: int


@dataclass(frozen=True)
class GroupPatterns(CompilerPass):
    """`table`: the number of a built-in table, or a file."""

    name: ClassVar[str] = "group-patterns"
    table: str = "1"

    def run(self, program: IRProgram) -> PassResult:
        where = f"pattern table {self.table}"
        if (text := TABLES.get(self.table)) is None:
            try:
                text = read_input(self.table, MAX_TABLE_BYTES).decode("utf-8")
            except (OSError, UnicodeDecodeError) as err:
                why = err.strerror if isinstance(err, OSError) else err
                raise ConfigError(f"reading {where}: {why or err}; built-in tables are {', '.join(TABLES)}") from err
        known = {name.rpartition(".")[2] for name in program.ctx.infos}
        root = build_trie(parse_table(text, known, where))
        groups = ops = 0
        for symbol in program.functions:
            for block in symbol.regions[0].blocks:
                if (op := next(filter(touches_storage, block), None)) is not None:
                    raise VerifyError(
                        f"{self.name}: {op.name} '{op.loc or ''}' touches a buffer, and a group may move across a write to it; "
                        "the passes inplace-to-functional, wrap-value, fold-copies and values-only before it would help"
                    )
                for chosen in resolve(find_candidates(block, root)):
                    make_group(program.ctx, *chosen.ops)
                    groups += 1
                    ops += len(chosen.ops)
                if groups:
                    topological_sort(block)
        return PassResult(groups > 0, {"groups": groups, "ops": ops})


def find_candidates(block: Block, root: TrieNode) -> list[Candidate]:
    """Return the best match that begins at each op of a block, in program order."""
    search = _Search(block)
    found = []
    for op in search.place:
        node, path = search.best(root, op)
        if node.pattern is not None:
            found.append(Candidate(path, node.priority, search.place[op]))
    return found


class _Search:
    """Walks the trie along the users of each op."""

    def __init__(self, block: Block) -> None:
        self.place = {op: i for i, op in enumerate(block) if needs_group(op)}
        self.known: dict[tuple[TrieNode, Op], tuple[TrieNode, tuple[Op, ...]]] = {}

    def best(self, node: TrieNode, op: Op) -> tuple[TrieNode, tuple[Op, ...]]:
        """Return the best node that `op` and its users lead to from `node`, with the ops on the way; `node` itself if none."""
        child = node.children.get(op.kind)
        if child is None:
            return node, ()
        found = self.known.get((node, op))
        if found is None:
            at, path = child, (op,)
            for user in self._users(op):
                end, rest = self.best(child, user)
                if end.pattern is None or not rest:
                    continue
                better = (end.priority, 1 + len(rest)) > (at.priority, len(path))
                if at.pattern is None or better:
                    at, path = end, (op, *rest)
            found = self.known[node, op] = (at, path)
        return found

    def _users(self, op: Op) -> list[Op]:
        """Real users in program order that take a result from where `op` leaves it: scratchpad, or DDR on both sides."""
        facts = query_op_attr(op)
        users = [
            user
            for r in op.results
            for user, i in r.uses
            if user in self.place and (is_stored(facts, r.index) or not is_loaded(query_op_attr(user), i))
        ]
        return sorted(dict.fromkeys(users), key=self.place.__getitem__)


def resolve(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return disjoint candidates, the best first, whose groups can be put into an order."""
    group_of: dict[Op, tuple[Op, ...]] = {}
    chosen = []
    for c in sorted(candidates, key=lambda c: (-c.priority, -len(c.ops), c.start)):
        if group_of.keys().isdisjoint(c.ops) and is_convex(c.ops, group_of):
            group_of.update(dict.fromkeys(c.ops, c.ops))
            chosen.append(c)
    return chosen


def is_convex(ops: Sequence[Op], group_of: Mapping[Op, tuple[Op, ...]]) -> bool:
    """Say whether no path of values leaves the ops and comes back; a path that enters a group goes on from all of it."""
    inside = set(ops)
    todo, seen = list(ops), set(ops)
    while todo:
        op = todo.pop()
        for user in (u for r in op.results for u in r.users):
            if user in inside:
                if op not in inside:
                    return False
                continue
            for member in group_of.get(user, (user,)):
                if member not in seen:
                    seen.add(member)
                    todo.append(member)
    return True
