"""Matrix products of plain runs, and numpy's matrix library kept on one thread while instructions execute.

May import: the standard library, numpy, numerics, _kernels. Must not: fail; without a known library no thread count is set.
A simulated matrix instruction is small. Handing it to a thread pool costs far more than it gains,
up to a hundredfold when other processes hold the cores that the pool waits for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

from tx8fast._kernels import single_product
from tx8fast.numerics.formats import FORMAT_CODES

#: formats of operands whose sums show in single bits of results; they must not depend on the processor
_WIDE = (FORMAT_CODES["f32"], FORMAT_CODES["tf32"])
_SUFFIXES = (
    "scipy_openblas_{}_num_threads64_",
    "scipy_openblas_{}_num_threads",
    "openblas_{}_num_threads",
)


@cache
def _controls():
    """Return (get, set) of the thread count, or None if numpy uses a library we do not know."""
    for path in sorted((Path(np.__file__).parent.parent / "numpy.libs").glob("*openblas*")):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for name in _SUFFIXES:
            if hasattr(library, name.format("set")):
                return getattr(library, name.format("get")), getattr(library, name.format("set"))
    return None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run the body with one matrix-library thread, then restore the count."""
    controls = _controls()
    if controls is None:
        yield
        return
    get, put = controls
    before = get()
    put(1)
    try:
        yield
    finally:
        put(before)


def plain_product(a: np.ndarray, b: np.ndarray, fmt: int, acc: np.ndarray | None = None) -> np.ndarray:
    """Return acc + a @ b, (m, k) by (k, n), maybe in `acc`, for operands of format code `fmt`.

    Sums of f32 and tf32 are the same on every machine; those of bf16 and fp16 come in the order of the matrix library,
    within the tolerance of the TX8 hardware manual 6.5; 8-bit integers add exactly in any order.
    """
    made = single_product(a, b) if fmt in _WIDE else np.matmul(a, b)
    return made if acc is None else np.add(acc, made, out=acc)
