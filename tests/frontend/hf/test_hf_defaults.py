"""Keys that a file leaves out mean what the config classes of transformers 5.24 have as default."""

from typing import Any

import pytest

from tx8fast.frontend.hf.config import parse_config

#: heads that every number of key heads below divides
SIZES = {"hidden_size": 640, "num_attention_heads": 160, "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 37,
         "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "num_local_experts": 8, "num_experts_per_tok": 2}  # fmt: skip
KEY_HEADS = {
    4: ("gemma2", "vaultgemma"),
    8: ("mistral", "ministral", "ministral3", "seed_oss", "phimoe", "llama4_text", "minimax_m2", "glm4_moe", "qwen2_vl_text", "qwen2_5_vl_text"),
    16: ("gemma", "qwen2_moe", "qwen3_vl_moe_text"),
    20: ("helium",),
    32: ("qwen2", "qwen3", "qwen3_vl_text", "exaone4", "stablelm", "dots1"),
    160: ("llama", "olmo", "olmo2", "phi", "cohere", "granite", "arcee", "nanochat"),  # as many as there are heads
}  # fmt: skip
WIDE = {"head_dim": 8}  # where one head is narrower than families with partial rotations want it


def both(family: str, key: str, usual: Any, **more: Any) -> None:
    config = {"model_type": family, **SIZES, **WIDE, **more}
    told, left = {**config, key: usual}, {k: v for k, v in config.items() if k != key}
    assert parse_config(left, "c") == parse_config(told, "c")


@pytest.mark.parametrize("family, count", [(name, count) for count, names in KEY_HEADS.items() for name in names])
def test_key_heads(family: str, count: int):
    assert parse_config({"model_type": family, **SIZES, **WIDE}, "c").kv_heads == count


@pytest.mark.parametrize("family, key, usual", [
    ("qwen2_vl_text", "rms_norm_eps", 1e-5), ("qwen2_5_vl_text", "rms_norm_eps", 1e-5), ("qwen3_vl_text", "rope_theta", 5e5),
    ("qwen3_vl_moe_text", "rope_theta", 5e5), ("qwen3_vl_moe_text", "num_experts_per_tok", 4), ("qwen3_vl_moe_text", "num_local_experts", 60),
    ("qwen3_vl_moe_text", "tie_word_embeddings", True), ("mllama_text_model", "rope_theta", 5e5), ("lfm2_moe", "intermediate_size", 7168),
    ("electra", "num_attention_heads", 4), ("nanochat", "num_attention_heads", 6),
])  # fmt: skip
def test_keys_that_only_some_families_have_a_default_of(family: str, key: str, usual: Any):
    both(
        family,
        key,
        usual,
        **({"max_position_embeddings": 64, "num_key_value_heads": 2} if key[:7] == "num_att" else {}),
    )


def test_logits_of_a_qwen3_vl_moe_are_tied_where_the_whole_says_so():
    """The whole has a default of its own, and not that of its section; what the checkpoint stores decides."""
    text = {"model_type": "qwen3_vl_moe_text", **SIZES}
    silent = parse_config({"model_type": "qwen3_vl_moe", "text_config": text}, "c")
    assert not silent.tied and silent.loose_head
    assert parse_config({"model_type": "qwen3_vl_moe", "text_config": text, "tie_word_embeddings": True}, "c").tied


@pytest.mark.parametrize("said", [{}, {"norm_topk_prob": False}, {"norm_topk_prob": None}])
def test_weights_of_the_chosen_experts_of_a_qwen3_vl_moe_always_add_up_to_one(said: dict[str, Any]):
    experts = parse_config({"model_type": "qwen3_vl_moe_text", **SIZES, **said}, "c").experts
    assert experts is not None and experts.normalise


@pytest.mark.parametrize("total, width", [("absent", 1024 // 8), (None, 2 * 640 // 8), (640, 640 // 8)])
def test_heads_of_a_falcon_h1_share_the_width_of_its_scan(total: int | str | None, width: int):
    config = {
        "model_type": "falcon_h1",
        **SIZES,
        "mamba_n_heads": 8,
        **({} if total == "absent" else {"mamba_d_ssm": total}),
    }
    assert parse_config(config, "c").keeper("scan").width == width


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_words_of_a_marian(side: str):
    assert parse_config({"model_type": "marian"}, "c", part=side).vocab == 58101
