"""Values of config files that are unusual and valid: each means what another config, or other weights, says in the usual way."""

import json
from typing import Any

import numpy as np
import pytest

import tx8fast
from tests.support.checkpoints import write_weights
from tests.support.family_checkpoints import family_config, family_weights
from tests.support.recorded_families import RECORDS, SEQ, make_recorded, token_ids, weights_of
from tests.support.recorded_families import config_of as decoder_config
from tests.support.recorded_parts import BATCH, CASES, config_of, inputs_of
from tests.support.run_graph import run_graph
from tx8fast.errors import ImportModelError
from tx8fast.frontend.hf import HfOptions, import_hf
from tx8fast.frontend.hf.config import parse_config


def shapes_of(case: str) -> list[tuple[str, list[int]]]:
    return json.loads(str(np.load(RECORDS / f"{case}.npz")["shapes"]))


def write(folder, config: dict[str, Any], weights: dict[str, np.ndarray]):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_weights(folder, weights)
    return folder


def logits(folder, case: str) -> np.ndarray:
    return run_graph(import_hf(folder, HfOptions(batch=BATCH, seq=SEQ)), {"input_ids": token_ids(case)})["logits"]


def near(found, wanted, within: float = 2e-6):
    assert np.abs(np.asarray(found, np.float64) - wanted).max() <= within * np.abs(wanted).max()


def test_plain_parts_of_a_kimi_linear_as_the_library_calls_them(tmp_path):
    record = make_recorded(tmp_path, "kimi_linear")
    weights = weights_of("kimi_linear", shapes_of("kimi_linear"))
    new = {k.replace(".0.mlp.", ".0.block_sparse_moe."): v for k, v in weights.items()}
    assert set(new) != set(weights)
    near(logits(write(tmp_path, decoder_config("kimi_linear"), new), "kimi_linear"), record["prefill"])


def test_layers_of_a_kimi_k25_as_the_library_calls_them(tmp_path):
    record = make_recorded(tmp_path, "kimi_k2")
    text = {**decoder_config("kimi_k2"), "model_type": "deepseek_v3"}
    new = {
        ("language_model." + k).replace("model.layers", "model.blocks"): v
        for k, v in weights_of("kimi_k2", shapes_of("kimi_k2")).items()
    }
    whole = {"model_type": "kimi_k25", "text_config": text, "tie_word_embeddings": False}
    near(logits(write(tmp_path, whole, new), "kimi_k2"), record["prefill"])


def test_a_sparse_mixer_without_noise_gives_each_drawn_expert_all(tmp_path):
    """As one of hardly any noise does."""
    found = []
    for noise in (0, 0.0, 1e-30):
        make_recorded(tmp_path, "phimoe")
        config = {**decoder_config("phimoe"), "router_jitter_noise": noise}
        (tmp_path / "config.json").write_text(json.dumps(config))
        found.append(logits(tmp_path, "phimoe"))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    with pytest.raises(ImportModelError, match="router_jitter_noise' is -0.1, required: a number >= 0"):
        parse_config({**decoder_config("phimoe"), "router_jitter_noise": -0.1}, "c")


def test_multipliers_may_be_negative(tmp_path):
    case = "falcon_h1"
    record = make_recorded(tmp_path, case)
    config, weights = decoder_config(case), weights_of(case, shapes_of(case))
    turned = {k: -v if k.endswith(("self_attn.k_proj.weight", "lm_head.weight")) else v for k, v in weights.items()}
    changed = {k: -config.get(k, 1.0) for k in ("key_multiplier", "lm_head_multiplier")}
    near(logits(write(tmp_path, {**config, **changed}, turned), case), record["prefill"])
    assert parse_config({**config, "key_multiplier": 0}, "c").multipliers
    for key, value in (("lm_head_multiplier", 0), ("ssm_multipliers", [1, 1, 1, 1]), ("key_multiplier", "1")):
        with pytest.raises(ImportModelError, match=key):
            parse_config({**config, key: value}, "c")


