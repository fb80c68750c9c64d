"""Families whose reference was recorded from the transformers library: prefill and a decode step, compiled and executed."""

import json
import os
from collections import Counter

import numpy as np
import pytest

import tx8fast
from tests.support.checkpoints import write_weights
from tests.support.recorded_configs import CONFIGS
from tests.support.recorded_families import BATCH, PAST, SEQ, config_of, make_recorded, token_ids, weights_of
from tests.support.run_graph import run_graph
from tx8fast.errors import ImportModelError, UnsupportedError
from tx8fast.frontend import open_model
from tx8fast.frontend.hf import HfOptions, delta, import_hf
from tx8fast.frontend.hf.importer import read_config
from tx8fast.options import CompileOptions
from tx8fast.passes.pipeline import graph_passes, run_pipeline

#: kinds whose format says what engines compute in
ENGINES = ("gemm", "contract", "conv", "rmsnorm", "layernorm", "softmax", "exp", "softplus")
#: of the largest value, against f32 outputs of the library
TOLERANCE = 2e-6
EVERY = bool(os.environ.get("TX8FAST_ALL_MODELS"))


def error(found, wanted):
    return float(np.abs(np.asarray(found).astype(np.float64) - wanted).max() / np.abs(wanted).max())


def next_step(directory, case, found):
    """Inputs of the decode step that repeats the last token of a prefill with the results `found`.

    Slots that nobody wrote yet hold a value that would show if it were seen. States are those behind the token before."""
    step = {"input_ids": token_ids(case)[:, -1:], "position": np.array([SEQ - 1])}
    config = read_config(directory / "config.json")
    states = {f"present.{i}.{k.name}" for i in range(config.layers) for k in config.caches(i) if not k.rows}
    if states:
        shorter = import_hf(directory, HfOptions(batch=BATCH, seq=SEQ - 1))
        before = run_graph(shorter, {"input_ids": token_ids(case)[:, :-1]})
        step |= {n.replace("present", "past"): before[n] for n in states}
    return step | slots(found, states)


def slots(found, states):
    """Caches with the rows of a prefill but its last."""
    made = {}
    for name, rows in found.items():
        if name != "logits" and name not in states:
            cache = np.full((BATCH, PAST, rows.shape[-1]), 9.0, rows.dtype)
            cache[:, : SEQ - 1] = rows[:, : SEQ - 1]
            made[name.replace("present", "past")] = cache
    return made


def run_prefill(directory, case, dtype, opt=2):
    ids = {"input_ids": token_ids(case)}
    return tx8fast.compile(directory, phase="prefill", batch=BATCH, seq=SEQ, dtype=dtype, opt=opt).run(ids)


@pytest.mark.parametrize("case", CONFIGS)
@pytest.mark.slow(but_every=9)
def test_prefill_and_decode_equal_the_recorded_outputs(tmp_path, case):
    """The prefill is compiled, at level 1 or 2 in turn, and executed; the step's graph is. Where all models are tested both are
    compiled at level 2."""
    record = make_recorded(tmp_path, case)
    found = run_prefill(tmp_path, case, "fp32", 2 if EVERY else 1 + list(CONFIGS).index(case) % 2)
    assert error(found["logits"], record["prefill"]) <= TOLERANCE
    step = next_step(tmp_path, case, found)
    after = run_graph(import_hf(tmp_path, HfOptions(phase="decode", batch=BATCH, past=PAST)), step)
    assert error(after["logits"][:, 0], record["step"]) <= TOLERANCE
    if EVERY:
        decode = tx8fast.compile(tmp_path, phase="decode", batch=BATCH, past=PAST, dtype="fp32")
        assert error(decode.run(step)["logits"][:, 0], record["step"]) <= TOLERANCE


def half_ratio(directory, case, record, opt=2):
    """Error of a program in bf16 over the library's own, roots of mean squares. Where there are experts, a token whose scores
    nearly tie may get others than in f32 (the library's, too), so the worst token is left out."""
    found = np.asarray(run_prefill(directory, case, "bf16", opt)["logits"]).astype(np.float64) - record["half"]
    tokens = np.sort(np.mean(found**2, axis=-1).ravel())
    routed = any("experts" in name for name, _ in json.loads(str(record["shapes"])))
    return (
        np.sqrt(np.mean(tokens[:-1] if routed else tokens)) / np.abs(record["half"]).max() / float(record["half_error"])
    )


