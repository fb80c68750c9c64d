"""Tensors computed from a formula or from other weights, evaluated only when somebody needs the bytes.

May import: numpy, ml_dtypes, errors, weights.cells, weights.distances, weights.maps, weights.rope, weights.quantized, weights.gguf_blocks. Must not: read files; know the table. `EXPRESSIONS` maps the name
of an expression to `f(inputs, attrs, shape) -> array` of any float or integer type; the caller rounds to
the entry's dtype. `attrs` is JSON-able, so an expression can be stored by name in a program file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tx8fast.errors import ImportModelError, Tx8Error
from tx8fast.weights.cells import cell_cos, cell_mask, cell_places, cell_sin
from tx8fast.weights.distances import wave_cos, wave_rows, wave_sin, waves
from tx8fast.weights.gguf_blocks import unpack_blocks
from tx8fast.weights.maps import norm_shift, normed_kernel, place_waves, sine_places
from tx8fast.weights.quantized import code_book, dequantize, fp4_groups, mxfp4, unpack_bits
from tx8fast.weights.rope import rope_cos, rope_sin

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


def _causal_mask(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """Row i sees column j if j <= i + offset + ahead and, with a window, j > i + offset - window, with a chunk, in its chunk: 0,
    else `value`."""
    row = np.arange(shape[-2])[:, None] + int(attrs.get("offset", 0))
    col = np.arange(shape[-1])[None, :]
    seen = col <= row + int(attrs.get("ahead", 0))
    window = int(attrs.get("window") or 0)
    if window > 0:
        seen &= col > row - window
    chunk = int(attrs.get("chunk") or 0)
    if chunk > 0:
        seen &= col >= row // chunk * chunk
    return np.broadcast_to(np.where(seen, np.float32(0), np.float32(attrs.get("value", -3e38))), shape)


def _arange(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    start, step = attrs.get("start", 0), attrs.get("step", 1)
    return start + step * np.arange(math.prod(shape)).reshape(shape)


def _chunk_first(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """The first position of every position's chunk."""
    place = np.arange(math.prod(shape)).reshape(shape)
    return place // attrs["chunk"] * attrs["chunk"]


