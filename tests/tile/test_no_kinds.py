"""Tiling, search and schedule know no kinds: no class of a kernel, no kind of op, no flag of a family. The list of what is left may only shrink."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import tx8fast.lower
from tx8fast.lower import FAMILIES
from tx8fast.lower.access import Access
from tx8fast.lower.base import Lowering

PACKAGE = Path(tx8fast.lower.__file__).parent.parent
OTHERS = frozenset({"add", "max", "min", "mul", "ne"})  # also ways to combine, and an engine
FLAGS = frozenset({"keeps", "turns", "overlaps", "twin", "rare", "row_factors", "skipping", "prepared",
                   "shared_copies", "unequal"})  # fmt: skip
LISTS = tuple | list | set | frozenset | dict
#: what is told apart -> how often, in all files together
LEFT = {
    "'contract'": 2, "'conv'": 1, "'gemm'": 2, "'layernorm'": 1, "'rmsnorm'": 1, "'rope'": 1,
    "'softmax'": 4, "'swiglu'": 1, "BINARY": 3, "Collective": 2, "Contraction": 2, "KernelCore": 5,
    "NORMS": 2, "Stream": 4, "TableRows": 4, "UNARY": 3, "WINDOWS": 3,
    "keeps": 10, "overlaps": 8, "rare": 4, "row_factors": 4, "shared_copies": 1, "skipping": 8,
    "turns": 2, "twin": 1, "unequal": 1,
}  # fmt: skip


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
    """Yield line and name of every class of a kernel that is told apart, kind of op, list of kinds, and flag of a family."""
    docs = {id(n.body[0].value) for n in ast.walk(tree) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef)
            and n.body and isinstance(n.body[0], ast.Expr)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            told = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)} & kernels()
            yield from ((node.lineno, name) for name in sorted(told))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tx8fast.lower"):
            values = ((a.name, getattr(importlib.import_module(node.module or ""), a.name, None)) for a in node.names)
            yield from (
                (node.lineno, name) for name, v in values if isinstance(v, LISTS) and not FAMILIES.keys().isdisjoint(v)
            )
        elif isinstance(node, ast.Attribute) and node.attr in FLAGS:
            yield node.lineno, node.attr
        elif isinstance(node, ast.Constant) and node.value in FAMILIES.keys() - OTHERS and id(node) not in docs:
            yield node.lineno, repr(node.value)


def test_no_kinds_below_lower() -> None:
    found: Counter[str] = Counter()
    for package in ("tile", "search", "schedule"):
        for path in sorted((PACKAGE / package).rglob("*.py")):
            found.update(name for _, name in places(ast.parse(path.read_text(encoding="utf-8"))))
    assert dict(sorted(found.items())) == LEFT, "a number may only fall, and the list falls with it"


def test_the_places_are_seen() -> None:
    text = 'from tx8fast.lower.lookup import LOOKUPS, Lookup\ndef f(low):\n    "gemm"\n    return isinstance(low, Norm | Attention) or low.keeps or low.kind in ("gemm", "other")\n'
    assert sorted(name for _, name in places(ast.parse(text))) == ["'gemm'", "Attention", "LOOKUPS", "Norm", "keeps"]
