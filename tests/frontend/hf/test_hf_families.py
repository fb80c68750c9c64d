"""Every family, prefill and decode step, compiled and executed, against an independent reference of its definition."""

import json
import os

import numpy as np
import pytest

import tx8fast
from tests.support.encoder_reference import EncoderReference
from tests.support.family_checkpoints import (
    CONFIGS,
    ENCODERS,
    VOCAB,
    family_config,
    make_family,
    tensor_shapes,
)
from tests.support.family_reference import FamilyReference
from tests.support.recorded_configs import CONFIGS as RECORDED
from tests.support.recorded_families import config_of as recorded_config
from tests.support.recorded_parts import CASES, PAIRS
from tests.support.recorded_parts import config_of as part_config
from tests.support.run_graph import run_graph
from tx8fast.errors import ConfigError, ImportModelError
from tx8fast.frontend.hf import HfOptions, import_hf
from tx8fast.frontend.hf.config import MODEL_TYPES, parse_config

BATCH, SEQ, PAST = 2, 12, 16
DECODERS = [case for case in CONFIGS if case not in ENCODERS]
TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2}
IDS = np.random.default_rng(1).integers(0, VOCAB, (BATCH, SEQ))


def close(found, wanted, dtype):
    """Largest error relative to the output's largest magnitude."""
    assert set(wanted) <= set(found)
    for name, w in wanted.items():
        error = np.abs(np.asarray(found[name]).astype(np.float64) - w).max() / np.abs(w).max()
        assert error <= TOLERANCE[dtype], (name, error)


def next_step(wanted):
    """Inputs of the decode step that repeats the last token of a prefill, and the results it must have.

    Slots that nobody wrote yet hold a value that would show if it were seen."""
    step = {"input_ids": IDS[:, -1:], "position": np.array([SEQ - 1])}
    after = {"logits": wanted["logits"][:, -1:]}
    for name, rows in wanted.items():
        if name != "logits":
            cache = np.full((BATCH, PAST, rows.shape[-1]), 9.0)
            cache[:, : SEQ - 1] = rows[:, : SEQ - 1]
            step[name.replace("present", "past")] = cache.astype(np.float32)
            after[name] = cache.copy()
            after[name][:, SEQ - 1] = rows[:, SEQ - 1]
    return step, after


def encoder_case(case, config, weights):
    reference = EncoderReference(config, weights)
    if case == "vit":
        pixels = np.random.default_rng(2).standard_normal((BATCH, 3, 16, 16)).astype(np.float32)
        return {"pixel_values": pixels}, reference.image(pixels)
    types = np.random.default_rng(2).integers(0, 2, (BATCH, SEQ))
    return {"input_ids": IDS, "token_type_ids": types}, reference.text(IDS, types)


def test_every_family_has_a_case():
    whole = {case.split("-")[0] for case in CONFIGS}
    whole |= {parse_config(recorded_config(case), case).model_type for case in RECORDED}
    parts = {parse_config(part_config(case), case, part=CASES[case][1] or None).model_type for case in CASES}
    sides = {f"{case.split('-')[0]}.{side}" for case in PAIRS for side in ("encoder", "decoder")}
    assert whole | parts | sides == set(MODEL_TYPES)


#: every case in every dtype with TX8FAST_ALL_MODELS, else in the dtypes in turn
RUNS = [(case, dtype) for i, case in enumerate(DECODERS) for j, dtype in enumerate(TOLERANCE)
        if os.environ.get("TX8FAST_ALL_MODELS") or i % len(TOLERANCE) == j]  # fmt: skip


