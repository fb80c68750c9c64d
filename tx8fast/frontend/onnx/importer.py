"""Walks an ONNX graph in dependency order and calls one handler per node; collects every problem.

May import: ir, weights, errors, frontend.common and frontend.onnx. Must not: know any particular ONNX op.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tx8fast.errors import (
    ConfigError,
    ImportModelError,
    SimulationError,
    Tx8Error,
    UnsupportedError,
    VerifyError,
    listing,
    short,
)
from tx8fast.frontend.common import (
    Emitter,
    Imported,
    ImportOptions,
    NeedConstant,
    Tensor,
    TensorList,
    np_type,
    source_args,
)
from tx8fast.frontend.onnx.graph import Scope, in_order, static_inputs, without_inputs
from tx8fast.frontend.onnx.node import MAX_OPSET, Handler, Node
from tx8fast.frontend.onnx.reader import Initializers, dtype_of
from tx8fast.frontend.onnx.schema import attribute_problems, function_body, has_body, settle_kind, type_problems
from tx8fast.ir.core import Value

MAX_INLINE_DEPTH = 32
#: function calls and loop bodies expanded in one model; more are a mistake or an attack
MAX_EXPANSIONS = 50_000
MAX_DIM = 2**31 - 1
MAX_ELEMENTS = 2**40


class TooLarge(ImportModelError):
    """The model grows without reasonable bound; nothing after it is worth importing."""


def check_size(shape: tuple[int, ...], what: str) -> None:
    """Raise ImportModelError for a tensor that no machine holds."""
    if any(d > MAX_DIM for d in shape) or math.prod(shape) > MAX_ELEMENTS:
        raise ImportModelError(
            f"{what} has shape {list(shape)}; at most {MAX_DIM} per dimension and {MAX_ELEMENTS} elements are supported"
        )


def tensors_of(found: Imported | None) -> tuple[Tensor, ...]:
    """Return the tensors of what a name stands for."""
    return () if found is None else (found,) if isinstance(found, Tensor) else found.tensors


def _shown(t: Imported | None) -> str:
    if isinstance(t, TensorList):
        return f"a sequence of {len(t.tensors)} tensors of {t.dtype}"
    return "nothing" if t is None else f"{t.dtype}{list(t.shape)}"


class _Reported(Exception):
    """A subgraph's result is missing because of a problem that is already listed."""


