"""Finds functions that an export has spelt out as polynomials (erf, erfc) and proves each find by evaluating it.

May import: frontend.stablehlo.view, numpy. Must not: trust a name: a run of ops is replaced only if its values on a
set of points are those of the function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tx8fast.errors import Tx8Error
from tx8fast.frontend.stablehlo.view import Val

if TYPE_CHECKING:
    from tx8fast.frontend.stablehlo.importer import Importer

_FUNCTIONS: dict[str, Callable[[float], float]] = {"erf": math.erf, "erfc": math.erfc}
#: shorter runs are cheap as they stand
_MIN_OPS = 12
_POINTS = np.concatenate([np.linspace(-6, 6, 49), np.linspace(-0.1, 0.1, 7)])
_TOLERANCE = {"f32": 2e-6, "bf16": 2e-2, "f16": 2e-3}

Replacement = Callable[[], list[tuple[Any, "Val | None"]]]


def find(importer: Importer, ops: list[Any]) -> dict[int, Replacement]:
    """Return, per op index of the block, what to do instead of importing it."""
    found: dict[int, Replacement] = {}
    at = 0
    while at < len(ops):
        name = _function(ops[at])
        end = at + 1
        if name is not None:
            loc = ops[at].location
            while end < len(ops) and ops[end].location == loc and len(ops[end].regions) == 0:
                end += 1
            if end - at >= _MIN_OPS:
                _replace(importer, ops[at:end], at, name, found)
        at = end
    return found


def _function(op: Any) -> str | None:
    text = getattr(op.location, "name_str", "")
    name = text.rpartition("/")[2]
    return name if name in _FUNCTIONS else None


def _replace(importer: Importer, run: list[Any], first: int, name: str, found: dict[int, Replacement]) -> None:
    own = {r: op for op in run for r in op.results}
    outside = list(dict.fromkeys(v for op in run for v in op.operands if v not in own))
    constants = [v.owner for v in outside if getattr(v.owner, "name", "") == "stablehlo.constant"]
    inputs = [v for v in outside if getattr(v.owner, "name", "") != "stablehlo.constant"]
    outputs = [r for r in own if any(u.owner.operation not in run for u in r.uses)]
    if len(inputs) != 1 or len(outputs) != 1 or not _is(importer, [*constants, *run], inputs[0], outputs[0], name):
        return
    source, result = inputs[0], outputs[0]

    def emit() -> list[tuple[Any, Val | None]]:
        x = importer.values[source]
        if x is None:
            return [(result, None)]
        views = importer.views
        if name == "erf":
            return [(result, views.elementwise("erf", x))]
        flipped = views.elementwise("erf", _negated(importer, x))
        return [(result, views.elementwise("add", flipped, views.splat(1, x)))]

    for i, op in enumerate(run):
        if op.name != "stablehlo.constant":  # other runs may share it
            found[first + i] = list
    last = max(i for i, op in enumerate(run) if op.name != "stablehlo.constant")
    found[first + last] = emit


def _negated(importer: Importer, x: Val) -> Val:
    from tx8fast.frontend.stablehlo.elementwise import negated
    from tx8fast.frontend.stablehlo.node import Node

    return negated(Node(importer, None, [x]), x)


def _is(importer: Importer, run: list[Any], source: Any, result: Any, name: str) -> bool:
    """Evaluate the run on points: a constant whose shape stands for any, as all its ops are element-wise."""
    shape, dtype = importer.types(source.type)
    if dtype not in _TOLERANCE or importer.types(result.type) != (shape, dtype):
        return False
    points = importer.emitter.const(_POINTS.astype(np.float32), "f32")
    probe = Val(
        shape, importer.emitter.op("convert", points, dtype=dtype) if dtype != "f32" else points, (0,) * len(shape)
    )
    kept = {v: importer.values.get(v) for v in (source,)}
    problems, missing = list(importer.problems), dict(importer.missing)
    importer.values[source] = probe
    try:
        for op in run:
            importer._run_op(op)
        got = importer.values[result]
    except Tx8Error:
        got = None
    importer.values.update(kept)
    failed = len(importer.problems) > len(problems) or len(importer.missing) > len(missing)
    importer.problems[:], importer.missing = problems, missing
    if failed or got is None or got.core.array is None or got.core.shape != _POINTS.shape:
        return False
    x = probe.core.array.astype(np.float64)
    want = np.array([_FUNCTIONS[name](v) for v in x])
    return bool((np.abs(got.core.array.astype(np.float64) - want) <= _TOLERANCE[dtype]).all())
