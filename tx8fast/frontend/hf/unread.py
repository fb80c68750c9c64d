"""Tensors of a checkpoint that nothing reads: whether the model would give other results with them.

May import: errors, frontend.hf. Must not: read tensor bytes; know the IR.

A bias of a module whose weight is read, and a norm beside modules that are, always change the results: the checkpoint is of another
family, or its config leaves out a key. Of other tensors of the layers nobody can tell by the name; they are told. So are heads that are
left away: the program ends in front of them.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable

from tx8fast.errors import UnreadHeadWarning, UnreadTensorWarning
from tx8fast.frontend.hf.slots import names_of
from tx8fast.frontend.hf.spec import ModelConfig

#: tables that are computed, masks, counters, constants of activations; a T5's places between two sequences, which it has none of
_COMPUTED = re.compile(
    r"inv_freq$|rotary_emb\.|rope_freqs|rot_embd|position_ids$|masked_bias$|causal_mask$|num_batches_tracked$|act_fn\.(beta|eps)$"
    r"|EncDecAttention\.relative_attention_bias|self_attn\.(slope_rate|(query|key|diagonal)_decay)$"
)
#: beside quantised weights: scales of activations and of caches, orders of features, shapes, names of formats
_BESIDE_WEIGHTS = re.compile(
    r"(input|output|act|[qkv]|kv|prob|prob_output)_(scale|zero_point|global_scale|scale_ub|amax)(_ub)?$|g_idx$|weight_shape$"
    r"|weight_format$|(input|weight)_quantizer\.|qzeros$"
)
#: a layer behind the last that predicts further tokens
_AHEAD = re.compile(r"\b(eh_proj|enorm|hnorm|shared_head|nextn)\b")
#: modules that look at images or sound, or predict further tokens, below the prefix of a language model
_ELSEWHERE = re.compile(r"vis|image|audio|speech|modal|mm_|project|connector|tower|sampl|mtp|lm_head|encoder|decoder")
#: modules behind a model, of a task of their own; that of the words may be stored beside an embedding that serves as it
_HEAD = re.compile(
    r"(score|classifier|pre_classifier|qa_outputs|head|cls|predictions|(?!lm_)\w+_(predictions|head|classifier)"
    r"|vocab_(transform|layer_norm|projector)|decoder(?=\.(\d+|bias|weight)\b)|lm_head(?=\.(dense|layer_norm|decoder)\b))\."
)
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_SHOWN = 6


def check_unread(c: ModelConfig, prefix: str, stored: Iterable[str], is_read: Callable[[str], bool]) -> list[str]:
    """Return what is wrong with the tensors that are not read, tell of those that may matter. `stored`: the names of all."""
    stored = list(stored)
    read = [k for k in stored if is_read(k)]
    modules = {_parent(k) for k in read}
    around = {_parent(m) for m in modules}
    strict, loose = [], []
    place = _Layers(c, prefix, stored, read)
    for key in stored:
        if is_read(key) or _COMPUTED.search(key) or _BESIDE_WEIGHTS.search(key):
            continue
        module, own = _parent(key), key.rpartition(".")[2]
        inside = place.inside(key)
        if inside is None:
            continue
        direct = inside or (
            not c.encoder and _parent(module) == prefix.rstrip(".") and not _ELSEWHERE.search(key[len(prefix) :])
        )
        if own.endswith("bias") and module in modules:
            # quantisers of an older time wrote biases of zero beside every matrix that they packed
            (loose if module + ".qweight" in stored else strict).append(key)
        elif own in ("weight", "bias") and direct and _is_norm(module) and _parent(module) in around:
            strict.append(key)
        elif own == "bias" and module + ".weight" not in stored:
            continue  # a mask of old checkpoints, below the module that it belongs to
        elif inside or (direct and prefix):
            loose.append(key)
    if loose:
        warnings.warn(
            f"nothing of a {c.model_type} reads {_patterns(loose)}, which the checkpoint has: compare results with the original's",
            UnreadTensorWarning,
            stacklevel=2,
        )
    heads = [
        k
        for k in stored
        if not is_read(k) and not _COMPUTED.search(k) and _HEAD.match(k) and not (prefix and k.startswith(prefix))
    ]
    if heads:
        warnings.warn(
            f"the checkpoint has a head that is left away, {_patterns(heads)}: a program of a {c.model_type} gives what goes into it",
            UnreadHeadWarning,
            stacklevel=2,
        )
    if not strict:
        return []
    source = "the file's metadata" if c.gguf else "config.json"
    return [
        f"nothing of a {c.model_type} reads {_patterns(strict)}, and without them results are not the model's: it is of another family "
        f"(model_type of {source}, or --as), or {source} lacks the key that says it has them"
    ]


class _Layers:
    """Tells where in the model a tensor is."""

    def __init__(self, c: ModelConfig, prefix: str, stored: list[str], read: list[str]) -> None:
        before, _, _ = (prefix + names_of(c).layer).partition("{}")
        self.c, self.before, self.read = c, before, set(read)
        self.numbers = {n: i for i, n in enumerate(c.stored_layers or range(c.layers))}
        self.ahead = {self.number(k) for k in stored if _AHEAD.search(k)}

    def number(self, key: str) -> int | None:
        if not key.startswith(self.before):
            return None
        text = key[len(self.before) :].partition(".")[0]
        return int(text) if text.isascii() and text.isdigit() else None

    def inside(self, key: str) -> bool | None:
        """Return whether it is in a layer that is compiled; None if it is in one that gives what it has to no result."""
        n = self.number(key)
        if n is None:
            return False
        i = self.numbers.get(n)
        if i is None:
            return None if self.c.stored_layers or n in self.ahead else True
        c = self.c
        lenders = (*c.keys_from[i : i + 1], *(c.shared.lender[i : i + 1] if c.shared is not None else ()))
        # what another layer lends, files may hold once more
        rest = key[len(self.before) + len(str(n)) :]
        return None if any(j >= 0 and f"{self.before}{j}{rest}" in self.read for j in lenders) else True


def _parent(key: str) -> str:
    return key.rpartition(".")[0]


def _is_norm(module: str) -> bool:
    name = module.rpartition(".")[2].lower()
    return "norm" in name or name.startswith("ln_")


def _patterns(keys: list[str]) -> str:
    """Return "'model.layers.*.q_proj.bias' (32)", ..: names that differ in numbers alone, together."""
    found = Counter(_NUMBER.sub("*", key) for key in keys)
    shown = ", ".join(f"'{p}'" + (f" ({n})" if n > 1 else "") for p, n in list(found.items())[:_SHOWN])
    return shown + (f" and {len(found) - _SHOWN} more such" if len(found) > _SHOWN else "")
