"""Requests that no plan can serve are explained; sizes of zero are not among them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tests.cli.test_bad_input import compile_args, machine_text, refused
from tests.support.cli_case import write_mlp, write_onnx
from tests.support.family_checkpoints import family_config
from tests.support.recorded_configs import CONFIGS as RECORDED
from tests.support.recorded_families import config_of

RESERVED = 131072


@pytest.fixture
def small_machine(tmp_path: Path) -> Path:
    """The standard machine with 5 KiB of scratchpad."""
    path = tmp_path / "small.toml"
    path.write_text(machine_text(tile__spm_bytes=RESERVED + 5120))
    assert tomllib.loads(path.read_text())["tile"]["spm_bytes"] == RESERVED + 5120
    return path


@pytest.fixture
def wide_rows(tmp_path: Path) -> Path:
    """Two normalisations over rows of 16384 and 8192 values, which are never cut."""
    nodes = [helper.make_node("Softmax", ["a"], ["b"], "first", axis=-1),
             helper.make_node("LayerNormalization", ["c", "g"], ["d"], "second")]  # fmt: skip
    sizes = {"a": (512, 16384), "c": (512, 8192), "g": (8192,)}
    return write_onnx(tmp_path / "wide.onnx", nodes, sizes, {"b": (512, 16384), "d": (512, 8192)})


@pytest.mark.parametrize("opt", ["1", "2"])
def test_all_ops_that_cannot_be_cut_are_explained_together(tx8, tmp_path, small_machine, wide_rows, opt):
    options = ("--machine", small_machine, "--opt", opt)
    text = refused(tx8, tmp_path, *compile_args(wide_rows, tmp_path, *options), says=("2 problems", "first", "second"))
    assert text.count("no split fits the scratchpad") == 2 and text.count("5,120 bytes are available per tile") == 2
    for part in (
        "operand 0 (2 copies) 131,072",
        "result 0 (2 copies) 131",
        "dimensions of 16,384 points cannot be cut",
        "tile.spm_bytes",
    ):
        assert part in text, text
    refused(tx8, tmp_path, "compile", wide_rows, "--stop-after", "search", *options, says=("first", "second"))


def test_the_largest_tensors_are_named_where_the_ddr_is_too_small(tx8, tmp_path, mlp):
    path = tmp_path / "m.toml"
    path.write_text(machine_text(chip__ddr_bytes=4096))
    says = ("placing the model in DDR", "one chip has 4,096", "the largest: 'w' ", "would help")
    refused(tx8, tmp_path, *compile_args(mlp, tmp_path, "--machine", path), says=says)


@pytest.mark.parametrize(("ddr_bytes", "says"), [
    (1_500_000, ("values between the ops take 4,194,304 bytes", "one chip has 1,500,000; 2 of 3 are needed at once",
                 "the largest: 'widen' 2,097,152, 'bend' 2,097,152")),
    (4_500_000, ("it needs 5,", "4,194,304 of them for values between the ops; one chip has 4,500,000",
                 "the largest weights, inputs and results: 'v' 524,288, 'w' 524,288")),
])  # fmt: skip
def test_ops_are_named_whose_values_do_not_fit_the_ddr(tx8, tmp_path, ddr_bytes, says):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "widen"), helper.make_node("Exp", ["h"], ["e"], "bend"),
             helper.make_node("MatMul", ["e", "v"], ["y"], "narrow")]  # fmt: skip
    weights = {"w": np.ones((64, 2048), np.float32), "v": np.ones((2048, 64), np.float32)}
    path = write_onnx(tmp_path / "wide.onnx", nodes, {"x": (256, 64)}, {"y": (256, 64)}, weights)
    machine = tmp_path / "m.toml"
    machine.write_text(machine_text(chip__ddr_bytes=ddr_bytes))
    args = compile_args(path, tmp_path, "--machine", machine, "--opt", "1")
    refused(tx8, tmp_path, *args, says=("placing the model in DDR", *says, "a narrower dtype would help"))
    assert "so would more chips: --tp 2, 4, 8," in tx8(*args).err
    assert tx8(*args, "--tp", "4").code == 0


@pytest.mark.parametrize(("case", "advice"), [("llama", "--tp 2, 4"), ("bloom", ""), ("gemma4_text", "")])
def test_more_chips_are_advised_where_layers_can_be_cut(tx8, tmp_path, case, advice):
    """... into as many parts as there can be."""
    config = (
        config_of(case)
        if case in RECORDED
        else {**family_config(case), "num_key_value_heads": 4, "intermediate_size": 64}
    )
    model, machine = tmp_path / "config.json", tmp_path / "m.toml"
    model.write_text(json.dumps(config))
    machine.write_text(machine_text(chip__ddr_bytes=30_000))
    args = compile_args(model, tmp_path, "--machine", machine, "--seq", "4", "--dtype", "fp32")
    refused(tx8, tmp_path, *args, says=("placing the model in DDR", advice))
    assert ("--tp" in tx8(*args).err) == bool(advice)
    if advice:  # what is advised is an option that is taken
        for n in advice.removeprefix("--tp ").split(", "):
            assert "placing the model in DDR" in tx8(*args, "--tp", n).err
        assert f"--tp {n}" not in tx8(*args, "--tp", n).err


@pytest.mark.parametrize("opt", ["1", "2", "3"])
def test_zero_size_dimensions_make_empty_results(tx8, tmp_path, opt):
    model, out = write_mlp(tmp_path / "z.onnx", (0, 32)), tmp_path / "z.tx8"
    assert tx8("compile", model, "-o", out, "--opt", opt).code == 0
    assert json.loads(tx8("sim", out, "--json").out)["cycles"] == 0
    np.savez(tmp_path / "in.npz", x=np.zeros((0, 32), np.float32))
    assert tx8("run", out, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz").code == 0
    with np.load(tmp_path / "out.npz") as z:
        assert z["y"].shape == (0, 48)


@pytest.mark.parametrize("value", ["0", "4", "-1", "2.5", "high"])
def test_levels_out_of_range(tx8, tmp_path, mlp, value):
    refused(tx8, tmp_path, *compile_args(mlp, tmp_path, "--opt", value), says=("--opt",))
