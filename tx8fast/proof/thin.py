"""Which weights are drawn as thin matrices: of low rank, so that products with them take little time.

May import: the kernels, proof.graph, proof.work, proof.degree, proof.draw. Must not: know rows, or how anything is computed.

A polynomial of degree d that is zero on all matrices of rank d is zero on all matrices: those that vanish on the matrices of
rank r are made of minors with r + 1 rows (the second fundamental theorem of invariants, De Concini and Procesi 1976). So a launch
that is wrong for some weight is wrong for a thin one too, as long as what tells it from the right one has no more than RANK
elements of that weight as factors.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from tx8fast._kernels._facade_field import RANK
from tx8fast.proof import draw
from tx8fast.proof.degree import power_of
from tx8fast.proof.evaluate import Sources
from tx8fast.proof.forms import FLOATS
from tx8fast.proof.graph import Graph, Instance
from tx8fast.proof.work import Work

#: degree of an element of a thin matrix in what is drawn: one element of either factor
DEGREE = 2


def thin_roots(graph: Graph, works: Sequence[Work], sources: Sources) -> dict[str, tuple[int, int]]:
    """Return the large weights (roots) with their rows and columns that one product alone multiplies by, so that all launches have
    few of their elements as factors."""
    uses: dict[str, list[tuple[Instance, int]]] = defaultdict(list)
    for op in graph.instances:
        for i, name in enumerate(op.inputs):
            if name and graph.roots[name] in graph.params:
                uses[graph.roots[name]].append((op, i))
    found = {}
    for root, ((op, i), *more) in uses.items():
        spec, at = graph.spec_of(root), op.record.operands[i]
        product = op.record.kind.rstrip("_") == "gemm" and i == 1 and not more
        fits = len(spec.shape) == 2 and spec.dtype in FLOATS and at is not None and at.shape == spec.shape
        if product and fits and math.prod(spec.shape) >= draw.LARGE and not _is_constant(graph, root, sources):
            found[root] = spec.shape[0], spec.shape[1]
    for part in (work.part for work in works if work.part is not None):
        for root in part.sources:
            if root in found and power_of(graph, part, root) > RANK:
                del found[root]
    return found


def streams(graph: Graph, roots: dict[str, tuple[int, int]], sources: Sources) -> dict[str, tuple[int, int]]:
    """Return the streams that the elements of weights are drawn from, on each chip where they differ."""
    return {
        draw.stream_of(graph.params[root], chip): shape
        for root, shape in roots.items()
        for chip in _chips(graph, root, sources)
    }


def _chips(graph: Graph, root: str, sources: Sources) -> Sequence[int]:
    return range(graph.n_chips) if sources.varies(graph.params[root]) else (-1,)


def _is_constant(graph: Graph, root: str, sources: Sources) -> bool:
    """Say whether the model holds a parameter's values for itself."""
    return any(sources.known(graph.params[root], chip) is not None for chip in _chips(graph, root, sources))
