"""The `.tx8` container: round trip, determinism, and damage of every kind."""

from __future__ import annotations

import json
import os
import struct

import numpy as np
import pytest

from tx8fast.errors import ProgramError
from tx8fast.machine import DDR_BASE, load_machine
from tx8fast.program import bundle, container, io
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.program.io import load, save
from tx8fast.program.model import FORMAT_VERSION, SCRATCH, Argument, Tensor

MACHINE = load_machine("test_2x2")


def tensor(name, shape, offset, /, embedded=-1, **source):
    size = 4 * int(np.prod(shape))
    return Tensor(name, shape, "f32", "f32", "dense", DDR_BASE + offset, size, source, embedded)


def small_program(data=bytes(range(32))):
    b = CodeBuilder()
    with b.loop(2):
        b.add("rdma", dst=0x10000, run_bytes=64, slot=0, ddr_step=(64,))
    code = b.add("wdma", src=0x10000, run_bytes=64, slot=1).finish().code()
    idle = CodeBuilder().finish().code()
    segment = make_segment(
        MACHINE, "head", [code, idle], [0, 1, -1, 0], [0, 1], np.arange(8).reshape(4, 2) * 64,
        routines=[{"routine": "clamp", "attrs": {"lo": float("-inf"), "hi": 1.5}, "inputs": [None], "outputs": []}],
        ops=["märz/op"], spm_peak_bytes=64, info={"sharding": [1, 2]},
        arguments=[Argument("operand", (8, 4), "f32", "dense"), Argument("update", (8, 4), "f32", "dense", replaces=0)],
        buffers=[(0x10000, 64, 0), (0x10000, 64, SCRATCH)],
    )  # fmt: skip
    return make_program(
        MACHINE, [segment], [(0, [DDR_BASE, DDR_BASE + 512]), (0, [DDR_BASE + 512, DDR_BASE])],
        inputs=[tensor("x", (8, 4), 0)], outputs=[tensor("y", (8, 4), 512)],
        params=[tensor("w", (2, 4), 1024, embedded=0), tensor("v", (3,), 2048, file="m.safetensors", offset=8)],
        ddr_bytes=4096, meta={"model": "tiny", "useful_macs": 12, "scale": 0.1}, data=data,
    )  # fmt: skip


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "p.tx8"
    save(small_program(), path)
    return path


def test_as_many_programs_as_a_file_may_hold_are_read_again(tmp_path):
    bundle.save({"name": "seq"}, [small_program()] * bundle.MAX_PROGRAMS, tmp_path / "p.tx8")
    opened = bundle.open_several(tmp_path / "p.tx8")
    assert opened is not None and len(bundle.load(opened)[1]) == bundle.MAX_PROGRAMS


def test_round_trip(saved, tmp_path):
    program, before = load(saved), small_program()
    assert program.machine == before.machine and program.meta == before.meta
    for now, then in zip(program.segments, before.segments, strict=True):
        for a, b in zip(now.codes, then.codes, strict=True):
            assert np.array_equal(a, b)
        for name in ("tile_code", "slot_arg", "tile_offset", "buffers"):
            assert np.array_equal(getattr(now, name), getattr(then, name))
        for name in ("name", "n_args", "ops", "routines", "barrier", "spm_peak_bytes", "info", "arguments"):
            assert getattr(now, name) == getattr(then, name)
    for now, then in zip(program.launches, before.launches, strict=True):
        assert (now.segment, now.name, now.args.tolist()) == (
            then.segment,
            then.name,
            then.args.tolist(),
        )
    for name in ("inputs", "outputs", "params", "ddr_bytes"):
        assert getattr(program, name) == getattr(before, name)
    assert bytes(program.data) == before.data
    again = tmp_path / "again.tx8"
    save(program, again)
    assert again.read_bytes() == saved.read_bytes()


@pytest.mark.parametrize("arguments, message", [
    ([None], "declares 1 of its 2 arguments"),
    ([None, Argument("output", (8, 4), "f32", "dense")], "has role 'output', required one of"),
    ([None, Argument("result", (8, -4), "f32", "dense")], "shape of an argument"),
])  # fmt: skip
def test_bad_declarations_of_arguments(arguments, message, tmp_path):
    program = small_program()
    program.segments[0].arguments = arguments
    save(program, tmp_path / "p.tx8")
    with pytest.raises(ProgramError, match=message):
        load(tmp_path / "p.tx8")


