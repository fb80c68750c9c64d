"""Models of an encoder and a decoder that attends to its result: a family for either side.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from dataclasses import replace

from tx8fast.frontend.hf.families.encoders import BIASED
from tx8fast.frontend.hf.family import ACTIVATIONS, Family, Fields, Names, Part, Read, root_of_width, size
from tx8fast.frontend.hf.reader import MAX_LAYERS, Reader
from tx8fast.frontend.hf.rope import waves_at
from tx8fast.frontend.hf.spec import Relative

#: feed_forward_proj -> whether it is gated, and its activation: the library takes "gated-gelu" for the approximation by a tanh
_FEEDS = {
    **{
        before + name: (bool(before), a) for name, a in ACTIVATIONS.items() if a != "xielu" for before in ("", "gated-")
    },
    "gated-gelu": (True, "gelu_tanh"),
}

_EPS = 1e-5  # of the norms of these models; the library takes no other


def _t5(decoder: bool, each: bool = False, scaled: bool = True) -> Read:
    """`each`: every layer has a table of distances; `scaled`: tied heads are scaled."""

    def read(r: Reader, f: Fields) -> Fields:
        gated, activation = r.text("feed_forward_proj", "relu", _FEEDS) or (False, "relu")
        buckets, distance = (
            r.size(f"relative_attention_{k}", d) or d for k, d in (("num_buckets", 32), ("max_distance", 128))
        )
        named = r.text("dense_act_fn", None, ACTIVATIONS)
        if named not in (None, activation) or r.flag("is_gated_act", gated) != gated:
            r.problems.append(
                f"keys 'dense_act_fn' {r.value('dense_act_fn')!r} and 'is_gated_act' {r.value('is_gated_act')!r} are not those of "
                f"feed_forward_proj {r.value('feed_forward_proj', 'relu')!r}"
            )
        fields: Fields = {
            "gated": gated,
            "activation": activation,
            "attention_scale": 1.0,
            "relative": Relative(buckets, distance, not decoder, each),
        }
        if gated:
            fields["renamed"] = (("mlp.up_proj", f"layer.{1 + decoder}.DenseReluDense.wi_1"),)
        if decoder:
            # files of newer versions say that all heads are tied, and name apart what the key was a sign of
            tied = r.flag("scale_decoder_outputs", r.flag("tie_word_embeddings", True))
            fields |= {
                "tied": tied and scaled,
                "logits_divisor": (f["hidden"] or 1) ** 0.5 if tied and scaled else 1.0,
                "loose_head": True,
            }
        return fields

    return read


def _t5_names(side: str) -> Names:
    feed = f"layer.{1 + (side == 'decoder')}."
    modules = {
        **{f"self_attn.{p}_proj": f"layer.0.SelfAttention.{p}" for p in "qkvo"},
        "attn_norm": "layer.0.layer_norm",
        "relative": "layer.0.SelfAttention.relative_attention_bias",
        "mlp.gate_proj": feed + "DenseReluDense.wi_0",
        "mlp.up_proj": feed + "DenseReluDense.wi",
        "mlp.down_proj": feed + "DenseReluDense.wo",
        "mlp_norm": feed + "layer_norm",
    }
    outer = {"embed_tokens": "shared", "norm": f"{side}.final_layer_norm"}
    if side == "decoder":
        modules |= {
            **{f"cross_attn.{p}_proj": f"layer.1.EncDecAttention.{p}" for p in "qkvo"},
            "cross_norm": "layer.1.layer_norm",
        }
        outer["lm_head"] = "lm_head"
    return Names(("",), side + ".block.{}.", modules, outer)


def _decoder_layers(r: Reader, f: Fields) -> Fields:
    """A decoder may have other layers than the encoder, which the general keys count; all of them are alike."""
    many = r.size("num_decoder_layers", f["layers"], MAX_LAYERS) or 0
    return {"layers": many, "windows": (0,) * many, "sparse": (False,) * many, "rope_of": (-1,) * many}


_T5_KEYS = {
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
    "head_dim": "d_kv",
    "intermediate_size": "d_ff",
    "rms_norm_eps": "layer_norm_epsilon",
}
_T5_DEFAULTS = {
    "layer_norm_epsilon": 1e-6,
    "d_kv": 64,
    "vocab_size": 32128,
    "d_model": 512,
    "d_ff": 2048,
    "num_layers": 6,
    "num_heads": 8,
}
_T5_ENCODER = Family(
    "an encoder; learned summands of scores by distance, unscaled scores",
    _t5_names("encoder"),
    {},
    (_t5(False),),
    keys=_T5_KEYS,
    defaults=_T5_DEFAULTS,
    encoder=True,
)
_T5_DECODER = Family(
    "a decoder that attends to an encoder's result; learned summands of scores by distance, tied heads scaled",
    _t5_names("decoder"),
    {"cross": True},
    (_decoder_layers, _t5(True)),
    keys=_T5_KEYS,
    defaults=_T5_DEFAULTS,
)


def _side_names(side: str, prefix: str, **outer: str) -> Names:
    modules = {
        **{f"self_attn.{p}_proj": f"self_attn.{p}_proj" for p in "qkv"},
        "self_attn.o_proj": "self_attn.out_proj",
        "attn_norm": "self_attn_layer_norm",
        "mlp.up_proj": "fc1",
        "mlp.down_proj": "fc2",
        "mlp_norm": "final_layer_norm",
    }
    if side == "decoder":
        modules |= {
            **{f"cross_attn.{p}_proj": f"encoder_attn.{p}_proj" for p in "qkv"},
            "cross_attn.o_proj": "encoder_attn.out_proj",
            "cross_norm": "encoder_attn_layer_norm",
        }
    return Names((prefix, ""), side + ".layers.{}.", modules, outer)


def _side_keys(side: str) -> dict[str, str]:
    return {
        "hidden_size": "d_model",
        "num_hidden_layers": f"{side}_layers",
        "num_attention_heads": f"{side}_attention_heads",
        "intermediate_size": f"{side}_ffn_dim",
        "hidden_act": "activation_function",
    }


def _bart(side: str, honours: str, first: bool, waves: Part | None = None) -> Family:
    """`first`: norms in front of the parts, and one behind the last layer; `waves`: computed positions, and no norm behind them."""
    decoder = side == "decoder"
    outer = {
        "embed_tokens": "shared",
        "own_tokens": side + ".embed_tokens",
        "positions": side + ".embed_positions",
    }
    outer |= {} if waves is not None else {"embed_norm": side + ".layernorm_embedding"}
    outer |= {"norm": side + ".layer_norm"} if first else {}
    outer |= {"lm_head": "^lm_head", "logits_bias": "^final_logits_bias"} if decoder else {}
    return Family(
        f"{'a decoder that attends to the result of' if decoder else 'an encoder,'} {honours}",
        _side_names(side, "model.", **outer),
        {
            **BIASED,
            "norm_eps": _EPS,
            "positions": size("max_position_embeddings", 1024),
            "position_offset": 2,
            "embedding_norm": waves is None,
            "norm_positions": True,
            "post_norm": not first,
            "final_norm": first,
            "embedding_scale": root_of_width("scale_embedding"),
            "cross": decoder,
        },
        () if waves is None else (waves,),
        keys=_side_keys(side),
        norm="layer",
        encoder=not decoder,
        defaults={
            "activation_function": "gelu",
            "tie_word_embeddings": True,
            "d_model": 1024,
            "vocab_size": 50265,
            f"{side}_layers": 12,
            f"{side}_attention_heads": 16,
            f"{side}_ffn_dim": 4096,
        },
    )


def _sound(r: Reader, f: Fields) -> Fields:
    rows = r.size("max_source_positions", 1500) or 1500
    return {"positions": rows, "frames": (r.size("num_mel_bins", 80) or 80, 2 * rows)}


#: the library reads `scale_embedding` and does not use it
_WHISPER = {"activation_function": "gelu", "tie_word_embeddings": True, "d_model": 384, "vocab_size": 51865}
_WHISPER_SIDE = {"layers": 4, "attention_heads": 6, "ffn_dim": 1536}
_WHISPER_ENCODER = Family(
    "an encoder of sound; two convolutions, stored positions, keys without biases",
    _side_names(
        "encoder",
        "model.",
        conv1="encoder.conv1",
        conv2="encoder.conv2",
        positions="encoder.embed_positions",
        norm="encoder.layer_norm",
    ),
    {**BIASED, "norm_eps": _EPS, "key_bias": False},
    (_sound,),
    keys=_side_keys("encoder"),
    norm="layer",
    encoder=True,
    defaults={**_WHISPER, **{f"encoder_{k}": v for k, v in _WHISPER_SIDE.items()}},
)
_WHISPER_DECODER = Family(
    "a decoder that attends to the result of an encoder; learned positions, keys without biases",
    _side_names(
        "decoder",
        "model.",
        embed_tokens="decoder.embed_tokens",
        positions="decoder.embed_positions",
        norm="decoder.layer_norm",
        lm_head="^proj_out",
    ),
    {
        **BIASED,
        "norm_eps": _EPS,
        "key_bias": False,
        "positions": size("max_target_positions", 448),
        "cross": True,
        "source": size("max_source_positions", 1500),
    },
    keys=_side_keys("decoder"),
    norm="layer",
    defaults={**_WHISPER, **{f"decoder_{k}": v for k, v in _WHISPER_SIDE.items()}},
)
_WIDE = {"vocab_size": 250112, "d_ff": 1024, "num_layers": 8, "num_heads": 6, "feed_forward_proj": "gated-gelu"}


def _wide(side: str, honours: str, scores: Part) -> Family:
    """A relative of T5 that reads scores and heads in its own way."""
    if side == "encoder":
        return replace(_T5_ENCODER.like(honours, defaults=_WIDE), parts=(scores,))
    return replace(_T5_DECODER.like(honours, defaults=_WIDE), parts=(_decoder_layers, scores))


#: positions from 0 on, which files may store
_FROM_0 = waves_at(0, position_offset=0)


def _same_words(r: Reader, f: Fields) -> Fields:
    if (words := r.size("decoder_vocab_size", f["vocab"])) != f["vocab"]:
        r.problems.append(f"decoder_vocab_size {words} differs from vocab_size {f['vocab']}, supported: one vocabulary")
    return {}


def _marian(side: str, honours: str) -> Family:
    family = _bart(side, honours, False, _FROM_0)
    return family.like(
        family.honours,
        parts=(_same_words,),
        fixed={"share_encoder_decoder_embeddings": (True,)},
        defaults={"vocab_size": 58101},
    )


def _m2m(side: str, honours: str) -> Family:
    """Embeddings are scaled unless the file says no; positions, which are never stored, count from behind the padding token's number, 1."""
    family = _bart(side, honours, True, waves_at(1, positions=0, position_offset=2))
    outer = {k: v for k, v in family.names.outer.items() if k not in ("positions", "logits_bias")}
    return replace(
        family,
        names=replace(family.names, outer=outer),
        defaults={**family.defaults, "activation_function": "relu", "vocab_size": 128112, "scale_embedding": True},
        fixed={"pad_token_id": (1,)},
    )


