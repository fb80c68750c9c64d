"""Decoders with short convolutions between two gates in place of attention in some layers.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from tx8fast.frontend.hf.families.names import LLAMA
from tx8fast.frontend.hf.family import SILU, Family, Fields, flag
from tx8fast.frontend.hf.reader import Reader
from tx8fast.frontend.hf.rope import rotation
from tx8fast.frontend.hf.routing import routed
from tx8fast.frontend.hf.states import ShortConv


def _lfm2(r: Reader, f: Fields) -> Fields:
    """Hidden units as the library derives them, and which layers are convolutions."""
    units = r.size("block_ff_dim", f["intermediate"]) or 1
    if r.flag("block_auto_adjust_ff_dim", True):
        step = r.size("block_multiple_of", 256) or 1
        units = step * -(-int((r.number("block_ffn_dim_multiplier", 1.0) or 1) * int(2 * units / 3)) // step)
    kinds = r.layer_list("layer_types", f["layers"], {"full_attention": "attention", "conv": "conv"})
    if kinds is None:
        at = (
            r.get(
                "full_attn_idxs",
                list(range(f["layers"])),
                "a list of layer numbers",
                lambda v: type(v) is list and all(type(i) is int for i in v),
            )
            or []
        )
        kinds = ["attention" if i in at else "conv" for i in range(f["layers"])]
    tied = r.flag("tie_embedding", r.flag("tie_word_embeddings", True))
    return {
        "intermediate": units,
        "mixers": tuple(kinds),
        "tied": tied,
        "keepers": (ShortConv(r.size("conv_L_cache", 3) or 1, r.flag("conv_bias")),),
    }


_LFM2 = Family(
    "short convolutions between two gates, attention in some layers, per-head query and key norms",
    LLAMA.but(
        self_attn__o_proj="self_attn.out_proj",
        self_attn__q_norm="self_attn.q_layernorm",
        self_attn__k_norm="self_attn.k_layernorm",
        conv="conv",
        mlp__gate_proj="feed_forward.w1",
        mlp__up_proj="feed_forward.w3",
        mlp__down_proj="feed_forward.w2",
        attn_norm="operator_norm",
        mlp_norm="ffn_norm",
        outer={"norm": "embedding_norm"},
    ),
    {"qk_norm": "head"},
    (rotation(theta=1e6), _lfm2),
    keys={"rms_norm_eps": "norm_eps"},
    defaults={"norm_eps": 1e-5, "num_key_value_heads": 8, "intermediate_size": 12288},
    fixed={"hidden_act": SILU},
)


def _lfm2_moe(r: Reader, f: Fields) -> Fields:
    dense = r.count("num_dense_layers", 2)
    part = routed(
        "num_experts",
        "moe_intermediate_size",
        scores="sigmoid",
        normalise=flag("norm_topk_prob", True),
        floor=1e-6,
        scale=r.number("routed_scaling_factor", 1.0),
        correction=flag("use_expert_bias", True),
        sparse=lambda r, f: tuple(i >= dense for i in range(f["layers"])),
    )
    return part(r, f)


_LFM2_MOE = _LFM2.like(
    "an lfm2 with routed experts: sigmoid scores with a correction bias",
    names=_LFM2.names.but(
        router="feed_forward.gate",
        experts="feed_forward.experts.",
        gate_proj="w1",
        up_proj="w3",
        down_proj="w2",
        correction="feed_forward.expert_bias",
    ),
    parts=(_lfm2_moe,),
    defaults={
        "intermediate_size": 7168,
        "block_auto_adjust_ff_dim": False,
        "num_experts": 32,
        "num_experts_per_tok": 4,
    },
)

FAMILIES: dict[str, Family] = {"lfm2": _LFM2, "lfm2_moe": _LFM2_MOE}
