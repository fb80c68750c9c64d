"""Programs of several chips on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.support.cli_case import refused

TEXT = """module attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 4 : i32} {
  func.func @main(%x: tensor<8x16xf32> loc("x")) -> tensor<8x64xf32> {
    %0 = "stablehlo.all_gather"(%x) <{all_gather_dim = 1 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}>
      : (tensor<8x16xf32>) -> tensor<8x64xf32>
    return %0 : tensor<8x64xf32>
  }
}
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "gather.mlir"
    path.write_text(TEXT)
    return path


def test_compile_check_sim_run_and_inspect(tx8, model, tmp_path):
    out, x = tmp_path / "p.tx8", np.random.default_rng(0).standard_normal((4, 8, 16)).astype(np.float32)
    done = tx8("compile", model, "-o", out, "--chips", "2x2", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["chips"] == [2, 2]
    assert "chips" in tx8("compile", model, "-o", out, "--chips", "4").out
    assert tx8("check", model, "--chips", "4").code == 0
    np.savez(tmp_path / "in.npz", x=x)
    done = tx8("run", out, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")
    assert done.code == 0, done.err
    got = np.load(tmp_path / "out.npz")["result0"]
    assert np.array_equal(got, np.stack([np.concatenate(list(x), axis=1)] * 4))
    facts = json.loads(tx8("sim", out, "--json").out)
    assert facts["chips"] == [4, 1]
    assert facts["c2c_bytes"] == 3 * 8 * 16 * 4 * 6
    assert "chip links" in tx8("sim", out).out
    assert tx8("sim", out, "--trace", tmp_path / "t.json").code == 0
    assert tx8("inspect", out).code == 0
    assert tx8("inspect", out, "--streams").code == 0
    assert tx8("inspect", out, "--code", "0").code == 0


def test_what_is_refused(tx8, model, tmp_path):
    out = tmp_path / "p.tx8"
    refused(
        tx8, tmp_path, "compile", model, "-o", out, "--chips", "3", says=("made for 4 devices, 3 chips are asked for",)
    )
    refused(tx8, tmp_path, "compile", model, "-o", out, "--chips", "4x", says=("'4x' is not a number of chips",))
    refused(tx8, tmp_path, "compile", model, "-o", out, "--chips", "0", says=("expected two whole numbers from 1 to",))
    assert tx8("compile", model, "-o", out).code == 0
    np.savez(tmp_path / "in.npz", x=np.zeros((3, 8, 16), np.float32))
    run = ("run", out, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")
    refused(tx8, tmp_path, *run, says=("input 'x' has shape [3, 8, 16], required [8, 16], or [4, 8, 16] with a part",))
    np.savez(tmp_path / "in.npz", x=np.zeros((8, 16), np.float32))
    assert tx8(*run, "--sanitize").code == 0


def test_a_model_without_collectives_runs_on_every_chip(tx8, mlp, tmp_path):
    """Data parallel: the same weights, other inputs."""
    out, x = tmp_path / "p.tx8", np.random.default_rng(1).standard_normal((3, 8, 32)).astype(np.float32)
    assert tx8("compile", mlp, "-o", out, "--chips", "3").code == 0
    one = tmp_path / "one.tx8"
    assert tx8("compile", mlp, "-o", one).code == 0
    assert json.loads(tx8("sim", out, "--json").out)["cycles"] == json.loads(tx8("sim", one, "--json").out)["cycles"]
    np.savez(tmp_path / "in.npz", x=x)
    assert tx8("run", out, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz").code == 0
    got = np.load(tmp_path / "out.npz")
    for c in range(3):
        np.savez(tmp_path / "in.npz", x=x[c])
        assert tx8("run", one, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "one.npz").code == 0
        for name, want in np.load(tmp_path / "one.npz").items():
            assert np.array_equal(got[name][c], want)
