"""Text -> graph: reads what `ir/printer.py` writes, one op per line.

May import: ir.core, ir.attr_reader, ir.types, errors. Must not: verify (see `ir/verify.py`).
Attribute dictionaries and signatures repeat thousands of times, so both are read once per distinct text.
Errors are one line: `<file>:<line>:<column>: expected ..., found ...`.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from tx8fast.errors import VerifyError
from tx8fast.ir.attr_reader import (
    STRING,
    AttrReader,
    ReadError,
    read_string,
    read_type,
    split_types,
)
from tx8fast.ir.core import ISOLATED, Block, Context, Op, OpInfo, Region, Value
from tx8fast.ir.types import Type

# A dictionary body: no `}` that ends it, but any text inside strings. Possessive, so a mismatch stays linear.
_LISTED = rf'(?:[^"}}]++|{STRING}|\}}(?!>))*+'
_RUNTIME = rf'(?:[^"}}]++|{STRING}|\}}(?! : ))*+'
_HEAD = r'\s*+(?:%(\d{1,9})(?::(\d{1,9}))? = )?"([^"]+)"\(([^()]*)\)'
_TAIL = rf"(?: \{{({_RUNTIME})\}})? : (\(.*?) *(?:loc\(({STRING})\))?"
_OP = re.compile(rf"{_HEAD}(?: <\{{({_LISTED})\}}>)?(?:{_TAIL}| (\(\{{))$")
_CLOSE = re.compile(rf"\s*+\}}\){_TAIL}$")
_NEXT_REGION = re.compile(r"\s*\}, \{$")
_BLOCK = re.compile(r"\s*\^bb(\d{1,9})(?:\((.*)\))?:$")
_ARG = re.compile(r"\s*%(\d{1,9}): (.*)$")
_STAGES = (
    (re.compile(r"\s*(?:%\d{1,9}(?::\d{1,9})? = )?"), "results like '%3 =' or '%3:2 ='"),
    (re.compile(r'"[^"]+"'), "a quoted operation name"),
    (re.compile(r"\([^()]*\)"), "operands in parentheses"),
    (re.compile(rf"(?: <\{{{_LISTED}\}}>)?"), "attributes '<{...}>'"),
    (
        re.compile(rf"(?: \(\{{$)|(?: \{{{_RUNTIME}\}})? : "),
        "' : ' and the types, ' {' and run-time attributes, or ' ({'",
    ),
    (re.compile(rf"\(.*?\) -> [^ ].*?(?: loc\({STRING}\))?$"), "a signature '(types) -> types'"),
)


#: regions inside regions; those of a model are a few deep
MAX_NESTING = 64


class _Parser:
    def __init__(self, ctx: Context, text: str, filename: str) -> None:
        self.ctx = ctx
        self.lines = text.split("\n")
        self.filename = filename
        self.at = -1  # index of the current line
        self.depth = 0  # open regions
        self.attrs: dict[tuple[str, str], dict[str, Any]] = {}
        self.signatures: dict[str, tuple[list[Type], list[Type]]] = {}

    # ------------------------------------------------------------ errors

    def fail(self, column: int, message: str) -> NoReturn:
        line = min(self.at + 1, len(self.lines))
        raise VerifyError(f"{self.filename}:{line}:{column + 1}: {message}")

    def expected(self, column: int, expected: str) -> NoReturn:
        rest = self.lines[self.at][column:].rstrip() if self.at < len(self.lines) else ""
        found = f"'{rest[:40]}'" if rest else "the end of the line"
        self.fail(column, f"expected {expected}, found {found}")

    def bad_line(self, line: str) -> NoReturn:
        """Find the first part of an op line that does not read, and report it."""
        column = 0
        for pattern, what in _STAGES:
            m = pattern.match(line, column)
            if m is None or (m.end() == column and what.startswith("a quoted")):
                self.expected(column, what)
            column = m.end()
        self.expected(column, "the end of the line")

    # ------------------------------------------------------------ structure

    def next_line(self) -> str | None:
        """Step to the next line that is neither empty nor a `//` comment."""
        while True:
            self.at += 1
            if self.at >= len(self.lines):
                return None
            line = self.lines[self.at]
            if line and not line.isspace() and not line.lstrip().startswith("//"):
                return line

    def module(self) -> Op:
        line = self.next_line()
        if line is None:
            self.expected(0, "an operation")
        op = self.op(line, {})
        if (line := self.next_line()) is not None:
            self.expected(0, "the end of the text")
        return op

    def op(self, line: str, scope: dict[str, Value]) -> Op:
        m = _OP.match(line)
        if m is None:
            self.bad_line(line)
        number, count, name, operand_text, listed, runtime, signature, loc, opening = m.groups()
        info = self.ctx.infos.get(name)
        if info is None:
            self.fail(m.start(3), f"expected a registered operation, found '{name}'")
        operands: list[Value] = []
        if operand_text:
            for ref in operand_text.split(", "):
                v = scope.get(ref)
                if v is None:
                    column = m.start(4) + operand_text.find(ref)
                    self.fail(column, f"expected a value defined above, found '{ref}'")
                operands.append(v)
        start_line, start_column = self.at, m.start(5)
        regions: list[Region] = []
        if opening:
            regions, m = self.regions(info, scope)
            runtime, signature, loc = m.group(1, 2, 3)
        runtime_group = 1 if opening else 6
        attrs = self.attributes(
            info,
            listed,
            start_line,
            start_column,
            runtime,
            m.start(runtime_group) if runtime else 0,
        )
        types = self.signatures.get(signature)
        if types is None:
            types = self.signatures[signature] = self.signature(signature, m.start(runtime_group + 1))
        ins, outs = types
        if [v.type for v in operands] != ins:
            self.operand_types(operands, ins, m.start(runtime_group + 1))
        op = Op(info, operands, outs, attrs)
        if loc is not None:
            op.loc = read_string(loc)
        for region in regions:
            region.op = op
        op.regions = regions
        results = len(outs)
        if (int(count) if count else 1 if number else 0) != results:
            named = count or ("1" if number else "0")
            self.at = start_line
            self.fail(0, f"expected {results} result names for {results} result types, found {named}")
        if results == 1:
            scope["%" + number] = op.results[0]
        else:
            for k, v in enumerate(op.results):
                scope[f"%{number}#{k}"] = v
        return op

    def regions(self, info: OpInfo, scope: dict[str, Value]) -> tuple[list[Region], re.Match[str]]:
        regions: list[Region] = []
        self.depth += 1
        if self.depth > MAX_NESTING:
            self.fail(0, f"expected at most {MAX_NESTING} regions inside each other, found more")
        while True:
            region = Region(None)  # type: ignore[arg-type]  # the owner is created after its regions are read
            regions.append(region)
            inner = {} if info.traits & ISOLATED == ISOLATED else dict(scope)
            block: Block | None = None
            while True:
                line = self.next_line()
                if line is None:
                    self.expected(0, "'})' that closes a region")
                first = line.lstrip()[0]
                if first == "}":
                    break
                if first == "^":
                    block = self.block(line, region, inner)
                else:
                    if block is None:
                        block = region.add_block()
                    block.append(self.op(line, inner))
            if (m := _CLOSE.match(line)) is not None:
                self.depth -= 1
                return regions, m
            if _NEXT_REGION.match(line) is None:
                self.expected(len(line) - len(line.lstrip()), "'}) : (types) -> types' or '}, {'")

    def block(self, line: str, region: Region, scope: dict[str, Value]) -> Block:
        m = _BLOCK.match(line)
        if m is None or int(m[1]) != len(region.blocks):
            self.expected(len(line) - len(line.lstrip()), f"a block '^bb{len(region.blocks)}(%0: type, ...):'")
        block = region.add_block()
        column = m.start(2)
        for part in split_types(m[2] or ""):
            arg = _ARG.match(part)
            if arg is None:
                self.expected(column, "a block argument '%0: type'")
            scope["%" + arg[1]] = block.add_arg(self.type(arg[2], column + arg.start(2)))
            column += len(part) + 2
        return block

    # ------------------------------------------------------------ attributes and types

    def attributes(
        self, info: OpInfo, listed: str | None, line: int, column: int, runtime: str | None, runtime_column: int
    ) -> dict[str, Any]:
        key = (info.name, listed or "")
        known = self.attrs.get(key)
        if known is None:
            back, self.at = self.at, line
            given = self.dictionary(listed, column) if listed else {}
            for name in given:
                if name not in info.attrs:
                    self.fail(
                        column,
                        f"expected an attribute of {info.name} ({', '.join(info.attrs)}), found '{name}'",
                    )
            try:
                known = self.ctx.create(info.name, (), (), **given).attrs
            except VerifyError as error:
                self.fail(max(column, 0), str(error))
            for name, value in given.items():
                known[name] = value  # `unit` states that an attribute with a default is absent
            self.attrs[key] = known
            self.at = back
        out = dict(known)
        if runtime:
            for name, value in self.dictionary(runtime, runtime_column).items():
                if not name.startswith("rt_"):
                    self.fail(
                        runtime_column,
                        f"expected a run-time attribute named rt_..., found '{name}'",
                    )
                out[name] = value
        return out

    def dictionary(self, text: str, column: int) -> dict[str, Any]:
        try:
            reader = AttrReader(self.ctx, text)
            out = reader.entries("")
            reader.end()
            return out
        except ReadError as error:
            self.fail(column + error.offset, str(error))
        except VerifyError as error:
            self.fail(column, str(error))

    def type(self, text: str, column: int) -> Type:
        try:
            return read_type(self.ctx, text)
        except ReadError as error:
            self.fail(column + error.offset, str(error))
        except VerifyError as error:
            self.fail(column, str(error))

    def signature(self, text: str, column: int) -> tuple[list[Type], list[Type]]:
        left, arrow, right = text.rstrip().partition(") -> ")
        if not arrow or not right:
            self.fail(column, f"expected a signature '(types) -> types', found '{text[:40]}'")
        ins = [self.type(t, column + 1 + left.find(t, 1) - 1) for t in split_types(left[1:])]
        outs_column = column + len(left) + len(arrow)
        if right.startswith("("):
            if not right.endswith(")"):
                self.fail(outs_column, f"expected ')' after the result types, found '{right[-20:]}'")
            right = right[1:-1]
        outs = [self.type(t, outs_column + right.find(t)) for t in split_types(right)]
        return ins, outs

    def operand_types(self, operands: list[Value], ins: list[Type], column: int) -> NoReturn:
        if len(operands) != len(ins):
            self.fail(column, f"expected {len(operands)} operand types, found {len(ins)}")
        for i, (v, t) in enumerate(zip(operands, ins)):
            if v.type is not t:
                self.fail(column, f"expected operand {i} of type {v.type}, found {t}")
        raise AssertionError("unreachable: the lists differ")


def parse_op(ctx: Context, text: str, filename: str = "<text>") -> Op:
    """Read one top-level op (normally the module) from `text`.

    Raises VerifyError with file, line, column, what was expected and what was found.
    """
    return _Parser(ctx, text, filename).module()
