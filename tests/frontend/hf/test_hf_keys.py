"""Keys of config files where the library does something else than the key says, or leaves it to the reader."""

import json
from typing import Any

import numpy as np
import pytest

import tx8fast
from tests.support.checkpoints import model_config, write_weights
from tests.support.family_checkpoints import family_config, family_weights
from tests.support.recorded_parts import config_of
from tx8fast.errors import ImportModelError
from tx8fast.frontend.hf.config import parse_config


def parse(model_type="llama", **extra):
    return parse_config(model_config(model_type, **extra), "config.json")


@pytest.mark.parametrize("family, change, wrong", [
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ("gptj", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
    ("gemma3_text", {"rope_parameters": {"rope_theta": 500.0}}, "full_attention"),
    ("bloom", {"hidden_act": "relu"}, "hidden_act"),
    ("mpt", {"hidden_act": "relu"}, "hidden_act"),
    ("lfm2", {"hidden_act": "relu"}, "hidden_act"),
    ("gpt_oss", {"hidden_act": "relu"}, "hidden_act"),
    ("gptj", {"rotary_dim": 48, "head_dim": 16}, "rotary_dim"),
])  # fmt: skip
def test_what_the_library_does_not_obey_is_refused(family: str, change: dict[str, Any], wrong: str):
    with pytest.raises(ImportModelError, match=wrong):
        parse(family, **change)


@pytest.mark.parametrize("case, part, change, wrong", [
    ("t5-gated", "encoder", {"dense_act_fn": "relu"}, "dense_act_fn"),
    ("t5", "decoder", {"is_gated_act": True}, "is_gated_act"),
    ("marian", "encoder", {"decoder_vocab_size": 12}, "decoder_vocab_size"),
    ("marian", "decoder", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder"),
    ("albert", None, {"inner_group_num": 2}, "inner_group_num"),
    ("albert", None, {"num_hidden_groups": 9}, "num_hidden_groups"),
    ("mpnet", None, {"pad_token_id": 0}, "pad_token_id"),
])  # fmt: skip
def test_unsupported_keys_of_encoders_and_sides(case: str, part: str | None, change: dict[str, Any], wrong: str):
    parse_config(config_of(case), "c", part=part)
    with pytest.raises(ImportModelError, match=wrong):
        parse_config({**config_of(case), **change}, "c", part=part)


@pytest.mark.parametrize(
    "case, part", [("bart", "encoder"), ("whisper", "decoder"), ("marian", "decoder"), ("detr", None)]
)
def test_norms_of_which_the_library_takes_no_eps(case: str, part: str | None):
    given = parse_config({**config_of(case), "layer_norm_eps": 0.1, "scale_embedding": case != "detr"}, "c", part=part)
    assert given.norm_eps == 1e-5 and (case != "whisper" or given.embedding_scale == 1.0)


@pytest.mark.parametrize("family, kind", [("apertus", "llama3"), ("ministral3", "yarn"), ("gpt_oss", "yarn")])
def test_rotations_that_a_file_leaves_out(family: str, kind: str):
    bare = {"rope_scaling": None, "rope_parameters": None, "rope_theta": None}
    assert parse(family, **bare).ropes[0].scaling["rope_type"] == kind
    assert (
        parse(family, **{**bare, "rope_parameters": {"rope_type": "default"}}).ropes[0].scaling["rope_type"]
        == "default"
    )


@pytest.mark.parametrize("outer, inner, tied, loose", [
    (True, True, True, False), (True, False, False, True), (False, True, False, True), (False, False, False, False), (None, False, False, True),
])  # fmt: skip
def test_where_a_model_and_its_text_half_differ_the_checkpoint_tells_whose_head_it_is(outer, inner, tied, loose):
    raw = {"model_type": "voxtral", "text_config": {**model_config("llama"), "tie_word_embeddings": inner}}
    c = parse_config({**raw, **({} if outer is None else {"tie_word_embeddings": outer})}, "c")
    assert (c.model_type, c.tied, c.loose_head) == ("llama", tied, loose)


@pytest.mark.parametrize("name, gated, activation", [
    ("gated-relu", True, "relu"), ("swish", False, "silu"), ("gated-quick_gelu", True, "quick_gelu"), ("gated-gelu", True, "gelu_tanh"),
    ("gelu", False, "gelu"),
])  # fmt: skip
def test_feed_forwards_of_t5_are_named_by_what_they_do(name: str, gated: bool, activation: str):
    config = config_of("t5") | {"feed_forward_proj": name}
    for key in ("dense_act_fn", "is_gated_act"):
        config.pop(key, None)
    spec = parse_config(config, "config.json", part="encoder")
    assert (spec.gated, spec.activation) == (gated, activation)


def test_what_is_over_at_an_images_edges_is_not_seen(tmp_path):
    """As a convolution without padding leaves it."""
    config, rng = family_config("vit"), np.random.default_rng(2)
    size, patch = config["image_size"], config["patch_size"]
    x = rng.standard_normal((1, config["num_channels"], size + patch - 1, size + 1)).astype(np.float32)
    found = []
    for n, (height, width) in enumerate(((size, size), (size + patch - 1, size + 1))):
        folder = tmp_path / str(n)
        folder.mkdir()
        whole = config | {"architectures": ["ViTForImageClassification"], "image_size": [height, width]}
        (folder / "config.json").write_text(json.dumps(whole))
        write_weights(folder, family_weights(config))
        made = tx8fast.compile(folder, dtype="fp32")
        found.append(made.run({made.inputs[0].name: np.ascontiguousarray(x[..., :height, :width])}))
    for name, value in found[0].items():
        np.testing.assert_array_equal(value, found[1][name])
