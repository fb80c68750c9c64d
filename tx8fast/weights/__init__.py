"""Weights: names, types and the place of the bytes, which stay out of the graph.

May import: numpy, ml_dtypes, errors. Must not: know the IR; read a byte of tensor data before `view`.
"""

from tx8fast.weights.derived import EXPRESSIONS, MASK_VALUE
from tx8fast.weights.dtypes import ITEM_BYTES, np_dtype
from tx8fast.weights.rope import rope_frequencies
from tx8fast.weights.safetensors import (
    CheckpointEntry,
    find_checkpoint,
    open_checkpoint,
    read_header,
)
from tx8fast.weights.table import (
    ArraySource,
    DerivedSource,
    FileSource,
    MissingSource,
    Weight,
    WeightTable,
    resolve,
)

__all__ = [
    "EXPRESSIONS",
    "ITEM_BYTES",
    "MASK_VALUE",
    "ArraySource",
    "CheckpointEntry",
    "DerivedSource",
    "FileSource",
    "MissingSource",
    "Weight",
    "WeightTable",
    "find_checkpoint",
    "np_dtype",
    "open_checkpoint",
    "read_header",
    "resolve",
    "rope_frequencies",
]
