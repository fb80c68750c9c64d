"""`--opt 3` on the command line: the gap in text and JSON, limits that are told, options that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli_case import Caller


def test_the_gap_is_in_json(tx8: Caller, mlp: Path, tmp_path: Path) -> None:
    done = tx8("compile", mlp, "-o", tmp_path / "m.tx8", "--opt", 3, "--json")
    assert done.code == 0 and "warning" not in done.err
    search = json.loads(done.out)["search"]
    assert (search["status"], search["mip_gap"]) == ("optimal", 0.0)
    assert 0 < search["cycles"] <= search["opt2_cycles"]
    (row,) = search["functions"]
    assert set(row) == {"name", "steps", "columns", "opt2_cycles", "cycles", "bound_cycles", "gap", "status", "nodes"}
    plain = json.loads(tx8("compile", mlp, "-o", tmp_path / "n.tx8", "--json").out)
    assert plain["search"] == {}


def test_the_gap_is_in_the_text(tx8: Caller, mlp: Path, tmp_path: Path) -> None:
    done = tx8("compile", mlp, "-o", tmp_path / "m.tx8", "--opt", 3)
    assert done.code == 0 and "exact search" in done.out and "0.00%" in done.out and "optimal" in done.out
    stopped = tx8("compile", mlp, "--stop-after", "search", "--opt", 3)
    assert stopped.code == 0 and "exact search" in stopped.out
    assert "exact search" not in tx8("compile", mlp, "--stop-after", "search").out


def test_a_limit_is_told(tx8: Caller, checkpoint: Path, tmp_path: Path) -> None:
    done = tx8("compile", checkpoint, "--seq", 8, "-o", tmp_path / "m.tx8", "--opt", 3, "--search-seconds", 1e-9)
    assert done.code == 0
    told = done.err.splitlines()
    assert told and all("(time limit): the groups are those of opt 2" in line for line in told)
    assert told[0].startswith("warning: opt 3 found nothing in '")


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_time_limits_that_are_none(tx8: Caller, mlp: Path, tmp_path: Path, seconds: str) -> None:
    done = tx8("compile", mlp, "-o", tmp_path / "m.tx8", "--search-seconds", seconds)
    assert done.code == 2 and "search_seconds" in done.err and "positive number of seconds" in done.err
    assert not list(tmp_path.iterdir())
