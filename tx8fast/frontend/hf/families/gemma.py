"""The gemma decoders: gains stored less one, scaled embeddings.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from dataclasses import replace

from tx8fast.frontend.hf.families.names import LLAMA, SANDWICH
from tx8fast.frontend.hf.family import Family, biases, cap, inverse_root
from tx8fast.frontend.hf.rope import rotation, rotation_by_window
from tx8fast.frontend.hf.windows import pattern_layers

_GEMMA = Family(
    "gains stored less one, scaled embeddings",
    LLAMA,
    {**biases(), "norm_offset": 1.0, "embedding_scale": lambda r, f: (f["hidden"] or 1) ** 0.5},
    (rotation(),),
    keys={"hidden_act": "hidden_activation"},
    fixed={"use_bidirectional_attention": (False,)},
    defaults={
        "head_dim": 256,
        "num_key_value_heads": 16,
        "tie_word_embeddings": True,
        "hidden_activation": "gelu_pytorch_tanh",
    },
)
_GEMMA2 = _GEMMA.like(
    "norms before and after each part, soft caps, `query_pre_attn_scalar`, every other layer with a window",
    names=SANDWICH,
    fields={
        "attention_scale": inverse_root("query_pre_attn_scalar", 256),
        "windows": pattern_layers(2, key=""),
        "attention_cap": cap("attn_logit_softcapping", 50.0),
        "logits_cap": cap("final_logit_softcapping", 30.0),
    },
    defaults={"num_key_value_heads": 4},
)
_GEMMA3 = replace(
    _GEMMA2.like(
        "window pattern with its own rotation, per-head query and key norms; of `gemma3` the text half",
        fields={
            "windows": pattern_layers(6),
            "qk_norm": "head",
            "attention_cap": 0.0,  # the library reads `attn_logit_softcapping` and caps nothing
            "logits_cap": cap("final_logit_softcapping"),
        },
        defaults={
            "num_attention_heads": 8,
            "vocab_size": 262208,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 26,
        },
    ),
    parts=(rotation_by_window({"theta": 1e6}, {"theta_key": "rope_local_base_freq"}, near_raw={}),),
)

_VAULT = _GEMMA2.like(
    "a gemma2 without the norms behind each part", names=LLAMA.but(mlp_norm="pre_feedforward_layernorm")
)

#: the library takes either name for the activation by tanh, and reads no newer key
_FIRST = replace(
    _GEMMA,
    keys={},
    fields={**_GEMMA.fields, "activation": "gelu_tanh"},
    fixed={**_GEMMA.fixed, "hidden_act": ("gelu", "gelu_pytorch_tanh")},
)

FAMILIES: dict[str, Family] = {"gemma": _FIRST, "gemma2": _GEMMA2, "vaultgemma": _VAULT, "gemma3_text": _GEMMA3}
