"""The format of inputs, outputs and caches, chosen apart from the one that is computed in."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from support.cnn_models import CnnBuilder
from support.small_graph import SmallGraph, kinds

import tx8fast
from tests.support.checkpoints import make_checkpoint
from tx8fast.errors import ConfigError, SlowFormatWarning
from tx8fast.passes.interface_dtype import InterfaceDtype


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    make_checkpoint(folder, dtype="bfloat16")
    return folder


def test_conversions_stand_at_both_ends():
    g = SmallGraph(x=((4, 64), "bf16"), ids=((4,), "i64"), z=((4,), "f32"))
    y = g("relu", g.args["x"])
    p = g.done(y=y, same=y, n=g("neg", g.args["ids"]), w=g("neg", g.args["z"]))
    InterfaceDtype("f32").run(p)
    p.verify()
    assert [a.dtype for a in p.main.body.args] == ["f32", "i64", "f32"]
    assert kinds(p) == ["convert", "relu", "neg", "neg", "convert", "return"]
    assert [v.dtype for v in p.main.body.last.operands] == ["f32", "f32", "i64", "f32"]
    with pytest.raises(ConfigError, match="int8"):
        InterfaceDtype("int8").run(p)


def test_values_in_wider_formats_are_converted_late():
    """x has all numbers of bf16: it enters the computation before its format changes; z is widened, before."""
    g = SmallGraph(x=((4, 64), "f32"), z=((4, 64), "bf16"))
    p = g.done(y=g("relu", g.args["x"]), w=g("neg", g.args["z"]))
    InterfaceDtype("bf16").run(p)
    assert [a.dtype for a in p.main.body.args] == ["f32", "bf16"]
    InterfaceDtype("bf16", late=True).run(p)
    assert [a.dtype for a in p.main.body.args] == ["bf16", "bf16"]
    assert [v.dtype for v in p.main.body.last.operands] == ["bf16", "bf16"]


def test_inputs_in_the_computations_format_are_not_widened(tmp_path):
    """Pools keep the format that they are given."""
    b = CnnBuilder(seed=1)
    y = b.node("Concat", b.conv("x", 8, 8, 1), b.node("AveragePool", "x", kernel_shape=[3, 3], pads=[1] * 4), axis=1)
    path = b.save(tmp_path / "net.onnx", (2, 8, 6, 6), y, (2, 16, 6, 6))
    made = tx8fast.compile(path, dtype="bf16", io_dtype="bf16")
    assert not any("convert" in s.info["op"] for s in made.program.segments)


@pytest.mark.parametrize(
    "dtype, io_dtype, stored", [("fp32", None, "bf16"), ("fp32", "fp32", "f32"), ("bf16", "fp16", "f16")]
)
@pytest.mark.slow(but_every=4)
def test_a_decode_step_in_every_pair(checkpoint, dtype, io_dtype, stored):
    plain = tx8fast.compile(checkpoint, phase="decode", past=8)
    made = tx8fast.compile(checkpoint, phase="decode", past=8, dtype=dtype, io_dtype=io_dtype)
    assert {t.dtype for t in made.outputs} == {stored} == {t.dtype for t in made.inputs if t.dtype[0] != "i"}
    assert made.program.meta["options"].get("io_dtype") == io_dtype
    rng = np.random.default_rng(0)
    feed = {t.name: rng.integers(0, 5, t.shape) if t.dtype[0] == "i" else rng.standard_normal(t.shape).astype(np.float32)
            for t in made.inputs}  # fmt: skip
    want, got = (np.asarray(p.run(feed)["logits"], np.float32) for p in (plain, made))
    np.testing.assert_allclose(got, want, atol=0.06 * np.abs(want).max())
    in_place = {t.address for t in made.inputs} & {t.address for t in made.outputs}
    assert len(in_place) == (len(made.outputs) - 1 if io_dtype == dtype else 0)


def test_float32_that_only_a_configuration_says_is_told(tmp_path):
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "vocab_size": 50,
              "num_attention_heads": 2, "num_key_value_heads": 1, "torch_dtype": "float32"}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.warns(SlowFormatWarning, match="6 times as long in fp32 as in bf16: --dtype bf16"):
        made = tx8fast.compile(tmp_path, seq=4)
    assert made.program.meta["compute_dtype"] == "f32"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dtype in ("bf16", "fp32"):
            tx8fast.compile(tmp_path, seq=4, dtype=dtype)
        (tmp_path / "config.json").write_text(json.dumps({**config, "torch_dtype": "bfloat16"}))
        tx8fast.compile(tmp_path, seq=4)