@pytest.mark.skipif(not EVERY, reason="set TX8FAST_ALL_MODELS to run")
@pytest.mark.parametrize("case", CONFIGS)
def test_bf16_is_as_near_as_the_library_s_own(tmp_path, case):
    """Both computed in bf16 from weights rounded to it, against f32 from the same weights."""
    assert half_ratio(tmp_path, case, make_recorded(tmp_path, case, dtype="bfloat16")) <= 1.5


@pytest.mark.skipif(not EVERY, reason="set TX8FAST_ALL_MODELS to run")
@pytest.mark.parametrize("case", CONFIGS)
def test_a_step_in_bf16_is_as_near_as_the_library_s_prefill(tmp_path, case):
    """One row per sequence: so few scatter more than the eleven that the library's error is of."""
    record = make_recorded(tmp_path, case, dtype="bfloat16")
    config = read_config(tmp_path / "config.json")
    found = run_prefill(tmp_path, case, "bf16")
    states = {f"present.{i}.{k.name}" for i in range(config.layers) for k in config.caches(i) if not k.rows}
    step = {"input_ids": token_ids(case)[:, -1:], "position": np.array([SEQ - 1])}
    if states:
        before = tx8fast.compile(tmp_path, phase="prefill", batch=BATCH, seq=SEQ - 1, dtype="bf16")
        shorter = before.run({"input_ids": token_ids(case)[:, :-1]})
        step |= {n.replace("present", "past"): shorter[n] for n in states}
    step |= slots(found, states)
    decode = tx8fast.compile(tmp_path, phase="decode", batch=BATCH, past=PAST, dtype="bf16")
    off = np.asarray(decode.run(step)["logits"]).astype(np.float64)[:, 0] - record["half"][:, -1]
    own = float(record["half_error"]) * np.abs(record["half"]).max()
    assert np.sqrt(np.mean(off**2)) <= 1.75 * own


@pytest.mark.parametrize("case", ["qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"])
@pytest.mark.slow
def test_delta_networks_in_bf16_lose_no_more_than_the_library(tmp_path, case):
    """Decays, inverses and states are computed in f32 although bf16 is asked for, gains stored less one are not rounded, and
    neither is what the convolutions' activation gives."""
    assert half_ratio(tmp_path, case, make_recorded(tmp_path, case, dtype="bfloat16"), 1) <= 1.1


@pytest.mark.parametrize("case", ["qwen3_next", "mamba2", "rwkv"])
@pytest.mark.parametrize("phase", [{"seq": SEQ}, {"phase": "decode", "past": PAST}], ids=["prefill", "decode"])
def test_wide_parts_stay_wide_if_the_checkpoint_s_format_is_asked_for(tmp_path, case, phase):
    """`--dtype bf16` of a checkpoint in bf16 changes no op: states, decays and routers are in f32."""
    make_recorded(tmp_path, case, dtype="bfloat16")

    def formats(asked):
        options = CompileOptions(batch=BATCH, dtype=asked, **phase)
        program = open_model(tmp_path, **options.import_options())
        run_pipeline(program, graph_passes(options.ir_dtype, outline=False), verify_between=False)
        return Counter((op.kind, op.results[0].dtype) for op in program.module.walk() if op.kind in ENGINES)

    assert formats("bf16") == formats(None) and any(dtype == "f32" for _, dtype in formats("bf16"))


@pytest.mark.parametrize("chunk", [1, 4, 8])
def test_chunks_of_a_delta_network_hand_on_their_state(tmp_path, monkeypatch, chunk):
    record = make_recorded(tmp_path, "qwen3_5_text")
    monkeypatch.setattr(delta, "CHUNK", chunk)
    found = run_graph(import_hf(tmp_path, HfOptions(batch=BATCH, seq=SEQ)), {"input_ids": token_ids("qwen3_5_text")})
    assert error(found["logits"], record["prefill"]) <= TOLERANCE


def test_rows_of_images_are_not_taken_where_they_have_places(tmp_path):
    make_recorded(tmp_path, "qwen3_5_text")
    with pytest.raises(UnsupportedError, match="rows of images have places in time, height and width"):
        import_hf(tmp_path, HfOptions(seq=SEQ, input="embeds"))


