"""Configs of the recorded tiny models, in the spelling of published files: name of the case -> config.

The name is the `model_type`, with a suffix where a family has more than one case. Windows and chunks are shorter than the
recorded sequences, and no size divides another by accident.
"""

from __future__ import annotations

from typing import Any

_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "intermediate_size": 48, "vocab_size": 37, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
          "eos_token_id": 2}  # fmt: skip
_RMS = {**_SIZES, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False}
_LN = {**_SIZES, "layer_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False}
_NO_KV = {k: v for k, v in _LN.items() if k != "num_key_value_heads"}
_TWO = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}
_YARN = {
    "rope_type": "yarn",
    "factor": 8.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
_END = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 37, "n_positions": 32, **_END}
_SCAN = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 5, "mamba_d_conv": 4, "mamba_expand": 2,
         "mamba_chunk_size": 4}  # fmt: skip
_MAMBA2 = {"hidden_size": 32, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 16, "expand": 2, "state_size": 5, "n_groups": 2,
           "conv_kernel": 4, "chunk_size": 4, "vocab_size": 37, "layer_norm_epsilon": 1e-5, "residual_in_fp32": True, **_END}  # fmt: skip
_DELTA = {"layer_types": ["linear_attention", "full_attention"], "linear_conv_kernel_dim": 4, "linear_key_head_dim": 6,
          "linear_value_head_dim": 10, "linear_num_key_heads": 2, "linear_num_value_heads": 4}  # fmt: skip
_MARKS = {"video_token_id": 4, "vision_start_token_id": 5, "vision_end_token_id": 6}
_EYE = {"depth": 1, "hidden_size": 8, "out_hidden_size": 32, "num_heads": 2, "intermediate_size": 8, "patch_size": 2,
        "num_position_embeddings": 4, "deepstack_visual_indexes": [0]}  # fmt: skip

