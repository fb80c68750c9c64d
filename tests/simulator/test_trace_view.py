"""Parts of traces, and traces that join work until they are small enough."""

from __future__ import annotations

import io
import json
from itertools import pairwise

import numpy as np
import pytest

import tx8fast
from tests.support.checkpoints import make_checkpoint
from tests.support.cli_case import Caller, refused
from tx8fast.errors import ConfigError
from tx8fast.simulator.cycle import simulate
from tx8fast.simulator.detail import Run, binned, join_runs, merge, runs
from tx8fast.simulator.trace import write_trace
from tx8fast.simulator.trace_view import TraceView, choose


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    make_checkpoint(folder, layers=4, dtype="bfloat16")
    return tx8fast.compile(folder, seq=64).program


def events(program, view) -> tuple[list[dict], list[dict]]:
    """Return slices and counter values."""
    file = io.BytesIO()
    write_trace(program, file, ".json", view=view)
    found = json.loads(file.getvalue())["traceEvents"]
    return [e for e in found if e["ph"] == "X"], [e for e in found if e["ph"] == "C"]


def by_track(slices: list[dict]) -> dict[tuple[int, int], list[tuple[float, float]]]:
    out: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for e in slices:
        out.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    return {k: sorted(v) for k, v in out.items()}


@pytest.mark.slow
def test_joined_work_is_small_and_adds_up(program):
    every, _ = events(program, TraceView(detail="instructions"))
    fine, _ = events(program, TraceView())
    assert len(fine) == len(every)  # a small program needs no joining
    limit = len(every) // 4
    some, counts = events(program, TraceView(limit=limit))
    assert len(some) + len(counts) <= 1.1 * limit
    tiles = [e for e in some if e["pid"] > 1]
    assert sum(e["args"]["instructions"] for e in tiles) == sum(e["pid"] > 1 for e in every)
    for spans in by_track(some).values():
        assert all(a[1] <= b[0] + 1e-6 for a, b in pairwise(spans)), "slices of a track do not overlap"
    # on an engine that does one thing at a time: joined runs cover every instruction, and busy times agree
    whole = by_track(every)
    for track, spans in by_track(tiles).items():
        for a, b in whole[track]:
            assert any(lo - 1e-6 <= a and b <= hi + 1e-6 for lo, hi in spans)


def test_the_least_that_is_drawn(program):
    chosen = choose(program, TraceView(limit=10))
    assert chosen.first_only and chosen.resolution
    slices, _ = events(program, TraceView(limit=10))
    names = {g.name for g in simulate(program).groups}
    drawn = {e["name"] for e in slices if e["pid"] == 1}
    assert len(drawn) > len(names) - 1
    launches, counts = events(program, TraceView(detail="launches"))
    assert all(e["pid"] == 1 for e in launches) and not counts
    assert len(launches) == len(simulate(program).timeline)


def test_layers_and_windows(program):
    timeline = simulate(program).timeline
    slices, _ = events(program, TraceView(layers=frozenset({2})))
    shown = [e["name"] for e in slices if e["pid"] == 1]
    assert shown == [name for name, *_ in timeline if name.startswith("layers.2.")] and shown
    at = timeline[3][2]
    window = (at - 5, at + 40)
    slices, counts = events(program, TraceView(window=window))
    scale = 1e6 / simulate(program).machine.chip.clock_hz
    assert len([e for e in slices if e["pid"] == 1]) == 2
    assert all(window[0] * scale <= e["ts"] + 1e-9 and e["ts"] + e["dur"] <= window[1] * scale + 1e-9 for e in slices)
    assert all(window[0] * scale <= e["ts"] + 1e-9 <= window[1] * scale + 1e-6 for e in counts)
    with pytest.raises(ConfigError, match="the program has layers 0-3"):
        choose(program, TraceView(layers=frozenset({9})))


def test_command(capsys, program, tmp_path):
    from tx8fast.program import io as program_io

    tx8 = Caller(capsys)
    path = tmp_path / "p.tx8"
    program_io.save(program, path)
    found = tx8(
        "sim",
        path,
        "--trace",
        tmp_path / "t.json",
        "--trace-layers",
        "0-1,3",
        "--trace-window",
        ":200000",
        "--trace-detail",
        "ops",
    )
    assert found.code == 0 and "trace: " in found.err and "joined" in found.err
    refused(tx8, tmp_path, "sim", path, "--trace-layers", "0", says=("no --trace",))
    for option, value in (("layers", "a"), ("layers", "5-3"), ("window", "7"), ("window", "9:3"), ("window", "-1:3")):
        refused(
            tx8, tmp_path, "sim", path, "--trace", tmp_path / "u.json", f"--trace-{option}={value}", says=("such as",)
        )
    refused(
        tx8,
        tmp_path,
        "sim",
        path,
        "--trace",
        tmp_path / "u.json",
        "--trace-layers",
        "77",
        says=("the program has layers",),
    )


def test_runs():
    found = runs("aabbb", [0, 10, 12, 40, 44], [9, 12, 20, 42, 50], 5)
    assert [(r.start, r.end, r.count, r.name) for r in found] == [(0, 12, 2, "a"), (12, 20, 1, "b"), (40, 50, 2, "b")]
    assert found[0].busy == {"a": 11}
    assert join_runs(found, 100) == [Run(0, 50, 5, {"a": 11, "b": 16})]
    assert [(r.start, r.end) for r in runs("ab", [0, 3], [9, 5], 1)] == [(0, 9)], "what overlaps is one"


def test_merging_and_bins_against_every_cycle():
    rng = np.random.default_rng(0)
    for resolution in (0, 1, 7, 40):
        key, start = rng.integers(0, 3, 60), rng.integers(0, 900, 60)
        end = start + rng.integers(1, 30, 60)
        k, a, b, busy, count = merge(key, start, end, resolution)
        assert count.sum() == 60
        for one in range(3):
            used = np.zeros(1000, bool)
            for lo, hi in zip(start[key == one], end[key == one], strict=True):
                used[lo:hi] = True
            spans = list(zip(a[k == one], b[k == one], busy[k == one], strict=True))
            assert all(used[lo:hi].sum() == n for lo, hi, n in spans) and sum(n for *_, n in spans) == used.sum()
            assert all(y[0] - x[1] >= max(resolution, 1) for x, y in pairwise(spans))
    amount = rng.integers(0, 1000, 60)
    rate = np.zeros(1000)
    for lo, hi, n in zip(start, end, amount, strict=True):
        rate[lo:hi] += n / (hi - lo)
    assert binned(start, end, amount, 0, 50, 20) == pytest.approx(rate.reshape(20, 50).sum(axis=1), abs=1e-6)
