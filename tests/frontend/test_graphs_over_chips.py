"""Exports cut over chips: numbers of one chip, by prefill and by a step with caches; what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tx8fast
from tests.support.cli_case import write_mlp
from tests.support.run_over_chips import joined, part_of
from tx8fast.api import prove
from tx8fast.errors import ConfigError

ONNX = Path(__file__).resolve().parent.parent / "data" / "onnx"
EXPORTS = ("llama-prefill-op20", "llama-decode-op20", "qwen2-prefill-op23", "gpt2-decode-op23")


def feeds_of(program):
    rng = np.random.default_rng(0)
    found = {}
    for t in program.inputs:
        whole = rng.integers(0, 200, t.shape) if "ids" in t.name else np.full(t.shape, 5)
        found[t.name] = rng.standard_normal(t.shape).astype(np.float32) if t.dtype == "f32" else whole
    return found


def compare(one, many, tp, feeds):
    """Caches are given and taken in parts along the heads; the sanitizer looks on."""
    chips = many.program.n_chips
    own = {}
    for t in many.inputs:
        parts = [part_of(feeds[t.name], t.shape, c, tp) for c in range(chips)]
        own[t.name] = feeds[t.name] if parts[0].shape == feeds[t.name].shape else np.stack(parts)
    found = many.run(own, sanitize=True)
    for name, want in one.run(feeds).items():
        for first in range(0, chips, tp):
            got = joined(found[name][first : first + tp], want.shape, tp)
            assert np.abs(got - want).max() <= 2e-6 * np.abs(want).max(), (name, first)


@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize("name", EXPORTS)
@pytest.mark.slow(but_every=5)
def test_exports_give_the_numbers_of_one_chip(name, tp):
    path = ONNX / f"{name}.onnx"
    one, many = (tx8fast.compile(path, dtype="fp32", tp=n) for n in (None, tp))
    compare(one, many, tp, feeds_of(one))
    assert many.simulate().c2c_bytes > 0
    assert not prove(many.program, path).failures
    caches = [t for t in many.program.inputs if len(t.shape) == 4]
    kv = {"llama": 2, "gpt2": 4}.get(name.partition("-")[0], 2)
    assert all(t.shape[1] == max(1, kv // tp) for t in caches) and len(caches) == 4 * ("decode" in name)


@pytest.mark.slow
def test_groups_of_chips_and_bf16():
    """Two groups of two chips each do the same."""
    path = ONNX / "llama-prefill-op20.onnx"
    one, many = tx8fast.compile(path, dtype="fp32"), tx8fast.compile(path, dtype="fp32", tp=2, chips=(2, 2))
    assert many.program.n_chips == 4
    compare(one, many, 2, feeds_of(one))
    narrow = tx8fast.compile(path, dtype="bf16", tp=2).run(feeds_of(one))
    want = one.run(feeds_of(one))["linear_14"]
    assert np.abs(narrow["linear_14"][0].astype(np.float32) - want).max() <= 0.03 * np.abs(want).max()


def test_a_jax_function_with_its_weights_in_it(tmp_path):
    jax = pytest.importorskip("jax")
    rng = np.random.default_rng(1)
    w = [rng.standard_normal(s).astype(np.float32) for s in ((32, 64), (64, 32))]
    text = jax.jit(lambda x: jax.nn.gelu(x @ w[0]) @ w[1]).lower(np.zeros((4, 32), np.float32)).as_text()
    (tmp_path / "m.mlir").write_text(text)
    one, many = (tx8fast.compile(tmp_path / "m.mlir", tp=n) for n in (None, 4))
    assert {t.shape for t in many.program.params if t.per_chip} == {(32, 16), (16, 32)}
    compare(one, many, 4, feeds_of(one))


def test_what_is_refused(tmp_path):
    path = write_mlp(tmp_path / "m.onnx")
    with pytest.raises(ConfigError, match="chips is 6, required a multiple of tp, 4"):
        tx8fast.compile(path, tp=4, chips=(6, 1))
    with pytest.raises(ConfigError, match="chips is 1, required a multiple of tp, 4"):
        tx8fast.compile(path, tp=4, chips=(1, 1))
    with pytest.raises(ConfigError, match="at most 128"):
        tx8fast.compile(path, tp=256)
    text = """
    module attributes {mhlo.num_partitions = 2 : i32} {
      func.func public @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
        %0 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
          replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %s = stablehlo.add %a, %b : tensor<f32>
            stablehlo.return %s : tensor<f32>
        }) : (tensor<4x8xf32>) -> tensor<4x8xf32>
        return %0 : tensor<4x8xf32>
      }
    }"""
    (tmp_path / "two.mlir").write_text(text)
    with pytest.raises(ConfigError, match="made for 2 devices, which share it already"):
        tx8fast.compile(tmp_path / "two.mlir", tp=2)
