"""Attribute values that are not plain Python scalars: enumerations, small dense tensors, struct attributes.

May import: numpy, ml_dtypes, errors. Must not: know ops, types or contexts. All values are immutable,
hash by content and compare by content; `ATTR_CLASSES` maps the text name of a struct to its class.
"""

from __future__ import annotations

import enum
import math
from dataclasses import fields
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from tx8fast.errors import VerifyError
from tx8fast.records import dataclass

#: largest constant held inline in the graph, in bytes; larger ones belong to the weight table
INLINE_LIMIT_BYTES = 1024

#: IR element type -> (element type in the text of a dense constant, NumPy type)
DENSE_DTYPES: dict[str, tuple[str, np.dtype]] = {
    name: (text, np.dtype(numpy_type))
    for name, text, numpy_type in (
        ("pred", "i1", np.bool_), ("i4", "i4", ml_dtypes.int4), ("u4", "ui4", ml_dtypes.uint4),
        ("i8", "i8", np.int8), ("u8", "ui8", np.uint8), ("i16", "i16", np.int16), ("u16", "ui16", np.uint16),
        ("i32", "i32", np.int32), ("u32", "ui32", np.uint32), ("i64", "i64", np.int64), ("u64", "ui64", np.uint64),
        ("bf16", "bf16", ml_dtypes.bfloat16), ("f16", "f16", np.float16), ("f32", "f32", np.float32),
        ("f64", "f64", np.float64), ("f8e4m3fn", "f8E4M3FN", ml_dtypes.float8_e4m3fn),
        ("f8e5m2", "f8E5M2", ml_dtypes.float8_e5m2),
    )
}  # fmt: skip
_NAME_OF_NUMPY = {numpy_type: name for name, (_, numpy_type) in DENSE_DTYPES.items()}


class MemScope(enum.IntEnum):
    ddr = 0
    spm = 1
    dram3d = 2


class MemLayout(enum.IntEnum):
    unknown = 0
    tensor = 1
    ntensor = 2
    cx = 3
    ncx = 4


class ParallelMode(enum.IntEnum):
    none = 0
    dp = 1
    tp = 2
    dp_tp = 3


class AlignMode(enum.IntEnum):
    align = 0
    nalign = 1
    both = 2
    unknown = 3


class GroupTag(enum.IntEnum):
    slice = 0
    split_nh = 1
    ddr_only = 2


class RoundMode(enum.IntEnum):
    nearest_even = 0
    zero = 1
    up = 2
    down = 3


class DenseAttr:
    """A small constant tensor of at most `INLINE_LIMIT_BYTES` bytes.

    `array` is a read-only private copy in C order; `dtype` is the IR name of its element type.
    Equality and hash use shape, element type and bytes, so NaN equals NaN and 0.0 differs from -0.0.
    """

    __slots__ = ("array", "dtype", "_key")
    array: np.ndarray
    dtype: str

    def __init__(self, array: Any) -> None:
        source = np.asarray(array)
        dtype = _NAME_OF_NUMPY.get(source.dtype)
        if dtype is None:
            raise VerifyError(f"inline constant: element type {source.dtype} has no IR type")
        if source.nbytes > INLINE_LIMIT_BYTES:
            raise VerifyError(
                f"inline constant of shape {source.shape}: {source.nbytes} bytes, at most {INLINE_LIMIT_BYTES} are "
                "allowed; put it into the weight table and use get_param"
            )
        owned = np.array(source, order="C", copy=True)
        owned.flags.writeable = False
        object.__setattr__(self, "array", owned)
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "_key", (dtype, owned.shape, owned.tobytes()))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"attributes are immutable: cannot set '{name}'")

    def __eq__(self, other: object) -> bool:
        return type(other) is DenseAttr and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"DenseAttr({self.array.tolist()}, {self.dtype})"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def splat(self) -> float | int | bool | None:
        """The one value all elements have, or None if they differ (or there are none)."""
        if not alike(self.array):
            return None
        value = self.array.reshape(-1)[0]
        if self.dtype == "pred":
            return bool(value)
        return int(value) if self.dtype[0] in "iu" else float(value)


