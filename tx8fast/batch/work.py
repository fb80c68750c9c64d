"""One job from manifest to files; runs in a worker process.

May import: api, batch.*, machine, errors. Must not: print, or know other jobs.

Of a job come NAME.tx8 and NAME.json, its deterministic figures; the figures are written last, so where they stand the program is whole.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tx8fast.batch.cache import Cache
from tx8fast.batch.fingerprint import Read, bytes_digest, changed_reads, digest, fingerprint
from tx8fast.batch.manifest import Job
from tx8fast.batch.memory import forget_peak, peak_bytes
from tx8fast.batch.plan_store import PlanStore
from tx8fast.errors import CompileWarning, ConfigError, InfeasibleError, Tx8Error, UnsupportedError
from tx8fast.files import replacing
from tx8fast.options import CompileOptions
from tx8fast.program.rates import rates
from tx8fast.records import dataclass

DONE, FAILED = "done", "failed"
MAX_AUTO_CHIPS = 128


@dataclass(frozen=True)
class Outcome:
    """What became of a job. row: deterministic; everything else is of this run alone. from_cache, plans_from_cache: what was not made anew; groups_from_cache: of how many ops and groups
    the search took what it asked from the cache, and of how many it asked, (0, 0) without one. cpu_seconds: of the whole job in its process;
    peak_bytes: the most memory that the process has held meanwhile."""

    name: str
    status: str
    row: dict[str, Any]
    seconds: float = 0.0
    from_cache: bool = False
    log: tuple[str, ...] = ()
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    plans_from_cache: bool = False
    groups_from_cache: tuple[int, int] = (0, 0)


def run_job(job: Job, out: Path, cache: tuple[Path, int] | None) -> Outcome:
    """Make the files of a job below `out`; never raises for what a model or an option can cause. cache: directory and bytes."""
    started, began = time.perf_counter(), time.process_time()
    forget_peak()
    log: list[str] = []
    store = None if cache is None else Cache(*cache, tell=log.append)
    plans = None if store is None else PlanStore(store.root, log.append)
    error, row, hit = "", {}, False
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", CompileWarning)
        try:
            row, hit = _make(job, out, store, plans, told, log)
        except Tx8Error as err:
            error = str(err)
        except MemoryError as err:
            error = f"out of memory{f': {err}' if str(err) else ''}"
        except OSError as err:
            error = f"writing {err.filename or out}: {err.strerror or err}"
        except Exception as err:  # a defect of ours must not end the others' work either
            log.append(traceback.format_exc())
            error = f"internal error: {type(err).__name__}: {err}"
    if error:
        row = {"name": job.name, "status": FAILED, "error": error, "warnings": _texts(told)}
    log = [*(f"warning: {text}" for text in row["warnings"]), *log, *([f"error: {error}"] if error else [])]
    seconds, cpu = time.perf_counter() - started, time.process_time() - began
    return Outcome(
        job.name,
        FAILED if error else DONE,
        row,
        seconds,
        hit,
        tuple(log),
        cpu,
        peak_bytes(),
        plans is not None and plans.found,
        (0, 0) if plans is None or plans.groups is None else plans.groups.counts(),
    )


def job_fields(job: Job) -> dict[str, str]:
    """Return everything that decides the job's files, but for values of weights. Raises Tx8Error."""
    return {**fingerprint(job.source, job.options), "chips auto": str(job.chips_auto)}


def program_path(out: Path, name: str) -> Path:
    return out / f"{name}.tx8"


def figures_path(out: Path, name: str) -> Path:
    return out / f"{name}.json"


def finished(job: Job, out: Path) -> dict[str, Any] | None:
    """Return the job's figures if its files stand, are whole, and were made of the same things as would be used now."""
    try:
        row = json.loads(figures_path(out, job.name).read_text(encoding="utf-8"))
        same = row["key"] == digest(job_fields(job)) and not changed_reads(
            root_of(job), [Read(**r) for r in row["reads"]]
        )
        whole = same and hashlib.sha256(program_path(out, job.name).read_bytes()).hexdigest() == row["sha256"]
        return row if whole else None
    except (OSError, ValueError, KeyError, TypeError, Tx8Error):
        return None


def root_of(job: Job) -> Path:
    """Return the directory that paths of a job's weights begin at."""
    return job.source if job.source.is_dir() else job.source.parent


def _texts(told: Sequence[warnings.WarningMessage]) -> list[str]:
    return list(dict.fromkeys(str(w.message) for w in told))


