"""Nodes that a user's kernel serves: its steps as one element-wise op.

May import: frontend.vector_kernel, frontend.onnx, errors. Must not: load a file that nobody named.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import partial

from tx8fast.errors import ConfigError, raise_all
from tx8fast.frontend.common import Tensor
from tx8fast.frontend.onnx.node import Handler, Node
from tx8fast.frontend.vector_kernel import VectorKernel, load_kernels

Handlers = dict[tuple[str, str], list[Handler]]
STANDARD = frozenset({"", "ai.onnx", "ai.onnx.ml", "ai.onnx.training"})
#: versions of a user's own operator sets mean what the user says
ANY_VERSION = (0, 2**31 - 1)


def with_kernels(known: Handlers, path: str | os.PathLike[str], domains: Collection[str]) -> Handlers:
    """Return the handlers with those of a file of kernels. domains: those that the model names. Raises ConfigError."""
    handlers, problems = dict(known), []
    for kernel in load_kernels(path):
        for domain in [kernel.domain] if kernel.domain else sorted(set(domains) - STANDARD):
            if (domain, kernel.name) in handlers:
                problems.append(
                    f"{kernel.where}: operator {kernel.name} of domain '{domain}' is known already; give another name"
                )
            handlers[domain, kernel.name] = [Handler(kernel.name, partial(_run, kernel), *ANY_VERSION, domain)]
    raise_all(ConfigError, f"reading kernels {os.fspath(path)}", problems)
    return handlers


def _run(kernel: VectorKernel, n: Node) -> list[Tensor]:
    if any(t is None or not t.dtype.startswith(("f", "bf")) for t in n.inputs):
        found = ", ".join("nothing" if t is None else t.dtype for t in n.inputs)
        raise n.bad(f"its inputs are {found}; {kernel.where} takes tensors of floats")
    trace = kernel.trace(len(n), n.attrs)
    return [n.op("map", *n.inputs, steps=trace.text(k)) for k in range(len(trace.outputs))]
