"""What a run of the benchmark suite is written down as, and how two of them are compared.

May import: batch.fingerprint, files, errors, the package's version. Must not: compile, or print (see `cli.bench`).

A document: `schema`, `tx8fast` (version), `code` (digest of the compiler), `commit`, `host`, `suite`, and `rows`: of every job the figures
of the batch, which are the same on every machine, and `seconds`, `cpu_seconds` and `peak_bytes`, which are of this run.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tx8fast import __version__
from tx8fast.batch.fingerprint import code_digest
from tx8fast.batch.table import HIDDEN
from tx8fast.batch.work import DONE, Outcome
from tx8fast.errors import ConfigError, raise_all
from tx8fast.files import read_input

SCHEMA = 1
MOST_BYTES = 1 << 28
#: figures that are compared: whether they depend on the run
FIGURES = {"cycles": False, "cpu_seconds": True, "peak_bytes": True}


def document(suite: str, rows: Sequence[Mapping[str, Any]], outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """Return the document of a run. rows: of the batch, by name; outcomes: of this run, by name."""
    measured = [
        {
            **{k: v for k, v in row.items() if k not in (*HIDDEN, "sha256")},
            "seconds": round(o.seconds, 3),
            "cpu_seconds": round(o.cpu_seconds, 3),
            "peak_bytes": o.peak_bytes,
        }
        for row in rows
        for o in (outcomes[row["name"]],)
    ]
    return {
        "schema": SCHEMA,
        "tx8fast": __version__,
        "code": code_digest(),
        "commit": commit(),
        "host": host(),
        "suite": suite,
        "rows": measured,
    }


def commit() -> str:
    """Return the commit of the checkout that the package lies in, with "+" if files have changed since; "" for an installed package."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    try:
        found = [
            subprocess.run(["git", *command], cwd=root, capture_output=True, text=True, timeout=20, check=True).stdout
            for command in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        ]
    except (OSError, subprocess.SubprocessError):
        return ""
    return found[0].strip() + ("+" if found[1].strip() else "")


def host() -> dict[str, Any]:
    """Return what seconds and bytes of a run depend on."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            model = next((x.partition(":")[2].strip() for x in f if x.startswith("model name")), model)
    except OSError:
        pass
    return {
        "system": platform.system(),
        "processor": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def read_document(path: Path) -> dict[str, Any]:
    """Return a document. Raises ConfigError if the file is none."""
    doing = f"reading benchmark {path}"
    try:
        found = json.loads(read_input(path, MOST_BYTES).decode("utf-8"))
    except OSError as e:
        raise ConfigError(f"{doing}: {e.strerror or e}") from e
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{doing}: it is no JSON: {e}") from e
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or not isinstance(found.get("rows"), list):
        raise ConfigError(f"{doing}: it is not what `tx8fast bench -o` writes, schema {SCHEMA}")
    problems = [
        f"row {i + 1} is {r!r:.80}"
        for i, r in enumerate(found["rows"])
        if not isinstance(r, dict)
        or not isinstance(r.get("name"), str)
        or any(
            isinstance(r.get(k, 0), bool) or not isinstance(r.get(k, 0), int | float) or not 0 <= r.get(k, 0) < math.inf
            for k in FIGURES
        )
    ]
    raise_all(ConfigError, doing, problems)
    return found


def compare(first: Mapping[str, Any], second: Mapping[str, Any], figure: str, threshold: float) -> dict[str, Any]:
    """Return how a figure of two documents differs: `rows` (name, first, second, change as a share), the largest rise first; `worse`, the
    names whose rise is above the threshold or that are no longer done; `only_first`, `only_second`; `mean_change`, by the geometric mean."""
    one, two = ({r["name"]: r for r in doc["rows"]} for doc in (first, second))
    rows, worse = [], []
    for name in one.keys() & two.keys():
        a, b = one[name], two[name]
        if a.get("status") == DONE and b.get("status") != DONE:
            worse.append(name)
        if not a.get(figure) or not b.get(figure):
            continue
        change = b[figure] / a[figure] - 1
        rows.append({"name": name, "first": a[figure], "second": b[figure], "change": change})
        if change > threshold:
            worse.append(name)
    rows.sort(key=lambda r: (-r["change"], r["name"]))
    total = sum(math.log1p(r["change"]) for r in rows)
    return {
        "figure": figure,
        "threshold": threshold,
        "rows": rows,
        "worse": sorted(worse),
        "only_first": sorted(one.keys() - two.keys()),
        "only_second": sorted(two.keys() - one.keys()),
        "mean_change": math.expm1(total / len(rows)) if rows else 0.0,
    }
