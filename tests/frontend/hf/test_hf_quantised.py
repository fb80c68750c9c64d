"""Quantised checkpoints mean exactly the floats that their definition gives, and models of them run."""

import json

import numpy as np
import pytest

import tx8fast
from tests.support.checkpoints import write_weights
from tests.support.family_checkpoints import VOCAB, family_config, family_weights
from tests.support.family_reference import FamilyReference
from tests.support.quantised_checkpoints import SCHEMES, convert
from tx8fast.errors import ImportModelError
from tx8fast.frontend.hf import HfOptions, import_hf
from tx8fast.weights import np_dtype
from tx8fast.weights import quantized as unpacking

IDS = np.random.default_rng(1).integers(0, VOCAB, (2, 12))


def quantised(directory, case, scheme, dtype="float32"):
    """Write a quantised checkpoint; return the config and the float weights it stands for."""
    config = family_config(case, dtype)
    settings, make = SCHEMES[scheme]
    stored, meant = convert(family_weights(config), make)
    (directory / "config.json").write_text(json.dumps({**config, "quantization_config": settings}))
    write_weights(directory, stored)
    return config, meant


def error(found, wanted):
    return max(np.abs(found[k].astype(np.float64) - w).max() / np.abs(w).max() for k, w in wanted.items())


@pytest.mark.feature("B11", "B87")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_quantised_models_run(tmp_path, scheme):
    config, meant = quantised(tmp_path, "qwen3", scheme)
    wanted = FamilyReference(config, meant).prefill(IDS)
    program = tx8fast.compile(tmp_path, phase="prefill", batch=2, seq=12)
    assert error(program.run({"input_ids": IDS}), wanted) <= 1e-4


@pytest.mark.feature("B11", "B45", "B87")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_weights_are_the_dequantised_ones(tmp_path, scheme, dtype, monkeypatch):
    monkeypatch.setattr(unpacking, "CHUNK_ELEMENTS", 100)  # several chunks
    _, meant = quantised(tmp_path, "qwen3", scheme, dtype)
    table = import_hf(tmp_path, HfOptions(seq=4)).weights
    ours = {"float32": "f32", "bfloat16": "bf16"}[dtype]
    checked = 0
    for name, w in meant.items():
        if ".layers." in name and w.ndim == 2:
            found = table.view("%" + name)
            assert found.dtype == np_dtype(ours) and found.shape == w.shape
            step = {"float32": 2.0**-22, "bfloat16": 2.0**-8}[dtype]
            assert (np.abs(found.astype(np.float64) - w) <= np.abs(w) * step + 1e-9).all(), name
            checked += 1
    assert checked == 14


@pytest.mark.feature("B11", "IR-26")
@pytest.mark.parametrize(("case", "scheme"), [("phi3", "gptq"), ("mixtral", "awq"), ("deepseek_v3", "int8")])
def test_fused_and_stacked_weights_of_quantised_models(tmp_path, case, scheme):
    """Parts of a dequantised matrix and stacks of them: nothing is read at import."""
    config, meant = quantised(tmp_path, case, scheme)
    wanted = FamilyReference(config, meant).prefill(IDS)
    program = tx8fast.compile(tmp_path, phase="prefill", batch=2, seq=12)
    assert error(program.run({"input_ids": IDS}), wanted) <= 1e-4


@pytest.mark.feature("B11", "IR-26")
def test_saved_program_finds_computed_weights_in_the_checkpoint(tmp_path):
    config, meant = quantised(tmp_path, "phi3", "gptq")
    tx8fast.compile(tmp_path, phase="prefill", batch=2, seq=12).save(tmp_path / "model.tx8")
    found = tx8fast.load(tmp_path / "model.tx8").run({"input_ids": IDS}, weights_dir=tmp_path)
    assert error(found, FamilyReference(config, meant).prefill(IDS)) <= 1e-4


@pytest.mark.feature("IR-27")
def test_misfitting_parts_are_listed(tmp_path):
    config = family_config("qwen3")
    settings, make = SCHEMES["gptq"]
    stored, _ = convert(family_weights(config), make)
    name = "model.layers.0.mlp.up_proj."
    del stored[name + "scales"]
    stored[name + "qzeros"] = stored[name + "qzeros"].astype(np.int64)
    stored["model.layers.1.mlp.up_proj.g_idx"] = np.zeros(5, np.int32)
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": settings}))
    write_weights(tmp_path, stored)
    with pytest.raises(ImportModelError) as e:
        import_hf(tmp_path, HfOptions(seq=4))
    text = str(e.value)
    assert f"'{name}scales' is absent" in text and "up_proj.g_idx' has shape [5], required [32]" in text
    assert f"'{name}qzeros' has shape [2, 6], required [1, 6]" in text


@pytest.mark.feature("B11")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quant_method": "gptq", "bits": 3}, "key 'bits' is 3, supported: 2, 4, 8"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "key 'version' is 'gemv'"),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            "key 'load_in_4bit' is True, supported: False",
        ),
        ({"quant_method": "fp8", "weight_block_size": [0, 1]}, "weight_block_size"),
        ({"quant_method": "compressed-tensors", "format": "marlin-24"}, "'marlin-24'"),
        ({"quant_method": "quip"}, "'quip', required: one of gptq, awq"),
        ([4], "required: an object"),
    ],
)
def test_unsupported_quantisation(tmp_path, settings, message):
    (tmp_path / "config.json").write_text(json.dumps({**family_config("llama"), "quantization_config": settings}))
    with pytest.raises(ImportModelError) as e:
        import_hf(tmp_path, HfOptions(seq=4))
    assert message in str(e.value)
