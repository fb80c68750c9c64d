"""Decoders whose scores lean towards what is near (ALiBi), and their relatives.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

import math

from tx8fast.frontend.hf.families.names import GPT, NEOX
from tx8fast.frontend.hf.family import Family, Fields, biases, flag, number
from tx8fast.frontend.hf.reader import Reader
from tx8fast.frontend.hf.rope import rotation


def power_slopes(heads: int) -> tuple[float, ...]:
    """2 ** (-8 h / heads) for h = 1, 2, ..; if `heads` is no power of two, that of the next lower one, then every other slope
    of the next higher one (Press et al. 2021)."""
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * h / power) for h in range(1, power + 1)]
    between = [2.0 ** (-4.0 * h / power) for h in range(1, 2 * power, 2)]
    return (*slopes, *between[: heads - power])


def _bloom(r: Reader, f: Fields) -> tuple[float, ...]:
    return power_slopes(f["heads"])


def _mpt(r: Reader, f: Fields) -> tuple[float, ...]:
    """Slopes of the next higher power of two; if that is not `heads`, first every other one, from the second on."""
    heads, most = f["heads"], r.number("alibi_bias_max", 8) or 8
    power = 1 << max(0, math.ceil(math.log2(heads)))
    slopes = [2.0 ** (-most * h / power) for h in range(1, power + 1)]
    return tuple(slopes) if power == heads else (*slopes[1::2], *slopes[::2])[:heads]


def _falcon(r: Reader, f: Fields) -> Fields:
    """Three generations: one key head; groups of queries and two norms; slopes instead of a rotation."""
    new, leaning = r.flag("new_decoder_architecture"), r.flag("alibi")
    parallel = new or r.flag("parallel_attn", True)
    two = new and r.size("num_ln_in_parallel_attn", 2) == 2
    kv_heads = r.size("num_kv_heads", f["heads"]) if new else 1 if r.flag("multi_query", True) else f["heads"]
    fields: Fields = {
        "kv_heads": kv_heads or 1,
        "parallel": parallel,
        "parts_first": parallel,
        "one_norm": parallel and not two,
    }
    if two:
        fields["renamed"] = (("attn_norm", "ln_attn"), ("mlp_norm", "ln_mlp"))
    if leaning:  # slopes count before the scores are scaled
        fields["alibi"] = tuple(slope * f["attention_scale"] for slope in power_slopes(f["heads"]))
        return fields
    return fields | rotation()(r, f)


_BLOOM = Family(
    "scores that lean by a slope per head, a norm of the embeddings, query-key-value interleaved per head",
    NEOX.but(
        self_attn__qkv="self_attention.query_key_value",
        self_attn__o_proj="self_attention.dense",
        outer={
            "embed_tokens": "word_embeddings",
            "embed_norm": "word_embeddings_layernorm",
            "norm": "ln_f",
            "lm_head": "^lm_head",
        },
    ).at(("transformer.", ""), "h.{}."),
    {
        "gated": False,
        "qkv_bias": True,
        "out_bias": True,
        "mlp_bias": True,
        "fused": "groups",
        "embedding_norm": True,
        "alibi": _bloom,
    },
    keys={"num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "layer_norm_eps": "layer_norm_epsilon"},
    aliases={"n_embed": "hidden_size", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
    fixed={"apply_residual_connection_post_layernorm": (False,), "hidden_act": ("gelu_pytorch_tanh",)},
    norm="layer",
    inner=4,
    defaults={"hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True},
)
_FALCON = Family(
    "one key head or groups, parallel parts behind one norm or two, rotation or slopes",
    _BLOOM.names,
    {**biases("bias"), "mlp_bias": flag("bias"), "gated": False, "fused": "groups"},
    (_falcon,),
    keys={"intermediate_size": "ffn_hidden_size", "hidden_act": "activation", "layer_norm_eps": "layer_norm_epsilon"},
    aliases={"n_head": "num_attention_heads", "n_layer": "num_hidden_layers", "n_head_kv": "num_kv_heads"},
    norm="layer",
    inner=4,
    defaults={"activation": "gelu", "tie_word_embeddings": True},
)
_MPT = Family(
    "scores that lean by a slope per head, no biases, clipped queries, keys and values",
    GPT.but(
        self_attn__qkv="attn.Wqkv",
        self_attn__o_proj="attn.out_proj",
        mlp__up_proj="ffn.up_proj",
        mlp__down_proj="ffn.down_proj",
        attn_norm="norm_1",
        mlp_norm="norm_2",
        outer={"norm": "norm_f"},
    ).at(("transformer.", ""), "blocks.{}."),
    {
        "gated": False,
        "norm_bias": False,
        "alibi": _mpt,
        "qkv_clip": number("clip_qkv", 0.0),
        "attention_scale": lambda r, f: r.number("softmax_scale", f["attention_scale"]),
    },
    keys={
        "hidden_size": "d_model",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
        "layer_norm_eps": "layer_norm_epsilon",
    },
    sections=("attn_config",),
    norm="layer",
    inner=4,
    fixed={
        "alibi": (True,),
        "no_bias": (True,),
        "qk_ln": (False,),
        "prefix_lm": (False,),
        "expansion_ratio": (4,),
        "logit_scale": (),
        "attn_type": ("multihead_attention",),
        "hidden_act": ("gelu",),
    },
    defaults={"hidden_act": "gelu", "tie_word_embeddings": True},
)

FAMILIES: dict[str, Family] = {"bloom": _BLOOM, "falcon": _FALCON, "mpt": _MPT}
