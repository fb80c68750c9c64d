"""Encoders of text, the relatives of BERT.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from dataclasses import replace

from tx8fast.frontend.hf.family import Family, Fields, Names, size
from tx8fast.frontend.hf.reader import Reader
from tx8fast.frontend.hf.rope import rotation_by_window
from tx8fast.frontend.hf.spec import Distances, Relative

BIASED = {"gated": False, "qkv_bias": True, "out_bias": True, "mlp_bias": True}
EMBED = "embeddings."


def _behind_padding(r: Reader, f: Fields) -> Fields:
    """Positions count from behind the padding token's number."""
    first = r.count("pad_token_id", 1) + 1
    return {"position_offset": first, "positions": max(1, (r.size("max_position_embeddings", 514) or 1) - first)}


def _near(r: Reader, f: Fields) -> Fields:
    """Layers that see half of `local_attention` tokens each way, but every so many, which see everything."""
    every = r.size("global_attn_every_n_layers", 3) or 3
    window = r.count("local_attention", 128) // 2 + 1
    types = r.layer_list("layer_types", f["layers"], {"full_attention": 0, "sliding_attention": window})
    windows = tuple(types) if types is not None else tuple(window if i % every else 0 for i in range(f["layers"]))
    return {"windows": windows, "unnormed": ("0.attn_norm",)}


_BERT = Family(
    "an encoder; pooler where the checkpoint has it",
    Names(
        ("bert.", ""),
        "encoder.layer.{}.",
        {
            "self_attn.q_proj": "attention.self.query",
            "self_attn.k_proj": "attention.self.key",
            "self_attn.v_proj": "attention.self.value",
            "self_attn.o_proj": "attention.output.dense",
            "mlp.up_proj": "intermediate.dense",
            "mlp.down_proj": "output.dense",
            "attn_norm": "attention.output.LayerNorm",
            "mlp_norm": "output.LayerNorm",
        },
        {
            "embed_tokens": EMBED + "word_embeddings",
            "positions": EMBED + "position_embeddings",
            "token_types": EMBED + "token_type_embeddings",
            "embed_norm": EMBED + "LayerNorm",
            "pooler": "pooler.dense",
        },
    ),
    {
        **BIASED,
        "post_norm": True,
        "final_norm": False,
        "positions": size("max_position_embeddings"),
        "token_types": size("type_vocab_size"),
        "embedding_norm": True,
    },
    defaults={"hidden_act": "gelu", "layer_norm_eps": 1e-12, "type_vocab_size": 2, "max_position_embeddings": 512},
    fixed={"position_embedding_type": ("absolute",), "is_decoder": (False,), "add_cross_attention": (False,)},
    norm="layer",
    encoder=True,
)
_ROBERTA = _BERT.like(
    "an encoder whose positions count from behind the padding token's number; pooler where the checkpoint has it",
    names=_BERT.names.at(("roberta.", ""), "encoder.layer.{}."),
    parts=(_behind_padding,),
)


def _narrow(r: Reader, f: Fields) -> Fields:
    """Words, positions and kinds of tokens of another width than the layers."""
    width = r.size("embedding_size", 128)
    return {"embedding_width": 0 if width == f["hidden"] else width}


def _layers_again(r: Reader, f: Fields) -> Fields:
    """Layers in groups, of which all have the parameters of one; words are brought to the layers' width even where that is their own."""
    layers, groups = f["layers"], r.size("num_hidden_groups", 1) or 1
    if groups > max(1, layers):
        r.problems.append(f"key 'num_hidden_groups' is {groups}, required: at most num_hidden_layers {layers}")
    stored = tuple(int(i / (layers / groups)) for i in range(layers))
    return {"stored_layers": stored, "embedding_width": r.size("embedding_size", 128)}


