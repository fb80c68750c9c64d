"""Configs as version 5 of the transformers library saves them say what those of the published models do."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.recorded_families import config_of
from tx8fast.frontend.hf import HfOptions, import_hf
from tx8fast.frontend.hf.config import parse_config

PUBLISHED = Path(__file__).parents[2] / "data" / "configs"
WORDS = {"M": "linear_attention", "*": "full_attention", "-": "mlp"}


def published(name: str) -> dict[str, Any]:
    return json.loads((PUBLISHED / f"{name}.json").read_text())


def test_layers_that_are_listed_by_kind_are_counted(tmp_path):
    old = config_of("nemotron_h")
    new = {k: v for k, v in old.items() if k not in ("hybrid_override_pattern", "num_hidden_layers")}
    listed = [WORDS[letter] for letter in old["hybrid_override_pattern"]]
    texts = set()
    for config in (old, {**new, "layers_block_type": listed}, {**new, "layer_types": listed}):
        (tmp_path / "config.json").write_text(json.dumps(config))
        texts.add(import_hf(tmp_path, HfOptions(seq=4)).text())
    assert len(texts) == 1


def test_widths_of_single_layers_may_be_numbered_with_leading_zeros():
    text = published("gemma-4-e2b")["text_config"]
    new = {k: v for k, v in text.items() if not k.startswith(("global_", "num_global"))}
    far = [i for i, kind in enumerate(text["layer_types"]) if kind == "full_attention"]
    for style in ("{:02d}", "{}"):
        own = {style.format(i): {"head_dim": text["global_head_dim"]} for i in far}
        assert parse_config({**new, "per_layer_config": own}, "c") == parse_config(text, "c")


@pytest.mark.parametrize("none", [None, {}])
def test_a_gemma_4_whose_single_layers_have_no_widths_has_one_width(none):
    """The library takes `global_head_dim` where the key is absent, not where it says nothing."""
    text = {**published("gemma-4-e2b")["text_config"], "per_layer_config": none}
    assert set(parse_config(text, "c").forms) == {(text["num_key_value_heads"], text["head_dim"])}


@pytest.mark.parametrize(("name", "scaled"), [("flan-t5-xl", False), ("t5-large", True), ("umt5-xxl", False)])
def test_whether_a_t5_scales_what_goes_into_its_head_is_a_key_of_its_own(name, scaled):
    old = published(name)
    new = {**old, "tie_word_embeddings": True, "scale_decoder_outputs": scaled}
    assert parse_config(new, "c", part="decoder") == parse_config(old, "c", part="decoder")


def test_what_a_paligemma_is_may_stand_in_its_text_section():
    old = published("paligemma-3b")
    new = {**old, "text_config": {**old["text_config"], "use_bidirectional_attention": True}}
    assert parse_config(new, "c") == parse_config(old, "c")


def test_a_head_that_only_the_section_ties_is_read_where_it_is_stored():
    old = published("qwen3-vl-30b-a3b")
    new = parse_config({**old, "text_config": {**old["text_config"], "tie_word_embeddings": True}}, "c")
    assert not new.tied and new.loose_head


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("torch.bfloat16", "bf16"),
        ("torch.float32", "f32"),
        ("half", "f16"),
        ("torch.half", "f16"),
        ("float", "f32"),
        ("auto", None),
    ],
)
@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_formats_as_the_library_prints_them(key, written, meant):
    raw = {k: v for k, v in published("smollm-135m").items() if "dtype" not in k}
    assert parse_config({**raw, key: written}, "c").dtype == meant


SMOOTH = [path.stem for path in sorted(PUBLISHED.glob("*.json")) if '"silu"' in path.read_text()]


@pytest.mark.parametrize("name", SMOOTH)
def test_swish_is_another_name_of_silu(name: str):
    spelled = (PUBLISHED / f"{name}.json").read_text().replace('"silu"', '"swish"')
    assert parse_config(json.loads(spelled), "c") == parse_config(published(name), "c")
