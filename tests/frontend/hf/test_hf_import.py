"""Imported graphs, evaluated op by op in float64, against an independent reference of the model family."""

import json
from typing import Any

import numpy as np
import pytest

import tx8fast
from tests.support.checkpoints import (
    LLAMA3_SCALING,
    make_checkpoint,
    model_config,
    model_weights,
    write_weights,
)
from tests.support.evaluate_graph import evaluate
from tests.support.llama_reference import LlamaReference
from tx8fast.errors import ImportModelError
from tx8fast.frontend.hf import HfOptions, import_hf, is_hf
from tx8fast.frontend.hf.graph import visible_pairs
from tx8fast.ir import reference

VARIANTS = {
    "llama": ("llama", {}),
    "llama-mha": ("llama", {"kv_heads": 4}),
    "llama-bias": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-tied": ("llama", {"tied": True}),
    "llama-scaled": ("llama", {"rope_scaling": LLAMA3_SCALING}),
    "llama-linear": ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "llama-head-dim": ("llama", {"head_dim": 24}),
    "llama-gelu": ("llama", {"hidden_act": "gelu_pytorch_tanh"}),
    "llama-erf": ("llama", {"hidden_act": "gelu"}),
    "llama-sharded": ("llama", {"shards": 3}),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral-window": ("mistral", {"sliding_window": 5}),
    "qwen2": ("qwen2", {"kv_heads": 1}),
    "qwen2-window": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {"head_dim": 32, "tied": True}),
}
SEQ, PAST = 12, 16


def close(found, wanted, dtype):
    """Rotation tables and masks are stored in the model's format; the rest is float64 on both sides."""
    tolerance = {"float32": 2e-5, "float16": 2e-2, "bfloat16": 1e-1}[dtype]
    for name, w in wanted.items():
        scale = np.abs(w).max()
        assert np.abs(found[name] - w).max() <= tolerance * scale, (
            name,
            np.abs(found[name] - w).max(),
            scale,
        )


@pytest.mark.parametrize("variant", VARIANTS)
def test_prefill_and_decode_agree_with_the_reference(tmp_path, variant):
    kind, extra = VARIANTS[variant]
    config, weights = make_checkpoint(tmp_path, kind, **extra)
    reference = LlamaReference(config, weights)
    ids = np.random.default_rng(1).integers(0, config["vocab_size"], (2, SEQ))
    wanted = reference.prefill(ids)
    prefill = import_hf(tmp_path, HfOptions(batch=2, seq=SEQ))
    prefill.verify()
    found = evaluate(prefill, {"input_ids": ids})
    assert list(found) == list(wanted)
    close(found, wanted, "float32")

    decode = import_hf(tmp_path, HfOptions(phase="decode", batch=2, past=PAST))
    step = {"input_ids": ids[:, -1:], "position": np.array([SEQ - 1])}
    for i in range(config["num_hidden_layers"]):
        for what in ("key", "value"):
            cache = np.full((2, PAST, wanted[f"present.{i}.{what}"].shape[-1]), 9.0)  # stale slots must not be seen
            cache[:, : SEQ - 1] = wanted[f"present.{i}.{what}"][:, : SEQ - 1]
            step[f"past.{i}.{what}"] = cache
    decode.verify()
    found = evaluate(decode, step)
    close(found, reference.decode(step["input_ids"], SEQ - 1, step), "float32")
    close(found, {"logits": wanted["logits"][:, -1:]}, "float32")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_checkpoints(tmp_path, dtype):
    config, weights = make_checkpoint(tmp_path, dtype=dtype)
    ids = np.arange(SEQ)[None]
    program = import_hf(tmp_path, HfOptions(seq=SEQ))
    assert program.module.body.first.body.terminator.operands[0].dtype == {"bfloat16": "bf16", "float16": "f16"}[dtype]
    close(evaluate(program, {"input_ids": ids}), LlamaReference(config, weights).prefill(ids), dtype)
    mask = program.weights.view(f"%causal_mask/{SEQ}")
    assert np.isfinite(mask.astype(np.float32)).all() and (mask[0, 1:].astype(np.float32) < -6e4).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.slow
