"""The exact search of an 8B model's layer: seconds of the search alone, the gap, and what it gains over opt 2.

pytest benchmarks/bench_exact.py --benchmark-only
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_compile import CONFIG

from tx8fast import api
from tx8fast.frontend import open_model
from tx8fast.graph_table import GraphTable
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions
from tx8fast.search.exact import SearchReport
from tx8fast.search.program import plan_table

CASES = {"prefill": {"phase": "prefill", "seq": 2048}, "decode": {"phase": "decode", "past": 2048}}


def graph(folder: Path, fields: dict) -> GraphTable:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    options = CompileOptions(**fields)
    return api.lower_graph(open_model(folder, **options.import_options()), options).table


@pytest.mark.parametrize("case", CASES)
def test_search_at_opt_3(benchmark, tmp_path: Path, case: str) -> None:
    """Bar: 10 s on two cores, gap reported."""
    report = SearchReport()

    def fresh():
        report.functions.clear()
        return (graph(tmp_path, CASES[case]), load_machine("tx8")), {"opt": 3, "report": report}

    benchmark.pedantic(plan_table, setup=fresh, rounds=3)
    facts = report.to_json()
    benchmark.extra_info.update({k: facts[k] for k in ("status", "mip_gap", "nodes", "opt2_cycles", "cycles")})
