"""The smallest part of a graph that still fails or is slow, as a file that is given away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from onnx import helper

from tests.cli.test_bad_input import machine_text
from tests.support.cli_case import Caller, refused, write_onnx
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions
from tx8fast.reducing import kind_of, slow_group

RESERVED = 131072


@pytest.fixture
def small_machine(tmp_path: Path) -> Path:
    """The standard machine with 5 KiB of scratchpad."""
    path = tmp_path / "small.toml"
    path.write_text(machine_text(tile__spm_bytes=RESERVED + 5120))
    return path


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """Eight ops in a row; one normalises rows that are too long for 5 KiB."""
    nodes = []
    for i, kind in enumerate(["Relu", "Neg", "Abs", "Softmax", "Relu", "Neg", "Abs", "Exp"]):
        nodes.append(helper.make_node(kind, [f"v{i}"], [f"v{i + 1}"], f"op{i}"))
    return write_onnx(tmp_path / "chain.onnx", nodes, {"v0": (512, 16384)}, {"v8": (512, 16384)})


def test_a_failure_becomes_one_op(tx8: Caller, tmp_path, chain, small_machine):
    out = tmp_path / "part.mlir"
    done = tx8("reduce", chain, "--machine", small_machine, "-o", out, "--json")
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert (facts["ops"], facts["first_ops"], facts["finished"]) == (1, 8, True)
    assert "no split fits the scratchpad" in facts["failure"] and facts["tries"] < 30
    text = out.read_text()
    assert "softmax" in text and "relu" not in text
    args = ("compile", out, "-o", tmp_path / "p.tx8", "--machine", small_machine)
    refused(tx8, tmp_path, *args, says=("no split fits the scratchpad",))
    assert tx8("compile", out, "-o", tmp_path / "p.tx8").code == 0, "of a machine with room, it compiles"


def test_the_slowest_group_stays_slow(tx8: Caller, tmp_path, chain):
    out = tmp_path / "slow.mlir"
    done = tx8("reduce", chain, "--slow", "--dtype", "bf16", "-o", out, "--json")
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert 1 <= facts["ops"] < facts["first_ops"] == 8
    found = slow_group(out.read_text(), load_machine("tx8"), CompileOptions(dtype="bf16"))
    assert found is not None and found[0] >= 0.9 * facts["cycles"] and found[1] <= 1.1 * facts["roofline_ratio"]
    assert "value =" not in out.read_text() and out.stat().st_size < 4000, "shapes and names, no values"


def test_a_part_that_is_read_again_compiles_and_says_what_it_cannot(tx8: Caller, tmp_path, chain):
    out = tmp_path / "part.mlir"
    assert tx8("reduce", chain, "--slow", "-o", out, "--tries", "3").code == 0
    checked = tx8("check", out, "--seq", "4")
    assert checked.code == 0 and "seq has no effect" in checked.err
    assert "none of its products has a weight" in refused(tx8, tmp_path, "check", out, "--tp", "2")
    out.write_text(out.read_text().replace("softmax", "sooftmax", 1))
    refused(tx8, tmp_path, "check", out, says=("sooftmax",))


def test_refusals(tx8: Caller, tmp_path, chain, small_machine):
    refused(tx8, tmp_path, "reduce", chain, "-o", tmp_path / "o.mlir", says=("it compiles; --slow",))
    refused(
        tx8,
        tmp_path,
        "reduce",
        chain,
        "--slow",
        "--machine",
        small_machine,
        "-o",
        tmp_path / "o.mlir",
        says=("without --slow",),
    )
    refused(tx8, tmp_path, "reduce", chain, "-o", chain, says=("chain.onnx",))


def test_a_kind_of_failure_has_no_names_and_numbers():
    one, two = (ValueError(f"op '{n}': {m:,} bytes, required 'f32'") for n, m in (("a", 12), ("b/c", 1_000_000)))
    assert kind_of(one) == kind_of(two) == "ValueError: op #: # bytes, required #"
    assert kind_of(ValueError("x")) != kind_of(TypeError("x"))