def alike(array: np.ndarray) -> bool:
    """True if an array has elements, and all have the same bits."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.size > 0 and not (flat.view(np.uint8).reshape(flat.size, -1) != flat[:1].view(np.uint8)).any()


class StructAttr:
    """Base of the struct attributes: frozen dataclasses whose every field has a default.

    Field values are bool, int, float, str, an enumeration, or a tuple of int.
    """

    NAME: ClassVar[str] = ""

    def _require(self, condition: bool, field: str, rule: str) -> None:
        if not condition:
            raise VerifyError(f"#tx8be.{self.NAME}: field '{field}' is {getattr(self, field)!r}, required: {rule}")

    def _require_ints(self) -> None:
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if type(f.default) is tuple:
                ok = type(value) is tuple and all(type(x) is int for x in value)
                self._require(ok, f.name, "a tuple of integers")
            elif type(value) is not type(f.default):
                self._require(False, f.name, f"a value of type {type(f.default).__name__}")


@dataclass(frozen=True)
class ParallelAttr(StructAttr):
    """How one level of the machine divides result 0: data-parallel and tensor-parallel parts per mesh axis."""

    NAME: ClassVar[str] = "parallel"
    parallel: ParallelMode = ParallelMode.none
    is_dp_inner: bool = True
    dp_dim_x: int = 1
    dp_dim_y: int = 1
    dp_dim_z: int = 1
    tp_dim_x: int = 1
    tp_dim_y: int = 1
    tp_dim_z: int = 1
    sharding_is_given: bool = False
    shape_spatial_sharding: tuple[int, ...] = ()  # parts per dimension of result 0

    def __post_init__(self) -> None:
        self._require_ints()
        for axis in "xyz":
            self._require(getattr(self, f"dp_dim_{axis}") >= 1, f"dp_dim_{axis}", "at least 1")
            self._require(getattr(self, f"tp_dim_{axis}") >= 1, f"tp_dim_{axis}", "at least 1")
        if self.shape_spatial_sharding:
            devices = self.dp_dim_x * self.dp_dim_y * self.dp_dim_z * self.tp_dim_x * self.tp_dim_y * self.tp_dim_z
            rule = f"parts whose product is the {devices} devices"
            self._require(math.prod(self.shape_spatial_sharding) == devices, "shape_spatial_sharding", rule)


@dataclass(frozen=True)
class DevAttr(StructAttr):
    """Storage and schedule of an op on the device; addresses and sizes in bytes, -1 = undecided."""

    NAME: ClassVar[str] = "dev"
    imm_size: int = 0
    mem_layout: MemLayout = MemLayout.unknown
    mem_scope: MemScope = MemScope.ddr
    multi_buf_en: bool = False
    multi_buf_num: int = 1
    out_shape_buf_idx: tuple[int, ...] = ()
    temporal_mem_slice: tuple[int, ...] = ()
    source_type: int = -1
    imm_addr: int = -1
    mem_addr: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self._require_ints()
        self._require(self.imm_size >= 0 and self.imm_size % 256 == 0, "imm_size", "a multiple of 256 bytes")
        rule = "at least 2 copies if and only if multi_buf_en"
        self._require(self.multi_buf_num >= 1, "multi_buf_num", rule)
        self._require((self.multi_buf_num >= 2) == self.multi_buf_en, "multi_buf_num", rule)
        self._require(all(s >= 1 for s in self.temporal_mem_slice), "temporal_mem_slice", "elements >= 1")
        count_ok = not self.mem_addr or len(self.mem_addr) == self.multi_buf_num
        self._require(count_ok, "mem_addr", f"no address or one for each of {self.multi_buf_num} copies")


@dataclass(frozen=True)
class RegionAttr(StructAttr):
    """A rectangle of tiles: first tile (`x`, `y`), extent (`dx`, `dy`), inside the 4x4 grid."""

    NAME: ClassVar[str] = "region"
    x: int = 0
    y: int = 0
    dx: int = 4
    dy: int = 4

    def __post_init__(self) -> None:
        self._require_ints()
        for start, extent in (("x", "dx"), ("y", "dy")):
            first, size = getattr(self, start), getattr(self, extent)
            self._require(0 <= first < 4, start, "a tile coordinate 0..3")
            self._require(
                size >= 1 and first + size <= 4,
                extent,
                "an extent of at least 1 inside the 4x4 grid",
            )


@dataclass(frozen=True)
class WindowAttr(StructAttr):
    """A sliding window, one entry per spatial dimension; an empty stride or dilation means 1, a pad 0."""

    NAME: ClassVar[str] = "window"
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    pad_lo: tuple[int, ...] = ()
    pad_hi: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self._require_ints()
        for name in ("stride", "dilation", "pad_lo", "pad_hi"):
            value = getattr(self, name)
            self._require(
                not value or len(value) == len(self.kernel),
                name,
                f"{len(self.kernel)} entries or none",
            )
        for name in ("kernel", "stride", "dilation"):
            self._require(all(v >= 1 for v in getattr(self, name)), name, "entries >= 1")


#: what every context knows from the start; a dialect adds its own to `Context.attr_classes`
ATTR_CLASSES: dict[str, type] = {
    "parallel": ParallelAttr,
    "dev": DevAttr,
    "region": RegionAttr,
    "window": WindowAttr,
    "mem_scope": MemScope,
    "mem_layout": MemLayout,
    "parallel_mode": ParallelMode,
    "align_mode": AlignMode,
    "group_tag": GroupTag,
    "round_mode": RoundMode,
}
#: enumeration class -> its text name
ENUM_NAMES: dict[type, str] = {c: n for n, c in ATTR_CLASSES.items() if issubclass(c, enum.IntEnum)}
