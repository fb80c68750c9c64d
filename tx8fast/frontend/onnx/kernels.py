"""Nodes that a user's kernel serves: its steps as one element-wise op.

May import: frontend.vector_kernel, frontend.onnx, errors. Must not: load a file that nobody named.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection
from functools import partial

from tx8fast.errors import ConfigError, UnusedOptionWarning, raise_all
from tx8fast.frontend.common import Tensor
from tx8fast.frontend.onnx.node import Handler, Node
from tx8fast.frontend.vector_kernel import VectorKernel, load_kernels
from tx8fast.records import dataclass

Handlers = dict[tuple[str, str], list[Handler]]
STANDARD = frozenset({"", "ai.onnx", "ai.onnx.ml", "ai.onnx.training"})
#: versions of a user's own operator sets mean what the user says
ANY_VERSION = (0, 2**31 - 1)


@dataclass
class Used:
    """How many nodes a file of kernels has served."""

    file: str
    nodes: int = 0

    def warn(self) -> None:
        """Tell of a file that served none."""
        if not self.nodes:
            warnings.warn(
                f"kernels {self.file} has no effect, no node is of their kinds and domains",
                UnusedOptionWarning,
                stacklevel=2,
            )


def with_kernels(known: Handlers, path: str | os.PathLike[str], domains: Collection[str]) -> tuple[Handlers, Used]:
    """Return the handlers with those of a file of kernels, and what tells of a file that no node needed. domains: those that the model
    names. Raises ConfigError."""
    handlers, problems, used = dict(known), [], Used(os.fspath(path))
    for kernel in load_kernels(path):
        for domain in [kernel.domain] if kernel.domain else sorted(set(domains) - STANDARD):
            if (domain, kernel.name) in handlers:
                problems.append(
                    f"{kernel.where}: operator {kernel.name} of domain '{domain}' is known already; give another name"
                )
            handlers[domain, kernel.name] = [Handler(kernel.name, partial(_run, kernel, used), *ANY_VERSION, domain)]
    raise_all(ConfigError, f"reading kernels {os.fspath(path)}", problems)
    return handlers, used


def _run(kernel: VectorKernel, used: Used, n: Node) -> list[Tensor]:
    used.nodes += 1
    if any(t is None or not t.dtype.startswith(("f", "bf")) for t in n.inputs):
        found = ", ".join("nothing" if t is None else t.dtype for t in n.inputs)
        raise n.bad(f"its inputs are {found}; {kernel.where} takes tensors of floats")
    trace = kernel.trace(len(n), n.attrs)
    return [n.op("map", *n.inputs, steps=trace.text(k)) for k in range(len(trace.outputs))]