def _alibi(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """Row h: slopes[h] * (j - last column), shape [heads, 1, columns] (Press et al. 2021, up to a constant per row)."""
    slopes = np.asarray(attrs["slopes"], np.float64)
    return slopes[:, None, None] * (np.arange(shape[-1]) - (shape[-1] - 1.0))


def _relative_bias(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """Learned summands of scores by bucket of distance (Raffel et al. 2020), of a table [buckets, heads]: [heads, n, n], or
    [n, heads * n], a row per query. `both`: half of the buckets are for keys ahead; otherwise these get `value`."""
    table = inputs[0].astype(np.float32)
    buckets, heads, n = *table.shape, shape[0] if len(shape) == 2 else shape[-1]
    ahead = np.arange(n)[None, :] - np.arange(n)[:, None]
    count = buckets // 2 if attrs["both"] else buckets
    exact = count // 2
    far = np.maximum(np.abs(ahead) if attrs["both"] else -ahead, 0)
    # in f32, as the models were trained
    ratio = np.log(np.maximum(far, exact) / exact).astype(np.float32) / np.float32(math.log(attrs["distance"] / exact))
    wide = np.minimum(exact + (ratio * np.float32(count - exact)).astype(np.int64), count - 1)
    index = np.where(far < exact, far, wide) + (count * (ahead > 0) if attrs["both"] else 0)
    bias = table[index].transpose(2, 0, 1)
    if not attrs["both"]:
        bias = np.where(ahead <= 0, bias, np.float32(attrs["value"]))
    return bias if len(shape) == 3 else bias.transpose(1, 0, 2).reshape(n, heads * n)


def _fill(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    return np.broadcast_to(np.asarray(attrs.get("value", 0)), shape)


def _transpose(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    perm = attrs.get("perm")
    return np.transpose(inputs[0], None if perm is None else tuple(perm))


def _slice(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    steps, places = attrs.get("step") or [1] * len(shape), []
    for a, n, s in zip(attrs["start"], shape, steps, strict=True):
        end = a + n * s
        places.append(slice(a, end if end >= 0 else None, s))  # backwards to the first element: no end says so
    return inputs[0][tuple(places)]


def _pad(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """Zeros around all elements."""
    out = np.zeros(shape, inputs[0].dtype)
    out[tuple(slice(a, a + n) for a, n in zip(attrs["lo"], inputs[0].shape, strict=True))] = inputs[0]
    return out


def _view(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """A part of a stored tensor: `steps` of ["reshape", shape], ["slice", start, size], ["transpose", perm] and ["sum", axis]."""
    array = inputs[0]
    for kind, *args in attrs["steps"]:
        if kind == "reshape":
            array = array.reshape(args[0])
        elif kind == "slice":
            array = array[tuple(slice(a, a + n) for a, n in zip(*args, strict=True))]
        elif kind == "transpose":
            array = array.transpose(args[0])
        elif kind == "sum":
            array = array.astype(np.float32).sum(axis=args[0])
        else:
            raise ImportModelError(f"weight expression 'view': unknown step '{kind}'")
    return array


def _shift(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    return inputs[0].astype(np.float32) + np.float32(attrs["value"])


def _spread(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """Row i is 1 in its share of the columns, 0 elsewhere."""
    return np.repeat(np.eye(shape[0], dtype=np.int8), shape[1] // shape[0], axis=1)


def _rows_by_distance(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """The row of every distance of two places of n, shape [n, n, width], of a table of 2 n - 1 rows from 1 - n on."""
    n = shape[0]
    return inputs[0][np.arange(n)[:, None] - np.arange(n)[None, :] + n - 1]


def _own_place(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """Ones at the row and, behind the `rows`, at the column of every patch of an image, shape [patches, 1, rows + columns]."""
    rows = attrs["rows"]
    columns = shape[-1] - rows
    place = np.arange(rows * columns)
    return np.concatenate([np.eye(rows)[place // columns], np.eye(columns)[place % columns]], axis=1)[:, None]


def _triangle(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """Ones where row >= column ("lower"), row < column ("after"), row > column ("upto", "below"), row = column ("one"), or, of blocks of
    `block` rows and columns, right below those of even number on the diagonal ("blocks"); or where a column is between the row and the
    middle of its block of twice `block`, the row's own only behind the middle ("midway"); or 0 where row > column and `value` elsewhere
    ("chunks")."""
    ahead = np.arange(shape[1])[None, :] - np.arange(shape[0])[:, None]
    kind = attrs["kind"]
    if kind == "blocks":
        row, column = (np.arange(n) // attrs["block"] for n in shape)
        return ((row[:, None] == column[None, :] + 1) & (column[None, :] % 2 == 0)).astype(np.int8)
    if kind == "midway":
        row, column = np.arange(shape[0])[:, None], np.arange(shape[1])[None, :]
        middle = row // (2 * attrs["block"]) * 2 * attrs["block"] + attrs["block"]
        before = (row < middle) & (column > row) & (column < middle)
        return (before | (row >= middle) & (column >= middle) & (column <= row)).astype(np.int8)
    ones = {
        "lower": ahead <= 0,
        "after": ahead > 0,
        "upto": ahead < 0,
        "below": ahead < 0,
        "one": ahead == 0,
        "chunks": ahead < 0,
    }[kind]
    return np.where(ones, 0.0, attrs["value"]) if kind == "chunks" else ones.astype(np.int8)


EXPRESSIONS: dict[str, Expression] = {
    "alibi": _alibi,
    "arange": _arange,
    "causal_mask": _causal_mask,
    "cell_cos": cell_cos,
    "cell_mask": cell_mask,
    "cell_places": cell_places,
    "cell_sin": cell_sin,
    "chunk_first": _chunk_first,
    "code_book": code_book,
    "concat": lambda inputs, attrs, shape: np.concatenate(list(inputs), axis=attrs.get("axis", 0)),
    "convert": lambda inputs, attrs, shape: inputs[0],
    "dequantize": dequantize,
    "fill": _fill,
    "fp4_groups": fp4_groups,
    "gguf_blocks": unpack_blocks,
    "mxfp4": mxfp4,
    "norm_shift": norm_shift,
    "normed_kernel": normed_kernel,
    "own_place": _own_place,
    "pad": _pad,
    "place_waves": place_waves,
    "relative_bias": _relative_bias,
    "reshape": lambda inputs, attrs, shape: inputs[0].reshape(shape),
    "rope_cos": rope_cos,
    "rope_sin": rope_sin,
    "rows_by_distance": _rows_by_distance,
    "shift": _shift,
    "sine_places": sine_places,
    "slice": _slice,
    "spread": _spread,
    "transpose": _transpose,
    "triangle": _triangle,
    "unpack_bits": unpack_bits,
    "view": _view,
    "wave_cos": wave_cos,
    "wave_rows": wave_rows,
    "wave_sin": wave_sin,
    "waves": waves,
}


def evaluate(
    expr: str, attrs: Mapping[str, Any], inputs: Sequence[np.ndarray], shape: Shape, dtype: np.dtype
) -> np.ndarray:
    """Return a read-only C-contiguous array of `shape` and `dtype`.

    Raises ImportModelError for an unknown expression, or one whose attributes, inputs or result do not fit.
    """
    function = EXPRESSIONS.get(expr) if isinstance(expr, str) else None
    if function is None:
        raise ImportModelError(f"unknown weight expression '{expr}', expected one of {', '.join(EXPRESSIONS)}")
    try:
        result = np.asarray(function(inputs, attrs, shape))
    except Tx8Error:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as e:  # of a damaged program file
        raise ImportModelError(
            f"weight expression '{expr}' cannot be computed from its attributes {attrs!r:.80} and {len(inputs)} inputs: "
            f"{type(e).__name__}: {e}"
        ) from None
    if result.shape != shape:
        raise ImportModelError(f"weight expression '{expr}' gave shape {list(result.shape)}, required {list(shape)}")
    if result.dtype != dtype:
        if result.dtype.itemsize > 4 and dtype.itemsize <= 2 and dtype.kind not in "iub":
            result = result.astype(np.float32)  # ml_dtypes rounds from f32; double rounding is below half an ulp here
        result = result.astype(dtype)
    result = np.ascontiguousarray(result).reshape(shape).view()  # the former turns rank 0 into 1
    result.flags.writeable = False
    return result