def test_biases_that_a_nemotron_h_may_lack(tmp_path):
    """The library makes none, whatever the key says; the original code does."""
    case = "nemotron_h"
    record = make_recorded(tmp_path, case)
    config, weights = {**decoder_config(case), "attention_bias": True}, weights_of(case, shapes_of(case))
    near(logits(write(tmp_path, config, weights), case), record["prefill"])
    biases = {
        k.replace(".weight", ".bias"): np.full(v.shape[0], 0.5, np.float32)
        for k, v in weights.items()
        if k.endswith("_proj.weight") and any(f".{p}_proj" in k for p in "qkvo")
    }
    with_them = logits(write(tmp_path, config, {**weights, **biases}), case)
    assert np.abs(with_them - record["prefill"]).max() > 1e-3
    with pytest.raises(ImportModelError, match="q_proj.bias"):
        import_hf(write(tmp_path, decoder_config(case), {**weights, **biases}), HfOptions(seq=SEQ))


def test_a_modernbert_that_sees_no_neighbours():
    near_only = [parse_config({**config_of("modernbert"), "local_attention": n}, "c").windows for n in (0, 1)]
    assert near_only[0] == near_only[1] == (0, 1, 1, 0)


def test_a_soft_cap_is_a_number_or_null():
    config = decoder_config("recurrent_gemma")
    assert parse_config({**config, "logits_soft_cap": None}, "c").logits_cap == 0.0
    with pytest.raises(ImportModelError, match="'logits_soft_cap' is 0, required: a number > 0, or null for no cap"):
        parse_config({**config, "logits_soft_cap": 0}, "c")


@pytest.mark.parametrize("case", ["qwen2_vl-vision", "qwen2_5_vl-vision", "qwen3_vl-vision"])
def test_patches_of_one_frame(tmp_path, case):
    """As patches of two that add up to it."""
    config, weights = config_of(case), weights_of(case, shapes_of(case))
    config["vision_config"]["temporal_patch_size"] = 1
    one = {k: v.sum(2, keepdims=True) if k.endswith("patch_embed.proj.weight") else v for k, v in weights.items()}
    program = import_hf(write(tmp_path, config, one), HfOptions(batch=BATCH, part="vision"))
    record = np.load(RECORDS / f"{case}.npz")
    found = run_graph(program, inputs_of(case))
    for name in CASES[case][2]:
        near(found[name], record[name])


def test_a_pooler_may_be_narrower_than_the_layers(tmp_path):
    config, weights = family_config("vit"), family_weights(family_config("vit"))
    size = config["image_size"]
    x = np.random.default_rng(0).standard_normal((1, config["num_channels"], size, size)).astype(np.float32)
    inner = "vit." if any(k.startswith("vit.") for k in weights) else ""
    hidden, rng, found = config["hidden_size"], np.random.default_rng(1), []
    pooler = {
        f"{inner}pooler.dense.weight": rng.standard_normal((hidden, hidden)).astype(np.float32),
        f"{inner}pooler.dense.bias": rng.standard_normal(hidden).astype(np.float32),
    }
    for width in (hidden, 12):
        cut = {k: v[:width] for k, v in pooler.items()}
        folder = write(tmp_path / str(width), {**config, "pooler_output_size": width}, {**weights, **cut})
        found.append(run_graph(import_hf(folder, HfOptions()), {"pixel_values": x})["pooler_output"])
    np.testing.assert_allclose(found[1], found[0][:, :12], rtol=0, atol=1e-6)


def test_a_classifier_of_the_class_token_and_the_mean_of_the_patches(tmp_path):
    weights = weights_of("dinov2", shapes_of("dinov2"))
    rng = np.random.default_rng(3)
    judge = {
        "classifier.weight": rng.standard_normal((5, 64)).astype(np.float32),
        "classifier.bias": np.ones(5, np.float32),
    }
    inner = {"dinov2." + k: v for k, v in weights.items()}
    folder = write(tmp_path, config_of("dinov2"), {**inner, **judge})
    found = tx8fast.compile(folder, batch=BATCH, dtype="fp32").run(inputs_of("dinov2"))
    last = np.load(RECORDS / "dinov2.npz")["last_hidden_state"].astype(np.float64)
    seen = np.concatenate([last[:, 0], last[:, 1:].mean(1)], axis=1)
    near(found["logits"], seen @ judge["classifier.weight"].T.astype(np.float64) + 1.0)