def test_places_share_their_transformer_layers_in_turn(tmp_path):
    """Of two shared layers the first and third place have the first; residuals of low rank are each place's own."""
    config = config_of("zamba2") | {"num_hidden_layers": 5, "num_mem_blocks": 2}
    config["layers_block_type"] = ["mamba", "hybrid", "hybrid", "mamba", "hybrid"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    stored = set(import_hf(tmp_path / "config.json", HfOptions(seq=SEQ)).weights.keys())
    own = {k.split("shared_transformer.")[0] for k in stored if "shared_transformer" in k and not k.startswith("%")}
    assert own == {"model.layers.1.", "model.layers.2."}
    adapters = {k.split("linear_q_adapter_list.")[1][:1]: k[:15] for k in stored if "linear_q_adapter_list" in k}
    assert adapters == {"0": "model.layers.1.", "1": "model.layers.2.", "2": "model.layers.1."}


@pytest.mark.parametrize("places", [(3,), (1, 3)], ids=["the last", "all"])
def test_a_shared_layer_may_be_stored_under_any_of_its_places(tmp_path, places):
    """Versions of the library differ in which of the places' names of a zamba's layer they save."""
    record = make_recorded(tmp_path, "zamba")
    assert record is not None
    weights = weights_of("zamba", json.loads(str(record["shapes"])))
    shared = {k: weights.pop(k) for k in list(weights) if "shared_transf" in k}
    assert shared and all(k.startswith("model.layers.1.") for k in shared)
    copies = {k.replace(".1.", f".{i}.", 1): v for k, v in shared.items() for i in places}
    write_weights(tmp_path, weights | copies)
    found = run_graph(import_hf(tmp_path, HfOptions(batch=BATCH, seq=SEQ)), {"input_ids": token_ids("zamba")})
    assert error(found["logits"], record["prefill"]) <= TOLERANCE


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"n_mamba_heads": 3}, "the scan's 64 channels are not a multiple of n_mamba_heads 3"),
        ({"attention_hidden_size": 32}, "attention_hidden_size is 32, required: twice hidden_size 32"),
        ({"layers_block_type": None, "num_hidden_layers": 2}, "num_hidden_layers 2 without layers_block_type"),
        ({"tie_word_embeddings": False}, "'tie_word_embeddings' is False, supported: True"),
    ],
)
def test_what_no_zamba_has_is_told(tmp_path, change, problem):
    (tmp_path / "config.json").write_text(json.dumps(config_of("zamba") | change))
    with pytest.raises(ImportModelError, match=problem):
        read_config(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("width", "value_rows", "thirds"), [(12, 48, [24, 24, 24]), (11, 44, [23, 23, 22]), (10, 40, [22, 22, 20])]
)
def test_an_olmo_hybrid_saved_again_has_its_convolutions_in_equal_parts(tmp_path, width, value_rows, thirds):
    """The library joins those of queries, keys and values and cuts them into thirds, the last of which may be smaller, whatever their widths are."""
    (tmp_path / "config.json").write_text(json.dumps(config_of("olmo_hybrid") | {"linear_value_head_dim": width}))
    options = HfOptions(batch=BATCH, seq=SEQ)
    named = import_hf(tmp_path / "config.json", options).weights
    shapes = [(k, list(named[k].shape)) for k in sorted(named.keys()) if not k.startswith("%")]
    weights = weights_of("olmo_hybrid", shapes)
    write_weights(tmp_path, weights)
    feed = {"input_ids": token_ids("olmo_hybrid")}
    wanted = run_graph(import_hf(tmp_path, options), feed)["logits"]
    for i in (0, 2):
        keys = [f"model.layers.{i}.linear_attn.{letter}_conv1d.weight" for letter in "qkv"]
        assert [weights[k].shape[0] for k in keys] == [12, 12, value_rows]
        weights |= dict(
            zip(keys, np.split(np.concatenate([weights[k] for k in keys]), np.cumsum(thirds)[:2]), strict=True)
        )
    write_weights(tmp_path, weights)
    np.testing.assert_array_equal(run_graph(import_hf(tmp_path, options), feed)["logits"], wanted)
