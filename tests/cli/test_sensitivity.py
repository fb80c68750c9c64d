"""`tx8fast sensitivity`: which assumptions decide a program's cycles."""

from __future__ import annotations

import json

import pytest

import tx8fast
from tests.support.cli_case import Caller, refused, write_mlp
from tx8fast.api import CompiledProgram, load
from tx8fast.machine import load_machine
from tx8fast.machine.tags import assumed_keys, changed, read_tags
from tx8fast.simulator.cycle import simulate
from tx8fast.simulator.sensitivity import extremes, sensitivity


def opened(path):
    loaded = load(path)
    assert isinstance(loaded, CompiledProgram)
    return loaded.program


def test_each_figure_is_the_same_program_on_another_machine(program):
    p = opened(program)
    seen = []
    found = sensitivity(p, ["rdma.startup", "ct.factor.lut", "chip.ddr_burst"], lambda *x: seen.append(x))
    m = load_machine()
    assert found.cycles == simulate(p).cycles and p.machine == m.to_dict()
    assert [s.key for s in found.swings][0] == "rdma.startup"
    by_key = {s.key: s for s in found.swings}
    for value, cycles in zip((150, 450), by_key["rdma.startup"].cycles, strict=True):
        other = opened(program)
        other.machine = changed(m, {"rdma.startup": value}).to_dict()
        assert simulate(other).cycles == cycles
    assert by_key["rdma.startup"].cycles[0] < found.cycles < by_key["rdma.startup"].cycles[1]
    assert by_key["ct.factor.lut"].cycles == (found.cycles, found.cycles)
    assert by_key["chip.ddr_burst"].values == (32, 128)
    assert (
        found.lowest_cycles <= by_key["rdma.startup"].cycles[0]
        and found.highest_cycles >= by_key["rdma.startup"].cycles[1]
    )
    assert seen == [(k, 9) for k in range(1, 10)]


def test_all_figures_together_are_wider_than_each(program):
    found = sensitivity(opened(program), ["rdma.startup", "wdma.startup"])
    assert found.lowest_cycles < min(c for s in found.swings for c in s.cycles)
    assert found.highest_cycles > max(c for s in found.swings for c in s.cycles)


@pytest.mark.slow
def test_command(tx8: Caller, program, mlp, tmp_path):
    of_program = tx8("sensitivity", program, "--json")
    facts = json.loads(of_program.out)
    assert facts["interval_cycles"][0] < facts["cycles"] < facts["interval_cycles"][1]
    assert facts["interval_roofline_ratio"][0] < facts["roofline_ratio"] < facts["interval_roofline_ratio"][1]
    largest = [max(map(abs, row["change"])) for row in facts["keys"]]
    assert largest == sorted(largest, reverse=True) and largest[0] > 0
    assert {"rdma.startup", "noc.hop_cycles"} <= {row["key"] for row in facts["keys"]}
    of_model = json.loads(tx8("sensitivity", mlp, "--dtype", "bf16", "--json").out)
    assert of_model["keys"] == facts["keys"]
    text = tx8("sensitivity", program).out
    assert "with other assumptions" in text and "no difference" in text
    assert "0, which no factor changes" not in text


def test_tags_of_the_machine_file_count(tx8: Caller, mlp, tmp_path):
    from importlib import resources

    text = resources.files("tx8fast.machine").joinpath("configs", "tx8.toml").read_text("utf-8")
    lines = [x.replace("; assumed", "; measured") if x.startswith("startup = 300") else x for x in text.splitlines()]
    known = tmp_path / "known.toml"
    known.write_text("\n".join(lines))
    facts = json.loads(tx8("sensitivity", mlp, "--dtype", "bf16", "--machine", known, "--json").out)
    keys = {row["key"] for row in facts["keys"]}
    assert "rdma.startup" not in keys and "wdma.startup" in keys


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--seq", "4"], "is a program: drop --seq"),
        (["--machine", "test_2x2"], "was compiled for another machine"),
        (["--length", "4"], "drop --length"),
    ],
)
def test_options_that_do_not_fit_a_program(tx8: Caller, program, args, says):
    assert says in refused(tx8, program.parent, "sensitivity", program, *args)


def test_nothing_there(tx8: Caller, tmp_path):
    refused(tx8, tmp_path, "sensitivity", tmp_path / "no.tx8")
    refused(tx8, tmp_path, "sensitivity", tmp_path / "no.onnx")


def test_sim_says_between_what_the_ratio_lies(tx8: Caller, tmp_path):
    """Two simulations: all assumed figures at the side where they cost less, and at the other."""
    out = tmp_path / "m.tx8"
    program = tx8fast.compile(write_mlp(tmp_path / "m.onnx"), dtype="bf16")
    program.save(out)
    low, high = extremes(program.program, assumed_keys(read_tags()))
    cycles, bound = program.simulate().cycles, program.simulate().bound_cycles
    assert low < cycles < high
    assert f"{bound / high:.3f} to {bound / low:.3f} with assumed" in " ".join(tx8("sim", out).out.split())
    facts = json.loads(tx8("sim", out, "--json").out)
    assert facts["interval_cycles"] == [low, high]
    assert facts["interval_roofline_ratio"] == [bound / high, bound / low]
    slower = extremes(program.program, ["rdma.startup"])
    assert slower[0] < cycles < slower[1] and extremes(program.program, []) == (cycles, cycles)
