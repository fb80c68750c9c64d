"""Which attributes the handlers of the ONNX importer read, and what they take where one is not given: read off their source."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

COMPUTED = object()  # a default that depends on the node
REQUIRED = object()  # no default: the handler refuses a node without the attribute
PRESENT = object()  # the handler asks whether the attribute is there


@dataclass(frozen=True)
class Read:
    """One place that reads attribute `name`; `default` is a syntax tree, or one of the marks above."""

    name: str
    default: Any
    module: str

    def taken(self, opset: int) -> Any:
        """What the handler takes for a node of an operator set version that does not give the attribute."""
        if not isinstance(self.default, ast.expr):
            return self.default
        space = {**vars(_imported(self.module)), "n": SimpleNamespace(opset=opset)}
        try:
            tree = ast.fix_missing_locations(ast.Expression(self.default))
            return eval(compile(tree, self.module, "eval"), space)
        except (NameError, AttributeError):
            return COMPUTED


@lru_cache
def _imported(module: str) -> Any:
    import importlib

    return importlib.import_module(module)


@lru_cache
def _functions(module: str) -> dict[int, list[ast.AST]]:
    """Return line -> the functions and lambdas of a module that begin there, decorators aside."""
    found: dict[int, list[ast.AST]] = {}
    for node in ast.walk(ast.parse(inspect.getsource(_imported(module)))):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            found.setdefault(node.lineno, []).append(node)
    return found


def _trees(code: CodeType, module: str) -> list[ast.AST]:
    """The functions that `code` may be; a lambda shares its line with others, which then all count."""
    here = _functions(module).get(code.co_firstlineno, [])
    wanted = ast.Lambda if code.co_name == "<lambda>" else ast.FunctionDef
    return [t for t in here if isinstance(t, wanted)]


def reads(run: Any) -> dict[str, list[Read]]:
    """Return attribute -> its reads by a handler and by all functions and methods of the importer that it may call.

    A name that is computed, or handed to a function, stands for every string of these functions that it may be.
    """
    trees: list[tuple[ast.AST, str]] = []
    seen: set[CodeType] = set()
    todo: list[Any] = [run]
    while todo:
        function = todo.pop()
        if not isinstance(function, FunctionType) or function.__code__ in seen:
            continue
        module = function.__module__
        if not module.startswith("tx8fast.frontend.onnx") or module.endswith((".node", ".importer", ".schema")):
            continue
        seen.add(function.__code__)
        trees += [(tree, module) for tree in _trees(function.__code__, module)]
        todo += _called(function)
    nodes = [node for tree, _ in trees for node in ast.walk(tree)]
    words = dict.fromkeys(n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
    found: dict[str, list[Read]] = {}
    for tree, module in trees:
        for name, default in _reads_of(tree):
            for word in [name.value] if isinstance(name, ast.Constant) else _possible(name, list(words)):
                found.setdefault(str(word), []).append(Read(str(word), default, module))
    return found


def _called(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        yield cell.cell_contents
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [c for c in code.co_consts if isinstance(c, CodeType)]
        for name in code.co_names:
            target = function.__globals__.get(name)
            yield target
            if isinstance(target, type):
                yield from vars(target).values()


def _reads_of(tree: ast.AST) -> Iterator[tuple[ast.expr, Any]]:
    """Yield the name and the default of every read."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and _is_attrs(node.comparators[0]):
            yield node.left, PRESENT
        if isinstance(node, ast.Subscript) and _is_attrs(node.value) and isinstance(node.ctx, ast.Load):
            yield node.slice, PRESENT  # whoever indexes has asked
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        method, arguments = node.func.attr, node.args
        if method == "attr" or method == "get" and _is_attrs(node.func.value):
            yield arguments[0], arguments[1] if len(arguments) > 1 else ast.Constant(None)
        elif method == "required":
            yield arguments[0], REQUIRED
        elif method == "axis" and arguments:
            given = [k.value for k in node.keywords if k.arg == "name"]
            yield given[0] if given else ast.Constant("axis"), arguments[0]
        elif method in ("ints", "listed"):
            yield arguments[1], ast.Constant(None)


def _is_attrs(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "attrs"


def _possible(name: ast.expr, words: list[str]) -> list[str]:
    """The names that an expression may be: its literal start with any word behind it, or any word."""
    if isinstance(name, ast.JoinedStr) and isinstance(name.values[0], ast.Constant):
        return [f"{name.values[0].value}{w}" for w in words if w.isalpha()]
    return [w for w in words if w.isidentifier()]
