"""Numbers that were written as floats of one format are not read as floats of another one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulator.planting import Edit, findings
from tests.support.one_op import Arg, one_op
from tx8fast import isa
from tx8fast.numerics.formats import FORMAT_CODES
from tx8fast.simulator.sanitizer_bytes import spans_of
from tx8fast.simulator.sanitizer_formats import Formats

BASE = 0x10000
FAULT = "another format"


def done(*rows: tuple[str, dict[str, Any]], loaded: int = 0) -> list[str]:
    """What of a few rows, one behind the other, reads another format. loaded: bytes from BASE on that then come from DDR."""
    of, found = Formats(1 << 20), []
    for k, (name, fields) in enumerate(rows):
        (row,) = isa.rows([isa.make(name, **fields)])
        found += [text for _, text in of.row(row, *spans_of(row))]
        if k == 0:
            of.kind[BASE : BASE + loaded] = 0
    return found


def made(fmt: str) -> tuple[str, dict[str, Any]]:
    """Write 64 numbers at BASE."""
    return "cvt_i32_" + fmt, {"src0": BASE + 0x8000, "dst": BASE, "n": 64, "fmt": "i32"}


def read(fmt: str, at: int = BASE, n: int = 32) -> tuple[str, dict[str, Any]]:
    return "relu_v", {"src0": at, "dst": BASE + 0x4000, "n": n, "fmt": fmt}


@pytest.mark.parametrize("wrote, reads, bad", [
    ("f32", "bf16", True), ("f32", "f16", True), ("bf16", "f16", True), ("f16", "f32", True),
    ("f32", "f32", False), ("f32", "tf32", False), ("tf32", "f32", False), ("bf16", "bf16", False),
])  # fmt: skip
def test_formats_of_floats(wrote: str, reads: str, bad: bool) -> None:
    n = 16
    assert bool(done(made(wrote), read(reads, n=n))) == bad


def test_moved_numbers_stay_what_they_are() -> None:
    move = "gather_scatter", {"src0": BASE, "dst": BASE + 0x2000, "size": 128}
    assert done(made("f32"), move, read("bf16", BASE + 0x2000)) == [
        f"reads SPM bytes [{BASE + 0x2000:#x}, {BASE + 0x2040:#x}) as bf16, which were written as f32"
    ]


def test_what_may_be_anything_is_not_told() -> None:
    """Of the bytes that are read one came from DDR; a pattern was set; bits and integers were made of them."""
    assert not done(made("f32"), read("bf16"), loaded=1)
    assert not done(made("f32"), ("memset", {"dst": BASE, "value": 0, "n": 64, "fmt": "f32"}), read("bf16"))
    assert not done(
        made("f32"), ("and_vv", {"src0": BASE, "src1": BASE, "dst": BASE, "n": 64, "fmt": "i32"}), read("bf16")
    )
    assert not done(
        made("f32"), ("add_vv", {"src0": BASE, "src1": BASE, "dst": BASE, "n": 64, "fmt": "i32"}), read("bf16")
    )


def test_products_and_reductions_read_what_they_say() -> None:
    both = {"left": BASE, "right": BASE, "m": 1, "k": 32, "n": 1, "out": BASE + 0x4000, "out_fmt": FORMAT_CODES["f32"]}
    assert len(done(made("f32"), ("gemm", {**both, "fmt": "bf16"}))) == 2
    assert not done(made("bf16"), ("gemm", {**both, "fmt": "bf16"}))
    sums = {"psum": BASE, "psum_en": 1, "psum_fmt": FORMAT_CODES["f32"]}
    (text,) = done(made("bf16"), ("gemm", {**both, **sums, "n": 4, "k": 64, "m": 1, "fmt": "bf16"}))
    assert text.endswith("as f32, which were written as bf16")
    assert (
        len(
            done(
                made("f32"),
                ("reduce_sum", {"src0": BASE, "dst": BASE, "dim": 0, "n": 1, "h": 1, "w": 1, "c": 64, "fmt": "bf16"}),
            )
        )
        == 1
    )


@pytest.mark.parametrize("fmt", ["bf16", "f16"])
def test_a_row_of_a_program_in_another_format_is_found(fmt: str) -> None:
    case = one_op("softmax", Arg((4, 33, 77), "bf16"))
    assert not findings(case.program)
    code = Edit(case).segment.codes[0]
    names = {
        isa.class_of(int(op)).NAME
        for op, f in zip(code["opcode"], code["fmt"], strict=True)
        if f == FORMAT_CODES["f32"]
    }
    changed = sorted(names & {"exp_v", "sub_vv", "mul_vs", "recip_v", "reduce_sum"})
    assert len(changed) > 1
    for name in changed:
        edit = Edit(case)
        edit.set(name, 0, fmt=FORMAT_CODES[fmt])
        assert edit.found()[FAULT].name == name
