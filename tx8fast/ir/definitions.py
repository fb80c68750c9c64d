"""The op registry as data: dumping it, loading it into an empty context, and a documentation table.

May import: ir.core, ir.attrs, ir.ops.base, errors. Must not: know particular kinds. A loaded registry can parse
and print; it has no inference, because functions are code.
"""

from __future__ import annotations

from typing import Any

from tx8fast.errors import VerifyError
from tx8fast.ir.attrs import DenseAttr, RegionAttr
from tx8fast.ir.core import REQUIRED, Context, OpInfo

_TYPES: dict[str, type] = {t.__name__: t for t in (str, int, float, bool, tuple, DenseAttr, RegionAttr)}


def dump_definitions(ctx: Context) -> list[dict[str, Any]]:
    """Return one JSON- and YAML-able record per kind, in code order."""
    records = []
    for info in ctx.infos.values():
        attrs = []
        for name, (kinds, default) in info.attrs.items():
            kinds = kinds if isinstance(kinds, tuple) else (kinds,)
            entry: dict[str, Any] = {"name": name, "types": [k.__name__ for k in kinds]}
            if default is not REQUIRED:
                entry["default"] = list(default) if isinstance(default, tuple) else default
            attrs.append(entry)
        record = {
            "name": info.name,
            "code": info.code,
            "ins": list(info.ins),
            "outs": list(info.outs),
            "attrs": attrs,
            "traits": info.traits,
            "since": list(info.since),
        }
        records.append(record)
    return records


def load_definitions(ctx: Context, records: list[dict[str, Any]]) -> None:
    """Register dumped kinds. Raises VerifyError on an unknown attribute type."""
    for r in records:
        attrs: dict[str, tuple[Any, Any]] = {}
        for a in r["attrs"]:
            unknown = [t for t in a["types"] if t not in _TYPES]
            if unknown:
                raise VerifyError(f"definition of {r['name']}: attribute '{a['name']}' has unknown type '{unknown[0]}'")
            kinds = tuple(_TYPES[t] for t in a["types"])
            default = a.get("default", REQUIRED)
            default = tuple(default) if isinstance(default, list) else default
            attrs[a["name"]] = (kinds if len(kinds) > 1 else _TYPES[a["types"][0]], default)
        since = (r["since"][0], r["since"][1])
        ctx.register(
            OpInfo(
                r["name"],
                r["code"],
                tuple(r["ins"]),
                tuple(r["outs"]),
                attrs,
                r["traits"],
                since=since,
            )
        )


def definition_table(ctx: Context) -> str:
    """Return a Markdown table of all kinds: operands, results, attributes with defaults."""
    lines = ["| op | operands | results | attributes |", "|---|---|---|---|"]
    for info in ctx.infos.values():
        attrs = ", ".join(n if d is REQUIRED else f"{n}={d!r}" for n, (_, d) in info.attrs.items())
        lines.append(f"| `{info.name}` | {', '.join(info.ins)} | {', '.join(info.outs)} | {attrs} |")
    return "\n".join(lines) + "\n"
