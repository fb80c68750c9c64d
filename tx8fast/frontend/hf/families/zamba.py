"""Decoders whose scans have a few transformer layers in front of them that many places share.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from tx8fast.frontend.hf.families.hybrid import least
from tx8fast.frontend.hf.families.names import OUTER
from tx8fast.frontend.hf.families.recurrent import mamba_keys
from tx8fast.frontend.hf.family import SILU, Family, Fields, Names
from tx8fast.frontend.hf.reader import Reader
from tx8fast.frontend.hf.rope import rotation
from tx8fast.frontend.hf.spec import Shared
from tx8fast.frontend.hf.states import Scan


def _zamba2(r: Reader, f: Fields) -> Fields:
    """Layers shared in front of some scans: of so many, one after the other."""
    layers, hidden = f["layers"], f["hidden"] or 1
    usual = [0, *([0] * 5 + [1]) * 7, *[0] * 4, 1, *[0] * 3, 1, 0, 0]
    kinds = r.layer_list("layers_block_type", layers, {"mamba": 0, "linear_attention": 0, "hybrid": 1})
    kinds = kinds or [usual[i] if i < len(usual) else 0 for i in range(layers)]
    places, many = [i for i, kind in enumerate(kinds) if kind], r.size("num_mem_blocks", 1) or 1
    number = {i: n for n, i in enumerate(places)}
    lender = tuple(places[number[i] % many] if kind else -1 for i, kind in enumerate(kinds))
    lanes = max(1, 2 * hidden // f["heads"])
    if 2 * hidden % f["heads"]:
        r.problems.append(f"hidden_size {hidden} twice is not a multiple of num_attention_heads {f['heads']}")
    heads = r.size("n_mamba_heads", 8) or 1
    inner = int((r.number("mamba_expand", 2) or 1) * hidden)
    if inner % heads:
        r.problems.append(f"mamba_expand times hidden_size {inner} is not a multiple of n_mamba_heads {heads}")
    groups = r.size("mamba_ngroups", 1) or 1
    found = Scan(
        heads,
        inner // heads,
        r.size("mamba_d_state", 64) or 1,
        groups,
        r.size("mamba_d_conv", 4) or 1,
        r.size("chunk_size", 256) or 1,
        limits=least(r, f),
        norm_groups=groups,
    )
    fields = rotation(width=lambda r, f: lanes)(r, f) if r.flag("use_mem_rope") else {"rope_of": (-1,) * layers}
    shared = Shared(
        lender,
        tuple(number.get(i, -1) for i in range(layers)),
        r.size("adapter_rank", 128) or 1,
        r.flag("use_shared_attention_adapter"),
    )
    return {
        **fields,
        "keepers": (found,),
        "fed": (False,) * layers,
        "head_dim": lanes,
        "attention_scale": (lanes / 2) ** -0.5,
        "mixers": tuple("shared+scan" if kind else "scan" for kind in kinds),
        "shared": shared,
    }


_ZAMBA2 = Family(
    "state-space layers, in front of some of them one of a few transformer layers that these places share, with residuals of low rank of their "
    "own",
    Names(
        ("model.",),
        "layers.{}.",
        {
            "shared": "shared_transformer.",
            "shared.gate_up": "feed_forward.gate_up_proj",
            "scan": "mamba",
            "attn_norm": "input_layernorm",
            "behind.scan": "mamba_decoder.mamba",
            "behind.attn_norm": "mamba_decoder.input_layernorm",
        },
        {**OUTER, "norm": "final_layernorm"},
    ),
    {},
    (_zamba2,),
    keys={"head_dim": "width of a head"},
    inner=4,
    defaults={"rms_norm_eps": 1e-5, "hidden_act": "gelu", "tie_word_embeddings": True},
    fixed={
        "add_bias_linear": (False,),
        "use_conv_bias": (True,),
        "rms_norm_eps": (1e-5,),
        "use_long_context": (False,),
        "tie_word_embeddings": (True,),  # else every place has a layer of its own, too
    },
)


def _zamba(r: Reader, f: Fields) -> Fields:
    """One layer shared in front of some scans, every time the same."""
    layers, hidden = f["layers"], f["hidden"] or 1
    every, first = r.size("attn_layer_period", 6) or 1, r.count("attn_layer_offset", 4)
    kinds = r.layer_list("layers_block_type", layers, {"mamba": 0, "linear_attention": 0, "hybrid": 1})
    # the library counts from the fourth layer on; the third has one in front whatever the period is
    kinds = kinds or [int(i == 2 or (i > 2 and (i - 3) % every == first)) for i in range(layers)]
    if layers < 3 and r.value("layers_block_type") is None:
        r.problems.append(f"num_hidden_layers {layers} without layers_block_type, required: at least 3")
    if r.value("attention_hidden_size", 2 * hidden) != 2 * hidden:
        r.problems.append(
            f"attention_hidden_size is {r.value('attention_hidden_size')!r}, required: twice hidden_size {hidden}"
        )
    lanes = r.size("head_dim", max(1, 2 * hidden // f["heads"])) or 1
    place = kinds.index(1) if 1 in kinds else -1
    return {
        "fed": (False,) * layers,
        "head_dim": lanes,
        "attention_scale": (lanes / 2) ** -0.5,
        "mixers": tuple("shared+selective" if kind else "selective" for kind in kinds),
        "shared": Shared(tuple(place if kind else -1 for kind in kinds), (0,) * layers, 0, False),
    }


_ZAMBA = Family(
    "selective state-space layers of several heads, in front of some of them one transformer layer that all these places share",
    Names(
        ("model.",),
        "layers.{}.",
        {
            "selective": "mamba",
            "selective.by_head": "mamba",
            "attn_norm": "input_layernorm",
            "behind.selective": "mamba_decoder.mamba",
            "behind.attn_norm": "mamba_decoder.input_layernorm",
        },
        {**OUTER, "norm": "final_layernorm", "shared": "shared_transf."},
        # the place under whose name the library saves it was not always the first
        written={r"layers\.\d+\.shared_transf\.": "shared_transf."},
    ),
    {},
    (
        mamba_keys(heads="n_mamba_heads"),
        _zamba,
    ),
    keys={"head_dim": "attention_head_dim"},
    defaults={"rms_norm_eps": 1e-5, "hidden_act": "gelu", "tie_word_embeddings": True, "num_key_value_heads": 16},
    fixed={
        "hidden_mamba_act": SILU,
        "tie_word_embeddings": (True,),  # else every place has a layer of its own, too
    },
)

FAMILIES: dict[str, Family] = {"zamba": _ZAMBA, "zamba2": _ZAMBA2}
