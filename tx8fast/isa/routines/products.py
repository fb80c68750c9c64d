"""Routines that add products: contractions over named dimensions, convolutions.

May import: math, re, isa.routines.base, isa.routines.values, errors. Must not: execute one.

A contraction is handed to the C core as a nest of dimensions: those of the result, then the summed ones, each with its size and with how
far apart its elements lie in every operand. The order of additions is that of the nest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from tx8fast.errors import SimulationError
from tx8fast.isa.routines.base import Call, declare, dense_strides, whole, wholes
from tx8fast.isa.routines.values import act_words, act_work
from tx8fast.isa.work import Work

Dims = list[list[str]]  # of an operand: per dimension the letters that make it up, the slowest first
_TERM = re.compile(r"\(([^()]*)\)|([A-Za-z_]\w*|1)")


def _named(text: str) -> Dims:
    """Dimensions of one operand of "b s (h d)"; 1 stands for a dimension without a letter."""
    dims = [m.group(1).split() if m.group(2) is None else [m.group(2)] for m in _TERM.finditer(text)]
    return [[label for label in dim if label != "1"] for dim in dims]


def _sizes(operands: Sequence[tuple[Dims, Sequence[int]]], given: Sequence, equation: str) -> dict[str, int]:
    sizes = {str(given[i]): int(given[i + 1]) for i in range(0, len(given) - 1, 2)}
    pending = [(dim, n) for dims, shape in operands for dim, n in zip(dims, shape, strict=True)]
    while pending:
        rest = []
        for dim, n in pending:
            unknown = [label for label in dim if label not in sizes]
            known = math.prod(sizes[label] for label in dim if label in sizes)
            if len(unknown) > 1:
                rest.append((dim, n))
            elif unknown and known and n % known == 0:
                sizes[unknown[0]] = n // known
            elif (unknown or known != n) and n != 1:
                raise SimulationError(f"contraction '{equation}': a dimension of {n} does not fit the others")
        if len(rest) == len(pending):
            raise SimulationError(f"contraction '{equation}': sizes of {rest[0][0]} are not given")
        pending = rest
    return sizes


def _nest(call: Call) -> tuple[list[str], int, dict[str, int], list[dict[str, int]]]:
    """Return letters in the order of the nest, how many are the result's, their sizes, and their steps per operand, in elements."""
    equation = str(call.attrs["equation"])
    left, _, right = equation.partition("->")
    plain = "sizes" not in call.attrs and " " not in equation  # letters, as einsum writes them
    read = (lambda text: [[c] for c in text.strip()]) if plain else _named
    terms, out = [read(text) for text in left.split(",")], read(right)
    shapes = [call.given(i).shape for i in range(len(terms))]
    if any(len(dims) != len(shape) for dims, shape in zip(terms, shapes, strict=True)):
        raise SimulationError(f"contraction '{equation}': dimensions of an operand are not those of its shape")
    # the longest of repeated letters counts: a dimension of one is repeated along it
    ordered = [(d, s) for dims, shape in zip(terms, shapes, strict=True) for d, s in zip(dims, shape, strict=True)]
    ordered.sort(key=lambda pair: -pair[1])
    sizes = _sizes([([d], [n]) for d, n in ordered], call.attrs.get("sizes", ()), equation)
    letters = [label for dim in out for label in dim]
    kept = len(letters)
    for dims in terms:
        letters += [label for dim in dims for label in dim if label not in letters]
    steps = []
    for dims, shape in zip(terms, shapes, strict=True):
        own: dict[str, int] = {}
        for dim, n, step in zip(dims, shape, dense_strides(shape, 1), strict=True):
            for label in reversed(dim):
                own[label] = own.get(label, 0) + (0 if n == 1 else step)
                step *= sizes[label]
        steps.append(own)
    return list(dict.fromkeys(letters)), kept, sizes, steps


def _words(letters: Sequence[str], kept: int, sizes: dict[str, int], steps: Sequence[dict[str, int]]) -> list[int]:
    """The nest as words; a result without dimensions has one of one place."""
    if kept == 0:
        letters, kept, sizes = ["", *letters], 1, sizes | {"": 1}
    words = [len(steps), len(letters), kept, *(sizes[label] for label in letters)]
    return words + [own.get(label, 0) for own in steps for label in letters]


def _contraction(call: Call) -> list[int]:
    return _words(*_nest(call))


def _contracted(call: Call) -> Work:
    letters, _, sizes, steps = _nest(call)
    terms = math.prod(sizes[label] for label in letters)
    return Work(loads=len(steps), ops=len(steps)) * terms + Work(stores=1) * call.out.n


def _gemm(call: Call) -> tuple[list[str], int, dict[str, int], list[dict[str, int]]]:
    a, b = call.given(0).shape, call.given(1).shape
    m, k = (a[-1], a[-2]) if call.attrs.get("trans_a") else (a[-2], a[-1])
    n = b[-2] if call.attrs.get("trans_b") else b[-1]
    rank = max(len(a), len(b)) - 2
    batch = [f"b{i}" for i in range(rank)]
    sizes, steps = {"m": m, "n": n, "k": k}, []
    for shape, names in (
        (a, "km" if call.attrs.get("trans_a") else "mk"),
        (b, "nk" if call.attrs.get("trans_b") else "kn"),
    ):
        labels = [*batch[rank - (len(shape) - 2) :], *names]
        steps.append(
            {
                label: 0 if label in batch and size == 1 else step
                for label, size, step in zip(labels, shape, dense_strides(shape, 1), strict=True)
            }
        )
        for label, size in zip(labels, shape, strict=True):
            sizes[label] = max(sizes.get(label, 0), size) if label in batch else sizes[label]
    return [*batch, "m", "n", "k"], rank + 2, sizes, steps


def _finished(call: Call, bias: bool) -> Work:
    each = Work(loads=1, ops=1) if bias else Work()
    return (each + act_work(call) + Work(stores=1)) * call.out.n


def _multiplied(call: Call) -> Work:
    letters, _, sizes, _ = _gemm(call)
    return Work(loads=2, ops=2) * math.prod(sizes[label] for label in letters) + _finished(call, call.has(2))


def _windows(call: Call, places: int) -> Work:
    x, w, groups = call.given(0), call.given(1), int(call.attrs.get("groups", 1))
    sums = places * math.prod(w.shape[:-2]) * call.out.shape[-1]
    return Work(loads=2, ops=2) * (sums * (x.shape[-1] // groups)) + Work(ops=1) * sums + _finished(call, call.has(2))


_WINDOW = (whole("groups", 1), wholes("stride"), wholes("dilation"), wholes("pad_lo"), act_words)

declare("gemm", "routine_contract", lambda call: _words(*_gemm(call)), act_words, work=_multiplied)
declare("contract", "routine_contract", _contraction, lambda call: [0, 0], work=_contracted)
declare("einsum", "routine_contract", _contraction, lambda call: [0, 0], work=_contracted)
declare("conv", "routine_conv", *_WINDOW, work=lambda call: _windows(call, math.prod(call.out.shape[:-1])))
declare(
    "conv_transpose", "routine_conv", *_WINDOW, work=lambda call: _windows(call, math.prod(call.given(0).shape[:-1]))
)
