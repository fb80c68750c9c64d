"""The kinds of ops as data for other programs, such as readers and writers of a graph's text.

May import: ir.core. Must not: know particular kinds. Meanings (inference, rules, lowering) are code and stay out.
"""

from __future__ import annotations

import math
from typing import Any

from tx8fast.ir import core
from tx8fast.ir.core import REQUIRED, Context

#: traits by name; some have the bits of others among theirs
TRAITS = {
    name.lower(): getattr(core, name)
    for name in (
        "READ_ONLY",
        "VALUE_SEMANTICS",
        "INPLACE",
        "VIEW",
        "PURE",
        "CONSTANT_LIKE",
        "COMMUTATIVE",
        "ELEMENTWISE",
        "TERMINATOR",
        "ISOLATED",
        "SYMBOL_TABLE",
        "SYMBOL",
        "COLLECTIVE",
        "BACKEND_ONLY",
        "REAL",
        "IDEMPOTENT",
    )
}


def definitions(ctx: Context) -> list[dict[str, Any]]:
    """Return one JSON-able record per kind, in code order. Attributes without a default must be given;
    of floats the default may be "inf" or "-inf"."""
    return [
        {
            "name": info.name,
            "code": info.code,
            "operands": list(info.ins),
            "results": list(info.outs),
            "attributes": [_attribute(name, kinds, default) for name, (kinds, default) in info.attrs.items()],
            "traits": [name for name, bits in TRAITS.items() if info.traits & bits == bits],
            "since": list(info.since),
        }
        for info in ctx.infos.values()
    ]


def _attribute(name: str, kinds: type | tuple[type, ...], default: Any) -> dict[str, Any]:
    found = {"name": name, "types": [k.__name__ for k in (kinds if isinstance(kinds, tuple) else (kinds,))]}
    if default is REQUIRED:
        return found
    if type(default) is float and not math.isfinite(default):
        default = str(default)  # JSON has no such number
    return {**found, "default": list(default) if type(default) is tuple else default}
