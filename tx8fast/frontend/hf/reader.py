"""Typed access to the keys of a config file; collects every problem instead of stopping at the first.

May import: the standard library. Must not: know model families.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

#: far above any real model; a larger number means a damaged file and would keep the compiler busy for hours
MAX_SIZE = 1 << 31
MAX_LAYERS = 10_000


class Watched(dict[str, Any]):
    """A config that remembers which of its keys were looked at."""

    def __init__(self, raw: Mapping[str, Any], seen: set[str]) -> None:
        super().__init__(raw)
        self.seen = seen

    def __getitem__(self, key: str) -> Any:
        self.seen.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.seen.add(key)
        return super().get(key, default)


class Reader:
    """`raw`: the JSON object; `spelling`: usual key -> the family's own. Every method takes usual keys and returns None,
    or its neutral value, for a bad value and notes the problem."""

    def __init__(self, raw: Mapping[str, Any], spelling: Mapping[str, str] | None = None) -> None:
        self.raw, self.spelling = raw, spelling or {}
        self.problems: list[str] = []

    def value(self, key: str, default: Any = None) -> Any:
        """Return what the file says, `default` if it says nothing or null."""
        value = self.raw.get(self.spelling.get(key, key))
        return default if value is None else value

    def get(self, key: str, default: Any, want: str, good: Callable[[Any], bool]) -> Any:
        """Return the value of `key`, `default` if it is absent or null; `...` makes it required."""
        key = self.spelling.get(key, key)
        value = self.raw.get(key)
        if value is None:
            if default is ...:
                self.problems.append(f"key '{key}' is missing, required: {want}")
                return None
            return default
        if not good(value):
            self.problems.append(f"key '{key}' is {value!r}, required: {want}")
            return None
        return value

    def size(self, key: str, default: Any = ..., most: int = MAX_SIZE) -> Any:
        want = f"a whole number from 1 to {most:,}"
        return self.get(key, default, want, lambda v: type(v) is int and 1 <= v <= most)

    def uniform(self, key: str, default: Any = ..., most: int = MAX_SIZE) -> Any:
        """Return a size that some files say once for every layer."""
        want = f"a whole number from 1 to {most:,}, the same in all layers"

        def good(v: Any) -> bool:
            return type(v) is int and 1 <= v <= most

        found = self.get(
            key,
            default,
            want,
            lambda v: good(v) or (type(v) is list and v == v[:1] * len(v) and all(map(good, v[:1] or [0]))),
        )
        return found[0] if type(found) is list else found

    def count(self, key: str, default: Any = ...) -> int:
        return self.get(key, default, "a whole number >= 0", lambda v: type(v) is int and v >= 0) or 0

    def number(self, key: str, default: Any = ...) -> Any:
        return self.get(key, default, "a number > 0", positive)

    def amount(self, key: str, default: Any = ...) -> float:
        return self.get(key, default, "a number >= 0", lambda v: finite(v) and v >= 0) or 0.0

    def real(self, key: str, default: Any = ...) -> float:
        return self.get(key, default, "a number", finite) or 0.0

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a switch, `default` where the file does not say; null is off."""
        key = self.spelling.get(key, key)
        off = key in self.raw and self.raw[key] is None
        return not off and bool(self.get(key, default, "true or false", lambda v: type(v) is bool))

    def text(self, key: str, default: Any, known: Mapping[str, Any]) -> Any:
        value = self.get(key, default, f"one of {', '.join(known)}", lambda v: type(v) is str and v in known)
        return None if value is None else known[value]

    def fixed(self, key: str, *allowed: Any) -> None:
        """Note a problem unless the key is absent, null or one of `allowed`."""
        key = self.spelling.get(key, key)
        value = self.raw.get(key)
        if value is not None and not any(type(value) is type(a) and value == a for a in allowed):
            self.problems.append(f"key '{key}' is {value!r}, supported: {', '.join(map(repr, allowed)) or 'none'}")

    def layer_list(self, key: str, layers: int, known: Mapping[Any, Any]) -> list[Any] | None:
        """Return one mapped entry per layer, None if the key is absent or bad."""
        key = self.spelling.get(key, key)
        value = self.raw.get(key)
        if value is None or not layers:
            return None
        if (
            type(value) is not list
            or len(value) != layers
            or any(type(t) not in (str, int) or t not in known for t in value)
        ):
            self.problems.append(f"key '{key}' is not a list of {layers} entries out of {', '.join(map(str, known))}")
            return None
        return [known[t] for t in value]


def finite(value: Any) -> TypeGuard[float]:
    """True for a number that f64 holds; whole numbers of JSON may be larger."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def positive(value: Any) -> TypeGuard[float]:
    return finite(value) and value > 0
