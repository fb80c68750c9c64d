"""Runs the command line on damaged files in child processes, which may die, hang or eat memory; tells which did."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from tests.readers.kinds import Kind, command_of
from tx8fast.cli import main

SECONDS = 40  # of one mutant; far above the 8 s that the StableHLO reader grants its parser
GROWTH_MIB = 1500


def prepare(kind: Kind, folder: Path) -> None:
    """Write the sound files, and a copy of them."""
    kind.prepare(folder)
    shutil.copytree(folder, folder.parent / f"{folder.name}-sound")
    (folder.parent / f"{folder.name}-sound").rename(folder / "sound")


def broken(kind: Kind, folder: Path, seed: int, count: int) -> list[str]:
    """Return what went wrong: a line per mutant that ended with anything but success or a proper refusal."""
    found: list[str] = []
    at = 0
    while at < count:
        for number, problem in _batch(kind, folder, seed, at, count):
            at = number + 1
            if problem:
                found.append(f"{kind.name} seed {seed} mutant {number}: {problem}")
    return found


def _batch(kind: Kind, folder: Path, seed: int, first: int, count: int) -> Iterator[tuple[int, str]]:
    """Yield (mutant, problem) from one child, up to the first that ends it."""
    sys.stdout.flush()
    sys.stderr.flush()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _child(kind, folder, seed, first, count, write)
    os.close(write)
    number = first
    with open(read, "rb", buffering=0) as pipe:
        buffer = b""
        while True:
            ready, _, _ = select.select([pipe], [], [], SECONDS)
            piece = pipe.read(1 << 16) if ready else None
            if not piece:
                break
            *lines, buffer = (buffer + piece).split(b"\n")
            for line in lines:
                number, problem = json.loads(line)
                yield number, problem
                number += 1
    if not ready:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if number < count:
        yield number, f"no end within {SECONDS} s" if not ready else f"the process ended with status {status}"


def _child(kind: Kind, folder: Path, seed: int, first: int, count: int, out: int) -> None:
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        for number in range(first, count):
            try:
                problem = one(kind, folder, seed, number)
            except Exception:
                problem = f"outside the command: {traceback.format_exc()}"
            os.write(out, json.dumps([number, problem]).encode() + b"\n")
    finally:
        os._exit(0)


def one(kind: Kind, folder: Path, seed: int, number: int) -> str:
    """Damage the files, run the command, and return what is wrong with how it ended, "" if nothing."""
    r = random.Random(f"{kind.name}/{seed}/{number}")
    kind.damage(folder, r)
    before = set(os.listdir(folder))
    memory, started = _peak_mib(), time.process_time()
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(command_of(kind, folder))
    told, seconds = err.getvalue(), time.process_time() - started
    new = set(os.listdir(folder)) - before
    for name in new:
        os.unlink(folder / name)
    if code not in (0, 2):
        return f"exit code {code}: {told[-1500:]}"
    if "Traceback" in told or (code == 2) != ("error: " in told):
        return f"exit code {code} and says {told[-1500:]}"
    if code == 2 and (new or len(told) > 20_000):
        return f"refused, but left {sorted(new)} and {len(told)} characters"
    if seconds > SECONDS / 2:
        return f"took {seconds:.1f} s"
    if _peak_mib() - memory > GROWTH_MIB:
        return f"took {_peak_mib() - memory:.0f} MiB"
    return ""


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
