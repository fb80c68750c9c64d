"""A runner of launches that is right by construction, so that the driver of proofs is tried without a machine; faults can be put in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tx8fast import api
from tx8fast.options import CompileOptions
from tx8fast.program.model import Program
from tx8fast.proof.evaluate import Evaluation, Sources, slice_of
from tx8fast.proof.field import Field
from tx8fast.proof.graph import Graph, written_out
from tx8fast.proof.prove import Noted, prove
from tx8fast.proof.report import Report

#: (launch, results per chip) -> results per chip
Fault = Callable[[int, list], list]


class GraphRunner:
    """Executes a launch by the graph's own expression, from the operands that it is given."""

    def __init__(
        self, program: Program, field: Field, graph: Graph, sources: Sources, fault: Fault | None = None
    ) -> None:
        self.evaluation = Evaluation(graph, field, sources)
        self.graph, self.fault = graph, fault
        self.ran: list[int] = []

    def run(self, launch, operands, results):
        self.ran.append(launch)
        e = self.evaluation
        e.stored = {a.root: values for a, values in operands}
        part = slice_of(self.graph, [a.root for a, _ in operands], [a.root for a in results])
        made, scope = e.launch(part, e.given(part), e.field)
        out = [made[a.root] for a in results]
        divided = (
            np.concatenate([d.p.reshape(-1) for d in scope.denominators])
            if scope.denominators
            else np.zeros(0, np.uint32)
        )
        return (out if self.fault is None else self.fault(launch, out)), Noted(divided, scope.comparisons)


def tables_of(model: Path, **options: Any):
    """Return the program of a model, its graph table, sources and the description of its weights."""
    chosen = CompileOptions(**options)
    ir = api.open_model(model, **chosen.import_options())
    view = api.lower_graph(ir, chosen)

    def known(key: str, chip: int) -> np.ndarray | None:
        if key in view.inline:
            return view.inline[key]
        found = ir.weights.describe(key, None if chip < 0 else chip)
        generated = found.get("kind") == "derived" and not found.get("inputs")
        return np.asarray(ir.weights.view(key, None if chip < 0 else chip)) if generated else None

    sources = Sources(known, lambda key: key not in view.inline and ir.weights.varies(key))
    return api.compile(model, chosen).program, view.table, sources, partial(api.param_source, ir, view)


def proof_by_graph(model: Path, fault: Fault | None = None, change: Callable[[Program], None] | None = None,
                   quick: bool = False, **options: Any) -> tuple[Report, list[GraphRunner]]:  # fmt: skip
    """Return the report of a proof whose launches compute what the graph says, but for `fault`; `change` may spoil the program."""
    program, table, sources, describe = tables_of(model, **options)
    if change is not None:
        change(program)
    graph = written_out(table)
    runners: list[GraphRunner] = []

    def runner(program: Program, field: Field) -> GraphRunner:
        runners.append(GraphRunner(program, field, graph, sources, fault))
        return runners[-1]

    return prove(program, table, sources, describe, runner, quick), runners
