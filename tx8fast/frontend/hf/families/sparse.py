"""Decoders with routed experts that are relatives of dense ones, or of others with experts.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from dataclasses import replace

from tx8fast.frontend.hf.families import experts, layered, llama
from tx8fast.frontend.hf.families.names import AFTER, MOE, SANDWICH
from tx8fast.frontend.hf.family import Family, Fields, biases, flag, number, root_of_width, size
from tx8fast.frontend.hf.reader import Reader
from tx8fast.frontend.hf.rope import rotation, unturned_far
from tx8fast.frontend.hf.routing import behind, grouped, routed
from tx8fast.frontend.hf.windows import pattern_layers, window_of

#: what experts and their router are called
_EXPERTS = {m: MOE.modules[m] for m in ("router", "experts", "gate_proj", "up_proj", "down_proj", "shared")}


def _ernie_sparse(r: Reader, f: Fields) -> tuple[bool, ...]:
    """Every so many layers from a first one to a last one, -1: to the end."""
    first, step = r.count("moe_layer_start_index", 1), r.size("moe_layer_interval", 1) or 1
    last = r.get("moe_layer_end_index", -1, "a whole number >= -1", lambda v: type(v) is int and v >= -1)
    stop = f["layers"] if last in (None, -1) else last + 1
    return tuple(first <= i < stop and (i + 1) % step == 0 for i in range(f["layers"]))


_ERNIE_MOE = llama.FAMILIES["ernie4_5"].like(
    "rotation of pairs, routed experts with a correction bias in chosen layers, shared ones",
    names=MOE.but(correction="mlp.moe_statics.e_score_correction_bias"),
    parts=(
        routed(
            "moe_num_experts",
            "moe_intermediate_size",
            top_k="moe_k",
            sparse=_ernie_sparse,
            shared=lambda r, f: (r.size("moe_intermediate_size") or 1) * r.count("moe_num_shared_experts", 2),
            normalise=True,
            least=number("moe_norm_min", 1e-12),
            correction=True,
            wide_router=True,
        ),
    ),
    aliases={"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"},
    fixed={"use_bias": (False,)},  # the library would give them to shared experts and to the logits, too
)
#: unlike the dense one it says nothing of a head's width
_ERNIE_MOE = replace(
    _ERNIE_MOE,
    defaults={
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
        "num_key_value_heads": 4,
        "moe_num_experts": 64,
        "moe_k": 6,
        "moe_intermediate_size": 1536,
    },
)


def _alike(r: Reader, f: Fields) -> Fields:
    """What released files say of experts and the library takes for granted: their width, and that one serves all tokens."""
    for key, wanted in (("moe_intermediate_size", f["intermediate"]), ("num_shared_expert", 1)):
        found = r.uniform(key, wanted)
        if found not in (None, wanted):
            r.problems.append(f"key '{key}' is {found}, supported: {wanted}")
    return {}


_HUNYUAN_MOE = replace(
    llama.FAMILIES["hunyuan_v1_dense"].like(
        "query and key norms after the rotation, whose base `alpha` stretches, routed experts and a shared one",
        parts=(
            routed(
                "num_experts",
                top_k="moe_topk",
                listed=True,
                normalise=True,
                shared=size("intermediate_size"),
                wide_router=True,
            ),
            _alike,
        ),
        defaults={"moe_topk": 1},  # not the number of experts: a dense one has none
        aliases={"num_local_experts": "num_experts", "num_experts_per_tok": "moe_topk"},
        fixed={
            "use_mixed_mlp_moe": (True,),
            "use_cla": (False,),
            "use_qk_norm": (True,),
            "mlp_bias": (False,),
            "norm_topk_prob": (True,),
            "moe_layer_num_skipped": (0,),
        },
    ),
    names=llama.FAMILIES["hunyuan_v1_dense"].names.but(
        also={**_EXPERTS, "router": "mlp.gate.wg", "shared": "mlp.shared_mlp."}
    ),
)


def _typed(r: Reader, f: Fields) -> Fields:
    return {"sparse": behind("first_k_dense_replace", 1, "mlp_layer_types")(r, f)}


_GLM_LITE = experts.FAMILIES["deepseek_v3"].like(
    "a deepseek_v3 of one group, whose layers say by a list which of them are dense",
    parts=(_typed,),
    fixed={"first_k_dense_replace": (1,)},  # the library reads `mlp_layer_types` alone
    defaults={
        "rms_norm_eps": 1e-5,
        "n_routed_experts": 64,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1536,
        "first_k_dense_replace": 1,
        "q_lora_rank": 768,
        "n_group": 1,
        "topk_group": 1,
        "routed_scaling_factor": 1.8,
        "v_head_dim": 256,
        "qk_nope_head_dim": 192,
        "num_key_value_heads": 20,
        "head_dim": 64,  # the rotated part, whose own key is read: heads do not divide the width
    },
)
_FLEX_OLMO = llama.FAMILIES["olmo2"].like(
    "norms after each part only, query and key norm over the whole projection, routed experts",
    names=AFTER.but(also=_EXPERTS),
    parts=(routed("num_experts", normalise=flag("norm_topk_prob")),),
    aliases={"num_local_experts": "num_experts"},
    defaults={"rms_norm_eps": 1e-6, "rope_theta": 500000.0, "num_experts": 7, "num_experts_per_tok": 5},
)


_AFMOE = Family(
    "norms before and after each part, gated attention, rotation only in layers with a window, routed experts as in deepseek_v3, "
    "embeddings scaled where `mup_enabled` says so",
    SANDWICH.but(
        also=_EXPERTS,
        mlp_norm="pre_mlp_layernorm",
        mlp_post_norm="post_mlp_layernorm",
        self_attn__gate_proj="self_attn.gate_proj",
        router="mlp.router.gate",
        correction="mlp.expert_bias",
    ),
    {
        **biases(),
        "qk_norm": "head",
        "attention_gate": True,
        "embedding_scale": root_of_width("mup_enabled"),
        "windows": pattern_layers(4, key="global_attn_every_n_layers", window=1024),
    },
    (
        rotation(),
        unturned_far,
        routed(
            "num_experts",
            "moe_intermediate_size",
            sparse=behind("num_dense_layers", 1),
            scores="sigmoid",
            normalise=True,
            scale=number("route_scale", 1.0),
            shared=lambda r, f: (r.size("moe_intermediate_size") or 1) * r.count("num_shared_experts", 2),
            correction=True,
        ),
    ),
    aliases={"num_local_experts": "num_experts"},
    defaults={
        "rms_norm_eps": 1e-5,
        "head_dim": 128,
        "num_experts": 64,
        "num_experts_per_tok": 6,
        "moe_intermediate_size": 1408,
        "num_shared_experts": 2,
    },
    fixed={
        "score_func": ("sigmoid",),
        "route_norm": (True,),
        "n_group": (1,),
        "topk_group": (1,),
        "num_expert_groups": (1,),
        "num_limited_groups": (1,),
    },
)
#: no layer is dense
_SOLAR = replace(
    experts.FAMILIES["glm4_moe"].like(
        "routed experts as in deepseek_v3 in every layer behind plain attention, biases into the attention",
        fields={"qk_norm": ""},
        defaults={
            "first_k_dense_replace": 0,
            "rope_theta": 1e6,
            "moe_intermediate_size": 1280,
            "num_key_value_heads": 8,
            "head_dim": 128,
        },
        fixed={"first_k_dense_replace": (0,), "use_qk_norm": (False,)},
        inner=1,
    ),
    parts=(
        rotation(),
        grouped(
            scores="sigmoid",
            group_score="top2",
            normalise=flag("norm_topk_prob", True),
            correction=True,
            sparse=lambda r, f: (True,) * f["layers"],
        ),
    ),
)
_EXAONE_MOE = llama.FAMILIES["exaone4"].like(
    "per-head query and key norms, rotation only in layers with a window, routed experts as in deepseek_v3 where a list says so or behind "
    "the first layers",
    names=MOE.but(correction="mlp.e_score_correction_bias"),
    parts=(
        grouped(
            scores="sigmoid",
            group_score="top2",
            normalise=flag("norm_topk_prob", True),
            correction=True,
            sparse=behind("first_k_dense_replace", 1, "mlp_layer_types"),
        ),
    ),
    aliases={
        "num_experts": "n_routed_experts",
        "num_local_experts": "n_routed_experts",
        "num_shared_experts": "n_shared_experts",
    },
    fixed={"scoring_func": ("sigmoid",), "topk_method": ("noaux_tc",)},
    defaults={
        "n_routed_experts": 64,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 1024,
        "n_shared_experts": 1,
        "routed_scaling_factor": 2.5,
        "num_key_value_heads": 32,
    },
)


def _cohere_layers(r: Reader, f: Fields) -> Fields:
    """Dense layers in front have windows of a pattern of their own, and a rotation where that says that none has one."""
    layers, wide = f["layers"], window_of(r, 4096)
    first, near, every = (
        r.count("first_k_dense_replace", 0),
        r.size("prefix_dense_sliding_window_pattern", 1) or 1,
        r.size("sliding_window_pattern", 4) or 4,
    )
    places = ((i + 1, near) if i < first else (i - first + 1, every) for i in range(layers))
    types = r.layer_list("layer_types", layers, {"full_attention": 0, "sliding_attention": wide})
    windows = tuple(types) if types is not None else tuple(wide if at % step else 0 for at, step in places)
    sparse = behind("first_k_dense_replace", 0, "mlp_layer_types")(r, f)
    turned = (w or (near == 1 and not s) for w, s in zip(windows, sparse, strict=True))
    return {"windows": windows, "sparse": sparse, "rope_of": tuple(0 if t else -1 for t in turned)}


def _cohere_norm(r: Reader, f: Fields) -> Fields:
    """RMS norms where their eps is given."""
    eps = r.number("rms_norm_eps", None)
    return {} if eps is None else {"norm": "rms", "norm_eps": eps}


def _cohere_experts(r: Reader, f: Fields) -> Fields:
    scores = r.text("expert_selection_fn", "softmax", {"softmax": "softmax", "sigmoid": "sigmoid"})
    mean = r.text("shared_expert_combination_strategy", "average", {"average": True, "sum": False})
    read = routed(
        "num_experts",
        scores=scores or "softmax",
        normalise=scores == "softmax" or r.flag("norm_topk_prob", True),
        shared=(r.size("intermediate_size") or 1) * r.count("num_shared_experts", 0),
        shared_mean=bool(mean),
    )
    dense = r.size("prefix_dense_intermediate_size", f["intermediate"])
    return {"experts": read(r, f)["experts"], "intermediate": dense}


_COHERE_MOE = layered.FAMILIES["cohere2"].like(
    "layer norms without biases or RMS norms, one for both parts; dense layers in front, then routed experts and shared ones, window "
    "pattern, rotation in layers with a window and in those in front",
    names=layered.FAMILIES["cohere2"].names.but(also=_EXPERTS),
    fields={"qk_norm": ""},
    parts=(_cohere_layers, _cohere_norm, _cohere_experts),
    aliases={"num_local_experts": "num_experts"},
    fixed={
        "rope_scaling": (),  # the library keeps it and obeys `rope_parameters` alone
        "use_parallel_block": (True,),
        "use_qk_norm": (False,),
        "layer_norm_bias": (False,),
    },
    defaults={"head_dim": 128, "num_experts_per_tok": 2},  # not the number of experts: a cohere2 has none
)

FAMILIES: dict[str, Family] = {
    "ernie4_5_moe": _ERNIE_MOE,
    "hunyuan_v1_moe": _HUNYUAN_MOE,
    "glm4_moe_lite": _GLM_LITE,
    "flex_olmo": _FLEX_OLMO,
    "afmoe": _AFMOE,
    "solar_open": _SOLAR,
    "exaone_moe": _EXAONE_MOE,
    "cohere2_moe": _COHERE_MOE,
}
