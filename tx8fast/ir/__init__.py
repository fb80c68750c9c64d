"""The graph IR: one representation from import to the back end.

`ctx = new_context()` gives a context with the whole dialect; `Builder(ctx, block)("add", a, b)`
creates an op whose result types are inferred.
"""

from tx8fast.ir.builder import Builder
from tx8fast.ir.core import Block, Context, Op, OpInfo, Region, Value
from tx8fast.ir.dialect import new_context
from tx8fast.ir.ops.base import OpDef, align_of, engine_of, reference
from tx8fast.ir.types import NoneType, TensorType, TokenType, TupleType, Type

__all__ = [
    "Block",
    "Builder",
    "Context",
    "NoneType",
    "Op",
    "OpDef",
    "OpInfo",
    "Region",
    "TensorType",
    "TokenType",
    "TupleType",
    "Type",
    "Value",
    "align_of",
    "engine_of",
    "new_context",
    "reference",
]
