"""The graph as the search receives it, all calls written out: which op makes which value, under which name.

May import: graph_table. Must not: know what the search makes of it.

A value's name is its path: the calls that lead to its function, each by the number of the call's first result, then its own
number there ("12.40.7"); launches carry the same names. Arguments and results of calls, and reshapes, are the value
they stand for: all names of one value have one root, and the same elements in row-major order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from tx8fast.graph_table import FunctionTable, GraphTable, OpRecord, TensorSpec
from tx8fast.records import dataclass


@dataclass(frozen=True)
class Instance:
    """One op of one call. inputs, outputs: names of values, "" an absent operand."""

    number: int
    record: OpRecord
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass
class Graph:
    """specs, roots: of every name. made: root -> the instance that makes it. inputs: root -> name of the model's input;
    params: root -> weight key; results: names of the outputs, in order; outputs: what the model calls them."""

    chips: tuple[int, int] = (1, 1)
    specs: dict[str, TensorSpec] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)
    made: dict[str, Instance] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    results: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    first: dict[str, str] = field(default_factory=dict)  # root of a parameter -> its first name

    def spec_of(self, root: str) -> TensorSpec:
        """Return the shape and format of a root; of a parameter those under which it is read first."""
        return self.specs[self.first.get(root, root)]

    @property
    def n_chips(self) -> int:
        return self.chips[0] * self.chips[1]


def written_out(table: GraphTable) -> Graph:
    """Return the graph of all calls; the table must be as `build_view` left it, before groups and the search."""
    reader = _Reader(table)
    main = table.functions["main"]
    names = [str(a) for a in main.args]
    for name, a, known in zip(names, main.args, main.arg_names, strict=True):
        reader.graph.roots[name] = name
        reader.graph.inputs[name] = known
        reader.graph.specs[name] = main.values[a]
    reader.graph.results = reader.visit(main, (), "", names)
    reader.graph.outputs = list(main.result_names)
    return reader.graph


class _Reader:
    def __init__(self, table: GraphTable) -> None:
        self.table, self.graph = table, Graph(table.chips)

    def visit(self, fn: FunctionTable, calls: tuple[int, ...], prefix: str, args: Sequence[str]) -> list[str]:
        """Read one call of a function; `args` are the roots of its arguments. Return the names of its results."""
        g = self.graph
        names = [".".join(map(str, (*calls, v))) for v in range(len(fn.values))]
        g.specs.update(zip(names, fn.values, strict=True))
        for a, root in zip(fn.args, args, strict=True):
            g.roots[names[a]] = root
        for v, key in fn.params.items():
            g.roots[names[v]] = f"param {key}"
            g.params[f"param {key}"] = key
            g.first.setdefault(f"param {key}", names[v])
        for step in fn.steps:
            inputs = tuple([names[v] if v >= 0 else "" for v in step.inputs])
            outputs = tuple([names[v] for v in step.outputs])
            if step.kind == "alias":
                g.roots[outputs[0]] = g.roots[inputs[0]]
            elif step.kind == "call":
                callee = self.table.functions[step.callee]
                inner = self.visit(
                    callee, (*calls, step.call_number), f"{prefix}{step.name}/", [g.roots[n] for n in inputs]
                )
                for name, result in zip(outputs, inner, strict=True):
                    g.roots[name] = g.roots[result]
            else:
                assert isinstance(step.record, OpRecord)
                made = Instance(len(g.instances), step.record, prefix + step.name, inputs, outputs)
                g.instances.append(made)
                for name in outputs:
                    g.roots[name] = name
                    g.made[name] = made
        return [names[v] for v in fn.results]
