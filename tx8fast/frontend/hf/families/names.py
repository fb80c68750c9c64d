"""Spellings that several families share.

May import: frontend.hf.family. Must not: know config keys.
"""

from __future__ import annotations

from tx8fast.frontend.hf.family import Names

OUTER = {"embed_tokens": "embed_tokens", "norm": "norm", "lm_head": "^lm_head"}
ATTENTION = {f"self_attn.{m}": f"self_attn.{m}" for m in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")}
MLP = {f"mlp.{m}": f"mlp.{m}" for m in ("gate_proj", "up_proj", "down_proj")}
LLAMA = Names(
    ("model.", ""),
    "layers.{}.",
    {**ATTENTION, **MLP, "attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"},
    OUTER,
)
#: norms before and after each part
SANDWICH = LLAMA.but(
    attn_post_norm="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
)
#: norms after each part only
AFTER = SANDWICH.but("attn_norm", "mlp_norm")
FUSED_MLP = LLAMA.but(mlp__gate_up="mlp.gate_up_proj")
MOE = LLAMA.but(
    router="mlp.gate",
    experts="mlp.experts.",
    gate_proj="gate_proj",
    up_proj="up_proj",
    down_proj="down_proj",
    shared="mlp.shared_experts.",
)
BLOCK_SPARSE = LLAMA.but(
    router="block_sparse_moe.gate", experts="block_sparse_moe.experts.", gate_proj="w1", up_proj="w3", down_proj="w2"
)
LATENT = MOE.but(
    also={
        f"self_attn.{m}": f"self_attn.{m}"
        for m in ("q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj")
    }
)
GPT = Names(
    ("transformer.", ""),
    "h.{}.",
    {
        "self_attn.qkv": "attn.c_attn",
        "self_attn.o_proj": "attn.c_proj",
        "mlp.up_proj": "mlp.c_fc",
        "mlp.down_proj": "mlp.c_proj",
        "attn_norm": "ln_1",
        "mlp_norm": "ln_2",
    },
    {"embed_tokens": "wte", "positions": "wpe", "norm": "ln_f", "lm_head": "^lm_head"},
)
NEOX = Names(
    ("gpt_neox.",),
    "layers.{}.",
    {
        "self_attn.qkv": "attention.query_key_value",
        "self_attn.o_proj": "attention.dense",
        "mlp.up_proj": "mlp.dense_h_to_4h",
        "mlp.down_proj": "mlp.dense_4h_to_h",
        "attn_norm": "input_layernorm",
        "mlp_norm": "post_attention_layernorm",
    },
    {"embed_tokens": "embed_in", "norm": "final_layer_norm", "lm_head": "^embed_out"},
)
