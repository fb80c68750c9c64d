"""The structure of an ONNX graph: visible names, static inputs, dependency order.

May import: frontend.common, frontend.onnx.reader, errors, numpy, onnx (late). Must not: create ops.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from tx8fast.errors import ConfigError, ImportModelError, UnsupportedError, UnusedOptionWarning
from tx8fast.frontend.common import Imported, ImportOptions, is_length
from tx8fast.frontend.onnx.reader import dtype_of


class Scope:
    """Names visible in one graph or function body. A failed name maps to None and silences its users."""

    def __init__(
        self, opsets: dict[str, int], parent: Scope | None = None, bound: dict[str, Any] | None = None, depth: int = 0
    ) -> None:
        self.opsets = opsets
        self.parent = parent
        self.bound = bound  # attributes of the call whose function body this is
        self.depth = depth
        self.names: dict[str, Imported | None] = {}

    def find(self, name: str) -> Imported | None:
        """Return what a name stands for; None if it failed. Raises KeyError if no graph defines it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        raise KeyError(name)

    def knows(self, name: str) -> bool:
        return name in self.names or (self.parent is not None and self.parent.knows(name))

    def attributes(self, proto: Any) -> dict[str, Any]:
        """Decode a node's attributes, resolving references to the attributes of an enclosing function call."""
        from onnx import helper

        found: dict[str, Any] = {}
        for a in proto.attribute:
            if a.ref_attr_name:
                scope: Scope | None = self
                while scope is not None and scope.bound is None:
                    scope = scope.parent
                if scope is not None and scope.bound is not None and a.ref_attr_name in scope.bound:
                    found[a.name] = scope.bound[a.ref_attr_name]
                continue
            value = helper.get_attribute_value(a)
            if isinstance(value, bytes):
                value = value.decode("utf-8", "replace")
            found[a.name] = value
        return found

    def resolved(self, proto: Any) -> Any:
        """Return the node with attribute references replaced by their values."""
        from onnx import helper

        if not any(a.ref_attr_name for a in proto.attribute):
            return proto
        copy = type(proto)()
        copy.CopyFrom(proto)
        del copy.attribute[:]
        copy.attribute.extend(helper.make_attribute(k, v) for k, v in self.attributes(proto).items())
        return copy


def static_inputs(graph: Any, stored: set[str], options: ImportOptions) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return name -> (shape, dtype) of the true graph inputs. Raises one error for all unbound dimensions."""
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    unbound: dict[str, list[str]] = {}
    used: dict[str, None] = {}
    problems: list[str] = []
    for info in graph.input:
        if info.name in stored:
            continue
        if info.name in found:
            raise ImportModelError(f"graph input '{info.name}' is declared twice")
        if info.type.WhichOneof("value") != "tensor_type":
            kind = info.type.WhichOneof("value") or "untyped"
            problems.append(f"graph input '{info.name}' is a {kind.replace('_type', '')}; only tensors are supported")
            continue
        tensor = info.type.tensor_type
        dtype = dtype_of(tensor.elem_type, f"graph input '{info.name}'")
        if not tensor.HasField("shape") and info.name in options.constants:
            found[info.name] = (np.shape(options.constants[info.name]), dtype)
            continue
        if not tensor.HasField("shape"):
            problems.append(f"graph input '{info.name}' has no shape; export the model with shapes")
            continue
        shape = []
        for axis, d in enumerate(tensor.shape.dim):
            size = d.dim_value if d.WhichOneof("value") == "dim_value" else None
            name = d.dim_param or f"{info.name}.{axis}"
            if size is None or size < 0:
                used[name] = None
                size = options.dim(name)
            if size is None:
                unbound.setdefault(name, []).append(f"{info.name}[{axis}]")
                size = 0
            shape.append(size)
        found[info.name] = (tuple(shape), dtype)
    if problems:
        raise UnsupportedError("importing the model: " + "; ".join(problems))
    strangers = [n for n in options.dims if n not in used]
    if unbound:
        where = "; ".join(f"{n} ({', '.join(places[:4])})" for n, places in unbound.items())
        flags = " ".join(f"--dim {n}=VALUE" for n in unbound)
        extra = f"; {', '.join(strangers)} is not among them" if strangers else ""
        raise ImportModelError(
            f"the model has {len(unbound)} dynamic dimensions without a size: {where}; pass {flags}{extra}"
        )
    if strangers:
        known = ", ".join(used) or "none"
        raise ConfigError(
            f"dimensions {', '.join(strangers)} are not in the model; its dynamic dimensions are: {known}"
        )
    _warn_unused(options, list(used))
    return found


def built_phase(graph: Any, options: ImportOptions) -> str:
    """Return the phase that decided a size of the graph, "" if there is none to decide."""
    symbols = {d.dim_param for info in graph.input for d in info.type.tensor_type.shape.dim}
    return options.phase if any(map(is_length, symbols)) else ""


def _warn_unused(options: ImportOptions, symbols: list[str]) -> None:
    """Warn of a size that no dimension of the model takes: files for another one are easily mixed up."""
    sizes = [options.dim(s) for s in symbols]
    given = {n: v for n in ("seq", "past", "batch") if (v := getattr(options, n)) is not None}
    unused = [n for n, v in given.items() if [replace(options, **{n: v + 1}).dim(s) for s in symbols] == sizes]
    if options.phase and not any(map(is_length, symbols)):
        unused.insert(0, "phase")
    if unused:
        known = ", ".join(symbols) or "none"
        warnings.warn(
            f"{', '.join(unused)} has no effect, no dimension of the model takes it; its dynamic dimensions "
            f"are: {known}",
            UnusedOptionWarning,
            stacklevel=2,
        )


def in_order(nodes: Any, scope: Scope) -> list[tuple[int, Any]]:
    """Return (index, node) so that producers come first, keeping file order where it already holds.

    Raises ImportModelError naming the nodes of a cycle.
    """
    producer: dict[str, int] = {}
    for i, proto in enumerate(nodes):
        for o in proto.output:
            producer.setdefault(o, i)
    order: list[tuple[int, Any]] = []
    state = [0] * len(nodes)
    for root in range(len(nodes)):
        stack = [root]
        while stack:
            i = stack[-1]
            if state[i] == 0:
                state[i] = 1
                for name in reversed(_reads(nodes[i])):
                    j = producer.get(name)
                    if j is None or not name or state[j] == 2:
                        continue
                    if state[j] == 1:
                        cycle = [nodes[k].name or f"{nodes[k].op_type}#{k}" for k in stack if state[k] == 1]
                        raise ImportModelError(f"the graph has a cycle through nodes {', '.join(cycle[:8])}")
                    stack.append(j)
            else:
                stack.pop()
                if state[i] == 1:
                    state[i] = 2
                    order.append((i, nodes[i]))
    return order


def _reads(proto: Any) -> list[str]:
    """Names a node reads, including those its subgraphs take from outside."""
    names = list(proto.input)
    for a in proto.attribute:
        for g in [a.g] if a.HasField("g") else a.graphs:
            inner = {i.name for i in g.input} | {o for n in g.node for o in n.output} | {t.name for t in g.initializer}
            names += [x for n in g.node for x in _reads(n) if x not in inner]
            names += [o.name for o in g.output if o.name not in inner]
    return names


def without_inputs(proto: Any, absent: set[str]) -> Any:
    """Return the node with inputs in `absent` replaced by the empty name."""
    if not any(n in absent for n in proto.input):
        return proto
    copy = type(proto)()
    copy.CopyFrom(proto)
    for i, n in enumerate(copy.input):
        if n in absent:
            copy.input[i] = ""
    return copy