_ELECTRA = _BERT.like(
    "an encoder whose words may be narrower than its layers",
    names=replace(
        _BERT.names.at(("electra.", ""), "encoder.layer.{}."),
        outer={**{k: v for k, v in _BERT.names.outer.items() if k != "pooler"}, "project_in": "embeddings_project"},
    ),
    parts=(_narrow,),
    defaults={"num_attention_heads": 4},
)
_ALBERT = _BERT.like(
    "an encoder whose layers share their parameters, and whose words are narrower; pooler where the checkpoint has it",
    names=_BERT.names.but(
        also={f"self_attn.{p[0]}_proj": f"attention.{p}" for p in ("query", "key", "value")},
        self_attn__o_proj="attention.dense",
        mlp__up_proj="ffn",
        mlp__down_proj="ffn_output",
        attn_norm="attention.LayerNorm",
        mlp_norm="full_layer_layer_norm",
        outer={"pooler": "pooler", "project_in": "encoder.embedding_hidden_mapping_in"},
    ).at(("albert.", ""), "encoder.albert_layer_groups.{}.albert_layers.0."),
    parts=(_layers_again,),
    defaults={"hidden_act": "gelu_new"},
    fixed={"inner_group_num": (1,)},
)
_MPNET = _BERT.like(
    "an encoder with learned summands of scores by distance, positions that count from 2; pooler where the checkpoint has it",
    names=_BERT.names.but(
        also={f"self_attn.{p}_proj": f"attention.attn.{p}" for p in "qkvo"},
        attn_norm="attention.LayerNorm",
        outer={"relative": "encoder.relative_attention_bias"},
    ).at(("mpnet.", ""), "encoder.layer.{}."),
    fields={"token_types": 0, "relative": Relative(32, 128, both=True)},
    parts=(_behind_padding,),
    fixed={"relative_attention_num_buckets": (32,), "pad_token_id": (1,)},
)
_DISTILBERT = Family(
    "an encoder without kinds of tokens",
    Names(
        ("distilbert.", ""),
        "transformer.layer.{}.",
        {
            **{f"self_attn.{p}_proj": f"attention.{p}_lin" for p in "qkv"},
            "self_attn.o_proj": "attention.out_lin",
            "mlp.up_proj": "ffn.lin1",
            "mlp.down_proj": "ffn.lin2",
            "attn_norm": "sa_layer_norm",
            "mlp_norm": "output_layer_norm",
        },
        {
            "embed_tokens": EMBED + "word_embeddings",
            "positions": EMBED + "position_embeddings",
            "embed_norm": EMBED + "LayerNorm",
        },
    ),
    {
        **BIASED,
        "post_norm": True,
        "final_norm": False,
        "positions": size("max_position_embeddings", 512),
        "embedding_norm": True,
        "norm_eps": 1e-12,
    },
    keys={
        "hidden_size": "dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
    },
    defaults={"activation": "gelu", "dim": 768, "n_heads": 12, "n_layers": 6, "hidden_dim": 3072, "vocab_size": 30522},
    norm="layer",
    encoder=True,
)
_MODERNBERT = Family(
    "an encoder with rotations; layers that see their neighbours only, gated feed-forward parts, norms without biases, none in "
    "front of the first attention",
    Names(
        ("model.", ""),
        "layers.{}.",
        {
            "self_attn.qkv": "attn.Wqkv",
            "self_attn.o_proj": "attn.Wo",
            "mlp.gate_up": "mlp.Wi",
            "mlp.down_proj": "mlp.Wo",
            "attn_norm": "attn_norm",
            "mlp_norm": "mlp_norm",
        },
        {"embed_tokens": EMBED + "tok_embeddings", "embed_norm": EMBED + "norm", "norm": "final_norm"},
    ),
    {"norm_bias": False, "embedding_norm": True},
    (
        _near,
        rotation_by_window(
            {"theta_key": "global_rope_theta", "theta": 160000.0},
            {"theta_key": "local_rope_theta", "theta": 10000.0},
            near_raw={},
        ),
    ),
    keys={"layer_norm_eps": "norm_eps", "hidden_act": "hidden_activation"},
    norm="layer",
    encoder=True,
    defaults={"hidden_activation": "gelu"},
    fixed={"norm_bias": (False,), "attention_bias": (False,), "mlp_bias": (False,)},
)