def test_a_half_checkpoint_in_fp32_is_its_f32_copy(tmp_path, family, dtype):
    """Tables of rotations are made in f32 too, not in the format of the file."""
    halves, copy = tmp_path / "half", tmp_path / "copy"
    config, weights = make_checkpoint(halves, family, dtype=dtype)
    copy.mkdir()
    (copy / "config.json").write_text(json.dumps({**config, "torch_dtype": "float32"}))
    write_weights(copy, {k: v.astype(np.float32) for k, v in weights.items()})
    ids = np.arange(1, SEQ + 1)[None]
    found = [
        tx8fast.compile(d, seq=SEQ, phase="prefill", dtype="fp32", io_dtype="fp32").run({"input_ids": ids})["logits"]
        for d in (halves, copy)
    ]
    assert found[0].dtype == np.float32 and np.array_equal(*found)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_reference_routines_agree_too(tmp_path, dtype):
    config, weights = make_checkpoint(tmp_path, "qwen3", dtype=dtype, head_dim=32)
    ids = np.arange(2 * SEQ).reshape(2, SEQ)
    program = import_hf(tmp_path, HfOptions(seq=SEQ, batch=2))
    found = evaluate(program, {"input_ids": ids}, step=reference)
    found = {k: v.astype(np.float64) for k, v in found.items()}
    close(found, LlamaReference(config, weights).prefill(ids), dtype)


def test_mixed_checkpoint_is_converted_at_the_odd_weights(tmp_path):
    config = model_config(dtype="bfloat16")
    weights = model_weights(config)
    odd = [k for k in weights if "norm" in k]
    weights |= {k: weights[k].astype(np.float32) for k in odd}
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_weights(tmp_path, weights)
    program = import_hf(tmp_path, HfOptions(seq=SEQ))
    ops = list(program.module.body.first.body)
    assert [op.operands[0].op.attrs["key"] for op in ops if op.kind == "convert"] == odd
    ids = np.arange(SEQ)[None]
    close(
        evaluate(program, {"input_ids": ids}),
        LlamaReference(config, weights).prefill(ids),
        "bfloat16",
    )


def test_last_logits_only(tmp_path):
    make_checkpoint(tmp_path)
    ids = np.arange(2 * SEQ).reshape(2, SEQ)
    full, last = (import_hf(tmp_path, HfOptions(batch=2, seq=SEQ, logits=k)) for k in ("all", "last"))
    a, b = (evaluate(p, {"input_ids": ids})["logits"] for p in (full, last))
    assert b.shape == (2, 1, 128)
    np.testing.assert_allclose(a[:, -1:], b)


def test_without_logits_a_prompt_only_fills_the_caches(tmp_path):
    make_checkpoint(tmp_path)
    ids = {"input_ids": np.arange(2 * SEQ).reshape(2, SEQ)}
    full, none = (tx8fast.compile(tmp_path, phase="prefill", batch=2, seq=SEQ, logits=k) for k in ("all", "none"))
    wanted, found = full.run(ids), none.run(ids)
    assert set(found) == set(wanted) - {"logits"}
    assert all(np.array_equal(found[n], wanted[n]) for n in found)
    # neither the head nor what only it would read is computed
    read = {t.source["key"] for t in none.program.params}
    assert not {k for k in read if "lm_head" in k or k.startswith("model.layers.1.mlp")} and len(
        none.program.params
    ) < len(full.program.params)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_embeddings_in_place_of_token_ids(tmp_path, phase):
    _, weights = make_checkpoint(tmp_path)
    ids = np.arange(2 * SEQ).reshape(2, SEQ)
    options: dict[str, Any] = {"seq": SEQ}
    feed: dict[str, Any] = {}
    if phase == "decode":
        ids, options = ids[:, :1], {"past": SEQ}
        feed["position"] = np.array([0])
    by_ids, by_rows = (
        import_hf(tmp_path, HfOptions(phase=phase, batch=2, input=k, **options)) for k in ("ids", "embeds")
    )
    past = {n: np.zeros(a.shape, np.float32) for n, a in zip(by_ids.main.attrs["arg_names"], by_ids.main.body.args, strict=True)
            if n.startswith("past.")}  # fmt: skip
    wanted = evaluate(by_ids, {"input_ids": ids, **feed, **past})
    rows = np.asarray(weights["model.embed_tokens.weight"], np.float32)[ids]
    found = evaluate(by_rows, {"inputs_embeds": rows, **feed, **past})
    for name, w in wanted.items():
        np.testing.assert_allclose(found[name], w, rtol=1e-4, atol=1e-6)
    assert "model.embed_tokens.weight" not in {op.attrs.get("key") for op in by_rows.main.body}