@pytest.mark.parametrize("family, change, same", [
    ("glm", {"partial_rotary_factor": None}, {"partial_rotary_factor": 1.0}),
    ("recurrent_gemma", {"partial_rotary_factor": None}, {"partial_rotary_factor": 1.0}),
    ("falcon_h1", {"mamba_norm_before_gate": None}, {"mamba_norm_before_gate": False}),
    ("falcon_h1", {"num_key_value_heads": None}, {"num_key_value_heads": 4}),
    ("kimi_linear", {"moe_renormalize": None}, {"moe_renormalize": False}),
    ("kimi_k2", {"norm_topk_prob": None}, {"norm_topk_prob": False}),
    ("falcon", {"parallel_attn": None}, {"parallel_attn": False}),
    ("ernie4_5_moe", {"moe_k": None, "num_experts_per_tok": 3}, {"moe_k": 3}),
    ("deepseek_v3", {"q_lora_rank": None}, {"q_lora_rank": 0}),
])  # fmt: skip
def test_null_says_what_it_says_in_the_library(family: str, change: dict[str, Any], same: dict[str, Any]):
    """A switch is off, heads are as many as queries have, heads are turned whole; another key of the same meaning may say more."""
    config = decoder_config(family) if family != "deepseek_v3" else {**decoder_config("kimi_k2"), "model_type": family}
    assert parse_config({**config, **change}, "c") == parse_config({**config, **same}, "c")


@pytest.mark.parametrize("family, key, usual", [
    ("bamba", "mamba_d_state", 256), ("granitemoehybrid", "mamba_d_state", 256), ("falcon_h1", "mamba_d_state", 256),
    ("bamba", "mamba_d_head", "auto"), ("granitemoehybrid", "mamba_d_head", "auto"), ("mamba2", "state_size", 128),
    ("nemotron_h", "ssm_state_size", 128), ("ernie4_5", "num_key_value_heads", 2), ("granitemoeshared", "shared_intermediate_size", 0),
    ("kimi_k2", "q_lora_rank", 1536), ("kimi_k2", "n_routed_experts", 256), ("kimi_k2", "first_k_dense_replace", 3),
    ("glm4_moe_lite", "q_lora_rank", 768), ("phi3-yarn", "max_position_embeddings", 4096),
    ("minicpm3", "max_position_embeddings", 32768), ("olmo_hybrid", "linear_allow_neg_eigval", True),
    ("olmo_hybrid", "linear_num_key_heads", 4), ("olmo_hybrid", "linear_value_head_dim", 12),
    ("zamba", "n_mamba_heads", 2), ("zamba", "mamba_d_state", 16), ("zamba", "mamba_dt_rank", "auto"), ("zamba", "attention_head_dim", 16),
])  # fmt: skip
def test_keys_that_a_file_leaves_out(family: str, key: str, usual: Any):
    config = decoder_config(family)
    assert parse_config({k: v for k, v in config.items() if k != key}, "c") == parse_config({**config, key: usual}, "c")


def test_a_falcon_h1_may_have_biases_of_its_feed_forward_parts_alone():
    config = decoder_config("falcon_h1")
    assert parse_config({**config, "mlp_bias": True}, "c").mlp_bias
    with pytest.raises(ImportModelError, match="attention_bias"):
        parse_config({**config, "attention_bias": True}, "c")


def test_logits_of_a_text_half_are_scaled_as_those_of_its_own_model():
    text = decoder_config("cohere2")
    whole = {"model_type": "aya_vision", "text_config": text, "tie_word_embeddings": True}
    assert parse_config(whole, "c").logits_divisor == parse_config(text, "c").logits_divisor != 1.0