class Importer:
    """The state of one import. `problems` holds exceptions; `finish` raises them together."""

    def __init__(
        self,
        model: Any,
        path: str,
        options: ImportOptions,
        emitter: Emitter,
        handlers: dict[tuple[str, str], list[Handler]],
    ) -> None:
        self.model = model
        self.path = path
        self.options = options
        self.emitter = emitter
        self.handlers = handlers
        self.initializers = Initializers(path, emitter.weights)
        self.functions = {(f.domain, f.name): f for f in model.functions}
        self.problems: list[Tx8Error] = []
        self.args: dict[Value, str] = {}
        self.expansions = 0

    # ---- the main graph

    def declare(self, block) -> tuple[Scope, list[str]]:
        """Create the scope of the main graph: inputs (static shapes) and initialisers. Returns argument names."""
        graph = self.model.graph
        scope = Scope({o.domain if o.domain != "ai.onnx" else "": o.version for o in self.model.opset_import})
        stored = {t.name for t in graph.initializer}
        types = static_inputs(graph, stored, self.options)
        names = []
        for name, (shape, dtype) in types.items():
            check_size(shape, f"graph input '{name}'")
            if name in self.options.constants:
                scope.names[name] = self._bound_input(name, shape, dtype)
                continue
            value = block.add_arg(self.emitter.ctx.tensor(shape, dtype), name)
            self.args[value] = name
            scope.names[name] = Tensor(shape, dtype, value=value)
            names.append(name)
        unknown = [n for n in self.options.constants if n not in types and n not in stored]
        if unknown:
            raise ConfigError(
                f"binding constants: {', '.join(unknown)} are not graph inputs; inputs are {', '.join(types) or 'none'}"
            )
        for proto in graph.initializer:
            if proto.name in scope.names:
                self.problems.append(ImportModelError(f"initialiser '{proto.name}' is defined twice"))
                continue
            try:
                if proto.name in self.options.constants:
                    dtype = dtype_of(proto.data_type, f"initialiser '{proto.name}'")
                    scope.names[proto.name] = self._bound_input(proto.name, tuple(proto.dims), dtype)
                else:
                    scope.names[proto.name] = self.initializers.weight(proto)
            except Tx8Error as e:
                self._failed(scope, [proto.name], e)
        for proto in graph.sparse_initializer:
            e = UnsupportedError(f"initialiser '{proto.values.name}': sparse tensors are not supported")
            self._failed(scope, [proto.values.name], e)
        return scope, names

    def _bound_input(self, name: str, shape: tuple[int, ...], dtype: str) -> Tensor:
        array = np.asarray(self.options.constants[name])
        if array.shape != shape:
            raise ConfigError(f"binding input '{name}': found shape {list(array.shape)}, required {list(shape)}")
        return self.emitter.const(array.astype(np_type(dtype), copy=False), dtype)

    def check_ops(self, scope: Scope) -> None:
        """Report all operators of the main graph that no handler, function or definition covers."""
        missing: dict[tuple[str, str], list[str]] = {}
        for i, proto in enumerate(self.model.graph.node):
            if not self._covered(proto, scope):
                missing.setdefault((proto.domain, proto.op_type), []).append(proto.name or f"{proto.op_type}#{i}")
        for (domain, op_type), nodes in missing.items():
            shown = ", ".join(map(short, nodes[:8])) + (f" and {len(nodes) - 8} more" if len(nodes) > 8 else "")
            version = scope.opsets.get(domain)
            ranges = ", ".join(f"{h.low}-{h.high}" for h in self.handlers.get((domain, op_type), []))
            hint = f"; supported in operator sets {ranges}" if ranges else ""
            self.problems.append(
                UnsupportedError(
                    f"operator {op_type} (domain '{domain or 'ai.onnx'}', operator set {version}) of nodes {shown} "
                    f"is not supported{hint}"
                )
            )
            for node in self.model.graph.node:
                if (node.domain, node.op_type) == (domain, op_type):
                    scope.names.update((o, None) for o in node.output if o)

    def _covered(self, proto: Any, scope: Scope) -> bool:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        opset = scope.opsets.get(domain, 0)
        return (
            self.handler(proto, opset) is not None
            or (proto.domain, proto.op_type) in self.functions
            or has_body(proto.op_type, opset, domain)
        )

    def handler(self, proto: Any, opset: int) -> Handler | None:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        return next((h for h in self.handlers.get((domain, proto.op_type), []) if h.low <= opset <= h.high), None)

    # ---- nodes

    def run_nodes(self, nodes: Any, scope: Scope, prefix: str = "") -> None:
        """Import nodes in dependency order."""
        for i, proto in in_order(nodes, scope):
            self._run_node(proto, i, scope, prefix)

    def _run_node(self, proto: Any, index: int, scope: Scope, prefix: str) -> None:
        label = prefix + (proto.name or f"{proto.op_type}#{index}")
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        opset = scope.opsets.get(domain, 1)
        where = f"node '{short(label)}' ({proto.op_type}, operator set {opset})"
        if any(o and o in scope.names and scope.names[o] is None for o in proto.output):
            return  # reported by check_ops
        before = len(self.problems)
        try:
            taken = [o for o in proto.output if o and scope.knows(o)]
            if taken:
                raise ImportModelError(f"{where}: output '{taken[0]}' is already defined; names must be unique")
            inputs: list[Imported | None] = []
            for name in proto.input:
                found = scope.find(name) if name else None
                if name and found is None:
                    self._failed(scope, proto.output)
                    return
                inputs.append(found)
            wrong = type_problems(proto.op_type, opset, domain, inputs) + attribute_problems(proto, opset, domain)
            if wrong:
                raise ImportModelError(f"{where}: " + "; ".join(wrong))
            self.emitter.loc = label
            outputs = self._dispatch(proto, opset, scope, inputs, where, label)
            for name, found in zip(proto.output, outputs):
                for t in tensors_of(found):
                    check_size(t.shape, f"{where}: output '{name}'")
        except _Reported:
            self._failed(scope, proto.output)
        except TooLarge:
            raise
        except KeyError as e:
            self._failed(scope, proto.output, ImportModelError(f"{where}: input {e} is not defined by anything"))
        except (VerifyError, SimulationError) as e:  # SimulationError: constants that do not fit their operation
            self._failed(scope, proto.output, ImportModelError(f"{where}: {e}"))
        except Tx8Error as e:
            self._failed(scope, proto.output, e)
        except (ValueError, ArithmeticError, MemoryError, IndexError, TypeError) as e:
            given = ", ".join(map(_shown, inputs))
            told = f"{where}: its inputs ({given}) and attributes do not make a valid node of its kind ({e})"
            self._failed(scope, proto.output, ImportModelError(told))
        else:
            for name, t in zip(proto.output, outputs):
                if name and t is not None:
                    scope.names[name] = t
            lost = [o for k, o in enumerate(proto.output) if o and (k >= len(outputs) or outputs[k] is None)]
            if lost and len(self.problems) > before:
                self._failed(scope, lost)
            elif lost:
                self._failed(scope, lost, UnsupportedError(f"{where}: output '{lost[0]}' is not supported"))

    def _dispatch(
        self, proto: Any, opset: int, scope: Scope, inputs: list[Imported | None], where: str, label: str
    ) -> list[Imported | None]:
        handler, own = self.handler(proto, opset), self.functions.get((proto.domain, proto.op_type))
        lists = [f"input {i} ({_shown(t)})" for i, t in enumerate(inputs) if isinstance(t, TensorList)]
        if lists and not (handler.lists if handler is not None else own):
            raise UnsupportedError(f"{where}: {lists[0]}: this operator takes tensors only")
        if handler is not None:
            result = handler.run(Node(self, scope, proto, inputs, where))
            return [result] if isinstance(result, Tensor | TensorList) else list(result)
        body = own or function_body(scope.resolved(proto), opset, inputs)
        if body is None:
            raise UnsupportedError(f"{where}: this operator is not supported")
        return self._inline(body, proto, scope, inputs, label)

    def _inline(self, body: Any, proto: Any, scope: Scope, inputs: list[Imported | None], label: str):
        """Import a function body in place of its call."""
        from onnx import helper

        if scope.depth >= MAX_INLINE_DEPTH:
            raise ImportModelError(
                f"function '{proto.op_type}' is nested more than {MAX_INLINE_DEPTH} deep; is it recursive?"
            )
        self._count_expansion(f"function '{proto.op_type}'")
        bound = {a.name: helper.get_attribute_value(a) for a in body.attribute_proto if settle_kind(a)}
        bound.update(scope.attributes(proto))
        opsets = {o.domain if o.domain != "ai.onnx" else "": o.version for o in body.opset_import}
        opsets.setdefault("", scope.opsets.get("", MAX_OPSET))
        inner = Scope(opsets, None, bound, scope.depth + 1)
        for i, name in enumerate(body.input):
            if i < len(inputs) and inputs[i] is not None:
                inner.names[name] = inputs[i]
        absent = {n for i, n in enumerate(body.input) if i >= len(inputs) or inputs[i] is None}
        nodes = [without_inputs(n, absent) for n in body.node]
        self.run_nodes(nodes, inner, f"{label}/")
        return [inner.names.get(o) if i < len(proto.output) else None for i, o in enumerate(body.output)]

    def run_graph(self, graph: Any, scope: Scope, inputs: Sequence[Imported], label: str) -> list[Imported]:
        """Import a subgraph (a branch or loop body) in place; returns its outputs."""
        self._count_expansion(f"the body of '{label}'")
        inner = Scope(scope.opsets, scope, None, scope.depth)
        for formal, actual in zip(graph.input, inputs, strict=True):
            inner.names[formal.name] = actual
        for proto in graph.initializer:
            array = self.initializers.array(proto, f"initialiser '{proto.name}'")
            inner.names[proto.name] = self.emitter.const(array, dtype_of(proto.data_type, proto.name))
        before = len(self.problems)
        self.run_nodes(graph.node, inner, f"{label}/")
        if len(self.problems) > before:
            raise self.problems.pop()
        outputs = [inner.find(o.name) for o in graph.output]
        if any(t is None for t in outputs):
            raise _Reported
        return outputs  # type: ignore[return-value]

    def _count_expansion(self, what: str) -> None:
        self.expansions += 1
        if self.expansions > MAX_EXPANSIONS:
            raise TooLarge(
                f"expanding {what}: the model needs more than {MAX_EXPANSIONS} function calls and loop bodies"
            )

    # ---- problems

    def need_constant(self, t: Tensor, message: str) -> NeedConstant:
        """Return the error for a tensor that should have been constant, naming the inputs it comes from."""
        names = [self.args[v] for v in source_args(t.value) if v in self.args] if t.value is not None else []
        if names:
            message += f"; it is computed from graph inputs {', '.join(names)}: bind them with constants"
        return NeedConstant(message, tuple(names))

    def _failed(self, scope: Scope, names: Any, error: Tx8Error | None = None) -> None:
        if error is not None:
            self.problems.append(error)
        for name in names:
            if name and scope.names.get(name) is None:
                scope.names[name] = None

    def finish(self) -> None:
        """Raise all problems together, as the gravest kind among them."""
        if not self.problems:
            return
        text = listing(map(str, self.problems), f"importing {self.path or 'the model'}")
        if any(isinstance(p, ImportModelError) for p in self.problems):
            raise ImportModelError(text)
        if all(isinstance(p, NeedConstant) for p in self.problems):
            raise NeedConstant(text, tuple(dict.fromkeys(n for p in self.problems for n in p.inputs)))  # type: ignore[attr-defined]
        raise UnsupportedError(text)
