"""Numpy's matrix library kept on one thread while routines of the kernel core execute.

May import: the standard library, numpy. Must not: fail; without a known library no thread count is set.
Handing a small product to a thread pool costs far more than it gains, up to a hundredfold when other processes hold the
cores that the pool waits for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

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
