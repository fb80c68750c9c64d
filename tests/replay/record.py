"""Measure a case of the corpus, compare with what is recorded, record anew.

python -m tests.replay.record --gate bytes|cycles [--only PATTERN] [--opt 2] [-j 2]    compare; exit code 1 where the gate fails
python -m tests.replay.record --record [--only PATTERN]                                write `recorded.json`

Gate `bytes`: every `.tx8` is the recorded one. Gate `cycles`: no case takes more than 1.005 times the recorded cycles, and their
sum is not above the recorded sum; also the program's memory checks pass.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import tx8fast
from tests.replay.cases import CASES, LEVELS, MACHINE
from tx8fast.program.verify import verify

RECORDED = Path(__file__).resolve().parent / "recorded.json"
#: A case may take this much more than recorded under the gate `cycles`: noise of decisions between equal plans.
SLOWER = 1.005
Row = dict[str, Any]


def measure(name: str, opt: int) -> Row:
    """Compile, verify and simulate a case; return its deterministic figures, and the CPU seconds of the compilation."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "model"
        folder.mkdir()
        path = case.write(folder)
        start = time.process_time()
        compiled = tx8fast.compile(path, opt=opt, machine=str(MACHINE), **case.options)
        seconds = time.process_time() - start
        compiled.save(Path(made) / "out.tx8")
        digest = hashlib.sha256((Path(made) / "out.tx8").read_bytes()).hexdigest()
    verify(compiled.program)
    result = compiled.simulate()
    return {
        "sha256": digest, "cycles": result.cycles, "spm_peak_bytes": compiled.program.meta["spm_peak_bytes"],
        "groups": [[g.name, g.cycles, g.count] for g in result.groups], "cpu_seconds": round(seconds, 3),
    }  # fmt: skip


def recorded() -> dict[str, Row]:
    """Return the recorded rows by `key`."""
    return json.loads(RECORDED.read_text()) if RECORDED.exists() else {}


def key(name: str, opt: int) -> str:
    return f"{name}, opt {opt}"


def problems(known: dict[str, Row], found: dict[str, Row], gate: str) -> list[str]:
    """Return what the gate does not let pass, a line each."""
    out = [f"{k}: not recorded" for k in found if k not in known]
    both = [k for k in found if k in known]
    if gate == "bytes":
        return out + [f"{k}: other bytes than recorded, {_cycles(known[k], found[k])}" for k in both
                      if known[k]["sha256"] != found[k]["sha256"]]  # fmt: skip
    out += [f"{k}: {_cycles(known[k], found[k])}" for k in both if found[k]["cycles"] > SLOWER * known[k]["cycles"]]
    before, now = (sum(rows[k]["cycles"] for k in both) for rows in (known, found))
    if now > before:
        out.append(f"sum of all cases: {now:,} cycles, recorded {before:,}")
    return out


def differences(known: dict[str, Row], found: dict[str, Row]) -> list[str]:
    """Return a line for every case whose cycles differ, and for the groups that make the difference."""
    lines = []
    for k in found:
        if k not in known or known[k]["cycles"] == found[k]["cycles"]:
            continue
        lines.append(f"{k}: {_cycles(known[k], found[k])}")
        old, new = ({g[0]: g[1] * g[2] for g in rows[k]["groups"]} for rows in (known, found))
        for g in sorted({*old, *new}):
            if old.get(g, 0) != new.get(g, 0):
                lines.append(f"    {g}: {old.get(g, 0):,} -> {new.get(g, 0):,}")
    return lines


def _cycles(known: Row, found: Row) -> str:
    return f"{known['cycles']:,} -> {found['cycles']:,} cycles, x{found['cycles'] / known['cycles']:.4f}"


def _measured(job: tuple[str, int]) -> tuple[str, Row | str]:
    try:
        return key(*job), measure(*job)
    except Exception as err:  # one case that fails must not hide the others
        return key(*job), f"{type(err).__name__}: {err}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Replay the corpus against what is recorded.")
    parser.add_argument("--gate", choices=("bytes", "cycles"), default="bytes")
    parser.add_argument("--only", default="*", help="pattern of case names")
    parser.add_argument("--opt", type=int, choices=LEVELS, action="append")
    parser.add_argument("--record", action="store_true", help="write the recorded rows anew")
    parser.add_argument("-j", type=int, default=1, help="processes")
    asked = parser.parse_args(arguments)
    jobs = [(n, opt) for n in CASES if fnmatch.fnmatch(n, asked.only) for opt in asked.opt or LEVELS]
    known, found, failed = recorded(), {}, []
    with ProcessPoolExecutor(asked.j) as pool:
        for k, row in pool.map(_measured, jobs):
            print(f"{k}: {row if isinstance(row, str) else format(row['cycles'], ',')}", flush=True)
            if isinstance(row, str):
                failed.append(f"{k}: {row}")
            else:
                found[k] = row
    before, now = (sum(rows[k].get("cpu_seconds", 0) for k in found if k in known) for rows in (known, found))
    print("\n".join(["", *differences(known, found), f"CPU seconds of compiling: {now:.1f}, recorded {before:.1f}"]))
    if not asked.record:
        failed += problems(known, found, asked.gate)
    else:
        rows = {**known, **found} if asked.only != "*" or asked.opt else found
        lines = [f"{json.dumps(k)}: {json.dumps(row, sort_keys=True)}" for k, row in rows.items()]
        RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print("\n".join(failed) or "the gate is passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