_MAMBA = {"hidden_size": 32, "num_hidden_layers": 2, "expand": 2, "state_size": 6, "conv_kernel": 4, "vocab_size": 37,
          "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False, **_END}  # fmt: skip

_GEMMA4 = {**_SIZES, "head_dim": 8, "global_head_dim": 12, "sliding_window": 5, "rms_norm_eps": 1e-6, "vocab_size_per_layer_input": 37,
           "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True, "rope_parameters": {
               "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1000000.0},
               "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}  # fmt: skip

CONFIGS: dict[str, dict[str, Any]] = {
    # experts
    "gpt_oss": {**_RMS, **_TWO, "head_dim": 8, "num_local_experts": 5, "num_experts_per_tok": 2, "swiglu_limit": 1.5,
                "attention_bias": True, "rope_theta": 150000, "rope_scaling": {**_YARN, "truncate": False}},
    "qwen2_moe": {**_RMS, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                  "shared_expert_intermediate_size": 28, "mlp_only_layers": [0], "decoder_sparse_step": 1},
    "glm4_moe": {**_RMS, "head_dim": 12, "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                 "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1,
                 "routed_scaling_factor": 1.5, "norm_topk_prob": True, "use_qk_norm": True, "attention_bias": True,
                 "partial_rotary_factor": 0.5},
    "kimi_k2": {**{k: v for k, v in _RMS.items() if k != "num_key_value_heads"}, "num_key_value_heads": 4,
                "q_lora_rank": 20, "kv_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 12,
                "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 16, "n_shared_experts": 1,
                "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.827,
                "norm_topk_prob": True, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1,
                "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 1.0,
                                 "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}},
    "olmoe": {**_RMS, "num_experts": 6, "num_experts_per_tok": 2, "clip_qkv": 0.7, "norm_topk_prob": False},
    "phimoe": {**_RMS, "num_local_experts": 6, "num_experts_per_tok": 2, "attention_bias": True, "lm_head_bias": True,
               "router_jitter_noise": 0.2, "sliding_window": 6,
               "original_max_position_embeddings": 32, "rope_scaling": {
                   "type": "longrope", "short_factor": [1.0, 1.1, 1.3, 2.0], "long_factor": [1.0, 2.0, 3.0, 8.0],
                   "short_mscale": 1.3, "long_mscale": 1.3, "original_max_position_embeddings": 32}},
    "granitemoe": {**_RMS, "num_local_experts": 6, "num_experts_per_tok": 2, "embedding_multiplier": 3.0,
                   "attention_multiplier": 0.2, "residual_multiplier": 0.3, "logits_scaling": 6.0},
    "dbrx": {"d_model": 32, "n_heads": 4, "n_layers": 2, "vocab_size": 37, "max_seq_len": 64, "tie_word_embeddings": False,
             "attn_config": {"kv_n_heads": 2, "clip_qkv": 0.7, "rope_theta": 10000.0},
             "ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 5, "moe_top_k": 2, "hidden_size": 32}, **_END},
    "llama4_text": {**_RMS, "num_hidden_layers": 3, "head_dim": 8, "intermediate_size_mlp": 40, "num_local_experts": 5,
                    "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "no_rope_layers": [1, 0, 1],
                    "attention_chunk_size": 4, "floor_scale": 3, "attn_scale": 0.3, "use_qk_norm": True,
                    "attn_temperature_tuning": True},
    # relatives of llama
    "glm": {**_RMS, "head_dim": 12, "attention_bias": True, "partial_rotary_factor": 0.5},
    "glm4": {**_RMS, "head_dim": 12, "attention_bias": True, "partial_rotary_factor": 0.5},
    "olmo": {**{k: v for k, v in _RMS.items() if k != "rms_norm_eps"}, "clip_qkv": 0.7},
    "olmo3": {**_RMS, **_TWO, "rope_theta": 500000.0, "rope_scaling": _YARN},
    "ministral": {**_RMS, **_TWO, "head_dim": 12},
    "ministral3": {**_RMS, "head_dim": 8, "rope_parameters": {**_YARN, "rope_theta": 1e6, "mscale": 1.0, "mscale_all_dim": 1.0,
                   "original_max_position_embeddings": 4, "llama_4_scaling_beta": 0.3}},
    "exaone4": {**_RMS, **_TWO},
    "exaone4-all": {**_RMS, "sliding_window": None, "layer_types": ["full_attention"] * 2},
    "exaone4-full": {**_RMS, "layer_types": ["full_attention"] * 2},
    "ernie4_5": {**_RMS, "head_dim": 8, "use_bias": True},
    "seed_oss": {**_RMS, "head_dim": 12, "attention_bias": True, "attention_out_bias": False},
    "hunyuan_v1_dense": {**_RMS, "head_dim": 8, "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}},
    "apertus": {**_RMS, "hidden_act": "xielu", "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 16}},
    # layer norms
    "cohere": {**_LN, "logit_scale": 0.25, "use_qk_norm": True, "tie_word_embeddings": True},
    "cohere2": {**_LN, **_TWO, "logit_scale": 0.25, "tie_word_embeddings": True},
    "cohere2-full": {**_LN, "layer_types": ["full_attention"] * 2, "logit_scale": 0.25, "tie_word_embeddings": True},
    "phi": {**_LN, "hidden_act": "gelu_new", "partial_rotary_factor": 0.5, "qk_layernorm": True},
    "stablelm": {**_LN, "partial_rotary_factor": 0.25, "use_qkv_bias": True, "head_dim": 8},
    "stablelm-parallel": {**_LN, "partial_rotary_factor": 0.25, "qk_layernorm": True, "use_parallel_residual": True},
    "starcoder2": {**_SIZES, "norm_epsilon": 1e-5, "hidden_act": "gelu_pytorch_tanh", "use_bias": True,
                   "sliding_window": 5, "rope_theta": 10000.0},
    "nemotron": {**_SIZES, "norm_eps": 1e-5, "hidden_act": "relu2", "partial_rotary_factor": 0.5, "rope_theta": 10000.0,
                 "tie_word_embeddings": False},
    "persimmon": {**_NO_KV, "hidden_act": "relu2", "partial_rotary_factor": 0.5, "qk_layernorm": True},
    "gpt_bigcode": {**_GPT, "multi_query": True, "activation_function": "gelu_pytorch_tanh"},
    "gpt_bigcode-heads": {**_GPT, "multi_query": False},
    "gpt_neo": {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "vocab_size": 37, "max_position_embeddings": 32,
                "attention_types": [[["global", "local"], 1]], "window_size": 5, **_END},
    "gptj": {**_GPT, "rotary_dim": 4, "tie_word_embeddings": False},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 37, **_END},
    "bloom-six": {"hidden_size": 48, "n_layer": 1, "n_head": 6, "vocab_size": 37, **_END},
    "mpt": {"d_model": 48, "n_layers": 2, "n_heads": 6, "vocab_size": 37, "max_seq_len": 64, "expansion_ratio": 4,
            "attn_config": {"alibi": True, "clip_qkv": 0.9}, "no_bias": True, **_END},
    "falcon": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 37, "alibi": False,
               "multi_query": True, "parallel_attn": True, "new_decoder_architecture": False, "bias": False, **_END},
    "falcon-grouped": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_kv_heads": 2,
                       "vocab_size": 37, "new_decoder_architecture": True, "bias": False, "parallel_attn": True, **_END},
    "falcon-rw": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 37, "alibi": True,
                  "multi_query": False, "parallel_attn": False, "bias": True, **_END},
    # states instead of caches
    "lfm2": {**{k: v for k, v in _RMS.items() if k != "rms_norm_eps"}, "norm_eps": 1e-5, "conv_L_cache": 3, "conv_bias": True,
             "block_multiple_of": 8, "layer_types": ["conv", "full_attention"], "tie_word_embeddings": True},
    "mamba2": _MAMBA2,
    "mamba2-limits": {**_MAMBA2, "num_hidden_layers": 1, "time_step_limit": [0.3, 2.0], "use_bias": True},
    "bamba": {**_RMS, **_SCAN, "num_hidden_layers": 3, "attn_layer_indices": [1]},
    "granitemoehybrid": {**_RMS, **_SCAN, "layer_types": ["mamba", "attention"], "num_local_experts": 5, "num_experts_per_tok": 2,
                         "shared_intermediate_size": 24, "embedding_multiplier": 3.0, "attention_multiplier": 0.2,
                         "residual_multiplier": 0.3, "logits_scaling": 6.0, "position_embedding_type": "nope"},
    "granitemoehybrid-dense": {**_RMS, **_SCAN, "layer_types": ["mamba", "attention"], "num_local_experts": 0,
                               "num_experts_per_tok": 0, "shared_intermediate_size": 24, "position_embedding_type": "rope"},
    "falcon_h1": {**_RMS, **_SCAN, "mamba_d_ssm": 64, "mamba_rms_norm": True, "mamba_norm_before_gate": True, "lm_head_multiplier": 0.4,
                  "embedding_multiplier": 2.5, "key_multiplier": 0.6, "attention_in_multiplier": 1.3, "attention_out_multiplier": 0.7,
                  "ssm_in_multiplier": 1.2, "ssm_out_multiplier": 0.8, "mlp_multipliers": [0.9, 0.7],
                  "ssm_multipliers": [0.9, 1.1, 0.7, 1.2, 0.6]},
    "falcon_h1-bare": {**_RMS, **_SCAN, "mamba_d_ssm": 64, "mamba_rms_norm": False, "num_hidden_layers": 1},
    "nemotron_h": {**_SIZES, "head_dim": 12, "num_hidden_layers": 4, "hybrid_override_pattern": "M-*M", "layer_norm_epsilon": 1e-5,
                   "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 5, "n_groups": 2, "conv_kernel": 4, "chunk_size": 4,
                   "expand": 2, "tie_word_embeddings": False},
    "qwen3_next": {**_RMS, **_DELTA, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                   "shared_expert_intermediate_size": 28, "norm_topk_prob": True, "head_dim": 8, "partial_rotary_factor": 0.5},
    "qwen3_5_text": {**_RMS, **_DELTA, "head_dim": 8, "linear_num_value_heads": 2, "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0], "mrope_interleaved": True}},
    # text halves, recorded with the whole model
    "qwen2_vl": {"text_config": {**_RMS, "rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]}}, "vision_config": {
        "depth": 1, "embed_dim": 8, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 1, "patch_size": 2}, "image_token_id": 3, **_MARKS},
    "qwen2_5_vl": {"text_config": {**_RMS, "rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]}}, "vision_config": {
        "depth": 1, "hidden_size": 8, "out_hidden_size": 32, "num_heads": 2, "intermediate_size": 8, "patch_size": 2,
        "fullatt_block_indexes": [0]}, "image_token_id": 3, **_MARKS},
    "qwen3_vl": {"text_config": {**_RMS, "head_dim": 12, "rope_scaling": {"rope_type": "default", "mrope_section": [2, 2, 2],
                 "mrope_interleaved": True}}, "vision_config": _EYE, "image_token_id": 3, **_MARKS},
    "qwen3_vl_moe": {"text_config": {**_RMS, "head_dim": 12, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                     "norm_topk_prob": True, "decoder_sparse_step": 1, "rope_scaling": {
                         "rope_type": "default", "mrope_section": [2, 2, 2], "mrope_interleaved": True}},
                     "vision_config": _EYE, "image_token_id": 3, **_MARKS},
    "arcee": {**_RMS, "hidden_act": "relu2", "attention_bias": True},
    "helium": {**_RMS, "head_dim": 8},
    "dots1": {**_RMS, "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_shared_experts": 1,
              "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "routed_scaling_factor": 1.5, "norm_topk_prob": True,
              "sliding_window": 5, "max_window_layers": 1},
    "minimax_m2": {**_RMS, "head_dim": 12, "rotary_dim": 6, "num_local_experts": 6, "num_experts_per_tok": 2},
    "granitemoeshared": {**_RMS, "num_local_experts": 6, "num_experts_per_tok": 2, "embedding_multiplier": 3.0, "logits_scaling": 6.0,
                         "attention_multiplier": 0.2, "residual_multiplier": 0.3, "shared_intermediate_size": 20},
    "qwen3_5_moe_text": {**_RMS, **_DELTA, "head_dim": 8, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                         "shared_expert_intermediate_size": 28},
    "lfm2_moe": {**{k: v for k, v in _RMS.items() if k != "rms_norm_eps"}, "norm_eps": 1e-5, "num_experts": 6, "num_dense_layers": 1,
                 "num_experts_per_tok": 2, "moe_intermediate_size": 24, "layer_types": ["full_attention", "conv"],
                 "routed_scaling_factor": 1.5, "use_expert_bias": True, "tie_word_embeddings": True},
    "mllama": {"text_config": {**_RMS, "num_hidden_layers": 3, "cross_attention_layers": [1]}, "image_token_index": 3, "vision_config": {
        "hidden_size": 8, "attention_heads": 2, "num_hidden_layers": 1, "num_global_layers": 1, "intermediate_size": 8, "image_size": 4,
        "patch_size": 2, "intermediate_layers_indices": [0], "supported_aspect_ratios": [[1, 1]], "max_num_tiles": 1,
        "vision_output_dim": 16}},
    "mamba": {**_MAMBA, "residual_in_fp32": True},
    "falcon_mamba": {**_MAMBA, "time_step_rank": 5, "mixer_rms_eps": 1e-3, "use_bias": True},
    "jamba": {**_RMS, "num_hidden_layers": 3, "attn_layer_period": 3, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
              "num_experts": 5, "num_experts_per_tok": 2, "mamba_d_state": 6, "mamba_d_conv": 3, "mamba_expand": 2, "mamba_dt_rank": 5},
    "recurrent_gemma": {**_SIZES, "num_key_value_heads": 1, "num_hidden_layers": 3, "lru_width": 40, "attention_window_size": 5,
                        "conv1d_width": 4, "logits_soft_cap": 3.0, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
                        "block_types": ["recurrent", "attention"], "hidden_activation": "gelu_pytorch_tanh", "partial_rotary_factor": 0.5},
    "rwkv": {"hidden_size": 32, "num_hidden_layers": 3, "attention_hidden_size": 32, "intermediate_size": 48, "vocab_size": 37,
             "rescale_every": 2, "layer_norm_epsilon": 1e-3, "context_length": 64, **_END},
    "minimax": {**_RMS, "num_hidden_layers": 3, "layer_types": ["full_attention", "linear_attention", "linear_attention"], "block_size": 4,
                "num_local_experts": 5, "num_experts_per_tok": 2, "full_attn_alpha_factor": 1.5, "full_attn_beta_factor": 0.7,
                "linear_attn_alpha_factor": 1.2, "linear_attn_beta_factor": 0.8, "mlp_alpha_factor": 0.9, "mlp_beta_factor": 1.3},
    "kimi_linear": {**{k: v for k, v in _RMS.items() if not k.startswith(("num_key", "rope"))}, "num_key_value_heads": 4, "num_hidden_layers": 3,
                    "linear_attn_config": {"head_dim": 6, "num_heads": 3, "short_conv_kernel_size": 3, "full_attn_layers": [2],
                                           "kda_layers": [1, 3]}, "kv_lora_rank": 24, "q_lora_rank": None, "qk_nope_head_dim": 8,
                    "qk_rope_head_dim": 4, "v_head_dim": 12, "num_experts": 8, "num_experts_per_token": 3, "moe_intermediate_size": 16,
                    "num_shared_experts": 1, "first_k_dense_replace": 1, "num_expert_group": 2, "topk_group": 1,
                    "routed_scaling_factor": 2.446, "moe_renormalize": True, "moe_router_activation_func": "sigmoid"},
    "olmo_hybrid": {**{k: v for k, v in _RMS.items() if k != "rope_theta"}, "num_hidden_layers": 3,
                    "layer_types": ["linear_attention", "full_attention", "linear_attention"], "linear_conv_kernel_dim": 4,
                    "linear_key_head_dim": 6, "linear_value_head_dim": 3, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                    "rope_parameters": {"rope_type": "default", "rope_theta": None}},
    "gemma4_text": {**_GEMMA4, "num_hidden_layers": 5, "num_kv_shared_layers": 2, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 6,
                    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"]},
    "gemma4_text-experts": {**_GEMMA4, "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"],
                            "hidden_size_per_layer_input": 0, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
                            "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 24,
                            "final_logit_softcapping": 3.0},
    "gemma3n_text": {**_SIZES, "head_dim": 8, "num_hidden_layers": 4, "num_kv_shared_layers": 1, "sliding_window": 5, "rms_norm_eps": 1e-6,
                     "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"], "laurel_rank": 5,
                     "activation_sparsity_pattern": [0.8, 0.0, 0.6, 0.0], "intermediate_size": [48, 48, 40, 48], "altup_num_inputs": 3,
                     "vocab_size_per_layer_input": 30, "hidden_size_per_layer_input": 6, "final_logit_softcapping": 3.0,
                     "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True, "rope_theta": 1000000.0,
                     "rope_local_base_freq": 10000.0},
    "zamba": {**_SIZES, "num_hidden_layers": 4, "num_key_value_heads": 4, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
              "attention_hidden_size": 64, "attention_head_dim": 16, "mamba_d_state": 6, "mamba_d_conv": 4, "mamba_expand": 2,
              "mamba_dt_rank": 5, "n_mamba_heads": 2, "hidden_act": "gelu", "rms_norm_eps": 1e-5, "tie_word_embeddings": True},
    "zamba2": {**_SIZES, "num_hidden_layers": 2, "num_key_value_heads": 4, "layers_block_type": ["mamba", "hybrid"],
               "mamba_d_state": 6, "mamba_d_conv": 3, "mamba_expand": 2, "mamba_ngroups": 2, "n_mamba_heads": 4, "chunk_size": 4,
               "num_mem_blocks": 1, "use_shared_attention_adapter": True, "adapter_rank": 3, "use_mem_rope": True, "rope_theta": 10000.0,
               "time_step_min": 0.5, "hidden_act": "gelu", "rms_norm_eps": 1e-5, "tie_word_embeddings": True},
}  # fmt: skip

_CHUNKED = ["full_attention", "chunked_attention", "chunked_attention"]
_FAR = ["sliding_attention", "full_attention"]
#: keys that the library reads in a way of its own
CONFIGS |= {
    "olmo_hybrid-turned": {**CONFIGS["olmo_hybrid"], "linear_allow_neg_eigval": False, "attention_bias": True, "num_hidden_layers": 2,
                           "layer_types": ["linear_attention", "full_attention"], "rms_norm_eps": 1e-2,
                           "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}},
    "zamba-unsaid": {**{k: v for k, v in CONFIGS["zamba"].items() if k not in ("layers_block_type", "mamba_dt_rank")}, "num_hidden_layers": 5,
                     "attn_layer_period": 2, "attn_layer_offset": 1, "num_key_value_heads": 2, "attention_head_dim": 12, "mamba_expand": 3,
                     "n_mamba_heads": 3, "mamba_conv_bias": False, "mamba_proj_bias": True, "rms_norm_eps": 1e-2},
    "gemma4_text-alike": {**CONFIGS["gemma4_text"], "per_layer_config": None},
    "llama4_text-types": {**CONFIGS["llama4_text"], "layer_types": _CHUNKED},
    "nemotron_h-least": {**CONFIGS["nemotron_h"], "time_step_min": 0.5, "time_step_limit": [0.0, 0.1]},
    "gemma3n_text-half": {**CONFIGS["gemma3n_text"], "activation_sparsity_pattern": [0.5, 0.0, 0.5, 0.0]},
    "smollm3-switched": {**_RMS, "no_rope_layers": [1, 0], "use_sliding_window": True, "sliding_window": 3},
    "smollm3-types": {**_RMS, "no_rope_layers": [1, 0], "use_sliding_window": False, "sliding_window": 3, "layer_types": _FAR},
    # the rotation that the library takes where the file names none
    "apertus-unsaid": {**_RMS, "hidden_act": "xielu"},
    "ministral3-unsaid": {**_RMS, "head_dim": 8},
    "gpt_oss-unsaid": {**_RMS, **_TWO, "head_dim": 8, "num_local_experts": 5, "num_experts_per_tok": 2, "attention_bias": True},
    # queries, keys and values have biases where the file says nothing
    "glm-unsaid": {**_RMS, "head_dim": 8},
    "phi3-yarn": {**_RMS, "head_dim": 8, "max_position_embeddings": 64, "original_max_position_embeddings": 16, "rope_scaling": {
        "type": "yarn", "short_factor": [1.0, 1.1, 1.2, 1.4], "long_factor": [1.0, 1.5, 2.0, 4.0]}},
}  # fmt: skip

_SPREAD = {"moe_intermediate_size": 24, "num_experts_per_tok": 2}
#: relatives, most with routed experts
CONFIGS |= {
    "ernie4_5_moe": {**_RMS, **_SPREAD, "num_hidden_layers": 3, "moe_num_experts": 6, "moe_k": 2, "moe_num_shared_experts": 2,
                     "moe_layer_start_index": 1, "moe_layer_interval": 1, "moe_layer_end_index": 1, "moe_norm_min": 0.4},
    "hunyuan_v1_moe": {**_RMS, "head_dim": 12, "num_experts": 6, "moe_topk": [2, 2], "num_shared_expert": [1, 1], "attention_bias": True,
                       "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}},
    "glm4_moe_lite": {**CONFIGS["kimi_k2"], "num_hidden_layers": 3, "n_group": 2, "attention_bias": True, "rope_scaling": None,
                      "mlp_layer_types": ["sparse", "dense", "sparse"]},
    "glm4_moe_lite-half": {**CONFIGS["kimi_k2"], "rope_interleave": False, "q_lora_rank": None},
    "flex_olmo": {**_RMS, "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": True},
    "vaultgemma": {**_RMS, "head_dim": 12, **_TWO, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 2.0,
                   "final_logit_softcapping": 3.0, "attention_bias": True, "tie_word_embeddings": True},
    "afmoe": {**_RMS, **_SPREAD, "num_hidden_layers": 3, "head_dim": 12, "num_experts": 6, "num_shared_experts": 2, "num_dense_layers": 1,
              "route_scale": 2.4, "global_attn_every_n_layers": 2, "sliding_window": 5, "mup_enabled": True},
    "codegen": {**_GPT, "rotary_dim": 4, "tie_word_embeddings": False},
    "biogpt": {**_NO_KV, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "tie_word_embeddings": True},
    "cohere2_moe": {**_LN, "head_dim": 12, "num_hidden_layers": 4, "sliding_window": 5, "sliding_window_pattern": 2, "first_k_dense_replace": 1,
                    "num_experts": 6, "num_experts_per_tok": 2, "num_shared_experts": 2, "prefix_dense_intermediate_size": 40,
                    "logit_scale": 0.25, "tie_word_embeddings": True},
    "cohere2_moe-rms": {**_LN, "sliding_window": 5, "layer_types": _FAR, "mlp_layer_types": ["sparse", "dense"], "num_experts": 6,
                        "num_shared_experts": 1, "shared_expert_combination_strategy": "sum", "expert_selection_fn": "sigmoid",
                        "rms_norm_eps": 1e-5, "prefix_dense_sliding_window_pattern": 2, "tie_word_embeddings": True},
    "xglm": {"d_model": 36, "num_layers": 2, "attention_heads": 4, "ffn_dim": 50, "vocab_size": 37, "max_position_embeddings": 64, **_END,
             "pad_token_id": 1},
    "exaone_moe": {**_RMS, **_SPREAD, "num_hidden_layers": 3, "num_experts": 6, "num_shared_experts": 2, "routed_scaling_factor": 1.7,
                   "sliding_window": 5, "sliding_window_pattern": 2, "first_k_dense_replace": 2, "n_group": 2},
    "exaone_moe-types": {**_RMS, **_SPREAD, "num_experts": 6, "sliding_window": 5, "mlp_layer_types": ["sparse", "dense"],
                         "layer_types": _FAR},
    "solar_open": {**_RMS, **_SPREAD, "head_dim": 12, "n_routed_experts": 6, "n_shared_experts": 2, "attention_bias": True,
                   "routed_scaling_factor": 1.7},
    "jais2": {**_LN, "hidden_act": "relu2"},
    "nanochat": {**_RMS, "hidden_act": "relu2", "final_logit_softcapping": 3.0, "attention_bias": True},
    "granite_swa": {**_RMS, "num_hidden_layers": 3, "sliding_window": 5, "layer_rope_theta": [500.0, 0, 10000.0], "embedding_multiplier": 3.0,
                    "attention_multiplier": 0.2, "residual_multiplier": 0.3, "logits_scaling": 6.0},
    "minicpm3": {**_RMS, "num_key_value_heads": 4, "q_lora_rank": 20, "kv_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
                 "v_head_dim": 12, "scale_emb": 3, "scale_depth": 1.2, "dim_model_base": 20, "attention_bias": True, "mlp_bias": True,
                 "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.3], "long_factor": [2.0, 3.0],
                                  "original_max_position_embeddings": 32}},
}  # fmt: skip
