"""Families that a config of an unknown `model_type` may belong to, judged by its keys.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tx8fast.errors import Tx8Error
from tx8fast.frontend.hf.families import FAMILIES
from tx8fast.frontend.hf.layer_slots import all_slots
from tx8fast.frontend.hf.spec import ModelConfig

#: keys that say nothing about the architecture: training, generation, bookkeeping
_NEUTRAL = frozenset(
    (
        "architectures",
        "auto_map",
        "model_type",
        "transformers_version",
        "torch_dtype",
        "dtype",
        "use_cache",
        "_name_or_path",
        "initializer_range",
        "pretraining_tp",
        "max_position_embeddings",
        "original_max_position_embeddings",
        "tie_word_embeddings",
        "id2label",
        "label2id",
        "problem_type",
        "return_dict",
        "output_attentions",
        "output_hidden_states",
        "chunk_size_feed_forward",
        "gradient_checkpointing",
        "is_encoder_decoder",
        "task_specific_params",
        "router_aux_loss_coef",
        "output_router_logits",
        "max_sequence_length",
        "_attn_implementation",
        "is_decoder",
        "vocab_size",
        "attn_implementation",
        "aux_loss_alpha",
        "cache_implementation",
        "context_length",
        "ep_size",
        "initial_context_length",
        "input_jitter_noise",
        "max_seq_len",
        "model_max_length",
        "n_ctx",
        "num_nextn_predict_layers",
        "rescale_prenorm_residual",
        "router_jitter_noise",
        "seq_aux",
        "use_mamba_kernels",
    )
)
#: keys that say nothing where there are no windows
_OF_WINDOWS = frozenset({"use_sliding_window", "sliding_window", "max_window_layers"})
_NEUTRAL_ENDS = ("_token_id", "_token_ids", "_dropout", "_pdrop", "dropout_rate", "_init", "_flash_attn")


def look_alikes(
    raw: Mapping[str, Any],
    parse: Callable[[dict[str, Any], set[str]], ModelConfig],
    fits: Callable[[ModelConfig], bool] = lambda config: True,
) -> list[str]:
    """Return the families that `raw` may be of, first those that look at most of its keys; of those that compute the same one.

    `parse(config, seen)` reads a config and adds the keys it looks at to `seen`; `fits(config)`: the tensors that are stored are those of
    it. A family is possible that reads every telling key without a problem, and whose tensors fit; where the config names a class of the
    library, that is no other code, and no other family is. Most keys do not tell a llama from a gemma.
    """
    telling = {k for k, v in raw.items() if v is not None and k not in _NEUTRAL and not k.endswith(_NEUTRAL_ENDS)}
    if raw.get("use_sliding_window") is False:
        telling -= _OF_WINDOWS
    possible: dict[str, ModelConfig] = {}
    looked: dict[str, int] = {}
    for name, family in FAMILIES.items():
        seen: set[str] = set()
        if family.encoder or "hidden_size" not in telling | set(family.keys):
            continue
        try:
            config = parse({**raw, "model_type": name}, seen)
        except Tx8Error:
            continue
        # files may have a key in its usual spelling beside the family's own
        if telling <= seen | set(family.keys) and fits(config):
            possible[name], looked[name] = config, len(seen & set(raw))
    named = _of_class(raw)
    if named is not None:
        return [named] if named in possible else []
    different: list[str] = []
    for name in sorted(possible, key=lambda name: -looked[name]):
        if not any(_same(possible[other], possible[name]) for other in different):
            different.append(name)
    return different


def _same(a: ModelConfig, b: ModelConfig) -> bool:
    """Return whether two models read the same tensors and compute the same of them, whatever they are called."""
    return replace(a, model_type=b.model_type) == b and list(all_slots(a, "")) == list(all_slots(b, ""))


def _of_class(raw: Mapping[str, Any]) -> str | None:
    """Return the family whose class of the library the config names; None if it names none, or code of its own."""
    classes = raw.get("architectures")
    if raw.get("auto_map") or not isinstance(classes, list) or len(classes) != 1 or not isinstance(classes[0], str):
        return None
    found = classes[0].removesuffix("ForCausalLM").lower()
    return next((name for name in FAMILIES if name.replace("_", "").removesuffix("text") == found), None)
