"""Decoders with layer norms and ungated feed-forward parts, the relatives of GPT.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from typing import Any

from tx8fast.frontend.hf.families.names import ATTENTION, GPT, NEOX
from tx8fast.frontend.hf.family import Family, Fields, Names, biases, flag, root_of_width, size
from tx8fast.frontend.hf.reader import Reader
from tx8fast.frontend.hf.rope import rotation, waves_at
from tx8fast.frontend.hf.spec import SHARDS

_ALL_BIASED = {"gated": False, "qkv_bias": True, "out_bias": True, "mlp_bias": True}
_GPT_KEYS = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "intermediate_size": "n_inner",
    "hidden_act": "activation_function",
    "layer_norm_eps": "layer_norm_epsilon",
    "max_position_embeddings": "n_positions",
}


def _unscaled(r: Reader, f: Fields) -> float:
    return f["attention_scale"] if r.flag("scale_attn_weights", True) else 1.0


def _opt(r: Reader, f: Fields) -> Fields:
    before = r.flag("do_layer_norm_before")
    width = r.size("word_embed_proj_dim", f["hidden"])
    return {
        "post_norm": not before,
        "final_norm": before and not r.flag("_remove_final_layer_norm"),
        "embedding_width": 0 if width == f["hidden"] else width,
    }


_GPT2 = Family(
    "learned positions, `[in, out]` matrices",
    GPT,
    {**_ALL_BIASED, "flipped": True, "attention_scale": _unscaled, "positions": size("max_position_embeddings", 1024)},
    keys=_GPT_KEYS,
    norm="layer",
    inner=4,
    defaults={
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "vocab_size": 50257,
        "tie_word_embeddings": True,
        "activation_function": "gelu_new",
        "n_positions": 1024,
    },
    fixed={"add_cross_attention": (False,), "scale_attn_by_inverse_layer_idx": (False,)},
)
_NEOX = Family(
    "parallel or serial residual, rotation of a part of each head, query-key-value interleaved per head",
    NEOX,
    {
        **biases(),
        "gated": False,
        "mlp_bias": True,
        "fused": "groups",
        "parallel": flag("use_parallel_residual"),
        "parts_first": True,
    },
    (rotation(part=0.25),),
    keys={"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
    norm="layer",
    defaults={"hidden_act": "gelu", "attention_bias": True, "use_parallel_residual": True},
)
_BIAS: dict[str, Any] = biases("enable_bias", mlp_bias=flag("enable_bias"))
_OPT = Family(
    "learned positions from row 2, norms before or after, projected embeddings",
    Names(
        ("model.decoder.", "decoder."),
        "layers.{}.",
        {
            **ATTENTION,
            "self_attn.o_proj": "self_attn.out_proj",
            "mlp.up_proj": "fc1",
            "mlp.down_proj": "fc2",
            "attn_norm": "self_attn_layer_norm",
            "mlp_norm": "final_layer_norm",
        },
        {
            "embed_tokens": "embed_tokens",
            "positions": "embed_positions",
            "norm": "final_layer_norm",
            "project_in": "project_in",
            "project_out": "project_out",
            "lm_head": "^lm_head",
        },
    ),
    {**_BIAS, "gated": False, "positions": size("max_position_embeddings", 2048), "position_offset": 2},
    (_opt,),
    keys={"intermediate_size": "ffn_dim", "hidden_act": "activation_function"},
    norm="layer",
    defaults={
        "activation_function": "relu",
        "tie_word_embeddings": True,
        "do_layer_norm_before": True,
        "enable_bias": True,
    },
    fixed={"layer_norm_elementwise_affine": (True,)},
)

_BIGCODE = _GPT2.like(
    "learned positions, one key head for all queries or one each",
    fields={
        "flipped": False,
        "fused": "groups",
        "kv_heads": lambda r, f: 1 if r.flag("multi_query", True) else f["heads"],
    },
    defaults={"activation_function": "gelu_pytorch_tanh"},
)


def _neo_windows(r: Reader, f: Fields) -> tuple[int, ...]:
    window = r.size("window_size", 256) or 0
    types = r.get(
        "attention_types",
        [[["global", "local"], f["layers"] // 2]],
        "a list of [kinds, times]",
        lambda v: (
            type(v) is list
            and all(
                type(p) is list
                and len(p) == 2
                and type(p[0]) is list
                and type(p[1]) is int
                and 0 <= p[1] <= f["layers"]
                for p in v
            )
        ),
    )
    kinds = [kind for names, times in types or [] for _ in range(times) for kind in names]
    if len(kinds) != f["layers"] or not set(kinds) <= {"global", "local"}:
        r.problems.append(f"key 'attention_types' does not name global or local for each of {f['layers']} layers")
        return (0,) * f["layers"]
    return tuple(window if kind == "local" else 0 for kind in kinds)


_NEO = Family(
    "learned positions, every other layer with a window, unscaled scores",
    GPT.but(
        "self_attn.qkv",
        also={f"self_attn.{p}_proj": f"attn.attention.{p}_proj" for p in "qkv"},
        self_attn__o_proj="attn.attention.out_proj",
    ),
    {
        "gated": False,
        "out_bias": True,
        "mlp_bias": True,
        "attention_scale": 1.0,
        "windows": _neo_windows,
        "positions": size("max_position_embeddings", 2048),
    },
    keys={
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "hidden_act": "activation_function",
        "layer_norm_eps": "layer_norm_epsilon",
    },
    norm="layer",
    inner=4,
    defaults={"activation_function": "gelu_new", "tie_word_embeddings": True},
)


def _turned_lanes(r: Reader, f: Fields) -> int | None:
    lanes = r.size("rotary_dim", 64)
    if lanes and f["head_dim"] and lanes > f["head_dim"]:
        r.problems.append(f"key 'rotary_dim' is {lanes}, required: at most the {f['head_dim']} lanes of a head")
    return lanes


_GPTJ = Family(
    "parallel parts behind one norm, rotation of pairs in the first `rotary_dim` lanes, bias of the logits",
    GPT.but(
        "self_attn.qkv",
        "mlp_norm",
        also={f"self_attn.{p}_proj": f"attn.{p}_proj" for p in "qkv"},
        self_attn__o_proj="attn.out_proj",
        mlp__up_proj="mlp.fc_in",
        mlp__down_proj="mlp.fc_out",
    ),
    {"gated": False, "mlp_bias": True, "head_bias": True, "parallel": True, "one_norm": True, "parts_first": True},
    (rotation("interleaved", width=_turned_lanes),),
    keys=_GPT_KEYS,
    norm="layer",
    inner=4,
    defaults={"activation_function": "gelu_new"},
    fixed={"rope_scaling": (), "rope_parameters": ()},
)


def _sharded(r: Reader, f: Fields) -> Fields:
    if (f["hidden"] or 0) % SHARDS:
        r.problems.append(
            f"n_embd {f['hidden']} is not a multiple of the {SHARDS} shards that queries, values and keys are stored in"
        )
    return {}


_CODEGEN = _GPTJ.like(
    "a gptj whose queries, values and keys are stored in four shards",
    names=GPT.but(
        "mlp_norm",
        self_attn__qkv="attn.qkv_proj",
        self_attn__o_proj="attn.out_proj",
        mlp__up_proj="mlp.fc_in",
        mlp__down_proj="mlp.fc_out",
    ),
    fields={"fused": "shards"},
    parts=(_sharded,),
)
_BIOGPT = Family(
    "learned positions from row 2, scaled embeddings",
    _OPT.names.but(outer={"norm": "layer_norm", "lm_head": "^output_projection"}).at(("biogpt.",), "layers.{}."),
    {
        **_ALL_BIASED,
        "norm_eps": 1e-5,  # the library reads `layer_norm_eps` and takes this
        "embedding_scale": root_of_width("scale_embedding", True),
        "positions": size("max_position_embeddings", 1024),
        "position_offset": 2,
    },
    norm="layer",
    defaults={"hidden_act": "gelu", "tie_word_embeddings": True},
)


def _padded(r: Reader, f: Fields) -> Fields:
    """The row of the padding's number is zero, which is none where it stands in front of the first position."""
    pad = r.count("pad_token_id", 1)
    if pad >= f["position_offset"]:
        r.problems.append(f"key 'pad_token_id' is {pad}, supported: 0, 1 (the position of that number would be zero)")
    return {}


_XGLM = _BIOGPT.like(
    "waves as positions, scaled embeddings",
    names=_OPT.names.but(outer={"norm": "layer_norm"}).at(("model.", ""), "layers.{}."),
    parts=(waves_at(1, positions=0, position_offset=2), _padded),
    keys={
        "hidden_size": "d_model",
        "num_attention_heads": "attention_heads",
        "num_hidden_layers": "num_layers",
        "intermediate_size": "ffn_dim",
        "hidden_act": "activation_function",
    },
    defaults={"activation_function": "gelu"},
    fixed={"add_cross_attention": (False,)},
)

FAMILIES: dict[str, Family] = {
    "gpt2": _GPT2,
    "gpt_neox": _NEOX,
    "opt": _OPT,
    "gpt_bigcode": _BIGCODE,
    "gpt_neo": _NEO,
    "gptj": _GPTJ,
    "codegen": _CODEGEN,
    "biogpt": _BIOGPT,
    "xglm": _XGLM,
}
