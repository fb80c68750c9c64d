"""Formulas of declarations written down as C: columns of rows that note what is done to them.

May import: numpy. Must not: know instructions.

A declaration computes with columns of rows, (n,) each. Here a column is an `Expr`, text of C for one row; what is the same in
all rows that a formula is written for (formats) is an array of one element, and numpy folds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

_BINARY = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "left_shift": "<<",
    "right_shift": ">>",
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
#: functions of the text that uses formulas
_CALLS = {
    "floor_divide": "floor_div",
    "remainder": "floor_mod",
    "maximum": "most",
    "minimum": "least",
    "gcd": "divisor",
    "bitwise_count": "ones",
}
_WORD = 1 << 31


class Tables:
    """Tables that formulas look up, by their values."""

    def __init__(self) -> None:
        self.names: dict[tuple[int, ...], str] = {}

    def name(self, values: np.ndarray) -> str:
        key = tuple(int(v) for v in values)
        return self.names.setdefault(key, f"table_{len(self.names)}")


class Expr(np.lib.mixins.NDArrayOperatorsMixin):
    """A number of one row, as text of C."""

    def __init__(self, text: str, tables: Tables) -> None:
        self.text, self.tables = text, tables

    def __lookup__(self, values: np.ndarray) -> Expr:
        return Expr(f"{self.tables.name(values)}[{self.text}]", self.tables)

    def astype(self, kind: Any, **_: Any) -> Expr:
        return self

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **more: Any) -> Any:
        name, texts = ufunc.__name__, [written(x) for x in inputs]
        if method != "__call__" or more:
            return NotImplemented
        if name == "negative":
            return Expr(f"(-{texts[0]})", self.tables)
        if name in _BINARY:
            return Expr(f"({texts[0]} {_BINARY[name]} {texts[1]})", self.tables)
        if name in _CALLS:
            return Expr(f"{_CALLS[name]}({', '.join(texts)})", self.tables)
        return NotImplemented

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is np.where and len(args) == 3:
            return self._choice(*args)
        if func is np.select:
            conditions, choices, out = args
            for condition, choice in reversed(list(zip(conditions, choices, strict=True))):
                out = self._choice(condition, choice, out)
            return out
        return NotImplemented

    def _choice(self, condition: Any, yes: Any, no: Any) -> Any:
        if not isinstance(condition, Expr):
            return yes if bool(np.asarray(condition).reshape(-1)[0]) else no
        return Expr(f"({condition.text} ? {written(yes)} : {written(no)})", self.tables)


def written(value: Any) -> str:
    """Return a number, an array of one element or an expression as C."""
    if isinstance(value, Expr):
        return value.text
    (number,) = np.asarray(value).reshape(-1).tolist()
    if isinstance(number, bool):
        return str(int(number))
    if not isinstance(number, int):
        raise TypeError(f"{number!r} is no whole number")
    return f"INT64_C({number})" if abs(number) >= _WORD else str(number) if number >= 0 else f"({number})"


class Columns:
    """Fields of a row that a declaration takes as columns [:, k]: those of `known` are numbers."""

    def __init__(self, columns: list[Any]) -> None:
        self.columns = columns

    def __getitem__(self, key: Any) -> Any:
        which = key[1] if isinstance(key, tuple) else key
        if isinstance(which, int):
            return self.columns[which]
        if isinstance(which, list):
            return Columns([self.columns[k] for k in which])
        return Columns(self.columns[which])

    def __iter__(self) -> Iterator[Any]:
        return iter(self.columns)

    @property
    def T(self) -> list[Any]:
        return self.columns

    def __matmul__(self, weights: np.ndarray) -> Any:
        return sum(c * int(w) for c, w in zip(self.columns, weights.tolist(), strict=True))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **more: Any) -> Any:
        if method != "reduce" or more.get("axis") != 1:
            return NotImplemented
        out = self.columns[0]
        for c in self.columns[1:]:
            out = ufunc(out, c)
        return out


class SymbolicRow:
    """One row, as declarations read rows: `known` are the header's fields that are numbers."""

    def __init__(self, known: dict[str, int], spm: Columns, p: Columns) -> None:
        self.fields: dict[str, Any] = {k: np.array([v]) for k, v in known.items()} | {"spm": spm, "p": p}

    def __len__(self) -> int:
        return 1

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]
