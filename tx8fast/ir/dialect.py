"""The tx8be dialect: the list of operation families, spelt out.

May import: the family modules, ir.attrs. Must not: register anything at import time.
A family is a module with a tuple `OPS`; to add one, write the module and name it in `FAMILIES`.
"""

from __future__ import annotations

from tx8fast.ir import attrs
from tx8fast.ir.core import Context
from tx8fast.ir.ops import (
    backend,
    contraction,
    elementwise,
    extra,
    indexing,
    movement,
    normalisation,
    reduction,
    structure,
)
from tx8fast.ir.ops.base import OpDef, register

FAMILIES: tuple[tuple[OpDef, ...], ...] = (
    structure.OPS,
    contraction.OPS,
    elementwise.OPS,
    normalisation.OPS,
    reduction.OPS,
    movement.OPS,
    indexing.OPS,
    backend.OPS,
    extra.OPS,
)


def new_context() -> Context:
    """Return a context with every kind and struct attribute of the dialect."""
    ctx = Context()
    ctx.attr_classes.update(attrs.ATTR_CLASSES)
    for family in FAMILIES:
        register(ctx, family)
    return ctx
