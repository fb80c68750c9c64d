"""Expressions of sums of products over windows and axes: gemm, contract, einsum, convolutions, pools.

May import: numpy, the kernels, graph_table, proof.expression, proof.products, proof.cells. Must not: know blocks, tiles or accumulators.
Convolution tensors are [N, .., C], weights [kernel.., O, C / groups]; of a transposed one [kernel.., O / groups, C].
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

from tx8fast._kernels._facade_field import drawn_centred
from tx8fast.graph_table import OpRecord
from tx8fast.proof import products
from tx8fast.proof.cells import ABSENT, SPECIAL, UNDEFINED, Elements, choose, join
from tx8fast.proof.expression import (
    Drawn,
    NotExpressed,
    Operands,
    Scope,
    Value,
    elements,
    expression,
    given,
    hidden,
    need,
)
from tx8fast.proof.expressions_elementwise import activation

#: elements of a drawn matrix that are there at a time
PIECE = 1 << 23


def _whole(operands: Operands) -> bool:
    return all(v is None or isinstance(v, np.ndarray) for v in operands)


def _finish(scope: Scope, op: OpRecord, made: Elements, operands: Operands) -> list[Value]:
    """Add the bias and apply the activation."""
    bias = given(operands, 2)
    if bias is not None:
        made = scope.field.add(made, elements(scope, bias))
    attrs = dict(op.attrs)
    return [activation(scope, attrs.get("act", "none"), made, attrs, op.results[0].dtype)]


@expression("gemm")
def gemm(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """act(a b + bias); batches broadcast, `trans_a` and `trans_b` swap the last two axes."""
    if _whole(operands):
        raise NotExpressed("gemm of integers")
    a, b = elements(scope, operands[0]), operands[1]
    if op.attr("trans_a"):
        a = a.map(lambda x: np.swapaxes(x, -1, -2))
    if isinstance(b, Drawn) and len(b.shape) == 2:
        return _finish(scope, op, _by_pieces(scope, a, b, op.attr("trans_b")), operands)
    b = elements(scope, b)
    if op.attr("trans_b"):
        b = b.map(lambda x: np.swapaxes(x, -1, -2))
    return _finish(scope, op, scope.field.matmul(a, b), operands)


def _by_pieces(scope: Scope, a: Elements, b: Drawn, turned: bool) -> Elements:
    """Return the product of `a` and a drawn matrix [n, k] (turned) or [k, n], some rows of it at a time."""
    f, key = scope.field, scope.field.key(b.stream)
    rows, width = max(1, PIECE // b.shape[1]), b.shape[1]
    cuts = [(i, min(i + rows, b.shape[0])) for i in range(0, b.shape[0], rows)]
    buffer = np.empty((min(rows, b.shape[0]), width))

    def side(words: np.ndarray, modulus: int, first: bool) -> np.ndarray:
        left, out = products.centred(words, modulus), []
        if f.is_thin(b.stream):
            thin = f.factors(b.stream)[0 if first else 1]
            return products.chained(left, *((thin.right.T, thin.left.T) if turned else thin), modulus)
        for begin, end in cuts:
            piece = buffer[: end - begin]
            drawn_centred(key, begin * width, piece, modulus, first)
            part, matrix = (left, piece.T) if turned else (left[..., begin:end], piece)
            out.append(products.total(part, matrix, modulus))
        if turned:
            return np.concatenate(out, -1)
        return np.asarray(np.sum(out, axis=0, dtype=np.int64) % modulus, np.uint32)

    def marked(bad: np.ndarray, made: np.ndarray, mark: int) -> np.ndarray:
        return np.where(np.any(bad, -1, keepdims=True), np.uint32(mark), made) if bad.any() else made

    p = marked(a.p & np.uint32(SPECIAL) != 0, side(a.p, f.p, True), UNDEFINED)
    if a.q is None or b.sides == "p":
        return Elements(p, None)
    return Elements(p, marked(a.q == ABSENT, side(a.q, f.q, False), ABSENT))


# --- labelled axes -------------------------------------------------------------------------------------------------


def product(scope: Scope, a: Elements, left: list[str], b: Elements, right: list[str], out: list[str]) -> Elements:
    """Return the sum of products of two labelled tensors over every label that `out` lacks, axes in the order of `out`."""
    f = scope.field

    def summed(x: Elements, labels: list[str], other: list[str]) -> tuple[Elements, list[str]]:
        alone = tuple(i for i, v in enumerate(labels) if v not in other and v not in out)
        return (f.sum(x, alone) if alone else x), [v for v in labels if v in other or v in out]

    (a, left), (b, right) = summed(a, left, right), summed(b, right, left)
    size = dict(zip(left, a.shape, strict=True)) | dict(zip(right, b.shape, strict=True))
    batch = [v for v in left if v in right and v in out]
    inner = [v for v in left if v in right and v not in out]
    rows, cols = [v for v in left if v not in right], [v for v in right if v not in left]

    def arranged(x: Elements, labels: list[str], groups: Sequence[list[str]]) -> Elements:
        turned = x.transpose(*[labels.index(v) for group in groups for v in group])
        return turned.reshape(*[math.prod(size[v] for v in group) for group in groups])

    made = f.matmul(arranged(a, left, (batch, rows, inner)), arranged(b, right, (batch, inner, cols)))
    have = [*batch, *rows, *cols]
    return made.reshape(*[size[v] for v in have]).transpose(*[have.index(v) for v in out])


def _dims(text: str) -> list[list[str]]:
    """Read one side of an equation: a list of labels per dimension, "1" is none."""
    found = re.findall(r"\(([^()]*)\)|(\w+)", text)
    return [[v for v in (inner.split() if inner or not name else [name]) if v != "1"] for inner, name in found]


def _label_sizes(sides: Sequence[tuple[list[list[str]], Sequence[int]]], fixed: Sequence) -> dict[str, int]:
    size = dict(zip(fixed[::2], fixed[1::2], strict=True))
    dims = [(d, n) for labels, shape in sides for d, n in zip(labels, shape, strict=True)]
    for _ in dims:
        for d, n in dims:
            unknown = [v for v in d if v not in size]
            if len(unknown) == 1:
                size[unknown[0]] = n // max(1, math.prod(size[v] for v in d if v in size))
    return size


@expression("contract")
def contract(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """The equation "b s (h d), t (h d) -> b s t": labels of no result are summed."""
    if _whole(operands):
        raise NotExpressed("contract of integers")
    a, b = (elements(scope, v) for v in operands)
    inputs, _, result = op.attr("equation").partition("->")
    left, right = (_dims(text) for text in inputs.split(","))
    out = _dims(result)
    size = _label_sizes([(left, a.shape), (right, b.shape)], op.attr("sizes"))
    labels = [[v for d in side for v in d] for side in (left, right, out)]
    a, b = (x.reshape(*[size[v] for v in have]) for x, have in ((a, labels[0]), (b, labels[1])))
    return [product(scope, a, labels[0], b, labels[1], labels[2]).reshape(*op.results[0].shape)]


@expression("einsum")
def einsum(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """Sums of products over lettered axes, two operands at a time."""
    if _whole(operands):
        raise NotExpressed("einsum of integers")
    left, _, out = op.attr("equation").partition("->")
    terms = [list(t) for t in left.split(",")]
    if any(len(set(t)) < len(t) for t in terms):
        raise NotExpressed("einsum of a diagonal")
    size: dict[str, int] = {}
    for term, v in zip(terms, operands, strict=True):
        for c, n in zip(term, need([v], 0).shape, strict=True):
            size[c] = max(size.get(c, 1), n)
    made, have = scope.number(1.0), list[str]()
    for i, (term, v) in enumerate(zip(terms, operands, strict=True)):
        later = {c for t in terms[i + 1 :] for c in t} | set(out)
        x = elements(scope, v).broadcast_to(tuple(size[c] for c in term))
        keep = [c for c in dict.fromkeys([*have, *term]) if c in later]
        made, have = product(scope, made, have, x, term, keep), keep
    return [made.transpose(*[have.index(c) for c in out])]


# --- windows -------------------------------------------------------------------------------------------------------


def _pads(x: Elements, lo: Sequence[int], hi: Sequence[int], fill: Elements) -> Elements:
    """Pad the spatial axes."""
    grow = [(0, 0), *zip(lo, hi, strict=True), (0, 0)]
    if not any(map(any, grow)):
        return x
    inside = np.pad(np.ones(x.shape, bool), grow)
    return choose(inside, x.map(lambda a: np.pad(a, grow)), fill.broadcast_to(inside.shape))


def _taps(x: Elements, kernel, out, stride, dilation) -> Iterator[tuple[tuple[int, ...], Elements]]:
    """Yield every place of the kernel with the elements of a padded input that it meets."""
    for tap in itertools.product(*map(range, kernel)):
        window = [
            slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(tap, dilation, out, stride, strict=True)
        ]
        yield tap, x.at((slice(None), *window))


def _window(op: OpRecord) -> tuple[Sequence[int], ...]:
    return tuple(op.attr(n) for n in ("stride", "dilation", "pad_lo", "pad_hi"))


@expression("conv", "conv_nd")
def conv(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """act(convolution + bias): one product of all windows' elements and the weights, per group of channels."""
    if _whole(operands):
        raise NotExpressed("conv of integers")
    f, x, w = scope.field, elements(scope, operands[0]), elements(scope, operands[1])
    stride, dilation, lo, hi = _window(op)
    groups, out = op.attr("groups"), op.results[0].shape[1:-1]
    kernel, o, c = w.shape[:-2], w.shape[-2], w.shape[-1]
    x = _pads(x, lo, hi, scope.number(0.0))
    parts = [v for _, v in _taps(x, kernel, out, stride, dilation)]
    rows = math.prod(parts[0].shape[:-1])
    if c == 1 and groups > 1:  # channel by channel: the sum over the taps of element-wise products
        each = o // groups
        made = None
        for (tap, _), part in zip(_taps(x, kernel, out, stride, dilation), parts, strict=True):
            spread = part if each == 1 else part.map(lambda a: np.repeat(a, each, -1))
            term = f.mul(spread, w.at((*tap, slice(None), 0)))
            made = term if made is None else f.add(made, term)
        assert made is not None
        return _finish(scope, op, made, operands)
    patches = join(parts, axis=0, stack=True).reshape(len(parts), rows, groups, c).transpose(2, 1, 0, 3)
    patches = patches.reshape(groups, rows, len(parts) * c)
    weights = (
        w.reshape(len(parts), groups, o // groups, c).transpose(1, 0, 3, 2).reshape(groups, len(parts) * c, o // groups)
    )
    made = f.matmul(patches, weights).transpose(1, 0, 2).reshape(*op.results[0].shape)
    return _finish(scope, op, made, operands)


@expression("conv_transpose", "conv_transpose_nd")
def conv_transpose(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """Every input element spreads over a window: the convolution of the input, its elements `stride` apart, with the
    kernel turned around."""
    f, x, w = scope.field, elements(scope, operands[0]), elements(scope, operands[1])
    stride, dilation, lo, hi = _window(op)
    groups, extra, rank = op.attr("groups"), op.attr("out_pad"), len(stride)
    shape = list(x.shape)
    at: list[slice] = [slice(None)] * len(shape)
    for i in range(rank):
        shape[1 + i] = (x.shape[1 + i] - 1) * stride[i] + 1
        at[1 + i] = slice(0, None, stride[i])
    apart = f.numbers(np.zeros(shape, np.int64))
    if x.q is None:
        apart = Elements(apart.p, None)
    for words, own in zip(apart, x, strict=True):
        if words is not None and own is not None:
            words[tuple(at)] = own
    kernel, out = w.shape[:rank], op.results[0].shape[1:-1]
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    ends = [r - h + e for r, h, e in zip(reach, hi, extra, strict=True)]
    apart = _crop(_pads(apart, reach, [max(0, e) for e in ends], scope.number(0.0)), lo, [max(0, -e) for e in ends])
    o, c = w.shape[-2], w.shape[-1] // groups
    made = None
    for tap, part in _taps(apart, kernel, out, [1] * rank, dilation):
        turned = w.at(tuple(k - 1 - t for t, k in zip(tap, kernel, strict=True)))
        pieces = [
            f.matmul(
                part.at((..., slice(g * c, (g + 1) * c))),
                turned.at((slice(None), slice(g * c, (g + 1) * c))).transpose(1, 0),
            )
            for g in range(groups)
        ]
        term = join(pieces, axis=-1) if groups > 1 else pieces[0]
        made = term if made is None else f.add(made, term)
    assert made is not None and made.shape[-1] == o * groups
    return _finish(scope, op, made, operands)


def _crop(x: Elements, lo: Sequence[int], hi: Sequence[int]) -> Elements:
    return x.at((slice(None), *(slice(a, n - b) for a, b, n in zip(lo, hi, x.shape[1:-1], strict=True))))


@expression("max_pool", "max_pool_nd", "avg_pool", "avg_pool_nd")
def pool(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """The maximum or the mean of every window; padding never wins, and counts in a mean if `count_pad` says so."""
    f, x = scope.field, elements(scope, need(operands, 0))
    stride, dilation, lo, hi = _window(op)
    kernel, out, size = op.attr("kernel"), op.results[0].shape[1:-1], x.shape[1:-1]
    most = op.kind.startswith("max")
    span = [(o - 1) * s + d * (k - 1) + 1 for o, s, d, k in zip(out, stride, dilation, kernel, strict=True)]
    behind = [max(h, r - n - a) for h, r, n, a in zip(hi, span, size, lo, strict=True)]
    padded = _pads(x, lo, behind, hidden(()) if most else scope.number(0.0))
    parts = join([v for _, v in _taps(padded, kernel, out, stride, dilation)], axis=0, stack=True)
    if most:
        return [f.reduce_max(parts, 0)]
    count = np.ones((*out, 1), np.int64)
    for i, n in enumerate(size):
        at = np.arange(out[i])[:, None] * stride[i] + np.arange(kernel[i]) * dilation[i] - lo[i]
        first, last = (-lo[i], n + hi[i]) if op.attr("count_pad") else (0, n)
        line = [1] * count.ndim
        line[i] = -1
        count = count * ((at >= first) & (at < last)).sum(1).reshape(line)
    return [f.mul(f.sum(parts, 0), f.inv(f.numbers(count)))]