FAMILIES: dict[str, Family] = {
    "t5.encoder": _T5_ENCODER,
    "t5.decoder": _T5_DECODER,
    "mt5.encoder": _T5_ENCODER.like("as t5", defaults=_WIDE),
    "mt5.decoder": _wide("decoder", "as t5, heads are not scaled", _t5(True, scaled=False)),
    "umt5.encoder": _wide("encoder", "as t5 with a table of distances in every layer", _t5(False, each=True)),
    "umt5.decoder": _wide("decoder", "as t5 with a table of distances in every layer", _t5(True, each=True)),
    "bart.encoder": _bart("encoder", "norms behind the parts", False),
    "bart.decoder": _bart("decoder", "an encoder; norms behind the parts, biases of the logits", False),
    "mbart.encoder": _bart("encoder", "norms in front of the parts", True),
    "mbart.decoder": _bart("decoder", "an encoder; norms in front of the parts, biases of the logits", True),
    "marian.encoder": _marian("encoder", "computed positions, norms behind the parts"),
    "marian.decoder": _marian(
        "decoder", "an encoder; computed positions, norms behind the parts, biases of the logits"
    ),
    "pegasus.encoder": _bart("encoder", "computed positions, norms in front of the parts", True, _FROM_0),
    "pegasus.decoder": _bart(
        "decoder", "an encoder; computed positions, norms in front of the parts, biases of the logits", True, _FROM_0
    ),
    "m2m_100.encoder": _m2m("encoder", "computed positions, norms in front of the parts"),
    "m2m_100.decoder": _m2m("decoder", "an encoder; computed positions, norms in front of the parts"),
    "whisper.encoder": _WHISPER_ENCODER,
    "whisper.decoder": _WHISPER_DECODER,
}