@pytest.mark.parametrize(("case", "dtype"), RUNS)
@pytest.mark.slow(but_every=5)
def test_decoders_run_on_the_simulator(tmp_path, case, dtype):
    config, weights = make_family(tmp_path, case, dtype)
    wanted = FamilyReference(config, weights).prefill(IDS)
    prefill = tx8fast.compile(tmp_path, phase="prefill", batch=BATCH, seq=SEQ)
    close(prefill.run({"input_ids": IDS}), wanted, dtype)
    step, after = next_step(wanted)
    decode = tx8fast.compile(tmp_path, phase="decode", batch=BATCH, past=PAST)
    close(decode.run(step), after, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", ENCODERS)
@pytest.mark.slow
def test_encoders_run_on_the_simulator(tmp_path, case, dtype):
    inputs, wanted = encoder_case(case, *make_family(tmp_path, case, dtype))
    options = {} if case == "vit" else {"seq": SEQ}
    close(tx8fast.compile(tmp_path, batch=BATCH, **options).run(inputs), wanted, dtype)
    close(
        tx8fast.compile(tmp_path, phase="prefill", batch=BATCH, **options).run(inputs),
        wanted,
        dtype,
    )


@pytest.mark.parametrize("case", [c for c in DECODERS if c not in ("gemma2", "gemma3_text", "smollm3")])
def test_layers_of_one_kind_emit_the_same_ops(tmp_path, case):
    """The middle layers of these models are of one kind each."""
    config = family_config(case) | {"num_hidden_layers": 4, "n_layer": 4, "no_rope_layers": [1] * 4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for options in (HfOptions(seq=SEQ), HfOptions(phase="decode", past=PAST)):
        ops = list(import_hf(tmp_path, options).module.body.first.body)
        layers = [[(op.kind, str(op.results[0].type)) for op in ops if (op.loc or "").startswith(f"layers.{i}.")]
                  for i in range(4)]  # fmt: skip
        assert layers[1] == layers[2] == layers[3] and len(layers[1]) > 10


@pytest.mark.parametrize("case", CONFIGS)
def test_config_alone_names_the_checkpoint_tensors(tmp_path, case):
    config = family_config(case, "bfloat16")
    (tmp_path / "config.json").write_text(json.dumps(config))
    program = import_hf(tmp_path, HfOptions(seq=SEQ))
    program.verify()
    wanted = dict(tensor_shapes(config))
    found = {k: w.shape for k, w in program.weights.items() if not k.startswith("%")}
    if case in ENCODERS:  # heads are taken from the checkpoint only
        prefix = "bert." if case == "bert" else ""
        wanted = {prefix + k: s for k, s in wanted.items() if not k.startswith(("pooler", "classifier"))}
    assert found == wanted and set(found) <= set(program.weights.missing())


def test_number_of_ops_does_not_depend_on_the_experts(tmp_path):
    sizes = []
    for experts in (8, 128):
        config = family_config("qwen3_moe") | {"num_experts": experts}
        (tmp_path / "config.json").write_text(json.dumps(config))
        program = import_hf(tmp_path, HfOptions(seq=SEQ, batch=BATCH))
        ops = list(program.module.body.first.body)
        sizes.append(len(ops))
        products = [op for op in ops if op.kind == "gemm" and (op.loc or "").startswith("layers.1.experts.")]
        # of all computed experts only the three that a token chose are useful
        useful = BATCH * SEQ * 3 * 32 * 16
        assert [op.attrs["useful_macs"] for op in products] == [useful, useful, 0, useful]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("case", ["deepseek_v2", "deepseek_v3"])
def test_scores_of_latent_attention_are_one_product(tmp_path, case):
    """Of a prompt, so that they need not leave the scratchpad."""
    config, _ = make_family(tmp_path, case)
    program = import_hf(tmp_path, HfOptions(seq=SEQ))
    products = [op for op in program.main.body if op.kind == "contract"]
    assert len(products) == 2 * config["num_hidden_layers"]
    softmaxes = [op for op in program.main.body if op.kind == "softmax" and "self_attn" in (op.loc or "")]
    assert [op.operands[0].op.kind for op in softmaxes] == ["contract"] * config["num_hidden_layers"]


def test_text_half_of_an_image_text_model(tmp_path):
    config, weights = make_family(tmp_path, "gemma3_text")
    wanted = FamilyReference(config, weights).prefill(IDS)
    from tests.support.checkpoints import write_weights

    outer = {
        "model_type": "gemma3",
        "torch_dtype": "float32",
        "text_config": config,
        "vision_config": {},
    }
    (tmp_path / "config.json").write_text(json.dumps(outer))
    for prefix in ("language_model.model.", "model.language_model."):
        moved = {k.replace("model.", prefix, 1): w for k, w in weights.items()}
        write_weights(tmp_path, moved)
        found = run_graph(import_hf(tmp_path, HfOptions(batch=BATCH, seq=SEQ)), {"input_ids": IDS})
        close(found, wanted, "float32")


@pytest.mark.parametrize(("case", "prefix"), [("gpt2", "transformer."), ("opt", "model.")])
def test_checkpoints_of_the_bare_model(tmp_path, case, prefix):
    from tests.support.checkpoints import write_weights

    config, weights = make_family(tmp_path, case)
    write_weights(tmp_path, {k.removeprefix(prefix): w for k, w in weights.items()})
    found = run_graph(import_hf(tmp_path, HfOptions(batch=BATCH, seq=SEQ)), {"input_ids": IDS})
    close(found, FamilyReference(config, weights).prefill(IDS), "float32")


def test_old_names_of_norm_parameters(tmp_path):
    from tests.support.checkpoints import write_weights

    config, weights = make_family(tmp_path, "bert")
    inputs, wanted = encoder_case("bert", config, weights)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for new, name in old.items():
        weights = {"bert." + k.removeprefix("bert.").replace(new, name): w for k, w in weights.items()}
    write_weights(tmp_path, weights)
    close(run_graph(import_hf(tmp_path, HfOptions(batch=BATCH, seq=SEQ)), inputs), wanted, "float32")


def test_longrope_uses_the_long_divisors_beyond_the_trained_length(tmp_path):
    config, weights = make_family(tmp_path, "phi3-longrope")
    config["original_max_position_embeddings"] = 8
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = run_graph(import_hf(tmp_path, HfOptions(batch=BATCH, seq=SEQ)), {"input_ids": IDS})
    close(found, FamilyReference(config, weights).prefill(IDS), "float32")


@pytest.mark.parametrize(
    ("case", "change", "parts"),
    [
        ("gpt2", {"add_cross_attention": True, "scale_attn_by_inverse_layer_idx": True, "activation_function": "x"}, 3),
        ("gemma2", {"use_bidirectional_attention": True, "layer_types": ["odd", "full_attention"]}, 2),
        ("phi3-longrope", {"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0]}}, 3),
        ("deepseek_v2", {"topk_method": "noaux_tc", "norm_topk_prob": True, "moe_layer_freq": 2}, 3),
        ("deepseek_v3", {"scoring_func": "softmax", "num_key_value_heads": 2, "num_experts_per_tok": 9}, 3),
        ("bert", {"position_embedding_type": "relative_key", "is_decoder": True}, 2),
        ("vit", {"image_size": 3, "hidden_act": "snake"}, 2),
        ("mixtral", {"num_experts_per_tok": 5, "rope_scaling": {"rope_type": "ntk"}}, 2),
        ("llama", {"quantization_config": {"quant_method": "hqq"}, "rope_scaling": {"type": "ntk"}}, 2),
    ],
)  # fmt: skip
def test_unsupported_values_come_in_one_error(tmp_path, case, change, parts):
    (tmp_path / "config.json").write_text(json.dumps({**family_config(case), **change}))
    with pytest.raises(ImportModelError) as e:
        import_hf(tmp_path, HfOptions(seq=SEQ))
    assert f"{parts} problems" in str(e.value), str(e.value)


def test_positions_and_phases_are_checked(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(family_config("gpt2")))
    with pytest.raises(ImportModelError, match="33 positions asked for, the model has learned 32"):
        import_hf(tmp_path, HfOptions(seq=33))
    (tmp_path / "config.json").write_text(json.dumps(family_config("bert")))
    with pytest.raises(ConfigError, match="bert is an encoder"):
        import_hf(tmp_path, HfOptions(phase="decode", past=8, seq=SEQ))
    with pytest.raises(ConfigError, match="give --seq"):
        import_hf(tmp_path, HfOptions())
