"""Tensors computed from a formula or from other weights, evaluated only when somebody needs the bytes.

May import: numpy, ml_dtypes, errors. Must not: read files; know the table. `EXPRESSIONS` maps the name
of an expression to `f(inputs, attrs, shape) -> array` of any float or integer type; the caller rounds to
the entry's dtype. `attrs` is JSON-able, so an expression can be stored by name in a program file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tx8fast.errors import ImportModelError

#: finite stand-in for minus infinity in additive masks: score + mask never becomes NaN
MASK_VALUE: dict[str, float] = {
    "f16": -65504.0,
    "bf16": -3e38,
    "f32": -3e38,
    "tf32": -3e38,
    "f64": -3e38,
}
Shape = tuple[int, ...]
Expression = Callable[[Sequence[np.ndarray], Mapping[str, Any], Shape], np.ndarray]


def rope_frequencies(
    theta: float, rotary_dim: int, scaling: Mapping[str, Any] | None = None
) -> np.ndarray:
    """Return the (rotary_dim / 2,) float64 angular frequencies in radians per position.

    `scaling["rope_type"]` is "default", "linear" (`factor`) or "llama3" (`factor`, `low_freq_factor`,
    `high_freq_factor`, `original_max_position_embeddings`): long waves are stretched by `factor`, short
    ones kept, those between blended. Raises ImportModelError for another type.
    """
    freq = theta ** -(np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)
    kind = (scaling or {}).get("rope_type", "default")
    if kind == "default" or scaling is None:
        return freq
    if kind == "linear":
        return freq / scaling["factor"]
    if kind != "llama3":
        raise ImportModelError(f"rope scaling '{kind}' is not one of default, linear, llama3")
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = (
        scaling["original_max_position_embeddings"] * freq / (2 * math.pi)
    )  # full waves in the trained length
    keep = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return freq * (keep + (1 - keep) / scaling["factor"])


def _angles(attrs: Mapping[str, Any], shape: Shape) -> tuple[np.ndarray, int, bool]:
    """Return (length, rotary_dim) angles in lane order, the rotary width, and whether lanes interleave."""
    length, dim = shape
    rotary = int(attrs.get("rotary_dim") or dim)
    interleaved = attrs.get("style", "half") == "interleaved"
    freq = rope_frequencies(float(attrs["theta"]), rotary, attrs.get("scaling"))
    position = np.arange(length, dtype=np.float64) + attrs.get("offset", 0)
    angle = np.outer(position, freq)
    return (
        np.repeat(angle, 2, axis=1) if interleaved else np.tile(angle, (1, 2)),
        rotary,
        interleaved,
    )


def _rope_cos(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    angle, rotary, _ = _angles(attrs, shape)
    table = np.ones(shape)
    table[:, :rotary] = np.cos(angle)
    return table


def _rope_sin(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    angle, rotary, interleaved = _angles(attrs, shape)
    sign = np.ones(rotary)
    if interleaved:
        sign[0::2] = -1.0
    else:
        sign[: rotary // 2] = -1.0
    table = np.zeros(shape)
    table[:, :rotary] = np.sin(angle) * sign
    return table


def _causal_mask(
    inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape
) -> np.ndarray:
    """Row i sees column j if j <= i + offset and, with a window, j > i + offset - window: 0, else `value`."""
    row = np.arange(shape[-2])[:, None] + int(attrs.get("offset", 0))
    col = np.arange(shape[-1])[None, :]
    seen = col <= row
    window = int(attrs.get("window") or 0)
    if window > 0:
        seen &= col > row - window
    return np.broadcast_to(
        np.where(seen, np.float32(0), np.float32(attrs.get("value", -3e38))), shape
    )


def _arange(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    start, step = attrs.get("start", 0), attrs.get("step", 1)
    return start + step * np.arange(math.prod(shape)).reshape(shape)


def _fill(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    return np.broadcast_to(np.asarray(attrs.get("value", 0)), shape)


def _transpose(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    perm = attrs.get("perm")
    return np.transpose(inputs[0], None if perm is None else tuple(perm))


def _slice(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    return inputs[0][tuple(slice(a, a + n) for a, n in zip(attrs["start"], shape, strict=True))]


EXPRESSIONS: dict[str, Expression] = {
    "arange": _arange,
    "causal_mask": _causal_mask,
    "concat": lambda inputs, attrs, shape: np.concatenate(list(inputs), axis=attrs.get("axis", 0)),
    "convert": lambda inputs, attrs, shape: inputs[0],
    "fill": _fill,
    "reshape": lambda inputs, attrs, shape: inputs[0].reshape(shape),
    "rope_cos": _rope_cos,
    "rope_sin": _rope_sin,
    "slice": _slice,
    "transpose": _transpose,
}


def evaluate(
    expr: str, attrs: Mapping[str, Any], inputs: Sequence[np.ndarray], shape: Shape, dtype: np.dtype
) -> np.ndarray:
    """Return a read-only C-contiguous array of `shape` and `dtype`.

    Raises ImportModelError for an unknown expression or one whose result has another shape.
    """
    function = EXPRESSIONS.get(expr)
    if function is None:
        raise ImportModelError(
            f"unknown weight expression '{expr}', expected one of {', '.join(EXPRESSIONS)}"
        )
    result = np.asarray(function(inputs, attrs, shape))
    if result.shape != shape:
        raise ImportModelError(
            f"weight expression '{expr}' gave shape {list(result.shape)}, required {list(shape)}"
        )
    if result.dtype != dtype:
        if result.dtype.itemsize > 4 and dtype.itemsize <= 2 and dtype.kind not in "iub":
            result = result.astype(
                np.float32
            )  # ml_dtypes rounds from f32; double rounding is below half an ulp here
        result = result.astype(dtype)
    result = np.ascontiguousarray(result).reshape(shape).view()  # the former turns rank 0 into 1
    result.flags.writeable = False
    return result
