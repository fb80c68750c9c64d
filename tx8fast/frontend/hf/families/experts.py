"""Decoders with routed experts, some with latent attention.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from dataclasses import replace

from tx8fast.frontend.hf.families import llama
from tx8fast.frontend.hf.families.names import BLOCK_SPARSE, LATENT, LLAMA, MOE, OUTER
from tx8fast.frontend.hf.family import SILU, Family, Fields, Names, Stack, biases, flag, number, size, when
from tx8fast.frontend.hf.reader import Reader
from tx8fast.frontend.hf.rope import rotation, unturned
from tx8fast.frontend.hf.routing import grouped, latent_attention, routed, spaced
from tx8fast.frontend.hf.spec import Growth
from tx8fast.frontend.hf.windows import all_layers, pattern_layers, size_or_none, window_of

_ROUTED = {"num_local_experts": "n_routed_experts", "num_experts": "n_routed_experts"}


def _switched_window(r: Reader, f: Fields) -> tuple[int, ...]:
    return all_layers(4096)(r, f) if r.flag("use_sliding_window") else (0,) * f["layers"]


def _rotation_style(r: Reader, f: Fields) -> str:
    return "interleaved" if r.flag("rope_interleave") else "half"


_DEEPSEEK2 = Family(
    "latent attention, shared experts, grouped routing by the best expert of a group",
    LATENT,
    {**biases(), "mlp_bias": flag("mlp_bias")},
    (latent_attention("interleaved"), grouped(limited=lambda r, f: r.raw.get("topk_method") == "group_limited_greedy")),
    defaults={
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_shared_experts": 2,
        "q_lora_rank": 1536,
        "n_routed_experts": 64,
        "moe_intermediate_size": 1407,
    },
    aliases=_ROUTED,
    fixed={"topk_method": ("greedy", "group_limited_greedy"), "scoring_func": ("softmax",), "norm_topk_prob": (False,)},
)
_DEEPSEEK3 = Family(
    "latent attention, sigmoid scores with a correction bias, groups by the sum of their two best, yarn with its softmax "
    "temperature",
    # what the library saves of a Kimi K2.5 calls the layers as those of its tower
    replace(LATENT, written={r"^language_model\.model\.blocks\.": "language_model.model.layers."}),
    biases(),
    (
        latent_attention(_rotation_style),
        grouped(8, scores="sigmoid", group_score="top2", normalise=flag("norm_topk_prob"), correction=True),
    ),
    defaults={
        **_DEEPSEEK2.defaults,
        "norm_topk_prob": True,
        "rope_interleave": True,
        "topk_group": 4,
        "routed_scaling_factor": 2.5,
        "n_shared_experts": 1,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3,
    },
    aliases=_ROUTED,
    fixed={"topk_method": ("noaux_tc",), "scoring_func": ("sigmoid",), "mlp_bias": (False,)},
)
_MIXTRAL = Family(
    "routed experts, the weights of the chosen ones add up to one",
    BLOCK_SPARSE,
    {"windows": all_layers()},
    (rotation(), routed("num_local_experts", normalise=True)),
    aliases={"num_experts": "num_local_experts"},
    defaults={
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "num_key_value_heads": 8,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    pairs_lanes=True,
)
_QWEN3_MOE = Family(
    "routed experts, dense layers in between, per-head query and key norms",
    MOE,
    {**biases(), "qk_norm": "head", "windows": _switched_window},
    (
        rotation(),
        routed(
            "num_experts",
            "moe_intermediate_size",
            sparse=spaced("decoder_sparse_step"),
            normalise=flag("norm_topk_prob"),
        ),
    ),
    defaults={"num_key_value_heads": 4, "num_experts": 128, "num_experts_per_tok": 8},
    aliases={"num_local_experts": "num_experts"},
)
_SIDES = ("e", "h", "2i")
_QWEN3_VL_MOE = _QWEN3_MOE.like(
    "a qwen3_moe with experts in one tensor each way, whose rotation has places of images, of which text uses one",
    names=MOE.stacked(
        gate_proj=Stack("mlp.experts.gate_up_proj", _SIDES, 0, turned=True),
        up_proj=Stack("mlp.experts.gate_up_proj", _SIDES, 1, turned=True),
        down_proj=Stack("mlp.experts.down_proj", ("e", "i", "h"), turned=True),
    ),
    # whatever `norm_topk_prob` says, which the library does not read here
    parts=(lambda r, f: {"experts": replace(f["experts"], normalise=True)},),
    defaults={
        "num_key_value_heads": 16,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
    },
)

_GLM4_MOE = Family(
    "routed experts as in deepseek_v3 behind plain attention, rotation of half of each head, per-head query and key norms",
    MOE,
    {"qkv_bias": flag("attention_bias"), "qk_norm": when("use_qk_norm", "head")},
    (
        rotation(part=0.5),
        grouped(1, scores="sigmoid", group_score="top2", normalise=flag("norm_topk_prob", True), correction=True),
    ),
    defaults={
        "rms_norm_eps": 1e-5,
        "num_key_value_heads": 8,
        "n_routed_experts": 128,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 1,
        "n_shared_experts": 1,
    },
    aliases=_ROUTED,
)


def _early_windows(r: Reader, f: Fields) -> tuple[int, ...]:
    """Every other layer below `max_window_layers`, where windows are switched on."""
    if not r.flag("use_sliding_window"):
        return (0,) * f["layers"]
    most = r.count("max_window_layers", 28)
    found = pattern_layers(0, key="")(r, f) if r.raw.get("layer_types") else None
    return found or tuple(window_of(r, 4096) if i % 2 == 0 and i < most else 0 for i in range(f["layers"]))


_QWEN2_MOE = Family(
    "routed experts and a shared one behind a gate, query, key and value biases",
    MOE.but(shared="mlp.shared_expert.", shared_gate="mlp.shared_expert_gate"),
    {"qkv_bias": flag("qkv_bias", True), "windows": _early_windows},
    (
        rotation(),
        routed(
            "num_experts",
            "moe_intermediate_size",
            sparse=spaced("decoder_sparse_step"),
            normalise=flag("norm_topk_prob"),
            shared=size("shared_expert_intermediate_size"),
            shared_gate=True,
        ),
    ),
    defaults={"num_key_value_heads": 16, "num_experts": 60, "num_experts_per_tok": 4},
    aliases={"num_local_experts": "num_experts"},
)
_OLMOE = Family(
    "routed experts, clipped queries, keys and values, query and key norms over the whole projection",
    MOE,
    {**biases(), "qk_norm": "full", "qkv_clip": number("clip_qkv", 0.0)},
    (rotation(), routed("num_experts", normalise=flag("norm_topk_prob"))),
    defaults={"rms_norm_eps": 1e-5, "num_experts": 64, "num_experts_per_tok": 8},
    aliases={"num_local_experts": "num_experts"},
)
_PHIMOE = Family(
    "experts drawn one after another (sparse mixer), layer norms, bias of the logits",
    BLOCK_SPARSE,
    {**biases(), "head_bias": flag("lm_head_bias"), "windows": all_layers()},
    (rotation(), routed("num_local_experts", jitter=lambda r, f: r.amount("router_jitter_noise", 0.01))),
    keys={"layer_norm_eps": "rms_norm_eps"},
    norm="layer",
    aliases={"num_experts": "num_local_experts"},
    fixed={"num_experts_per_tok": (2,)},  # the sparse mixer draws two
    defaults={"num_key_value_heads": 8, "num_local_experts": 16, "num_experts_per_tok": 2, "rope_theta": 1e6},
)
_HALVES = ("e", "2i", "h")
_GRANITEMOE = llama.FAMILIES["granite"].like(
    "the multipliers of granite, routed experts in one tensor each way",
    names=LLAMA.but(router="block_sparse_moe.router.layer").stacked(
        gate_proj=Stack("block_sparse_moe.input_linear.weight", _HALVES, 0),
        up_proj=Stack("block_sparse_moe.input_linear.weight", _HALVES, 1),
        down_proj=Stack("block_sparse_moe.output_linear.weight", ("e", "h", "i")),
    ),
    fields={"mlp_bias": False},
    parts=(routed("num_local_experts", normalise=True),),
    pairs_lanes=False,
    aliases={"num_experts": "num_local_experts"},
    defaults={"num_local_experts": 8, "num_experts_per_tok": 2},
)
_DBRX = Family(
    "layer norms without biases, clipped queries, keys and values, fused query-key-value, routed experts in one tensor each",
    Names(
        ("transformer.",),
        "blocks.{}.",
        {
            "self_attn.qkv": "norm_attn_norm.attn.Wqkv",
            "self_attn.o_proj": "norm_attn_norm.attn.out_proj",
            "attn_norm": "norm_attn_norm.norm_1",
            "mlp_norm": "norm_attn_norm.norm_2",
            "router": "ffn.router.layer",
        },
        {**OUTER, "embed_tokens": "wte", "norm": "norm_f"},
    ).stacked(
        gate_proj=Stack("ffn.experts.mlp.w1", ("ei", "h")),
        up_proj=Stack("ffn.experts.mlp.v1", ("ei", "h")),
        down_proj=Stack("ffn.experts.mlp.w2", ("ei", "h")),
    ),
    {"norm_bias": False, "qkv_clip": number("clip_qkv", 0.0)},
    (rotation(), routed("moe_num_experts", top_k="moe_top_k", normalise=True)),
    keys={
        "hidden_size": "d_model",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
        "num_key_value_heads": "kv_n_heads",
        "intermediate_size": "ffn_hidden_size",
        "max_position_embeddings": "max_seq_len",
    },
    sections=("attn_config", "ffn_config"),
    norm="layer",
    fixed={
        "hidden_act": SILU,
        "ffn_act_fn": tuple({"name": name} for name in SILU),
        "moe_normalize_expert_weights": (1, 1.0),
        "moe_jitter_eps": (0, 0.0),
    },
)
_TWINS = ("e", "h", "i2")
_GPT_OSS = Family(
    "a learned sink per head in the softmax, clamped gates, biases of experts and router, windows in every other layer",
    LLAMA.but(self_attn__sinks="self_attn.sinks", router="mlp.router").stacked(
        gate_proj=Stack("mlp.experts.gate_up_proj", _TWINS, 0),
        up_proj=Stack("mlp.experts.gate_up_proj", _TWINS, 1),
        down_proj=Stack("mlp.experts.down_proj", ("e", "i", "h")),
        gate_bias=Stack("mlp.experts.gate_up_proj_bias", ("e", "i2"), 0),
        up_bias=Stack("mlp.experts.gate_up_proj_bias", ("e", "i2"), 1),
        down_bias=Stack("mlp.experts.down_proj_bias", ("e", "h")),
    ),
    {
        **biases(default=True),
        "sinks": True,
        "windows": pattern_layers(2, key="", window=128),
        "gate_limit": number("swiglu_limit", 7.0),
        "gate_slope": number("swiglu_alpha", 1.702),
    },
    (rotation(), routed("num_local_experts", normalise=True, bias=True, router_bias=True)),
    defaults={
        "rms_norm_eps": 1e-5,
        "head_dim": 64,
        "num_key_value_heads": 8,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "rope_theta": 150000.0,
        "rope_parameters": {
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
    },
    fixed={"hidden_act": SILU},
    aliases={"experts_per_token": "num_experts_per_tok", "num_experts": "num_local_experts"},
)


def _llama4(r: Reader, f: Fields) -> Fields:
    """Layers without rotation see everything and grow; the others see their chunk."""
    chunk = size_or_none(r, "attention_chunk_size", 8192)
    types = r.layer_list("layer_types", f["layers"], {"full_attention": 0, "chunked_attention": chunk})
    chunks = types if types is not None else [chunk if turn >= 0 else 0 for turn in f["rope_of"]]
    fields: Fields = {"chunks": tuple(chunks)}
    if r.flag("attn_temperature_tuning", True):
        fields["growth"] = Growth(r.number("floor_scale", 8192) or 1, r.number("attn_scale", 0.1) or 0)
    return fields


def _llama4_sparse(r: Reader, f: Fields) -> tuple[bool, ...]:
    step = r.size("interleave_moe_layer_step", 1) or 1
    chosen = r.get(
        "moe_layers", None, "a list of layer numbers", lambda v: type(v) is list and all(type(i) is int for i in v)
    )
    return tuple(i in chosen if chosen is not None else (i + 1) % step == 0 for i in range(f["layers"]))


_LLAMA4 = Family(
    "chunks of attention, layers without rotation whose queries grow with their position, rotation of pairs, query and key norms "
    "without gains behind it, weighted inputs of experts, a shared one",
    LLAMA.but(
        also={f"mlp.{m}_proj": f"feed_forward.{m}_proj" for m in ("gate", "up", "down")},
        router="feed_forward.router",
        shared="feed_forward.shared_expert.",
    ).stacked(
        gate_proj=Stack("feed_forward.experts.gate_up_proj", _SIDES, 0),
        up_proj=Stack("feed_forward.experts.gate_up_proj", _SIDES, 1),
        down_proj=Stack("feed_forward.experts.down_proj", ("e", "i", "h")),
    ),
    {
        **biases(),
        "intermediate": size("intermediate_size_mlp", 16384),
        "qk_norm": when("use_qk_norm", "head", True),
        "qk_norm_gain": False,
        "qk_norm_late": True,
    },
    (
        rotation("interleaved"),
        unturned("no_rope_layers", "no_rope_layer_interval", 4),
        _llama4,
        routed(
            "num_local_experts",
            scores="sigmoid",
            weigh_inputs=True,
            shared=size("intermediate_size"),
            sparse=_llama4_sparse,
        ),
    ),
    defaults={
        "rms_norm_eps": 1e-5,
        "head_dim": 128,
        "num_key_value_heads": 8,
        "num_local_experts": 16,
        "num_experts_per_tok": 1,
        "rope_theta": 500000.0,
    },
)


def _late_windows(r: Reader, f: Fields) -> tuple[int, ...]:
    """Windows in the layers from `max_window_layers` on, unless `layer_types` says otherwise."""
    wide = window_of(r, 4096)
    types = r.layer_list("layer_types", f["layers"], {"full_attention": 0, "sliding_attention": wide})
    most = r.count("max_window_layers", 62)
    return tuple(types) if types is not None else tuple(wide if i >= most else 0 for i in range(f["layers"]))


_DOTS1 = Family(
    "routed experts as in deepseek_v3 behind plain attention, per-head query and key norms, windows from a layer on",
    MOE,
    {**biases(), "qk_norm": "head", "windows": _late_windows},
    (rotation(), grouped(1, scores="sigmoid", group_score="top2", normalise=flag("norm_topk_prob"), correction=True)),
    aliases=_ROUTED,
    defaults={"first_k_dense_replace": 0, "num_key_value_heads": 32},
)


def _rotary_share(r: Reader, f: Fields) -> Fields:
    """Released files give the turned lanes, not their share."""
    lanes = r.size("rotary_dim", f["head_dim"]) or 1
    return rotation(part=min(1.0, lanes / (f["head_dim"] or 1)))(r, f)


_MINIMAX_M2 = Family(
    "routed experts with sigmoid scores and a correction bias, query and key norms over the whole projection, rotation of a part of each "
    "head",
    BLOCK_SPARSE.but(correction="block_sparse_moe.e_score_correction_bias"),
    {"qk_norm": "full"},
    (_rotary_share, routed("num_local_experts", scores="sigmoid", normalise=True, correction=True)),
    defaults={"head_dim": 128, "num_key_value_heads": 8, "rope_theta": 5e6},
    aliases={"num_experts": "num_local_experts"},
)
_GRANITE_SHARED = _GRANITEMOE.like(
    "granitemoe with a shared expert",
    parts=(lambda r, f: {"experts": replace(f["experts"], shared=r.count("shared_intermediate_size", 0))},),
    names=_GRANITEMOE.names.but(shared__gate_up="shared_mlp.input_linear", shared__down="shared_mlp.output_linear"),
)

FAMILIES: dict[str, Family] = {
    "mixtral": _MIXTRAL,
    "qwen2_moe": _QWEN2_MOE,
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl_moe_text": _QWEN3_VL_MOE,
    "deepseek_v2": _DEEPSEEK2,
    "deepseek_v3": _DEEPSEEK3,
    "kimi_k2": _DEEPSEEK3.like("a deepseek_v3 of one group", defaults={"n_group": 1}),
    "glm4_moe": _GLM4_MOE,
    "gpt_oss": _GPT_OSS,
    "olmoe": _OLMOE,
    "phimoe": _PHIMOE,
    "granitemoe": _GRANITEMOE,
    "dbrx": _DBRX,
    "llama4_text": _LLAMA4,
    "dots1": _DOTS1,
    "minimax_m2": _MINIMAX_M2,
    "granitemoeshared": _GRANITE_SHARED,
}