def test_a_file_without_declarations_is_of_a_former_version(monkeypatch, tmp_path):
    monkeypatch.setattr(io, "FORMAT_VERSION", (1, 1))
    save(small_program(), tmp_path / "p.tx8")
    monkeypatch.undo()
    with pytest.raises(
        ProgramError, match=r"format version 1\.1, this build reads 3\.0 to 3\.\d+; compile the model again"
    ):
        load(tmp_path / "p.tx8")


def test_same_program_same_bytes_and_readable_header(saved, tmp_path):
    other = tmp_path / "other.tx8"
    save(small_program(), other)
    raw = saved.read_bytes()
    assert other.read_bytes() == raw
    _, _, _, _, offset, size, total, _ = container.PREFIX.unpack(raw[: container.PREFIX.size])
    tree = json.loads(raw[offset : offset + size], parse_constant=lambda c: pytest.fail(f"{c} in the header"))
    assert total == len(raw) == offset + size
    assert all(s["offset"] % 64 == 0 for s in tree["sections"])
    stored = {s["name"]: s["bytes"] for s in tree["sections"]}
    assert stored["code"] == 4 * (6 + 2) and stored["rows"] % stored["row_words"] == 0
    assert stored["rows"] < 256 * (6 + 2)


@pytest.mark.slow
def test_every_flipped_byte_is_found(saved, tmp_path):
    raw = saved.read_bytes()
    target = tmp_path / "flipped.tx8"
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 1 << (at % 8)
        target.write_bytes(damaged)
        with pytest.raises(ProgramError, match="flipped.tx8"):
            load(target)


def test_every_truncation_and_extension_is_found(saved, tmp_path):
    raw = saved.read_bytes()
    target = tmp_path / "cut.tx8"
    for size in range(len(raw)):
        target.write_bytes(raw[:size])
        with pytest.raises(ProgramError, match="cut.tx8"):
            load(target)
    target.write_bytes(raw + b"\0")
    with pytest.raises(ProgramError, match="extended"):
        load(target)


def test_wrong_magic_version_and_missing_file(saved, tmp_path):
    raw = bytearray(saved.read_bytes())
    target = tmp_path / "v.tx8"
    struct.pack_into("<H", raw, 8, 9)
    target.write_bytes(raw)
    with pytest.raises(ProgramError, match=r"version 9\.\d.*compile the model again"):
        load(target)
    target.write_bytes(b"PK\x03\x04" + bytes(200))
    with pytest.raises(ProgramError, match="not a .tx8 file"):
        load(target)
    with pytest.raises(ProgramError, match="nothere"):
        load(tmp_path / "nothere.tx8")
    with pytest.raises(ProgramError):
        load(tmp_path)


def test_equal_code_and_equal_sources_are_stored_once(tmp_path):
    """What tiles and chips have in common takes no room again; what is read back shares it."""

    def size(copies, sources):
        program = small_program()
        program.segments[0].codes = [program.segments[0].codes[0].copy() for _ in range(copies)]
        expert = [{"kind": "file", "file": "m.safetensors", "offset": i, "nbytes": 4} for i in range(sources)]
        each = [
            {"kind": "derived", "expr": "view", "attrs": {"start": n}, "inputs": [dict(x) for x in expert]}
            for n in range(8)
        ]
        program.params[1].source = {"kind": "chips", "sources": each}
        save(program, tmp_path / "p.tx8")
        again = load(tmp_path / "p.tx8")
        assert again.params[1].source == program.params[1].source
        assert again.segments[0].codes[-1].tobytes() == program.segments[0].codes[-1].tobytes()
        return (tmp_path / "p.tx8").stat().st_size

    assert size(100, 3) - size(2, 3) < 100 * 64
    assert size(2, 100) - size(2, 10) < 8 * 90 * 20


def forge(path, edit):
    """Write a file whose checksums are right but whose content was changed by `edit(body, sections)`."""
    opened = container.Container(path, FORMAT_VERSION)
    sections = {name: bytes(opened.section(name)) for name in opened._sections}
    body = json.loads(json.dumps(opened.body))
    edit(body, sections)
    out = path.with_name("forged.tx8")
    container.write(out, FORMAT_VERSION, body, [(k, [v]) for k, v in sections.items()])
    return out


def _set(tree, path, value):
    for step in path[:-1]:
        tree = tree[step]
    tree[path[-1]] = value


