"""What a pass is: a frozen dataclass whose fields are its options; reading and writing pipeline text.

May import: ir, errors. Must not: know particular passes.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from typing import Any, ClassVar

from tx8fast.errors import ConfigError
from tx8fast.ir.program import IRProgram
from tx8fast.ir.rewrite import Pattern, rewrite_greedily
from tx8fast.records import dataclass


@dataclass(frozen=True)
class PassResult:
    """`stats` holds counts worth reporting, by name."""

    changed: bool = False
    stats: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CompilerPass:
    """Base of all passes.

    A subclass is a frozen dataclass: its fields are options of type bool, int, float or str with defaults.
    `requires` and `ensures` name facts about the graph ("layouts", "groups") that earlier passes must have
    ensured, and that hold afterwards; `breaks` names those that no longer hold.
    """

    name: ClassVar[str] = ""
    requires: ClassVar[tuple[str, ...]] = ()
    ensures: ClassVar[tuple[str, ...]] = ()
    breaks: ClassVar[tuple[str, ...]] = ()
    #: may run on one function at a time: it looks at no other function but through `program.whole`
    per_function: ClassVar[bool] = False

    def run(self, program: IRProgram) -> PassResult:
        """Change `program` in place. A subclass must define it."""
        raise TypeError(f"pass '{self.name}' defines no run method")

    def __str__(self) -> str:
        """The pass as pipeline text; options at their default are omitted."""
        parts = []
        for f in fields(self):
            value = getattr(self, f.name)
            if value != f.default:
                text = str(value).lower() if type(value) is bool else str(value)
                parts.append(f"{f.name.replace('_', '-')}={text}")
        return self.name + (f"{{{' '.join(parts)}}}" if parts else "")


@dataclass(frozen=True)
class PatternPass(CompilerPass):
    """Applies patterns to a fixpoint, one round after the other; dead ops met on the way are erased."""

    rounds: ClassVar[tuple[tuple[Pattern, ...], ...]] = ()

    def run(self, program: IRProgram) -> PassResult:
        changed, stats = False, {"dead": 0}
        for patterns in self.rounds:
            result = rewrite_greedily(program.ctx, program.module, patterns)
            changed |= result.changed
            stats["dead"] += result.dead
            for name, n in result.applied.items():
                stats[name] = stats.get(name, 0) + n
        return PassResult(changed, stats)


@dataclass(frozen=True)
class Nested(CompilerPass):
    """`func(cse,dce)`: runs `passes` on every function of one kind by itself; the others are out of sight."""

    kind: str = ""
    passes: tuple[CompilerPass, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in NEST_KINDS:
            raise ConfigError(f"pipeline: cannot nest passes in '{self.kind}', expected {' or '.join(NEST_KINDS)}")
        for p in self.passes:
            if not p.per_function:
                raise ConfigError(
                    f"pipeline: pass '{p.name}' works on the whole program and cannot run inside '{self.kind}(...)'"
                )

    def __str__(self) -> str:
        return f"{self.kind}({pipeline_text(self.passes)})"

    def run(self, program: IRProgram) -> PassResult:
        changed = False
        stats: dict[str, int] = {}
        for symbol in [f for f in program.functions if f.kind == self.kind]:
            with program.only(symbol) as part:
                for p in self.passes:
                    result = p.run(part)
                    changed |= result.changed
                    for name, n in result.stats.items():
                        key = f"{p.name} {name}"
                        stats[key] = stats.get(key, 0) + n
        return PassResult(changed, stats)


#: kinds of op that a pipeline may name to run passes inside
NEST_KINDS = ("func", "subgraph")
_NEST = re.compile(r"\s*([A-Za-z][\w-]*)\s*\(")
_END = re.compile(r"\s*(,|$)")
_ITEM = re.compile(r"\s*([A-Za-z][\w-]*)\s*(?:\{([^{}]*)\})?\s*(,|$)")
_OPTION = re.compile(r"([\w-]+)=(\S*)$")


def parse_pipeline(text: str, known: Mapping[str, type[CompilerPass]]) -> list[CompilerPass]:
    """Read "outline{min-ops=8 max-runs=2},func(cse,dce)". Raises ConfigError naming the pass and the option."""
    out: list[CompilerPass] = []
    at = 0
    while at < len(text) or (at == 0 and text.strip()):
        nest = _NEST.match(text, at)
        if nest is not None:
            close = text.find(")", nest.end())
            end = _END.match(text, close + 1) if close >= 0 else None
            if end is None:
                raise ConfigError(f"pipeline: expected ')' and a comma or the end behind '{text[at : at + 30]}'")
            out.append(Nested(nest[1], tuple(parse_pipeline(text[nest.end() : close], known))))
            at = end.end()
            if end[1] == "," and not text[at:].strip():
                raise ConfigError(f"pipeline: expected a pass after the comma at column {at}, found the end")
            continue
        m = _ITEM.match(text, at)
        if m is None:
            raise ConfigError(
                f"pipeline: expected 'pass' or 'pass{{option=value}}' at column {at + 1}, found '{text[at : at + 30]}'"
            )
        name, options, separator = m.groups()
        cls = known.get(name)
        if cls is None:
            raise ConfigError(f"pipeline: unknown pass '{name}', expected one of {', '.join(sorted(known))}")
        out.append(cls(**_options(cls, options or "")))
        at = m.end()
        if separator == "," and not text[at:].strip():
            raise ConfigError(f"pipeline: expected a pass after the comma at column {at}, found the end")
    return out


def _options(cls: type[CompilerPass], text: str) -> dict[str, Any]:
    kinds = typing.get_type_hints(cls)
    names = {f.name.replace("_", "-"): f.name for f in fields(cls)}
    given: dict[str, Any] = {}
    for part in text.replace(",", " ").split():
        m = _OPTION.match(part)
        if m is None:
            raise ConfigError(f"pass '{cls.name}': expected option=value, found '{part}'")
        field_name = names.get(m[1].replace("_", "-"))
        if field_name is None:
            listed = ", ".join(names) or "none"
            raise ConfigError(f"pass '{cls.name}': unknown option '{m[1]}', its options are {listed}")
        if field_name in given:
            raise ConfigError(f"pass '{cls.name}': option '{m[1]}' is given twice")
        given[field_name] = _convert(cls.name, m[1], m[2], kinds[field_name])
    return given


def _convert(pass_name: str, option: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text in ("true", "false"):
            return text == "true"
    elif kind is str:
        return text
    else:
        try:
            return kind(text)
        except ValueError:
            pass
    raise ConfigError(f"pass '{pass_name}': option '{option}': expected {kind.__name__}, found '{text}'")


def pipeline_text(passes: Iterable[CompilerPass]) -> str:
    """Return the text that `parse_pipeline` reads back to equal passes."""
    return ",".join(map(str, passes))
