"""What a handler sees of one ONNX node: inputs as tensors, attributes, and short ways to emit ops.

May import: frontend.common, errors, numpy, onnx (late). Must not: know any particular ONNX op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tx8fast.errors import ImportModelError, UnsupportedError
from tx8fast.frontend.common import Imported, NeedConstant, Tensor
from tx8fast.records import dataclass

if TYPE_CHECKING:
    from tx8fast.frontend.onnx.graph import Scope
    from tx8fast.frontend.onnx.importer import Importer


Result = Imported | Sequence[Imported | None]
MIN_OPSET, MAX_OPSET = 1, 28
MAX_CONSTANT_ELEMENTS = 1 << 27
_GROWING: dict[str, Callable[..., np.ndarray]] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


@dataclass(frozen=True)
class Handler:
    """`run` imports nodes of `op_type` in models of operator set version `low` to `high`, both included; lists: of sequences too."""

    op_type: str
    run: Callable[[Node], Result]
    low: int = MIN_OPSET
    high: int = MAX_OPSET
    domain: str = ""
    lists: bool = False


class Node:
    """One node during import. Index it for its inputs; an absent input is None."""

    __slots__ = ("importer", "scope", "proto", "op_type", "opset", "where", "inputs", "attrs", "outputs")

    def __init__(self, importer: Importer, scope: Scope, proto: Any, inputs: list[Imported | None], where: str) -> None:
        self.importer = importer
        self.scope = scope
        self.proto = proto
        self.op_type: str = proto.op_type
        self.opset: int = scope.opsets.get(proto.domain or "", 1)
        self.where = where
        self.inputs: list[Any] = inputs  # Tensor, TensorList if the handler says so, or None where absent
        self.outputs = list(proto.output)
        self.attrs = scope.attributes(proto)

    # ---- inputs and attributes

    def __getitem__(self, i: int) -> Tensor:
        """Return input `i`; None if it is absent (handlers of optional inputs check)."""
        return self.inputs[i] if i < len(self.inputs) else None  # type: ignore[return-value]

    def __len__(self) -> int:
        return len(self.inputs)

    def has(self, i: int) -> bool:
        return i < len(self.inputs) and self.inputs[i] is not None

    def wants(self, i: int) -> bool:
        """True if output `i` is named."""
        return i < len(self.outputs) and bool(self.outputs[i])

    def attr(self, name: str, default: Any = None) -> Any:
        return self.attrs.get(name, default)

    def required(self, name: str) -> Any:
        if name not in self.attrs:
            raise self.bad(f"attribute '{name}' is missing")
        return self.attrs[name]

    def static(self, i: int, what: str) -> np.ndarray:
        """Return input `i` as an array. Raises NeedConstant if it is not known at compile time."""
        return self.known(self[i], f"input {i} ({what})")

    def number(self, i: int, what: str) -> Any:
        """Return the one number of input `i`, of whatever rank. Raises NeedConstant if it is not known at compile time."""
        return self.single(self.static(i, what), f"input {i} ({what})")

    def single(self, array: np.ndarray, what: str) -> Any:
        if array.size != 1:
            raise self.bad(f"{what} has shape {list(array.shape)}, required one number")
        return array.reshape(())

    def known(self, t: Tensor, what: str) -> np.ndarray:
        array = t.force()
        if array is None:
            raise self.importer.need_constant(t, f"{self.where}: {what} must be known at compile time")
        return array

    def ints(self, i: int, name: str) -> list[int] | None:
        """Return the integer list given as input `i` or, in older operator sets, as attribute `name`."""
        if self.has(i):
            return [int(v) for v in self.static(i, name).reshape(-1)]
        value = self.attrs.get(name)
        return None if value is None else [int(v) for v in np.atleast_1d(value)]

    def listed(self, i: int, name: str) -> list[int]:
        """Like `ints`, for lists that the operator cannot do without."""
        found = self.ints(i, name)
        if found is None:
            raise self.bad(f"{name} is missing")
        return found

    def axis(self, default: int, rank: int | None = None, name: str = "axis") -> int:
        """Return attribute `axis` counted from 0 and checked against the rank of input 0 (or `rank`)."""
        return self.norm_axis(self.attrs.get(name, default), self[0].rank if rank is None else rank)

    def norm_axis(self, axis: int, rank: int) -> int:
        if not -rank <= axis < max(rank, 1):
            raise self.bad(f"axis {axis} is outside [{-rank}, {rank}) for shape {list(self[0].shape)}")
        return axis + rank if axis < 0 else axis

    def unsupported(self, reason: str) -> UnsupportedError:
        return UnsupportedError(f"{self.where}: {reason}")

    def bad(self, reason: str) -> ImportModelError:
        return ImportModelError(f"{self.where}: {reason}")

    # ---- emission

    def op(self, kind: str, *operands: Tensor | float | int | None, **attrs: Any) -> Tensor:
        """Emit a one-result op; numbers become scalars of the first tensor operand's dtype."""
        return self.ops(kind, *operands, **attrs)[0]

    def ops(self, kind: str, *operands: Tensor | float | int | None, **attrs: Any) -> list[Tensor]:
        like = next((t for t in operands if isinstance(t, Tensor)), None)
        given = [self.const(t, like.dtype) if isinstance(t, (int, float)) else t for t in operands]  # type: ignore[union-attr]
        results = self.importer.emitter.ops(kind, *given, **attrs)
        if kind in _GROWING and results[0].array is not None and results[0].dtype == "i64":
            self._check_overflow(kind, [t.array for t in given if t is not None])  # type: ignore[union-attr]
        return results

    def _check_overflow(self, kind: str, arrays: list[np.ndarray]) -> None:
        """Constants of shape arithmetic must not wrap around. The least integer is what exporters' tables make of minus infinity."""
        wide = _GROWING[kind](*(a.astype(np.float64) for a in arrays))
        if ((wide >= 2.0**63) | (wide < -(2.0**63))).any():
            raise self.bad("the result of constant integers does not fit 64 bits")

    def bounded(self, count: float, what: str) -> int:
        """Return the length of a constant to be made. Raises ImportModelError if it is absurd."""
        if not count <= MAX_CONSTANT_ELEMENTS:
            raise self.bad(
                f"{what} has {count:g} elements; constants of at most {MAX_CONSTANT_ELEMENTS} are made at import"
            )
        return int(count)

    def const(self, value: Any, dtype: str | None = None) -> Tensor:
        return self.importer.emitter.const(value, dtype)

    def reshape(self, t: Tensor, shape: Sequence[int]) -> Tensor:
        shape = tuple(int(d) for d in shape)
        if shape == t.shape:
            return t
        if math.prod(shape) != math.prod(t.shape):
            raise self.bad(f"cannot view shape {list(t.shape)} as {list(shape)}")
        return self.op("reshape", t, shape=shape)

    def transpose(self, t: Tensor, perm: Sequence[int]) -> Tensor:
        perm = tuple(int(p) for p in perm)
        return t if perm == tuple(range(t.rank)) else self.op("transpose", t, perm=perm)

    def broadcast(self, t: Tensor, shape: Sequence[int]) -> Tensor:
        shape = tuple(int(d) for d in shape)
        return t if shape == t.shape else self.op("broadcast", t, shape=shape)

    def cast(self, t: Tensor, dtype: str) -> Tensor:
        return t if t.dtype == dtype else self.op("convert", t, dtype=dtype)

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        return parts[0] if len(parts) == 1 else self.op("concat", *parts, axis=axis)

    def slice(self, t: Tensor, axis: int, start: int, size: int, step: int = 1) -> Tensor:
        """Take `size` elements of one axis."""
        if start == 0 and size == t.shape[axis] and step == 1:
            return t
        starts, sizes, steps = [0] * t.rank, list(t.shape), [1] * t.rank
        starts[axis], sizes[axis], steps[axis] = start, size, step
        return self.op("slice", t, start=tuple(starts), size=tuple(sizes), step=tuple(steps))

    def reduce(self, t: Tensor, op: str, axes: Sequence[int], keepdims: bool = True) -> Tensor:
        return self.op("reduce", t, op=op, axes=tuple(axes), keepdims=keepdims)

    def swap_to_last(self, t: Tensor) -> Tensor:
        """Channel-first [N, C, ...] to channel-last [N, ..., C]."""
        return self.transpose(t, (0, *range(2, t.rank), 1))

    def swap_to_first(self, t: Tensor) -> Tensor:
        """Channel-last [N, ..., C] to channel-first [N, C, ...]."""
        return self.transpose(t, (0, t.rank - 1, *range(1, t.rank - 1)))

    def in_f32(self, t: Tensor) -> Tensor:
        """Widen half-width floats; other dtypes stay."""
        return self.cast(t, "f32") if t.dtype in ("f16", "bf16", "f8e4m3fn", "f8e5m2") else t

    def with_room(self, t: Tensor) -> Tensor:
        """Widen f16, where squares and sums of what it holds run over; formats with the range of f32 stay."""
        return self.cast(t, "f32") if t.dtype == "f16" else t


__all__ = ["MAX_OPSET", "MIN_OPSET", "Handler", "NeedConstant", "Node", "Result"]
