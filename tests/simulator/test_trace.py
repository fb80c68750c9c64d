"""Traces of cycle simulations, read back by a small decoder of JSON and of the protobuf wire format."""

from __future__ import annotations

import io
import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.support.cli_case import Caller
from tests.support.one_op import Arg, Case, build, one_op
from tx8fast.api import CompiledProgram
from tx8fast.isa.base import instruction
from tx8fast.simulator.cycle import simulate, trace, traces
from tx8fast.simulator.trace import field, varint, write_trace


@pytest.fixture(scope="module")
def shared() -> Case:
    """Two launches; the second one's tiles exchange an operand."""
    args = [Arg((256, 1024), "bf16"), Arg((1024, 512), "bf16")]
    return build(args, lambda b, x, w: b("gemm", b("relu", x), w), "test_2x2")


def wire(data: bytes) -> dict[int, list]:
    """Return field number -> values of a protobuf message: varints as int, 64 bit as float, the rest as bytes."""
    out: dict[int, list] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 0:
            value: int | float | bytes = number()
        elif key & 7 == 1:
            value = struct.unpack("<d", data[at : at + 8])[0]
            at += 8
        else:
            assert key & 7 == 2
            size = number()
            value = data[at : at + size]
            assert len(value) == size
            at += size
        out.setdefault(key >> 3, []).append(value)
    return out


def perfetto(case: Case) -> tuple[dict, list, dict]:
    """Return tracks (uuid -> (process, name)), slices (process, track, name, start, end, details), counters."""
    file = io.BytesIO()
    write_trace(case.program, file, ".pftrace")
    trace_ = wire(file.getvalue())
    assert set(trace_) == {1}
    process, tracks, names, stack, slices, counters, counts = {}, {}, {}, {}, [], {}, {}
    for k, raw in enumerate(trace_[1]):
        packet = wire(raw)
        assert packet[10] == [1] and packet[13] == [1 if k == 0 else 2]
        for d in packet.get(60, []):
            d = wire(d)
            uuid = d[1][0]
            if 3 in d:
                process[uuid] = wire(d[3][0])[6][0].decode()
                continue
            parent = process[d[5][0]]
            if 8 in d:
                counters[uuid] = d[2][0].decode()
                assert wire(d[8][0])[6] == [b"bytes/cycle"]
            else:
                thread = wire(d[4][0])
                assert thread[1][0] == uuid >> 16
                tracks[uuid] = (parent, thread[5][0].decode())
        for interned in packet.get(12, []):
            for e in wire(interned)[2]:
                e = wire(e)
                assert e[1][0] not in names
                names[e[1][0]] = e[2][0].decode()
        for e in packet.get(11, []):
            e, ts = wire(e), packet[8][0]
            track = e[11][0]
            if e[9] == [4]:
                counts.setdefault(counters[track], []).append((ts, e[44][0]))
            elif e[9] == [1]:
                assert not stack.get(track), "slices of a track do not overlap"
                notes = {}
                for n in e.get(4, []):
                    n = wire(n)
                    notes[n[10][0].decode()] = n[4][0] if 4 in n else n[6][0].decode()
                stack.setdefault(track, []).append((names[e[10][0]], ts, notes))
            else:
                assert e[9] == [2]
                name, start, notes = stack[track].pop()
                slices.append((*tracks[track], name, start, ts, notes))
    assert not any(stack.values())
    return tracks, slices, counts


def chrome(case: Case) -> list[dict]:
    file = io.BytesIO()
    write_trace(case.program, file, ".json")
    tree = json.loads(file.getvalue())
    assert set(tree) == {"displayTimeUnit", "traceEvents"}
    return tree["traceEvents"]


def test_protobuf_encoding():
    """The worked examples of the protobuf encoding guide: 150 is 96 01, field 1 = 150 is 08 96 01."""
    assert varint(150) == b"\x96\x01" and varint(0) == b"\0" and varint(1 << 35) == b"\x80\x80\x80\x80\x80\x01"
    assert field(1, 150) == b"\x08\x96\x01"
    assert field(2, "testing") == b"\x12\x07testing"
    assert wire(field(44, 2.5) + field(3, field(1, 150))) == {44: [2.5], 3: [b"\x08\x96\x01"]}


