"""Families whose exports by torch.onnx are compared with the library, and with the builder's graph: what `docs/models.md` says was tried."""

from __future__ import annotations

from typing import Any

#: (the library's class without its suffix, changes of the sizes): decoders
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}), "gemma2": ("Gemma2", {"head_dim": 16, "sliding_window": 8}), "gpt_neox": ("GPTNeoX", {}),
    "phi3": ("Phi3", {}), "olmo2": ("Olmo2", {}),
}  # fmt: skip
#: decoders with routed experts, and attention that is as simple as it goes
MIXTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": ("Mixtral", {"num_local_experts": 4}),
    "qwen2_moe": ("Qwen2Moe", {"num_experts": 4, "moe_intermediate_size": 24, "num_experts_per_tok": 2}),
    "qwen3_moe": ("Qwen3Moe", {"num_experts": 4, "moe_intermediate_size": 24, "head_dim": 16, "num_experts_per_tok": 1}),
    "olmoe": ("Olmoe", {"num_experts": 4}),
    "gpt_oss": ("GptOss", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16}),
    "granitemoe": ("GraniteMoe", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "phimoe": ("Phimoe", {"num_local_experts": 4}),
    "deepseek_v3": ("DeepseekV3", {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "n_group": 4, "topk_group": 2,
                                   "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
                                   "first_k_dense_replace": 1, "num_key_value_heads": 4}),
}  # fmt: skip
_WIDE = {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128}
#: encoders and decoders whose items are padded: (the library's class, changes of the sizes)
PADDED: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", {}), "roberta": ("Roberta", {}), "xlm-roberta": ("XLMRoberta", {}), "distilbert": ("DistilBert", _WIDE),
    "modernbert": ("ModernBert", {"local_attention": 16}), "clip_text_model": ("CLIPText", {}), "t5.encoder": ("T5Encoder", {
        "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}),
    "deberta-v2": ("DebertaV2", {"relative_attention": True, "position_buckets": 16, "pos_att_type": ["p2c", "c2p"], "share_att_key": True,
                                 "norm_rel_ebd": "layer_norm"}),
    "gpt2": ("GPT2", {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 64}), "qwen3": ("Qwen3", {"head_dim": 16}),
}  # fmt: skip
#: exports with the layers of the builder, by operator set
SAME_LAYERS = {"llama": 20, "mistral": 23, "qwen3": 18, "gemma2": 23, "gpt2": 18, "opt": 20, "granite": 20, "olmo2": 23,
               "smollm3": 20, "vit": 23, "mixtral": 23, "qwen3_moe": 20, "gpt_neox-serial": 20, "gpt_neox": 20}  # fmt: skip
#: those that are stored, too
STORED = ("bert", "gemma", "gemma3_text", "gpt2", "llama", "mistral", "mixtral", "phi3", "qwen2", "qwen3", "qwen3_moe")
#: checkpoints whose exports cost what their config.json does, 3 % more at most
SAME_COST = (
    "gemma gemma2 gemma3_text gpt2 gpt_neox gpt_neox-serial granite llama mistral olmo2 opt-after opt phi3 phi3-longrope qwen2 qwen3 smollm3 "
    "apertus arcee bloom cohere cohere2 ernie4_5 exaone4 exaone4-all falcon falcon-grouped falcon-rw gemma4_text glm glm4 gpt_bigcode "
    "gpt_bigcode-heads gpt_neo gptj helium hunyuan_v1_dense ministral ministral3 mllama mpt nemotron olmo olmo3 persimmon phi seed_oss stablelm "
    "starcoder2"
).split()


def exported() -> set[str]:
    """The families, by `model_type`."""
    return {*DECODERS, *MIXTURES, *PADDED, *STORED, *(case.partition("-")[0] for case in (*SAME_LAYERS, *SAME_COST))}
