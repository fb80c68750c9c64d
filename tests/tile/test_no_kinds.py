"""Tiling, search and schedule know no kinds: no class of a kernel, no kind of op, no flag of a family. The list of what is left may only shrink."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import tx8fast.lower
from tx8fast.lower import FAMILIES
from tx8fast.lower.base import Access, Lowering

PACKAGE = Path(tx8fast.lower.__file__).parent.parent
OTHERS = frozenset({"add", "max", "min", "mul", "ne"})  # also ways to combine, and an engine
FLAGS = frozenset({"staged", "deferred", "turns", "lags", "overlaps", "backward", "twin", "rare", "row_factors", "skipping", "prepared",
                   "shared_copies"})  # fmt: skip
#: file -> its places
LEFT = {
    "tile/emit.py": 2,
    "tile/nest.py": 3,
    "tile/order.py": 7,
    "tile/sharing.py": 2,
    "tile/tiling.py": 5,
    "search/cuts.py": 1,
    "search/fitting.py": 4,
    "search/given.py": 2,
    "search/grouping.py": 4,
    "search/legal.py": 2,
    "search/planner.py": 6,
    "search/planning.py": 8,
    "search/prices.py": 11,
    "search/records.py": 4,
    "search/results.py": 3,
    "search/row_prices.py": 2,
    "search/staged.py": 4,
    "search/streams.py": 7,
    "search/trial.py": 5,
    "search/wide.py": 1,
    "schedule/assemble.py": 1,
    "schedule/given_groups.py": 3,
    "schedule/segment.py": 2,
}


@lru_cache(maxsize=1)
def kernels() -> frozenset[str]:
    """Names of all classes of kernels and of accesses of their own."""
    for module in pkgutil.iter_modules(tx8fast.lower.__path__):
        importlib.import_module(f"tx8fast.lower.{module.name}")
    found, todo = set(), [Lowering, Access]
    while todo:
        todo += (own := todo.pop().__subclasses__())
        found |= {c.__name__ for c in own}
    return frozenset(found)


def places(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of every class of a kernel that is told apart, kind of op, and flag of a family."""
    docs = {id(n.body[0].value) for n in ast.walk(tree) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef)
            and n.body and isinstance(n.body[0], ast.Expr)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            told = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)} & kernels()
            yield from ((node.lineno, name) for name in sorted(told))
        elif isinstance(node, ast.Attribute) and node.attr in FLAGS:
            yield node.lineno, node.attr
        elif isinstance(node, ast.Constant) and node.value in FAMILIES.keys() - OTHERS and id(node) not in docs:
            yield node.lineno, repr(node.value)


def test_no_kinds_below_lower() -> None:
    found = {}
    for package in ("tile", "search", "schedule"):
        for path in sorted((PACKAGE / package).rglob("*.py")):
            own = list(places(ast.parse(path.read_text(encoding="utf-8"))))
            if own:
                found[path.relative_to(PACKAGE).as_posix()] = len(own)
    assert found == LEFT, "a number may only fall, and the list falls with it"


def test_the_places_are_seen() -> None:
    text = 'def f(low):\n    "gemm"\n    return isinstance(low, Norm | Attention) or low.staged or low.kind in ("gemm", "other")\n'
    assert sorted(name for _, name in places(ast.parse(text))) == ["'gemm'", "Attention", "Norm", "staged"]
