"""Decoders with layer norms under the names of llama.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from dataclasses import replace

from tx8fast.frontend.hf.families.names import LLAMA
from tx8fast.frontend.hf.family import Family, biases, flag, inverse, when
from tx8fast.frontend.hf.rope import rotation, unturned_far
from tx8fast.frontend.hf.windows import all_layers, pattern_layers

_COHERE = Family(
    "layer norms without biases, one for both parts, which are parallel; rotation of pairs, scaled logits, query and key norms "
    "with gains per head",
    LLAMA.but("mlp_norm"),
    {
        **biases(),
        "norm_bias": False,
        "parallel": True,
        "one_norm": True,
        "logits_divisor": inverse("logit_scale", 0.0625),
        "qk_norm": when("use_qk_norm", "heads"),
    },
    (rotation("interleaved"),),
    norm="layer",
    defaults={"tie_word_embeddings": True},
)
#: attention and feed-forward part as in GPT-NeoX, the rest as in llama
_DENSE = LLAMA.but(
    "mlp.gate_proj",
    self_attn__o_proj="self_attn.dense",
    self_attn__q_norm="self_attn.q_layernorm",
    self_attn__k_norm="self_attn.k_layernorm",
    outer={"norm": "final_layernorm"},
)
_BIASED = {"gated": False, "qkv_bias": True, "out_bias": True, "mlp_bias": True}
_QK_NORM = {"qk_norm": when("qk_layernorm", "head"), "qk_norm_bias": True}

FAMILIES: dict[str, Family] = {
    "cohere": replace(_COHERE, defaults={**_COHERE.defaults, "rope_theta": 5e5}),
    "cohere2": _COHERE.like("layer norms without biases, one for both parts; window pattern, rotation only in layers with a window",
                            fields={"windows": pattern_layers(4)}, parts=(unturned_far,)),
    "phi": Family("parallel parts behind one norm, rotation of a part of each head, bias of the logits",
                  _DENSE.but("mlp_norm", mlp__up_proj="mlp.fc1", mlp__down_proj="mlp.fc2"),
                  {**_BIASED, **_QK_NORM, "parallel": True, "one_norm": True, "parts_first": True, "head_bias": True}, (rotation(part=0.5),),
                  norm="layer", defaults={"hidden_act": "gelu_new"}),
    "persimmon": Family("query-key-value interleaved per head, query and key norms with biases, squared relu",
                        _DENSE.but(self_attn__qkv="self_attn.query_key_value", mlp__up_proj="mlp.dense_h_to_4h",
                                   mlp__down_proj="mlp.dense_4h_to_h"),
                        {**_BIASED, "fused": "groups", "qk_norm": when("qk_layernorm", "head", True), "qk_norm_bias": True},
                        (rotation(part=0.5),), norm="layer", defaults={"hidden_act": "relu2"}),
    "stablelm": Family("rotation of a quarter of each head, norms of single heads, serial or parallel parts",
                       LLAMA.but(self_attn__q_norm="self_attn.q_layernorm.norms.{}",
                                 self_attn__k_norm="self_attn.k_layernorm.norms.{}"),
                       {"qkv_bias": flag("use_qkv_bias"), "qk_norm": when("qk_layernorm", "heads"),
                        "parallel": flag("use_parallel_residual"), "one_norm": flag("use_parallel_residual")},
                       (rotation(part=0.25),), norm="layer", defaults={"num_key_value_heads": 32}),
    "starcoder2": Family("one switch for all biases, a window in all layers",
                         LLAMA.but("mlp.gate_proj", mlp__up_proj="mlp.c_fc", mlp__down_proj="mlp.c_proj"),
                         {**biases("use_bias", True, mlp_bias=flag("use_bias", True)), "gated": False, "windows": all_layers()},
                         (rotation(),), keys={"layer_norm_eps": "norm_epsilon"}, norm="layer",
                         defaults={"hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True, "num_key_value_heads": 2}),
    "nemotron": Family("gains stored less one, squared relu, rotation of half of each head",
                       LLAMA.but("mlp.gate_proj"), {**biases(), "mlp_bias": flag("mlp_bias"), "gated": False, "norm_offset": 1.0},
                       (rotation(part=0.5),), keys={"layer_norm_eps": "norm_eps"}, norm="layer",
                       defaults={"hidden_act": "relu2"}),
    "jais2": Family("biases everywhere, squared relu without a gate", LLAMA.but("mlp.gate_proj"),
                    {**biases(default=True), "mlp_bias": flag("mlp_bias", True), "gated": False}, (rotation(),), norm="layer",
                    defaults={"hidden_act": "relu2"}),
}  # fmt: skip
