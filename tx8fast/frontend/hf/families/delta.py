"""Decoders with gated delta networks, and gated attention in every few layers.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from dataclasses import replace

from tx8fast.frontend.hf.families.experts import FAMILIES as EXPERTS
from tx8fast.frontend.hf.families.names import LLAMA
from tx8fast.frontend.hf.family import SILU, Family, Fields, biases, flag, size
from tx8fast.frontend.hf.reader import Reader
from tx8fast.frontend.hf.rope import rotation, section_of
from tx8fast.frontend.hf.routing import routed, spaced
from tx8fast.frontend.hf.states import Delta


def _delta(r: Reader, f: Fields) -> Fields:
    keys, values = r.size("linear_num_key_heads", 16) or 1, r.size("linear_num_value_heads", 32) or 1
    if values % keys:
        r.problems.append(f"linear_num_value_heads {values} is not a multiple of linear_num_key_heads {keys}")
    found = Delta(
        keys,
        values,
        r.size("linear_key_head_dim", 128) or 1,
        r.size("linear_value_head_dim", 128) or 1,
        r.size("linear_conv_kernel_dim", 4) or 1,
    )
    kinds = r.layer_list("layer_types", f["layers"], {"linear_attention": "delta", "full_attention": "attention"})
    every = r.size("full_attention_interval", 4) or 4
    return {
        "keepers": (found,),
        "mixers": tuple(kinds or ("attention" if (i + 1) % every == 0 else "delta" for i in range(f["layers"]))),
    }


_QWEN_MOE = EXPERTS["qwen2_moe"]
_DELTA_DEFAULTS = {"head_dim": 256, "num_key_value_heads": 2}
_QWEN3_NEXT = Family(
    "gated delta networks, gated attention with rotation of a quarter of each head in every fourth layer, gains stored less one, "
    "routed experts and a shared one behind a gate",
    _QWEN_MOE.names.but(delta="linear_attn", delta__fused="linear_attn"),
    {**biases(), "qk_norm": "head", "norm_offset": 1.0, "attention_gate": True},
    (
        rotation(part=0.25),
        _delta,
        routed(
            "num_experts",
            "moe_intermediate_size",
            sparse=spaced("decoder_sparse_step"),
            normalise=flag("norm_topk_prob", True),
            shared=size("shared_expert_intermediate_size", 512),
            shared_gate=True,
        ),
    ),
    defaults={**_DELTA_DEFAULTS, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512},
    aliases={"num_local_experts": "num_experts"},
    fixed={"hidden_act": SILU},
)
_QWEN3_5 = Family(
    "gated delta networks, gated attention with rotation of a quarter of each head in every fourth layer, gains stored less one",
    LLAMA.but(delta="linear_attn"),
    {**biases(), "qk_norm": "head", "norm_offset": 1.0, "attention_gate": True},
    (rotation(part=0.25), _delta),
    defaults={**_DELTA_DEFAULTS, "num_key_value_heads": 4},
    fixed={"hidden_act": SILU},
)
_QWEN3_5_MOE = _QWEN3_5.like(
    "a qwen3_5_text with routed experts and a shared one behind a gate",
    names=_QWEN_MOE.names.but(delta="linear_attn"),
    parts=(
        routed(
            "num_experts",
            "moe_intermediate_size",
            normalise=True,
            shared=size("shared_expert_intermediate_size", 512),
            shared_gate=True,
        ),
    ),
    defaults={
        "num_key_value_heads": 2,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "intermediate_size": 512,
    },
)


def _olmo(r: Reader, f: Fields) -> Fields:
    """Norms stand in front of the parts of a layer with a delta network, behind those of one with attention."""
    layers, heads = f["layers"], f["heads"]
    keys, values = (r.size(f"linear_num_{side}_heads", heads) or 1 for side in ("key", "value"))
    if values % keys:
        r.problems.append(f"linear_num_value_heads {values} is not a multiple of linear_num_key_heads {keys}")
    width = r.size("linear_key_head_dim", max(1, int(0.75 * (f["hidden"] or 1) / keys))) or 1
    found = Delta(
        keys,
        values,
        width,
        r.size("linear_value_head_dim", 2 * width) or 1,
        r.size("linear_conv_kernel_dim", 4) or 1,
        pace=2.0 if r.flag("linear_allow_neg_eigval", True) else 1.0,
        eps=1e-5,
    )
    kinds = r.layer_list("layer_types", layers, {"linear_attention": "delta", "full_attention": "attention"})
    if kinds is None:
        kinds = ["delta" if (i + 1) % 4 and (layers > 3 or i + 1 < layers) else "attention" for i in range(layers)]
    sides = {"delta": ("attn_post_norm", "mlp_post_norm"), "attention": ("attn_norm", "mlp_norm")}
    _, turned = section_of(r)
    still = "rope_theta" in {**r.raw, **turned} and {**r.raw, **turned}["rope_theta"] is None
    return {
        "keepers": (found,),
        "mixers": tuple(kinds),
        "unnormed": tuple(f"{i}.{norm}" for i, kind in enumerate(kinds) for norm in sides[kind]),
        **({"rope_of": (-1,) * layers} if still else {}),
    }


_OLMO_HYBRID = Family(
    "gated delta networks that may correct twice over, with norms before each part; in every fourth layer attention with norms after each part, "
    "query and key norm over the whole projection, with rotation or without",
    replace(
        LLAMA.but(
            delta="linear_attn",
            delta__apart="linear_attn",
            attn_post_norm="post_attention_layernorm",
            mlp_post_norm="post_feedforward_layernorm",
        ),
        written={
            r"\battention_layer_norm\.": "input_layernorm.",
            r"\bfeedforward_layer_norm\.": "post_attention_layernorm.",
        },
    ),
    {**biases(), "qk_norm": "full"},
    (rotation(), _olmo),
    fixed={"hidden_act": SILU},
)

FAMILIES: dict[str, Family] = {
    "qwen3_next": _QWEN3_NEXT,
    "qwen3_5_text": _QWEN3_5,
    "qwen3_5_moe_text": _QWEN3_5_MOE,
    "olmo_hybrid": _OLMO_HYBRID,
}