def _distances(r: Reader, f: Fields) -> Fields:
    kinds = r.raw.get("pos_att_type") or []
    kinds = [k.strip() for k in kinds.lower().split("|")] if type(kinds) is str else kinds
    if type(kinds) is not list or any(k not in ("c2p", "p2c") for k in kinds):
        r.problems.append(f"key 'pos_att_type' is {kinds!r}, supported: p2c, c2p and both")
        kinds = []
    farthest = r.raw.get("max_relative_positions", -1)
    farthest = farthest if type(farthest) is int and farthest >= 1 else r.size("max_position_embeddings", 512) or 1
    buckets = r.raw.get("position_buckets", -1)
    buckets = buckets if type(buckets) is int and buckets >= 1 else 0
    normed = "layer_norm" in str(r.raw.get("norm_rel_ebd", "none")).lower()
    if r.size("embedding_size", f["hidden"]) != f["hidden"]:
        r.problems.append(f"key 'embedding_size' is {r.raw['embedding_size']!r}, supported: that of hidden_size")
    found = Distances(
        buckets or farthest, buckets, farthest, "c2p" in kinds, "p2c" in kinds, r.flag("share_att_key"), normed
    )
    if (f["heads"] or 1) * (f["head_dim"] or 1) != f["hidden"]:
        r.problems.append(
            f"{f['heads']} heads of attention_head_size {f['head_dim']} do not make up hidden_size {f['hidden']}"
        )
    taps = r.count("conv_kernel_size", 0)
    if taps and not taps % 2:
        r.problems.append(f"key 'conv_kernel_size' is {taps}, supported: odd numbers and 0")
    biased = r.flag("position_biased_input", True)
    return {
        "distances": found,
        "mixers": ("disentangled",) * f["layers"],
        "token_types": r.count("type_vocab_size", 0),
        "taps": taps,
        "taps_activation": r.text("conv_act", "tanh", {n: n for n in ("tanh", "gelu", "relu")}) if taps else "tanh",
        "positions": (r.size("max_position_embeddings", 512) or 1) if biased else 0,
        "attention_scale": ((f["head_dim"] or 1) * (1 + len(set(kinds)))) ** -0.5,
    }


_DEBERTA = replace(
    _BERT.like(
        "an encoder whose scores compare contents with distances, too, in both directions; a convolution of the embeddings behind the first layer",
        names=Names(
            ("deberta.", ""),
            "encoder.layer.{}.",
            {
                **{k: v for k, v in _BERT.names.modules.items() if k[-6:-4] not in ("q_", "k_", "v_")},
                **{f"self_attn.{p[0]}_proj": f"attention.self.{p}_proj" for p in ("query", "key", "value")},
                "self_attn.o_proj": "attention.output.dense",
                "self_attn.pos_k_proj": "attention.self.pos_key_proj",
                "self_attn.pos_q_proj": "attention.self.pos_query_proj",
            },
            {k: v for k, v in _BERT.names.outer.items() if k != "pooler"}
            | {
                "distances": "encoder.rel_embeddings",
                "distance_norm": "encoder.LayerNorm",
                "taps": "encoder.conv.conv",
                "taps_norm": "encoder.conv.LayerNorm",
            },
        ),
        parts=(_distances,),
    ),
    fields={k: v for k, v in _BERT.fields.items() if k not in ("positions", "token_types")},
    fixed={"relative_attention": (True,), "conv_groups": (1,)},
    keys={"head_dim": "attention_head_size"},
    defaults={"hidden_act": "gelu", "layer_norm_eps": 1e-7, "type_vocab_size": 0, "relative_attention": False},
)

FAMILIES: dict[str, Family] = {
    "bert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA.like("as roberta"),
    "camembert": _ROBERTA.like("as roberta"),
    "distilbert": _DISTILBERT,
    "electra": _ELECTRA,
    "albert": _ALBERT,
    "mpnet": _MPNET,
    "modernbert": _MODERNBERT,
    "deberta-v2": _DEBERTA,
}
