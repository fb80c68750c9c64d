"""Handlers of control flow, which must be decided at import: branches are chosen, loops are unrolled.

May import: frontend.onnx.node. Must not: create regions.
"""

from __future__ import annotations

import numpy as np

from tx8fast.frontend.common import Imported, Tensor
from tx8fast.frontend.onnx.node import Handler, Node

#: more iterations than this are refused rather than unrolled
MAX_TRIPS = 1024


def _label(n: Node, suffix: str) -> str:
    return f"{n.importer.emitter.loc}/{suffix}"


def _tensor(n: Node, found: Imported, what: str) -> Tensor:
    if not isinstance(found, Tensor):
        raise n.bad(f"{what} is a sequence, required a tensor")
    return found


def _if(n: Node):
    condition = n[0].force()
    if condition is None:
        raise n.importer.need_constant(n[0], f"{n.where}: the condition of a branch must be known at compile time")
    branch = "then_branch" if bool(n.single(condition, "the condition")) else "else_branch"
    return n.importer.run_graph(n.required(branch), n.scope, [], _label(n, branch))


def _loop(n: Node):
    """Unroll while the condition is a known truth and fewer than M trips are done."""
    body = n.required("body")
    limit = int(n.number(0, "M")) if n.has(0) else None
    alive = bool(n.number(1, "cond")) if n.has(1) else True
    state = list(n.inputs[2:])
    scans: list[list[Tensor]] = [[] for _ in range(len(body.output) - 1 - len(state))]
    trip = 0
    while alive and (limit is None or trip < limit):
        if trip == MAX_TRIPS:
            raise n.unsupported(f"the loop runs more than {MAX_TRIPS} times; loops are unrolled")
        inputs = [n.const(np.array(trip, np.int64)), n.const(np.array(True)), *state]
        results = n.importer.run_graph(body, n.scope, inputs, _label(n, f"trip{trip}"))
        condition = _tensor(n, results[0], "the loop's condition")
        alive = bool(n.single(n.known(condition, "the loop's condition"), "the loop's condition"))
        state = results[1 : 1 + len(state)]
        for kept, t in zip(scans, results[1 + len(state) :]):
            kept.append(_tensor(n, t, "a scan output"))
        trip += 1
    if not trip and scans:
        raise n.unsupported("a loop without a single trip has scan outputs of unknown shape")
    return [*state, *[n.concat([n.reshape(t, (1, *t.shape)) for t in kept], 0) for kept in scans]]


def _scan(n: Node):
    """Unroll over the scanned axes."""
    body, count = n.required("body"), n.required("num_scan_inputs")
    split = len(n) - count
    state, scanned = list(n.inputs[:split]), n.inputs[split:]
    outs = len(body.output) - len(state)
    in_axes = [n.norm_axis(a, t.rank) for a, t in zip(n.attr("scan_input_axes", [0] * count), scanned)]
    in_back = n.attr("scan_input_directions", [0] * count)
    out_axes, out_back = n.attr("scan_output_axes", [0] * outs), n.attr("scan_output_directions", [0] * outs)
    length = scanned[0].shape[in_axes[0]]
    if length > MAX_TRIPS:
        raise n.unsupported(f"the scan has {length} steps, more than {MAX_TRIPS}; scans are unrolled")
    if not length and outs:
        raise n.unsupported("a scan without a single step has outputs of unknown shape")
    scans: list[list[Tensor]] = [[] for _ in range(outs)]
    for step in range(length):
        pieces = []
        for t, axis, back in zip(scanned, in_axes, in_back):
            piece = n.slice(t, axis, length - 1 - step if back else step, 1)
            pieces.append(n.reshape(piece, [d for i, d in enumerate(t.shape) if i != axis]))
        results = n.importer.run_graph(body, n.scope, [*state, *pieces], _label(n, f"step{step}"))
        state = results[: len(state)]
        for kept, t in zip(scans, results[len(state) :]):
            kept.append(_tensor(n, t, "a scan output"))
    stacked = []
    for kept, axis, back in zip(scans, out_axes, out_back):
        axis = n.norm_axis(axis, kept[0].rank + 1)
        parts = [n.reshape(t, (*t.shape[:axis], 1, *t.shape[axis:])) for t in (kept[::-1] if back else kept)]
        stacked.append(n.concat(parts, axis))
    return [*state, *stacked]


HANDLERS: tuple[Handler, ...] = (
    Handler("If", _if),
    Handler("Loop", _loop, lists=True),
    Handler("Scan", _scan, 9),
)
