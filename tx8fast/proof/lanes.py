"""Launches on all cores: each is run in a thread, and what they found is taken in the order of launches.

May import: numpy. Must not: know launches or the field. Products and kernels leave the interpreter free, so threads suffice. A
library that splits each small product over threads of its own wastes most of them: it gets one while a proof runs.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Generic, TypeVar

import numpy as np

Worker = TypeVar("Worker")
Found = TypeVar("Found")
#: more lanes than this would hold too much at a time
MOST_LANES = 2
_PREFIXES = ("scipy_openblas", "openblas")


def lanes() -> int:
    """Return how many launches run at a time."""
    return max(
        1, min(MOST_LANES, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    )


class Lanes(Generic[Worker, Found]):
    """Workers that take jobs, and results in the order of the jobs. No more jobs wait than there are workers."""

    def __init__(self, make: Callable[[], Worker], count: int) -> None:
        self._idle: SimpleQueue[Worker] = SimpleQueue()
        for _ in range(count):
            self._idle.put(make())
        self._count, self._pool = count, ThreadPoolExecutor(count)
        self._waiting: deque[Future[Found]] = deque()

    def put(self, job: Callable[[Worker], Found]) -> list[Found]:
        """Start a job; return what was found before, as far as too many would wait otherwise."""
        self._waiting.append(self._pool.submit(self._run, job))
        return [self._waiting.popleft().result() for _ in range(len(self._waiting) - self._count)]

    def rest(self) -> list[Found]:
        """Wait for all jobs and return what they found."""
        return [self._waiting.popleft().result() for _ in range(len(self._waiting))]

    def close(self) -> None:
        """End; jobs that have not begun are dropped."""
        self._pool.shutdown(cancel_futures=True)

    def _run(self, job: Callable[[Worker], Found]) -> Found:
        worker = self._idle.get()
        try:
            return job(worker)
        finally:
            self._idle.put(worker)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Let the library behind numpy's products use one thread, as far as it can be told."""
    change, before = _threads()
    if change is not None:
        change(1)
    try:
        yield
    finally:
        if change is not None:
            change(before)


def _threads() -> tuple[Callable[[int], None] | None, int]:
    """Return how to set the library's threads, None if nobody knows, and how many it has."""
    try:
        library = ctypes.CDLL(np._core._multiarray_umath.__file__)  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return None, 0
    for prefix in _PREFIXES:
        for suffix in ("64_", ""):
            change = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
            count = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
            if change is not None and count is not None:
                return change, int(count())
    return None, 0
