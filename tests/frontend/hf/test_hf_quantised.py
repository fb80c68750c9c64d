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


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.slow(but_every=5)
def test_quantised_models_run(tmp_path, scheme):
    config, meant = quantised(tmp_path, "qwen3", scheme)
    wanted = FamilyReference(config, meant).prefill(IDS)
    program = tx8fast.compile(tmp_path, phase="prefill", batch=2, seq=12)
    assert error(program.run({"input_ids": IDS}), wanted) <= 1e-4


@pytest.mark.parametrize(
    ("scheme", "word"),
    [("modelopt-fp8", "modelopt_fp8"), ("modelopt-nvfp4", "modelopt_fp4"), ("auto-round", "intel/auto-round")],
)
def test_other_words_for_a_method(tmp_path, scheme, word):
    config, _ = quantised(tmp_path, "qwen3", scheme)
    wanted = import_hf(tmp_path, HfOptions(seq=4)).text()
    settings = {**SCHEMES[scheme][0], "quant_method": word}
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": settings}))
    assert import_hf(tmp_path, HfOptions(seq=4)).text() == wanted


@pytest.mark.parametrize(("scheme", "algo"), [("modelopt-fp8", "FP8"), ("modelopt-nvfp4", "NVFP4")])
def test_a_scheme_that_stands_beside_the_config(tmp_path, scheme, algo):
    config, _ = quantised(tmp_path, "qwen3", scheme)
    wanted = import_hf(tmp_path, HfOptions(seq=4))
    (tmp_path / "config.json").write_text(json.dumps(config))
    beside = tmp_path / "hf_quant_config.json"
    for text, problem in (
        ("{", "not valid JSON"),
        ("[]", "required: an object"),
        ('{"quantization": {"quant_algo": "W1"}}', "'W1'"),
    ):
        beside.write_text(text)
        with pytest.raises(ImportModelError, match=problem):
            import_hf(tmp_path, HfOptions(seq=4))
    said = {"quant_algo": algo, "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head"]}
    beside.write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": said}))
    found = import_hf(tmp_path, HfOptions(seq=4))
    assert found.text() == wanted.text() and list(found.weights) == list(wanted.weights)


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


@pytest.mark.parametrize(("case", "scheme"), [("phi3", "gptq"), ("mixtral", "awq"), ("deepseek_v3", "int8")])
@pytest.mark.slow
def test_fused_and_stacked_weights_of_quantised_models(tmp_path, case, scheme):
    """Parts of a dequantised matrix and stacks of them: nothing is read at import."""
    config, meant = quantised(tmp_path, case, scheme)
    wanted = FamilyReference(config, meant).prefill(IDS)
    program = tx8fast.compile(tmp_path, phase="prefill", batch=2, seq=12)
    assert error(program.run({"input_ids": IDS}), wanted) <= 1e-4


def test_saved_program_finds_computed_weights_in_the_checkpoint(tmp_path):
    config, meant = quantised(tmp_path, "phi3", "gptq")
    tx8fast.compile(tmp_path, phase="prefill", batch=2, seq=12).save(tmp_path / "model.tx8")
    found = tx8fast.load(tmp_path / "model.tx8").run({"input_ids": IDS}, weights_dir=tmp_path)
    assert error(found, FamilyReference(config, meant).prefill(IDS)) <= 1e-4


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quant_method": "gptq", "bits": 3}, "key 'bits' is 3, supported: 2, 4, 8"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "key 'version' is 'gemv'"),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "int4"},
            "key 'bnb_4bit_quant_type' is 'int4', supported: 'nf4', 'fp4'",
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


def fp4(byte_pairs, scales):
    """Values of blocks [.., blocks, 16] with exponents [.., blocks], one by one from the format's definition."""
    out = np.empty((*scales.shape, 32))
    for at in np.ndindex(*byte_pairs.shape):
        for half, code in enumerate((int(byte_pairs[at]) % 16, int(byte_pairs[at]) // 16)):
            sign, exponent, mantissa = code // 8, code // 2 % 4, code % 2
            value = (1 + mantissa / 2) * 2.0 ** (exponent - 1) if exponent else mantissa / 2
            out[(*at[:-1], 2 * at[-1] + half)] = (-1) ** sign * value * 2.0 ** (int(scales[at[:-1]]) - 127)
    return out.reshape(*scales.shape[:-1], -1)


def test_experts_in_blocks_of_four_bit_floats(tmp_path):
    """A checkpoint with packed experts gives the outputs of the one that holds what they stand for."""
    from tests.support.recorded_families import config_of, make_recorded, token_ids, weights_of
    from tests.support.run_graph import run_graph

    record = make_recorded(tmp_path / "float", "gpt_oss")
    weights = weights_of("gpt_oss", json.loads(str(record["shapes"])))
    config = {**config_of("gpt_oss"), "intermediate_size": 64}
    rng = np.random.default_rng(4)
    packed = {k: w for k, w in weights.items() if "experts" not in k}
    plain = dict(packed)
    for i in range(2):
        for name, rows, cols in (("gate_up_proj", 128, 32), ("down_proj", 32, 64)):
            key = f"model.layers.{i}.mlp.experts.{name}"
            packed[key + "_blocks"] = rng.integers(0, 256, (5, rows, cols // 32, 16), np.uint8)
            packed[key + "_scales"] = rng.integers(121, 126, (5, rows, cols // 32), np.uint8)
            packed[key + "_bias"] = plain[key + "_bias"] = rng.standard_normal((5, rows)).astype(np.float32)
            plain[key] = fp4(packed[key + "_blocks"], packed[key + "_scales"]).swapaxes(1, 2).astype(np.float32)
    results = []
    for directory, stored, more in (
        ("float", plain, {}),
        ("packed", packed, {"quantization_config": {"quant_method": "mxfp4"}}),
    ):
        (tmp_path / directory).mkdir(exist_ok=True)
        (tmp_path / directory / "config.json").write_text(json.dumps({**config, **more}))
        write_weights(tmp_path / directory, stored)
        program = import_hf(tmp_path / directory, HfOptions(batch=2, seq=11))
        results.append(run_graph(program, {"input_ids": token_ids("gpt_oss")})["logits"])
    assert np.array_equal(*results) and np.abs(results[0]).max() > 1
