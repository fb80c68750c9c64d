"""Runs the jobs of a batch on any executor: large ones first, never more at once than memory holds, whatever becomes of one.

May import: batch.*, errors. Must not: compile itself, or print (see `cli.batch`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, ProcessPoolExecutor, wait
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tx8fast.batch.fingerprint import FILES
from tx8fast.batch.journal import Journal
from tx8fast.batch.manifest import Job
from tx8fast.batch.work import FAILED, Outcome, finished, run_job

BASE_BYTES = (
    400 << 20
)  # of a worker with the compiler loaded and a large language model at work (README: 200 MiB and less)
PER_FILE_BYTE = 4  # an ONNX or StableHLO file is parsed as a whole, then lives on as arrays
PARENT_SECONDS = 1.0  # how often a worker looks whether anybody still waits for it
KEPT = "kept"  # status of what an earlier run has made
Done = Callable[[Outcome, int, int], None]


def estimate_bytes(job: Job) -> int:
    """Return about how much memory a job takes at most: weights are never held, graphs in one file are."""
    size = job.source.stat().st_size if job.source.is_file() and job.source.suffix != ".gguf" else 0
    return BASE_BYTES + PER_FILE_BYTE * size + 2 * job.options.embed_limit_bytes


def absolute(job: Job) -> Job:
    """Return the same job with paths that do not depend on the working directory."""
    given = {name: getattr(job.options, name) for name in (*FILES, "machine")}
    files = {name: str(Path(value).absolute()) for name, value in given.items() if value and Path(value).is_file()}
    return replace(job, source=job.source.absolute(), options=replace(job.options, **files))


def available_bytes() -> int:
    """Return the memory that a batch may plan with: four fifths of what is free, at least what one job needs."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        with open("/proc/meminfo", encoding="ascii") as f:
            free = next((int(x.split()[1]) << 10 for x in f if x.startswith("MemAvailable:")), free)
    except (OSError, ValueError, AttributeError):
        return 1 << 62
    return max(free * 4 // 5, BASE_BYTES)


class Runner:
    """A batch at work. rows: of every job that has ended, by name; `begun(name)` and `done(outcome, ended so far, all)` are called in this
    thread."""

    def __init__(
        self,
        jobs: Sequence[Job],
        out: Path,
        journal: Journal,
        cache: tuple[Path, int] | None = None,
        done: Done | None = None,
        limit_bytes: int | None = None,
        begun: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.jobs, self.out, self.journal, self.cache, self.done, self.begun = jobs, out, journal, cache, done, begun
        self.limit_bytes = available_bytes() if limit_bytes is None else limit_bytes
        self.rows: dict[str, dict[str, Any]] = {}

    def absolute(self) -> None:
        """Let jobs work on other machines, which see the same files from a directory of their own."""
        self.jobs = [absolute(job) for job in self.jobs]
        self.out = self.out.absolute()
        if self.cache is not None:
            self.cache = self.cache[0].absolute(), self.cache[1]

    def resume(self) -> None:
        """Take over what an earlier run has finished and nothing has changed since."""
        for job in self.jobs:
            row = finished(job, self.out)
            if row is not None:
                self._end(Outcome(job.name, KEPT, row))

    def run(self, workers: int, executor: Executor | None = None) -> list[dict[str, Any]]:
        """Return the row of every job, in the order of the manifest. executor: where jobs run, else processes are made here."""
        # large jobs first, so that none is left for the end; equal ones keep their order
        todo = sorted((j for j in self.jobs if j.name not in self.rows), key=lambda j: -estimate_bytes(j))
        if executor is not None:
            self._submit(executor, todo, workers)
        else:
            self._processes(todo, workers)
        return [self.rows[job.name] for job in self.jobs]

    def _end(self, outcome: Outcome) -> None:
        if outcome.status != KEPT:
            self.journal.outcome(outcome)
        self.rows[outcome.name] = outcome.row
        if self.done is not None:
            self.done(outcome, len(self.rows), len(self.jobs))

    def _processes(self, todo: list[Job], workers: int) -> None:
        """Run jobs in processes of our own. If one of these dies, the jobs that were at work are tried one by one: who ends its
        process alone has failed, and the others go on."""
        while todo:
            pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin, (os.getpid(),))
            try:
                suspects = self._submit(pool, todo, workers)
            except BaseException:
                _kill(pool)
                raise
            pool.shutdown(wait=not suspects, cancel_futures=True)
            if len(suspects) == 1:
                error = "the process that worked on it ended, most likely for lack of memory"
                row = {"name": suspects[0].name, "status": FAILED, "error": error}
                self._end(Outcome(suspects[0].name, FAILED, row, log=(f"error: {error}",)))
            else:
                for job in suspects:
                    self._processes([job], 1)
            todo = [job for job in todo if job.name not in self.rows]

    def _submit(self, executor: Executor, todo: Sequence[Job], workers: int) -> list[Job]:
        """Run jobs, so many at once as there are workers and memory; return those at work when a process died."""
        left, busy = list(todo), {}
        while left or busy:
            used = sum(estimate_bytes(job) for job in busy.values())
            while left and len(busy) < workers:
                fits = next((j for j in left if not busy or used + estimate_bytes(j) <= self.limit_bytes), None)
                if fits is None:
                    break
                left.remove(fits)
                used += estimate_bytes(fits)
                self.begun(fits.name)
                try:
                    busy[executor.submit(run_job, fits, self.out, self.cache)] = fits
                except BrokenExecutor:
                    return [*busy.values(), fits]
            ended, _ = wait(busy, return_when=FIRST_COMPLETED)
            for future in ended:
                try:
                    outcome = future.result()
                except BrokenExecutor:
                    return list(busy.values())
                del busy[future]
                self._end(outcome)
        return []


def _kill(pool: ProcessPoolExecutor) -> None:
    """End the workers at once: their files are written whole or not at all."""
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(wait=False, cancel_futures=True)


def _begin(parent: int) -> None:
    """Leave an interrupt to the parent, and end with it, however it ends."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
