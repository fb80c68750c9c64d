"""How many chips a model needs, which numbers are possible, and what each engine would take: known without compiling."""

from __future__ import annotations

import json

import pytest

import tx8fast
from tests.support.checkpoints import make_checkpoint
from tests.support.cli_case import write_mlp
from tests.support.llama_formats import write_onnx
from tx8fast.demo_model import LLAMA_3_8B, write_config

LLAMA_405B = LLAMA_3_8B | {
    "hidden_size": 16384, "num_hidden_layers": 126, "num_attention_heads": 128, "intermediate_size": 53248,
}  # fmt: skip


def check(tx8, *args) -> dict:
    found = tx8("check", *args, "--json")
    assert found.code == 0, found
    return json.loads(found.out)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return write_config(tmp_path_factory.mktemp("405b"), LLAMA_405B)


@pytest.mark.parametrize("options", [("--seq", "512"), ("--phase", "decode", "--past", "8192")])
@pytest.mark.slow
def test_the_estimate_is_what_the_cut_model_takes(tx8, large, options):
    whole = check(tx8, large, *options)
    assert [r["tp"] for r in whole["tp"]] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert not whole["fits_ddr"] and whole["chips_needed"] == 16
    estimate = next(r for r in whole["tp"] if r["tp"] == 16)
    own = check(tx8, large, *options, "--tp", "16")
    assert own["fits_ddr"] and own["chips_needed"] == 16
    assert estimate["ddr_bytes"] == pytest.approx(own["ddr_footprint_bytes"], rel=0.05)
    # and the other way round
    again = next(r for r in own["tp"] if r["tp"] == 1)
    assert again["ddr_bytes"] == pytest.approx(whole["ddr_footprint_bytes"], rel=0.05)
    assert "needs 16" in tx8("check", large, *options).out


def test_sizes_that_do_not_divide(tx8, tmp_path):
    make_checkpoint(tmp_path, heads=6, kv_heads=2, hidden=96, intermediate=120, dtype="bfloat16")
    found = check(tx8, tmp_path, "--seq", "16")
    assert [r["tp"] for r in found["tp"]] == [1, 2, 6] and found["chips_needed"] == 1
    for n in (2, 6):
        own = check(tx8, tmp_path, "--seq", "16", "--tp", n)
        estimate = next(r for r in found["tp"] if r["tp"] == n)
        assert estimate["ddr_bytes"] == pytest.approx(own["ddr_footprint_bytes"], rel=0.05)
    assert tx8("check", tmp_path, "--seq", "16", "--tp", "3").code == 2
    other = check(tx8, write_mlp(tmp_path / "m.onnx"))
    assert other["tp"][:2] == [r for r in other["tp"] if r["tp"] <= 2] and other["chips_needed"] == 1


def test_numbers_of_chips_of_a_graph(tx8, tmp_path):
    path = write_onnx(tmp_path, "decode")
    whole = check(tx8, path)
    assert [r["tp"] for r in whole["tp"]][:3] == [1, 2, 4]
    for n in (2, 4):
        own = check(tx8, path, "--tp", n)
        estimate = next(r for r in whole["tp"] if r["tp"] == n)
        assert estimate["ddr_bytes"] == pytest.approx(own["ddr_footprint_bytes"], rel=0.02)
    assert "are whole on every chip" in tx8("check", path, "--tp", "5").err, "the vocabulary divides, nothing else does"
    refused = tx8("check", path, "--tp", "7")
    assert refused.code == 2 and "divides by 7" in refused.err


def test_engines(tx8, tmp_path):
    make_checkpoint(tmp_path, dtype="bfloat16")
    found = check(tx8, tmp_path, "--phase", "decode", "--past", "64")
    cycles = found["engine_cycles"]
    assert cycles["ne"] == found["compute_bound_cycles"] and cycles["ddr"] == found["memory_bound_cycles"]
    assert cycles["kcore"] > 0 and cycles["ct"] > 0
    sim = tx8fast.compile(tmp_path, phase="decode", past=64).simulate()
    assert max(cycles.values()) < sim.cycles, "no engine is done later than the program at its full rate"