def _make(
    job: Job,
    out: Path,
    store: Cache | None,
    plans: PlanStore | None,
    told: Sequence[warnings.WarningMessage],
    log: list[str],
) -> tuple[dict[str, Any], bool]:
    """Make the job's files; return its figures and whether they were in the cache."""
    target, fields = program_path(out, job.name), job_fields(job)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.parent.resolve().is_relative_to(out.resolve()):
        raise ConfigError(f"writing {target}: it leaves the output directory {out} through a link")
    found = None if store is None else store.find(fields, root_of(job))
    if found is not None:
        entry, path = found
        with replacing(target) as f, open(path, "rb") as source:
            shutil.copyfileobj(source, f)
        row = {**entry.row, "name": job.name}
    else:
        row, reads = _compile(job, target, root_of(job), plans)
        row |= {"key": digest(fields), "reads": [asdict(r) for r in reads], "warnings": _texts(told)}
        if store is not None:
            try:
                store.put(fields, reads, target, row, job.source.name)
            except Tx8Error as err:
                log.append(f"warning: {err}")
        row["name"] = job.name
    with replacing(figures_path(out, job.name)) as f:
        f.write((json.dumps(row, sort_keys=True, indent=1) + "\n").encode())
    return row, found is not None


def _compile(job: Job, target: Path, root: Path, plans: PlanStore | None) -> tuple[dict[str, Any], tuple[Read, ...]]:
    """Compile, save and time the program; return its figures and what was read of weights."""
    from tx8fast import api
    from tx8fast.frontend import open_model
    from tx8fast.machine import load_machine

    last: InfeasibleError | None = None
    for options in _options(job):
        machine = load_machine(options.machine)
        try:
            ir = open_model(job.source, **options.import_options())
            with api.quiet_collector():
                program = api.compile_ir(ir, machine, options, root, kept=plans)
        except InfeasibleError as err:
            last = err
            if not job.chips_auto:
                raise
            continue
        except (ConfigError, UnsupportedError):
            if job.chips_auto and last is not None and options.tp is not None:
                continue  # its sizes do not divide by this number; the next one may do
            raise
        program.save(target)
        reads = () if ir.weights is None else tuple(_reads(ir.weights.file_reads, root))
        row = figures(program)
        row["sha256"] = hashlib.sha256(target.read_bytes()).hexdigest()
        row["file_bytes"] = target.stat().st_size
        return row, reads
    assert last is not None
    raise last


def _options(job: Job) -> list[CompileOptions]:
    """The options as they are, or with 1, 2, 4 ... chips that share every layer."""
    if not job.chips_auto:
        return [job.options]
    counts = [1 << i for i in range(int(math.log2(MAX_AUTO_CHIPS)) + 1)]
    return [job.options, *(replace(job.options, tp=n) for n in counts[1:])]


def _reads(found: Any, root: Path) -> list[Read]:
    out = []
    for source in sorted(found, key=lambda s: (s.path, s.offset, s.nbytes)):
        name = os.path.relpath(source.path, root)
        out.append(
            Read(name, source.offset, source.nbytes, bytes_digest(Path(source.path), source.offset, source.nbytes))
        )
    return out


def figures(compiled: Any) -> dict[str, Any]:
    """Return the deterministic figures of a program: those of the table, and what they are made of."""
    program = compiled.program
    r = compiled.simulate()
    machine = r.machine
    kcore = sum(g.busy.get("kcore", 0) * g.count for g in r.groups)
    return {
        "status": DONE,
        "model": program.meta.get("model", ""),
        "phase": program.meta.get("phase", ""),
        "cycles": r.cycles,
        "milliseconds": r.seconds * 1e3,
        **rates(program, r.seconds),
        "bound_cycles": r.bound_cycles,
        "roofline_ratio": r.roofline_ratio,
        "losses": r.losses,
        "chips": program.n_chips,
        "segments": len(program.segments),
        "launches": len(program.launches),
        "spm_peak_bytes": max((s.spm_peak_bytes for s in program.segments), default=0),
        "useful_macs": program.meta.get("useful_macs", 0),
        "unique_ddr_bytes": program.meta.get("unique_ddr_bytes", 0),
        "ddr_bytes": program.ddr_bytes,
        "ddr_share": program.ddr_bytes / machine.chip.ddr_bytes,
        "kernel_core_share": kcore / (r.cycles * machine.n_tiles) if r.cycles else 0.0,
        "kernel_core": sorted(program.meta.get("kernel_core", {})),
    }
