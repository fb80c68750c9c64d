"""tx8fast: compiler and simulators for the TX8 spatial AI chip.

    program = tx8fast.compile("model.onnx", dtype="bf16")
    outputs = program.run({"x": x})
    print(program.simulate().cycles)

Names are imported when first used: `import tx8fast` costs nothing.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # as type checkers know it, without the time that `typing` takes
if TYPE_CHECKING:
    from typing import Any

    from tx8fast.api import CompiledProgram, compile
    from tx8fast.errors import Tx8Error
    from tx8fast.frontend.vector_kernel import vector_kernel
    from tx8fast.lengths import LengthPrograms, compile_lengths, load
    from tx8fast.options import CompileOptions

_HOME = {
    "compile": "api",
    "CompiledProgram": "api",
    "CompileOptions": "options",
    "Tx8Error": "errors",
    "LengthPrograms": "lengths",
    "compile_lengths": "lengths",
    "load": "lengths",
    "vector_kernel": "frontend.vector_kernel",
}
__all__ = [
    "CompileOptions",
    "CompiledProgram",
    "LengthPrograms",
    "Tx8Error",
    "__version__",
    "compile",
    "compile_lengths",
    "load",
    "vector_kernel",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tx8fast' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(f"tx8fast.{_HOME[name]}"), name)
