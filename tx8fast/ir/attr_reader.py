"""Text -> attribute values and types: a small recursive-descent reader over one piece of a line.

May import: ir.core (Context), ir.attrs, ir.types, errors. Must not: know lines or ops; errors carry the
offset inside the piece, and the caller adds line and column.
"""

from __future__ import annotations

import enum
import math
import re
import struct
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from tx8fast.errors import VerifyError
from tx8fast.ir.attrs import DENSE_DTYPES, DenseAttr
from tx8fast.ir.core import Context
from tx8fast.ir.types import Type

STRING = r'"(?:[^"\\]++|\\.)*+"'
_TOKEN = re.compile(
    rf"\s*(?:({STRING})|(-?\d+\.\d*(?:[eE][+-]?\d+)?)|(-?0x[0-9A-Fa-f]+|-?\d+)|([A-Za-z_][\w.$]*)|(#tx8be\.\w+)|(!\w[\w.]*)|(->|[\[\]{{}}<>(),=:]))"
)
_ESCAPE = re.compile(rb'\\([0-9A-Fa-f]{2}|[nt"\\])')
_PLAIN_ESCAPES = {b"n": b"\n", b"t": b"\t", b'"': b'"', b"\\": b"\\"}
_TENSOR = re.compile(r"(\*x|(?:(?:\d+|\?|\[[^\]\s]+\])x)*)(\?|[a-z]\w*)")
_DIM = re.compile(r"(\d+|\?|\[[^\]]+\])x")
_BUILTIN_DTYPE = {text: name for name, (text, _) in DENSE_DTYPES.items()}


#: brackets inside brackets, of attributes and of types
MAX_NESTING = 64
#: characters of a whole number: more than 64 bits have
MAX_DIGITS = 40
#: elements of a constant that stands in the text
MAX_ELEMENTS = 1 << 28


class ReadError(VerifyError):
    """Something else was expected at `offset` of the piece being read."""

    def __init__(self, offset: int, expected: str, found: str) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.offset = offset


def read_string(token: str) -> str:
    """Undo the quoting of a string token (with its quotes)."""
    if "\\" not in token:
        return token[1:-1]

    def plain(m: re.Match[bytes]) -> bytes:
        return _PLAIN_ESCAPES.get(m[1]) or bytes([int(m[1], 16)])

    return _ESCAPE.sub(plain, token[1:-1].encode()).decode("utf-8", "surrogatepass")


