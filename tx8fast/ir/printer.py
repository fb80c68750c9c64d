"""Graph -> text: the generic syntax of MLIR, restricted to one op per line.

May import: ir.core, ir.attrs, ir.types. Must not: change the graph, or fail on an invalid one
(diagnostics print broken graphs). The text of a valid graph reads back to an equal graph.
"""

from __future__ import annotations

import enum
import math
import struct
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from tx8fast.errors import VerifyError
from tx8fast.ir.attrs import DENSE_DTYPES, ENUM_NAMES, DenseAttr
from tx8fast.ir.core import ISOLATED, Block, Op, OpInfo, Value
from tx8fast.ir.types import Type

_I64_MAX = (1 << 63) - 1


def format_string(text: str) -> str:
    r"""Quote as MLIR does: a backslash doubles, every byte outside printable ASCII and `"` becomes `\XX`."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    out = []
    for byte in text.encode("utf-8", "surrogatepass"):
        if byte == 0x5C:
            out.append("\\\\")
        elif 0x20 <= byte < 0x7F and byte != 0x22:
            out.append(chr(byte))
        else:
            out.append(f"\\{byte:02X}")
    return f'"{"".join(out)}"'


def format_float(value: float) -> str:
    """Shortest decimal text that reads back equal; the bit pattern in hexadecimal for infinities and NaN."""
    if not math.isfinite(value):
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    text = repr(value)
    if "e" in text and "." not in text:  # the syntax wants a point before the exponent
        text = text.replace("e", ".0e")
    return text


def format_dense(attr: DenseAttr) -> str:
    """`dense<...> : tensor<...>`; bytes in hexadecimal, except booleans, whose packing varies between readers."""
    element, _ = DENSE_DTYPES[attr.dtype]
    if attr.array.size == 0:
        body = ""
    elif attr.dtype == "pred":
        body = str(attr.array.tolist()).lower()
    else:
        little = (
            attr.array if attr.array.dtype.byteorder != ">" else attr.array.astype(attr.array.dtype.newbyteorder("<"))
        )
        body = f'"0x{np.ascontiguousarray(little).tobytes().hex().upper()}"'
    dims = "".join(f"{d}x" for d in attr.shape)
    return f"dense<{body}> : tensor<{dims}{element}>"


def _format_struct(attr: Any) -> str:
    parts = []
    for f in fields(attr):
        value = getattr(attr, f.name)
        if value == f.default and type(value) is type(f.default):
            continue
        if isinstance(value, enum.IntEnum):
            text = value.name
        elif type(value) is bool:
            text = "true" if value else "false"
        elif type(value) is tuple:
            text = f"[{', '.join(map(str, value))}]"
        elif type(value) is str:
            text = format_string(value)
        elif type(value) is float:
            text = format_float(value)
        else:
            text = str(value)
        parts.append(f"{f.name} = {text}")
    return f"#tx8be.{attr.NAME}<{', '.join(parts)}>"


def format_attr(value: Any) -> str:
    """Return the text of one attribute value. Raises VerifyError for a value that has no text form."""
    kind = type(value)
    if kind is str:
        return format_string(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        if value > _I64_MAX:
            return f"{value} : ui64"
        return f"{value} : i64"
    if kind is float:
        return f"{format_float(value)} : f64"
    if kind is tuple:
        kinds = set(map(type, value))
        if not kinds:
            return "array<i64>"
        if kinds == {int}:
            return f"array<i64: {', '.join(map(str, value))}>"
        if kinds == {float}:
            return f"array<f64: {', '.join(map(format_float, value))}>"
        return f"[{', '.join(map(format_attr, value))}]"
    if value is None:
        return "unit"
    if kind is DenseAttr:
        return format_dense(value)
    if kind is dict:
        return "{" + ", ".join(f"{_key(k)} = {format_attr(v)}" for k, v in value.items()) + "}"
    if isinstance(value, enum.IntEnum) and kind in ENUM_NAMES:
        return f"#tx8be.{ENUM_NAMES[kind]}<{value.name}>"
    if isinstance(value, Type):
        return value.text
    if is_dataclass(value) and hasattr(kind, "NAME"):
        return _format_struct(value)
    raise VerifyError(f"an attribute of type {kind.__name__} has no text form: {value!r}")


def _key(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else format_string(name)


def format_inherent(op: Op) -> str:
    """The listed attributes in definition order, without braces; attributes that are None by default and still are, omitted."""
    attrs = op.attrs
    parts = []
    for name, (_, default) in op.info.attrs.items():
        value = attrs.get(name, default)
        if value is None and default is None:
            continue
        kind = type(value)
        if kind is bool:
            parts.append(f"{name} = true" if value else f"{name} = false")
        elif kind is int and value <= _I64_MAX:  # pyright: ignore[reportOptionalOperand]
            parts.append(f"{name} = {value} : i64")
        else:
            parts.append(f"{name} = {format_attr(value)}")
    return ", ".join(parts)


def format_runtime(op: Op) -> str:
    """The run-time attributes sorted by name, without braces."""
    listed = op.info.attrs
    extra = sorted(name for name in op.attrs if name not in listed)
    return ", ".join(f"{_key(n)} = {format_attr(op.attrs[n])}" for n in extra)


def format_signature(op: Op) -> str:
    """`(operand types) -> result type(s)`."""
    ins = ", ".join([v.type.text for v in op.operands])
    results = op.results
    if len(results) == 1:
        return f"({ins}) -> {results[0].type.text}"
    return f"({ins}) -> ({', '.join([v.type.text for v in results])})"


class _Printer:
    def __init__(self, locations: bool) -> None:
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self.next = 0
        self.locations = locations
        self.scalar: dict[OpInfo, bool] = {}  # kinds whose attribute values may be keys: no float or tuple, as 1 == 1.0
        self.texts: dict[tuple[Any, ...], str] = {}

    def listed(self, op: Op, info: OpInfo) -> str:
        """`format_inherent`, remembered per kind and values where equal values have equal text."""
        scalar = self.scalar.get(info)
        if scalar is None:
            scalar = all(kinds in (str, bool, int) for kinds, _ in info.attrs.values())
            self.scalar[info] = scalar
        if not scalar:
            return format_inherent(op)
        key = (info, *op.attrs.values())
        try:
            return self.texts[key]
        except KeyError:
            text = self.texts[key] = format_inherent(op)
            return text
        except TypeError:  # a damaged attribute that cannot be hashed
            return format_inherent(op)

    def op(self, op: Op, indent: str) -> None:
        info = op.info
        names = self.names
        operands = ", ".join([names.get(v, "%undefined") for v in op.operands]) if op.operands else ""
        lead = f"{indent}{self.name_results(op.results)} = " if op.results else indent
        line = f'{lead}"{info.name}"({operands})'
        if info.attrs:
            listed = self.listed(op, info)
            if listed:
                line = f"{line} <{{{listed}}}>"
        if op.regions:
            self.lines.append(f"{line} ({{")
            self.regions(op, indent)
            line = f"{indent}}})"
        if len(op.attrs) > len(info.attrs) and (runtime := format_runtime(op)):
            line = f"{line} {{{runtime}}}"
        line = f"{line} : {format_signature(op)}"
        if self.locations and op.loc is not None:
            line = f"{line} loc({format_string(op.loc)})"
        self.lines.append(line)

    def name_results(self, results: list[Value]) -> str:
        base = f"%{self.next}"
        self.next += 1
        if len(results) == 1:
            self.names[results[0]] = base
            return base
        for k, v in enumerate(results):
            self.names[v] = f"{base}#{k}"
        return f"{base}:{len(results)}"

    def regions(self, op: Op, indent: str) -> None:
        # Numbers go on inside an isolated region and start again behind it: MLIR's scopes do not know which kinds
        # are isolated, so a number of the surroundings must not be taken twice.
        saved = self.next
        isolated = op.info.traits & ISOLATED == ISOLATED
        for r, region in enumerate(op.regions):
            if r:
                self.lines.append(f"{indent}}}, {{")
            for b, block in enumerate(region.blocks):
                self.block(block, b, indent)
        if isolated:
            self.next = saved

    def block(self, block: Block, index: int, indent: str) -> None:
        if block.args or index or block.first is None:
            args = []
            for a in block.args:
                self.names[a] = name = f"%{self.next}"
                self.next += 1
                args.append(f"{name}: {a.type.text}")
            self.lines.append(f"{indent}^bb{index}({', '.join(args)}):" if args else f"{indent}^bb{index}:")
        inner = indent + "  "
        op = block.first
        while op is not None:
            self.op(op, inner)
            op = op.next


def print_op(op: Op, locations: bool = False) -> str:
    """Return the text of an op and everything in it, ending in a newline.

    Values defined outside `op` print as `%undefined`. `locations=True` adds `loc("...")` where known.
    """
    printer = _Printer(locations)
    printer.op(op, "")
    return "\n".join(printer.lines) + "\n"


def op_line(op: Op, limit: int = 160) -> str:
    """One short line for diagnostics: kind, listed attributes and signature of `op`, cut to `limit` characters."""
    try:
        listed = format_inherent(op)
    except VerifyError as error:
        listed = str(error)
    text = f'"{op.name}"' + (f" <{{{listed}}}>" if listed else "") + f" : {format_signature(op)}"
    return text if len(text) <= limit else text[: limit - 3] + "..."