HUGE = 1 << 61
FORGERIES = {
    "more code than there is": lambda b, s: _set(b, ("segments", 0, "codes"), [HUGE]),
    "less code than there is": lambda b, s: _set(b, ("segments", 0, "codes"), [1, 1]),
    "huge tile count": lambda b, s: _set(b, ("segments", 0, "tiles"), HUGE),
    "negative slots": lambda b, s: _set(b, ("segments", 0, "slots"), -2),
    "bool as count": lambda b, s: _set(b, ("segments", 0, "n_args"), True),
    "text as segment": lambda b, s: _set(b, ("segments", 0), "x"),
    "no segments": lambda b, s: b.pop("segments"),
    "launch of nothing": lambda b, s: s.update(launch_segment=b"\x05\0\0\0" * 2),
    "launch with other arguments": lambda b, s: _set(b, ("launches", 0), ["a", 1]),
    "launch is no pair": lambda b, s: _set(b, ("launches", 0), 3),
    "ragged section": lambda b, s: s.update(code=s["code"][:-1]),
    "code of unknown rows": lambda b, s: s.update(code=b"\xff\xff\xff\x7f" * (len(s["code"]) // 4)),
    "rows that end early": lambda b, s: s.update(rows=s["rows"][:-4]),
    "words twice": lambda b, s: s.update(row_words=bytes(len(s["row_words"]))),
    "words outside a row": lambda b, s: s.update(row_words=s["row_words"][:-4] + b"\x40\0\0\0"),
    "no words": lambda b, s: s.update(row_words=b""),
    "unknown source": lambda b, s: _set(b, ("params", 0, "source"), 99),
    "source of text": lambda b, s: _set(b, ("sources", 0), "x"),
    "source made of itself": lambda b, s: _set(b, ("sources", 0, "inputs"), [0]),
    "source made of what is no number": lambda b, s: _set(b, ("sources", 1, "inputs"), [False]),
    "source that grows without end": lambda b, s: b["sources"].extend(
        {"inputs": [len(b["sources"]) + i - 1] * 2} for i in range(60)
    ),
    "source that is too deep": lambda b, s: b["sources"].extend(
        {"inputs": [len(b["sources"]) + i - 1]} for i in range(200)
    ),
    "missing section": lambda b, s: s.pop("tile_offset"),
    "tile runs unknown code": lambda b, s: s.update(tile_code=b"\x07\0\0\0" * 4),
    "slot of unknown argument": lambda b, s: s.update(slot_arg=b"\xff\xff\xff\xff" * 2),
    "parameter beyond the data": lambda b, s: s.update(data=b"abc"),
    "shape of text": lambda b, s: _set(b, ("inputs", 0, "shape"), ["a"]),
    "body is a list": lambda b, s: (b.clear(), b.update({"x": 1})),
    "address beyond 64 bits": lambda b, s: _set(b, ("inputs", 0, "address"), 1 << 70),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_content_with_right_checksums(saved, name):
    with pytest.raises(ProgramError, match="forged.tx8"):
        load(forge(saved, FORGERIES[name]))


def test_forged_header_positions(saved):
    raw = saved.read_bytes()
    fields = list(container.PREFIX.unpack(raw[: container.PREFIX.size]))
    for index, value in ((4, 0), (4, 1 << 63), (5, 0), (5, HUGE), (6, HUGE), (4, fields[4] + 64)):
        changed = [*fields]
        changed[index] = value
        saved.write_bytes(container.PREFIX.pack(*changed) + raw[container.PREFIX.size :])
        with pytest.raises(ProgramError):
            load(saved)


def test_data_is_streamed_and_checked_late(tmp_path):
    path = tmp_path / "big.tx8"
    save(small_program(data=b""), path, data=(bytes([i]) * 1000 for i in range(40)))
    raw = bytearray(path.read_bytes())
    assert load(path).data[1999] == 1 and len(load(path).data) == 40_000
    at = raw.index(bytes([7]) * 1000)
    raw[at + 5] ^= 1
    path.write_bytes(raw)
    late = load(path, verify_data=False)
    with pytest.raises(ProgramError, match="'data'"):
        late.check_data()
    with pytest.raises(ProgramError, match="'data'"):
        load(path, verify_data=True)


def test_failed_save_leaves_the_old_file_and_nothing_else(saved):
    before = saved.read_bytes()

    def broken():
        yield b"x" * 100
        raise RuntimeError("disk on fire")

    with pytest.raises(RuntimeError):
        save(small_program(), saved, data=broken())
    bad = small_program()
    bad.meta["object"] = object()
    with pytest.raises(ProgramError, match="object"):
        save(bad, saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]
    with pytest.raises(ProgramError, match="writing program file"):
        save(small_program(), saved.parent / "no" / "p.tx8")