def test_perfetto_holds_every_row_that_takes_time(shared):
    tracks, slices, _ = perfetto(shared)
    want = 0
    for stretch in traces(shared.program):
        want += sum(int((t.end > t.start).sum()) for t in stretch.tiles)
    launches = [s for s in slices if s[0] == "chip"]
    assert len(slices) - len(launches) == want > 0
    assert [s[2] for s in launches] == ["relu", "gemm"]
    assert {p for p, _ in tracks.values()} == {"chip", *(f"tile {t}" for t in range(4))}
    assert {n for p, n in tracks.values() if p == "tile 3"} >= {
        "NE",
        "CT",
        "RDMA",
        "WDMA",
        "TDMA",
        "DTE",
        "waits",
        "kernel core",
    }
    one = next(s for s in slices if s[:2] == ("tile 2", "NE"))
    assert (
        one[2] == "gemm: gemm"
        and one[5]["segment"] == "gemm"
        and one[5]["launch"] == "gemm"
        and one[5]["instruction"] == "gemm"
    )
    code = shared.program.segments[1].codes
    workers = {int(w) for c in code for w in c["worker"][c["opcode"] == instruction("gemm").OPCODE]}
    assert {s[5]["worker"] for s in slices if s[1] == "NE"} == workers
    result = simulate(shared.program)
    nanoseconds = 1e9 / result.machine.chip.clock_hz
    assert max(s[4] for s in slices) == round(result.cycles * nanoseconds)
    busy = sum(e - s for p, n, _, s, e, _ in slices if n == "NE")
    assert busy == pytest.approx(result.busy["ne"] * nanoseconds)


def test_chrome_says_the_same(shared):
    _, slices, counts = perfetto(shared)
    events = chrome(shared)
    process = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    thread = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    got = [(process[e["pid"]], thread[e["pid"], e["tid"]], e["name"], round(e["ts"] * 1e3), round((e["ts"] + e["dur"]) * 1e3), e["args"])
           for e in events if e["ph"] == "X"]  # fmt: skip
    assert sorted(got, key=str) == sorted(slices, key=str)
    for name in ("DDR", "NoC"):
        mine = [
            (round(e["ts"] * 1e3), e["args"]["bytes/cycle"]) for e in events if e["ph"] == "C" and e["name"] == name
        ]
        assert mine == counts[name]


def test_counters_add_up_to_the_traffic(shared):
    _, _, counts = perfetto(shared)
    result = simulate(shared.program)
    for name, total in (("DDR", result.ddr_bytes), ("NoC", result.noc_bytes)):
        at, value = (np.array(x) for x in zip(*counts[name]))
        assert (value >= 0).all() and value[-1] == pytest.approx(0, abs=1e-4)
        assert (np.diff(at) * value[:-1]).sum() == pytest.approx(total, rel=1e-3)
        assert total > 0
    limit = result.machine.ddr_bytes_per_cycle
    assert max(v for _, v in counts["DDR"]) <= 1.01 * max(limit, 4 * result.machine.dma.port_bytes)


def test_traces_are_those_of_single_launches(shared):
    found = list(traces(shared.program))
    assert [s.launches for s in found] == [[0], [1]]
    assert found[1].start == found[0].cycles
    for s in found:
        for a, b in zip(s.tiles, trace(shared.program, s.launches[0])):
            np.testing.assert_array_equal(a.start, b.start)
            np.testing.assert_array_equal(a.end, b.end)
            assert sum(s.counts[a.tile]) == len(a.rows) == len(s.ddr_bytes[a.tile])


def test_overlapping_messages_have_tracks_of_their_own():
    case = one_op("gemm", Arg((128, 1024), "bf16"), Arg((1024, 256), "bf16"), machine="test_2x2")
    perfetto(case)  # asserts that slices of a track do not overlap


@pytest.mark.parametrize("suffix", ["json", "pftrace"])
def test_command_line(shared: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str):
    tx8 = Caller(capsys)
    program, out = tmp_path / "p.tx8", tmp_path / f"t.{suffix}"
    CompiledProgram(shared.program).save(program)
    assert tx8("sim", program, "--trace", out).code == 0
    file = io.BytesIO()
    write_trace(shared.program, file, out.suffix)
    assert out.read_bytes() == file.getvalue()
    before = sorted(os.listdir(tmp_path))
    assert before == sorted(["p.tx8", out.name])


@pytest.mark.parametrize(("name", "says"), [
    ("missing/t.json", "does not exist"), ("t.txt", "required .json (Chrome) or .pftrace (Perfetto)"), ("dir.json", "is a directory"),
    ("p.json", "this is the input file"),
])  # fmt: skip
def test_where_no_trace_can_go(shared: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, says: str):
    tx8 = Caller(capsys)
    program = tmp_path / "p.json"
    CompiledProgram(shared.program).save(program)
    (tmp_path / "dir.json").mkdir()
    before = program.read_bytes()
    found = tx8("sim", program, "--trace", tmp_path / name)
    assert found.code == 2 and found.out == "" and says in found.err and "Traceback" not in found.err
    assert program.read_bytes() == before and sorted(os.listdir(tmp_path)) == ["dir.json", "p.json"]
