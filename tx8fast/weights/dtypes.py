"""Storage formats of weights: our names, their numpy types, the names safetensors gives them.

May import: numpy, ml_dtypes, errors. Must not: know where bytes lie.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tx8fast.errors import ImportModelError

_NP: dict[str, np.dtype] = {
    "pred": np.dtype(np.bool_),
    "i4": np.dtype(ml_dtypes.int4),
    "u4": np.dtype(ml_dtypes.uint4),
    "i8": np.dtype("i1"),
    "u8": np.dtype("u1"),
    "i16": np.dtype("<i2"),
    "u16": np.dtype("<u2"),
    "i32": np.dtype("<i4"),
    "u32": np.dtype("<u4"),
    "i64": np.dtype("<i8"),
    "u64": np.dtype("<u8"),
    "f16": np.dtype("<f2"),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype("<f4"),
    "tf32": np.dtype("<f4"),
    "f64": np.dtype("<f8"),
    "f8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
#: bytes of one element in a weight file; 4-bit formats hold one element per byte
ITEM_BYTES: dict[str, int] = {name: dt.itemsize for name, dt in _NP.items()}
#: safetensors name -> ours
SAFETENSORS: dict[str, str] = {
    "BOOL": "pred", "I8": "i8", "U8": "u8", "I16": "i16", "U16": "u16", "I32": "i32", "U32": "u32", "I64": "i64",
    "U64": "u64", "F16": "f16", "BF16": "bf16", "F32": "f32", "F64": "f64", "F8_E4M3": "f8e4m3fn",
    "F8_E5M2": "f8e5m2",
}  # fmt: skip
FLOATS = frozenset({"f16", "bf16", "f32", "tf32", "f64", "f8e4m3fn", "f8e5m2"})
_NAMES = {dt: name for name, dt in _NP.items() if name != "tf32"}


def np_dtype(name: str) -> np.dtype:
    """Return the numpy dtype that holds our format `name`. Raises ImportModelError for an unknown name."""
    found = _NP.get(name)
    if found is None:
        raise ImportModelError(f"unknown weight dtype '{name}', expected one of {', '.join(_NP)}")
    return found


def dtype_name(dtype: np.dtype) -> str:
    """Return our name of a numpy dtype. Raises ImportModelError if there is none."""
    found = _NAMES.get(np.dtype(dtype))
    if found is None:
        raise ImportModelError(f"numpy dtype '{dtype}' has no counterpart, expected one of {', '.join(_NP)}")
    return found
