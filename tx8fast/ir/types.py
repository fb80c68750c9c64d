"""Types of the graph IR: immutable, interned per context, compared by identity.

May import: numerics (dtype table), errors. Must not: know about ops. Shapes are in elements;
`-1` is an unknown dimension, a `str` a symbolic one; `shape is None` means unranked.
"""

from __future__ import annotations

import math

from tx8fast.errors import VerifyError

MAX_RANK = 8
Dim = int | str
#: storage bits per element; `pred` is a boolean kept one per byte in DDR (see docs/layouts.md)
DTYPE_BITS = {
    "pred": 8, "i4": 4, "u4": 4, "i8": 8, "u8": 8, "i16": 16, "u16": 16, "i32": 32, "u32": 32, "i64": 64,
    "u64": 64, "bf16": 16, "f16": 16, "f32": 32, "tf32": 32, "f64": 64, "f8e4m3fn": 8, "f8e5m2": 8,
}  # fmt: skip
FLOAT_DTYPES = frozenset({"bf16", "f16", "f32", "tf32", "f64", "f8e4m3fn", "f8e5m2"})


class Type:
    """Base of all types. Instances come from a `Context` only and are never changed."""

    __slots__ = ("text",)
    text: str

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


class TensorType(Type):
    """A ranked tensor. `kind` is "vtensor" (value, never written) or "tensor" (aliasable)."""

    __slots__ = ("kind", "shape", "dtype")
    kind: str
    shape: tuple[Dim, ...] | None
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.shape or ())

    @property
    def is_static(self) -> bool:
        if self.shape is None:
            return False
        for d in self.shape:  # asked thousands of times, without a generator
            if type(d) is not int or d < 0:
                return False
        return True

    @property
    def numel(self) -> int:
        """Number of elements; the shape must be static."""
        return math.prod(self.shape)  # type: ignore[arg-type]

    @property
    def size_bytes(self) -> int:
        """Logical bytes of the dense tensor; the shape must be static."""
        return -(-self.numel * DTYPE_BITS[self.dtype] // 8)

    def __reduce__(self):  # interned: a pickled copy would break identity
        raise TypeError("types are interned and cannot be pickled")


class TupleType(Type):
    __slots__ = ("elements",)
    elements: tuple[Type, ...]


class NoneType(Type):
    __slots__ = ()


class TokenType(Type):
    __slots__ = ()


class TypePool:
    """The interning pool of one context; dropping the context frees it."""

    def __init__(self) -> None:
        self._pool: dict[object, Type] = {}
        self.aliasable = False  # whether any type of kind "tensor" was asked for: most programs have none
        self.none = self._make("none", NoneType, "!tx8be.none")
        self.token = self._make("token", TokenType, "!tx8be.token")

    def _make(self, key: object, cls: type[Type], text: str, **fields: object) -> Type:
        found = self._pool.get(key)
        if found is None:
            found = object.__new__(cls)
            object.__setattr__(found, "text", text)
            for name, value in fields.items():
                object.__setattr__(found, name, value)
            self._pool[key] = found
        return found

    def tensor(self, shape, dtype: str, kind: str = "vtensor") -> TensorType:
        """Return the one tensor type with these fields. Raises VerifyError on an illegal field."""
        shape = None if shape is None else tuple(shape)
        key = (kind, shape, dtype)
        found = self._pool.get(key)
        if found is not None:
            return found  # type: ignore[return-value]
        if dtype not in DTYPE_BITS and dtype != "?":
            raise VerifyError(f"unknown dtype '{dtype}', expected one of {', '.join(DTYPE_BITS)}")
        if kind not in ("vtensor", "tensor"):
            raise VerifyError(f"unknown tensor kind '{kind}', expected vtensor or tensor")
        if shape is None:
            dims = "*x"
        else:
            if len(shape) > MAX_RANK:
                raise VerifyError(f"rank {len(shape)} is above the limit of {MAX_RANK} dimensions")
            for d in shape:
                if type(d) is int and d < -1:
                    raise VerifyError(f"dimension {d} is negative")
                if type(d) is not int and type(d) is not str:
                    raise VerifyError(f"dimension {d!r} is neither a number nor a symbol")
            dims = "".join(f"[{d}]x" if type(d) is str else ("?x" if d == -1 else f"{d}x") for d in shape)
        text = f"!tx8be.{kind}<{dims}{dtype}>"
        self.aliasable = self.aliasable or kind == "tensor"
        return self._make(key, TensorType, text, kind=kind, shape=shape, dtype=dtype)  # type: ignore[return-value]

    def tuple_of(self, elements) -> TupleType:
        elements = tuple(elements)
        if not elements:
            raise VerifyError("a tuple type needs at least one element")
        text = f"!tx8be.tuple<{', '.join(e.text for e in elements)}>"
        return self._make(("tuple", elements), TupleType, text, elements=elements)  # type: ignore[return-value]


def _frozen(self, name, value):
    raise AttributeError(f"types are immutable: cannot set '{name}'")


for _cls in (Type, TensorType, TupleType, NoneType, TokenType):
    _cls.__setattr__ = _frozen  # type: ignore[method-assign,assignment]