def split_types(text: str) -> list[str]:
    """Split a comma-separated list of types at the commas outside `<>` and `()`."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "<(":
            depth += 1
        elif c in ">)" and text[i - 1 : i + 1] != "->":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return [*parts, last] if last or parts else []


def read_type(ctx: Context, text: str, depth: int = 0) -> Type:
    """Read one type, inside so many tuples. Raises ReadError."""
    if not text.startswith("!tx8be."):
        raise ReadError(0, "a type '!tx8be.<name>'", repr(text[:40]))
    name, angle, body = text[7:].partition("<")
    if name in ("none", "token") and not angle:
        return ctx.types.none if name == "none" else ctx.types.token
    if angle and not body.endswith(">"):
        raise ReadError(len(text), f"'>' at the end of type '!tx8be.{name}'", repr(text[-20:]))
    body = body[:-1]
    if name in ("vtensor", "tensor"):
        m = _TENSOR.fullmatch(body)
        if m is None:
            raise ReadError(7 + len(name), "dimensions and an element type like <2x?x[S]xbf16>", repr(body[:40]))
        dims = m[1]
        if dims == "*x":
            return ctx.types.tensor(None, m[2], name)
        sizes = _DIM.findall(dims)
        if any(len(d) > MAX_DIGITS for d in sizes if d[0] != "["):
            raise ReadError(7 + len(name), f"dimensions of at most {MAX_DIGITS} digits", repr(body[:40]))
        shape = [-1 if d == "?" else d[1:-1] if d[0] == "[" else int(d) for d in sizes]
        return ctx.types.tensor(shape, m[2], name)
    if name == "tuple":
        if depth >= MAX_NESTING:
            raise ReadError(0, f"at most {MAX_NESTING} tuples inside each other", repr(text[:40]))
        return ctx.types.tuple_of(read_type(ctx, t, depth + 1) for t in split_types(body))
    reader = ctx.type_readers.get(name)
    if reader is None:
        known = ", ".join(["vtensor", "tensor", "tuple", "none", "token", *sorted(ctx.type_readers)])
        raise ReadError(7, f"a type name of {known}", f"'{name}'")
    return reader(ctx, body)


class AttrReader:
    """Reads attribute text from `text[pos:]`."""

    def __init__(self, ctx: Context, text: str) -> None:
        self.ctx = ctx
        self.text = text
        self.pos = 0  # end of the last token taken
        self.depth = 0  # open brackets
        self.kind, self.token, self.start = 0, "", 0
        self.advance()

    def advance(self) -> str:
        """Step to the next token; return the one left behind. Kinds: index of the group in `_TOKEN`, 0 = end."""
        left = self.token
        m = _TOKEN.match(self.text, self.pos)
        if m is None:
            self.start = self.pos + len(self.text[self.pos :]) - len(self.text[self.pos :].lstrip())
            if self.start < len(self.text):
                raise ReadError(self.start, "an attribute value", repr(self.text[self.start : self.start + 20]))
            self.kind, self.token = 0, ""
            return left
        self.kind = m.lastindex or 0
        self.token = m[self.kind]
        self.start, self.pos = m.start(self.kind), m.end()
        return left

    def fail(self, expected: str) -> ReadError:
        return ReadError(self.start, expected, f"'{self.token}'" if self.kind else "the end of the line")

    def take(self, token: str) -> None:
        if self.token != token or self.kind == 1:
            raise self.fail(f"'{token}'")
        self.advance()

    def end(self) -> None:
        if self.kind:
            raise self.fail("the end of the attributes")

    def entries(self, close: str) -> dict[str, Any]:
        """Read `name = value, ...` up to (not including) `close`, or the end of the text if it is empty."""
        out: dict[str, Any] = {}
        while not (self.token == close and self.kind != 1):
            if self.kind not in (1, 4):
                raise self.fail("an attribute name")
            name = read_string(self.token) if self.kind == 1 else self.token
            if name in out:
                raise self.fail("an attribute name not yet given")
            self.advance()
            self.take("=")
            out[name] = self.value()
            if self.token != "," or self.kind == 1:
                break
            self.advance()
        return out

    def nested(self, read: Callable[[], Any]) -> Any:
        """Read what is inside one more bracket."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self.fail(f"at most {MAX_NESTING} brackets inside each other")
        found = read()
        self.depth -= 1
        return found

    def whole(self, token: str) -> int:
        """Return the number of a token at or before the present one."""
        if len(token) > MAX_DIGITS:
            raise ReadError(self.start, f"a number of at most {MAX_DIGITS} digits", f"one of {len(token)}")
        return int(token, 0)

    def value(self) -> Any:
        kind, token = self.kind, self.token
        if kind == 1:
            self.advance()
            return read_string(token)
        if kind in (2, 3):
            return self.number()
        if kind == 5:
            return self.struct()
        if kind == 6:
            return self.type()
        if token in ("true", "false"):
            self.advance()
            return token == "true"
        if token == "unit":
            self.advance()
            return None
        if token == "array":
            return self.array()
        if token == "dense":
            return self.dense()
        if token == "[":
            return self.sequence(self.value)
        if token == "{":
            self.advance()
            out = self.nested(lambda: self.entries("}"))
            self.take("}")
            return out
        raise self.fail("an attribute value")

    def sequence(self, element) -> tuple:
        self.take("[")
        out = []
        while self.token != "]":
            out.append(self.nested(element))
            if self.token != ",":
                break
            self.advance()
        self.take("]")
        return tuple(out)

    def number(self) -> int | float:
        token = self.token
        kind = self.kind
        self.advance()
        self.take(":")
        type_name = self.token
        if type_name not in ("i64", "ui64", "f64") or (type_name != "f64" and kind == 2):
            raise self.fail("the type f64" if kind == 2 else "the type i64, ui64 or f64")
        self.advance()
        return _float(token) if type_name == "f64" else self.whole(token)

    def array(self) -> tuple:
        self.advance()
        self.take("<")
        element = self.token
        if element not in ("i64", "f64"):
            raise self.fail("the element type i64 or f64")
        self.advance()
        out: list[int | float] = []
        if self.token == ":":
            while True:
                self.advance()
                if self.kind not in (2, 3) or (self.kind == 2 and element == "i64"):
                    raise self.fail("a number" if element == "f64" else "an integer")
                out.append(_float(self.token) if element == "f64" else self.whole(self.token))
                self.advance()
                if self.token != ",":
                    break
        self.take(">")
        return tuple(out)

    def dense(self) -> DenseAttr:
        self.advance()
        self.take("<")
        at = self.start
        body: Any = ()
        if self.kind == 1:
            body = self.advance()[1:-1]
            if not re.fullmatch(r"0x(?:[0-9A-Fa-f]{2})*", body):
                raise ReadError(at, "hexadecimal bytes like 0x00FF", repr(body[:20]))
        elif self.token == "[":
            body = self.sequence(self._nested)
        elif self.token in ("true", "false"):
            body = self.advance() == "true"
        self.take(">")
        self.take(":")
        if self.token != "tensor":
            raise self.fail("'tensor<...>'")
        close = self.text.find(">", self.pos)
        spec = self.text[self.pos + 1 : close]
        m = re.fullmatch(r"((?:\d+x)*)(\w+)", spec) if close > 0 and self.text[self.pos : self.pos + 1] == "<" else None
        dtype = _BUILTIN_DTYPE.get(m[2]) if m else None
        if m is None or dtype is None:
            raise ReadError(self.pos, "a shape and an element type like <2x3xf32>", repr(spec[:30]))
        shape = tuple(self.whole(d.lstrip("0") or "0") for d in m[1].split("x")[:-1])
        if math.prod(shape) > MAX_ELEMENTS:
            raise ReadError(self.pos, f"a shape of at most {MAX_ELEMENTS} elements", repr(spec[:30]))
        self.pos = close + 1
        self.advance()
        numpy_type = DENSE_DTYPES[dtype][1]
        if type(body) is str:
            data = bytes.fromhex(body[2:])
            want = int(np.prod(shape, dtype=np.int64)) * numpy_type.itemsize
            if len(data) != want:
                raise ReadError(at, f"{want} bytes for tensor<{spec}>", f"{len(data)} bytes")
            return DenseAttr(np.frombuffer(data, numpy_type).reshape(shape))
        found = np.array(body, numpy_type)
        if found.size == 0 and 0 in shape:
            found = found.reshape(shape)
        if found.shape != shape:
            raise ReadError(at, f"values of shape {shape}", f"shape {found.shape}")
        return DenseAttr(found)

    def _nested(self) -> Any:
        if self.token == "[":
            return self.sequence(self._nested)
        if self.token not in ("true", "false"):
            raise self.fail("true or false")
        return self.advance() == "true"

    def type(self) -> Type:
        start = self.start
        depth, i = 0, self.pos
        if self.text[i : i + 1] == "<":
            while i < len(self.text):
                depth += {"<": 1, ">": -1}.get(self.text[i], 0)
                i += 1
                if depth == 0:
                    break
        self.pos = i
        text = self.text[start:i]
        self.advance()
        return read_type(self.ctx, text)

    def struct(self) -> Any:
        at, name = self.start, self.advance()[7:]
        cls = self.ctx.attr_classes.get(name)
        if cls is None:
            raise ReadError(
                at,
                "a struct attribute of " + ", ".join(sorted(self.ctx.attr_classes)),
                f"'#tx8be.{name}'",
            )
        self.take("<")
        if issubclass(cls, enum.IntEnum):
            out: Any = self.member(cls)
            self.take(">")
            return out
        defaults = {f.name: f.default for f in fields(cls)}
        given: dict[str, Any] = {}
        while self.token != ">":
            field_name = self.token
            if field_name not in defaults or self.kind != 4:
                raise self.fail(f"a field of #tx8be.{name} ({', '.join(defaults)})")
            self.advance()
            self.take("=")
            given[field_name] = self.field(defaults[field_name])
            if self.token != ",":
                break
            self.advance()
        self.take(">")
        try:
            return cls(**given)
        except ReadError:
            raise
        except VerifyError as error:
            raise ReadError(at, "a legal struct attribute", str(error)) from None

    def member(self, cls: type[enum.IntEnum]) -> enum.IntEnum:
        found = cls.__members__.get(self.token)
        if found is None:
            raise self.fail("one of " + ", ".join(cls.__members__))
        self.advance()
        return found

    def field(self, default: Any) -> Any:
        if isinstance(default, enum.IntEnum):
            return self.member(type(default))
        if type(default) is tuple:
            return self.sequence(self._integer)
        if self.kind == 1 or self.token in ("true", "false"):
            return self.value()
        if type(default) is float and self.kind in (2, 3):
            return _float(self.advance())
        return self._integer()

    def _integer(self) -> int:
        if self.kind != 3:
            raise self.fail("an integer")
        return self.whole(self.advance())


def _float(token: str) -> float:
    if token.startswith("0x"):
        if len(token) > 18:
            raise ReadError(0, "at most 16 hexadecimal digits of a float", repr(token[:40]))
        return struct.unpack("<d", struct.pack("<Q", int(token, 16)))[0]
    return float(token)