def test_config_alone_gives_a_graph_with_missing_weights(tmp_path):
    config = model_config(layers=3, dtype="bfloat16")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert is_hf(path) and is_hf(tmp_path)
    for where in (path, tmp_path):
        program = import_hf(where, HfOptions(seq=8))
        assert sorted(program.weights.missing()) == sorted(model_weights(config))
        assert program.weights["lm_head.weight"].dtype == "bf16"
        with pytest.raises(ImportModelError, match="compile-only"):
            program.weights.view("lm_head.weight")
    del config["torch_dtype"]
    path.write_text(json.dumps(config))
    assert import_hf(path, HfOptions(seq=8, dtype="fp16")).weights["lm_head.weight"].dtype == "f16"
    assert import_hf(path, HfOptions(seq=8)).weights["lm_head.weight"].dtype == "bf16"


def test_checkpoint_that_does_not_fit_lists_all_tensors(tmp_path):
    config = model_config()
    weights = model_weights(config)
    del weights["model.layers.1.mlp.up_proj.weight"]
    weights["model.norm.weight"] = np.zeros(65, np.float32)
    weights["lm_head.weight"] = np.zeros((128, 64), np.int32)
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_weights(tmp_path, weights)
    with pytest.raises(ImportModelError) as e:
        import_hf(tmp_path, HfOptions(seq=8))
    text = str(e.value)
    assert "3 problems" in text
    assert "'model.layers.1.mlp.up_proj.weight' is absent, required shape [96, 64]" in text
    assert "'model.norm.weight' has shape [65], required [64]" in text
    assert "'lm_head.weight' has dtype i32" in text


@pytest.mark.parametrize("options", [HfOptions(seq=SEQ), HfOptions(phase="decode", past=PAST)])
def test_layers_emit_the_same_ops(tmp_path, options):
    (tmp_path / "config.json").write_text(json.dumps(model_config(layers=4)))
    ops = list(import_hf(tmp_path, options).module.body.first.body)
    layers = [
        [(op.kind, str(op.result.type)) for op in ops if (op.loc or "").startswith(f"layers.{i}.")] for i in range(4)
    ]
    assert layers[0] == layers[1] == layers[2] == layers[3] and len(layers[0]) == (26 if options.past is None else 28)
    assert not any(op.kind in ("reshape", "transpose") for op in ops)
    assert {op.loc for op in ops if op.kind == "gemm"} >= {
        "layers.3.self_attn.q_proj",
        "layers.0.mlp.down_proj",
        "lm_head",
    }


def test_signature_and_donation(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(model_config()))
    main = import_hf(tmp_path, HfOptions(phase="decode", past=PAST, batch=3)).module.body.first
    assert main.attrs["arg_names"][:4] == ("input_ids", "position", "past.0.key", "past.0.value")
    assert main.attrs["result_names"] == (
        "logits", "present.0.key", "present.0.value", "present.1.key", "present.1.value",
    )  # fmt: skip
    donated = main.attrs["donated"]
    pairs = list(zip(donated[0::2], donated[1::2], strict=True))
    assert len(pairs) == 4
    for a, r in pairs:
        arg, result = main.body.args[a], main.body.terminator.operands[r]
        assert arg.type is result.type and arg.shape == (3, PAST, 32)
        name = main.attrs["arg_names"][a]
        assert main.attrs["result_names"][r] == name.replace("past", "present")


def test_useful_macs_count_the_unmasked_half():
    assert visible_pairs(2048, 0) == 2048 * 2049 // 2
    for seq, window in ((7, 0), (7, 3), (7, 7), (7, 9), (1, 1)):
        counted = sum(1 for i in range(seq) for j in range(seq) if j <= i and (not window or i - j < window))
        assert visible_pairs(seq, window) == counted


def test_useful_macs_of_attention(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(model_config("mistral", sliding_window=3)))
    program = import_hf(tmp_path, HfOptions(seq=7, batch=2))
    macs = [op.attrs["useful_macs"] for op in program.module.body.first.body if op.kind == "contract"]
    assert macs == [2 * 4 * 16 * visible_pairs(7, 3)] * 4


def test_import_is_repeatable_and_independent(tmp_path):
    make_checkpoint(tmp_path)
    a, b = (import_hf(tmp_path, HfOptions(seq=8)) for _ in range(2))
    assert a.weights.keys() == b.weights.keys()
    assert [op.loc for op in a.module.walk()] == [op.loc for op in b.module.walk()]
