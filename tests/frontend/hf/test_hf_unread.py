"""Tensors of a checkpoint that nothing reads: those that change the results are refused, others told, what does not matter passed by."""

import json
import re
import warnings

import numpy as np
import pytest

from tests.support.checkpoints import write_weights
from tests.support.family_checkpoints import CONFIGS as TINY
from tests.support.family_checkpoints import family_config, family_weights, tensor_shapes
from tests.support.recorded_configs import CONFIGS as RECORDED
from tests.support.recorded_families import RECORDS, config_of
from tx8fast.errors import ImportModelError, UnreadHeadWarning, UnreadTensorWarning
from tx8fast.frontend.hf import HfOptions, import_hf
from tx8fast.frontend.hf.checkpoint import load_weights
from tx8fast.frontend.hf.config import parse_config
from tx8fast.weights import CheckpointEntry


def entries_of(shapes):
    return {n: CheckpointEntry("m.safetensors", 0, 4 * int(np.prod(s)), tuple(s), "f32") for n, s in shapes}


def model_of(case):
    """Return the config of a tiny model and the headers of its checkpoint."""
    if case in RECORDED:
        return config_of(case), entries_of(json.loads(str(np.load(RECORDS / f"{case}.npz")["shapes"])))
    return family_config(case), entries_of(tensor_shapes(family_config(case)))


def bind(config, entries):
    return load_weights(parse_config(config, "config.json"), None, None, entries, None)


def checkpoint(tmp_path, case, extra, **changes):
    config = {**family_config(case), **changes}
    weights = family_weights(family_config(case))
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_weights(tmp_path, {**weights, **{n: np.zeros(s, np.float32) for n, s in extra.items()}})
    return tmp_path


@pytest.mark.parametrize("case", [*RECORDED, *TINY])
def test_every_family_reads_all_that_matters_and_misses_what_is_added(case):
    config, entries = model_of(case)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnreadTensorWarning)
        table = bind(config, entries).table
    read = [k for k in entries if k in table and k.endswith(".weight")]
    layers = [k for k in read if any(p.isdigit() for p in k.split("."))]
    bias = next(
        (k.removesuffix("weight") + "bias" for k in layers if k.removesuffix("weight") + "bias" not in entries), None
    )
    if bias is not None:
        with pytest.raises(ImportModelError, match="without them results are not the model's") as refusal:
            bind(config, {**entries, **entries_of([(bias, (4,))])})
        assert bias.rpartition(".")[0].rpartition(".")[2] in str(refusal.value)
    norm = layers[-1].rpartition(".")[0].rpartition(".")[0] + ".another_norm.weight"
    with pytest.raises(ImportModelError, match="another_norm"):
        bind(config, {**entries, **entries_of([(norm, (4,))])})


@pytest.mark.parametrize(
    ("stored", "taken", "missed"), [("qwen3", "llama", "q_norm"), ("qwen2", "mistral", "q_proj.bias")]
)
def test_a_checkpoint_of_another_family_is_refused(tmp_path, stored, taken, missed):
    directory = checkpoint(tmp_path, stored, {}, rope_scaling=None)
    with pytest.raises(
        ImportModelError, match=rf"nothing of a {taken} reads .*'model.layers.\*.self_attn.{missed}.*\(2\)"
    ):
        import_hf(directory, HfOptions(seq=4, as_family=taken))


HARMLESS = {
    "model.rotary_emb.inv_freq": (4,),
    "model.layers.0.self_attn.rotary_emb.inv_freq": (4,),
    "model.layers.0.self_attn.bias": (1, 1, 8, 8),
    "model.layers.0.self_attn.masked_bias": (),
    "model.layers.1.self_attn.k_scale": (),
    "model.layers.1.self_attn.kv_scale": (),
    "model.layers.1.mlp.up_proj.input_scale": (),
    "model.layers.1.mlp.up_proj.weight_shape": (2,),
    "model.layers.1.mlp.up_proj.g_idx": (8,),
    "model.layers.2.eh_proj.weight": (8, 16),
    "model.layers.2.input_layernorm.weight": (8,),
    "model.layers.2.self_attn.q_proj.bias": (8,),
    "model.position_ids": (1, 8),
    "model.bn.num_batches_tracked": (),
    "model.vision_tower.layers.0.norm.weight": (8,),
    "vision_tower.layers.0.q_proj.bias": (8,),
    "multi_modal_projector.norm.weight": (8,),
    "mtp.layers.0.norm.weight": (8,),
}


def test_what_does_not_matter_is_passed_by(tmp_path):
    directory = checkpoint(tmp_path, "mistral", HARMLESS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnreadTensorWarning)
        warnings.simplefilter("error", UnreadHeadWarning)
        import_hf(directory, HfOptions(seq=4))


@pytest.mark.parametrize(
    "extra",
    [
        {"model.layers.0.self_attn.q_proj.lora_A.weight": (4, 32)},
        {"model.layers.2.self_attn.q_proj.weight": (32, 32)},
        {"model.layers.0.self_attn.indexer.k_norm.weight": (8,)},
        {"model.embed_scale.weight": (32,)},
        # as quantisers wrote biases of zero
        {"model.layers.0.mlp.up_proj.bias": (48,), "model.layers.0.mlp.up_proj.qweight": (4, 48)},
    ],
)
def test_what_may_matter_is_told(tmp_path, extra):
    directory = checkpoint(tmp_path, "mistral", extra)
    with pytest.warns(UnreadTensorWarning, match="compare results with the original's"):
        import_hf(directory, HfOptions(seq=4))


@pytest.mark.parametrize(
    "family, head",
    [
        ("mistral", "score.weight"),
        ("mistral", "v_head.summary.weight"),
        ("bert", "classifier.weight"),
        ("bert", "qa_outputs.bias"),
        ("bert", "cls.predictions.transform.dense.weight"),
        ("vit", "decoder.0.weight"),
    ],
)
def test_a_head_that_is_left_away_is_told(tmp_path, family, head):
    size = {} if family == "vit" else {"seq": 4}
    shown = re.escape(head.replace(".0.", ".*."))
    with pytest.warns(
        UnreadHeadWarning, match=f"a head that is left away, '{shown}': a program of a {family} gives what goes into it"
    ):
        import_hf(checkpoint(tmp_path, family, {head: (2, 32)}), HfOptions(**size))


@pytest.mark.parametrize("key", ["lm_head.bias", "model.norm.bias", "model.embed_norm.weight"])
def test_what_stands_around_the_layers_is_no_less_refused(tmp_path, key):
    directory = checkpoint(tmp_path, "mistral", {key: (32,)})
    with pytest.raises(ImportModelError, match=f"reads '{key}', and without"):
        import_hf(directory, HfOptions(seq=4))


def test_a_decoder_without_a_head_of_words_says_what_it_may_be(tmp_path):
    config, weights = family_config("mistral"), family_weights(family_config("mistral"))
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_weights(tmp_path, {k: v for k, v in weights.items() if k != "lm_head.weight"})
    with pytest.raises(
        ImportModelError, match="'lm_head.weight' is absent.*: these are layers alone, or those of another task"
    ):
        import_hf(tmp_path, HfOptions(seq=4))


def test_keys_of_a_layer_that_uses_those_of_another_may_be_stored_once_more():
    config, entries = model_of("gemma3n_text")
    c = parse_config(config, "config.json")
    i, lender = next((i, j) for i, j in enumerate(c.keys_from) if j >= 0)
    again = {
        k.replace(f"layers.{lender}.", f"layers.{i}."): e
        for k, e in entries.items()
        if f"layers.{lender}.self_attn.k_" in k
    }
    assert any("k_norm" in k for k in again) and not set(again) & set(entries)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnreadTensorWarning)
        bind(config, {**entries, **again})


def test_a_gguf_file_is_no_exception(tmp_path):
    pytest.importorskip("gguf")
    from tests.support.gguf_files import gguf_metadata, gguf_tensors, write_gguf

    config = family_config("mistral")
    tensors = gguf_tensors(config, family_weights(config))
    norm = {f"blk.{i}.attn_q_norm.weight": np.ones(8, np.float32) for i in range(2)}
    write_gguf(tmp_path / "m.gguf", "llama", gguf_metadata(config), {**tensors, **norm})
    with pytest.raises(ImportModelError, match=r"'blk.\*.attn_q_norm.weight' \(2\)"):
        import_hf(tmp_path / "m.gguf", HfOptions(seq=4))


def test_packed_matrices_of_a_gguf_file_are_read(tmp_path):
    gguf = pytest.importorskip("gguf")
    from tests.support.gguf_files import make_gguf

    config = {**family_config("mistral"), "hidden_size": 64, "intermediate_size": 64}
    make_gguf(tmp_path / "m.gguf", config, family_weights(config), gguf.GGMLQuantizationType.Q8_0.name)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnreadTensorWarning)
        program = import_hf(tmp_path / "m.gguf", HfOptions(seq=4))
    assert program.weights is not None and len(program.weights)
