"""What handlers take for an attribute that is not given is what the operator's declaration says, in every version of it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import pytest
from frontend.onnx.read_attributes import COMPUTED, PRESENT, REQUIRED, Read, reads
from onnx import defs, helper

from tx8fast.frontend.onnx import _handlers

STANDARD, MICROSOFT = "", "com.microsoft"
NEWEST = 99
MISSING = object()

# attribute, or operator.attribute -> the value that the declaration gives in words alone
IN_WORDS = {
    "Attention.scale": 0.0,  # 1 / sqrt(head size), which the handlers take for 0
    "Attention.softmax_precision": 0,  # undefined: the element type of the operands
    "Attention.mask_filter_value": -10000.0, "Attention.do_rotary": 0, "Attention.past_present_share_buffer": 0,
    "Attention.qkv_hidden_sizes": (),
    "MultiHeadAttention.scale": 0.0, "MultiHeadAttention.mask_filter_value": -10000.0,
    "GroupQueryAttention.scale": 0.0, "GroupQueryAttention.softcap": 0.0, "GroupQueryAttention.do_rotary": 0,
    "GroupQueryAttention.rotary_interleaved": 0, "GroupQueryAttention.kv_cache_bit_width": 0,
    "RotaryEmbedding.num_heads": 0, "RotaryEmbedding.rotary_embedding_dim": 0, "RotaryEmbedding.interleaved": 0,
    "RotaryEmbedding.is_packed_batching": 0, "RotaryEmbedding.scale": 1.0,
    "RNN.clip": 0.0, "GRU.clip": 0.0, "LSTM.clip": 0.0,  # none
    "Compress.axis": 0,  # read only where it is given
    "Split.axis": 0, "LpPool.kernel_shape": REQUIRED,
}  # fmt: skip
# attribute, or operator.attribute -> why a handler's value is another than declared
OTHERWISE = {
    "Clip.min": "no bound, as is the lowest number", "Clip.max": "no bound, as is the largest number",
    "GRU.direction": "misspelt in the declaration of the first version",
    "GridSample.mode": "the first version calls linear bilinear, the handler takes both",
    "RNN.activations": "declared for two directions, one takes as many as it has",
}  # fmt: skip
# attribute, or operator.attribute -> why no handler reads it
UNREAD = {
    "consumed_inputs": "a hint of the first version", "hidden_size": "the weights have it",
    "output_sequence": "an output that nothing names is not made",
    "activation_alpha": "no activation that is supported has one", "activation_beta": "likewise",
    "stash_type": "sums are in f32 or wider", "QuantizeLinear.precision": "the division is in f32",
    "round_mode": "of a type that is not supported", "Dropout.seed": "training is refused",
    "Dropout.is_test": "programs infer", "TopK.sorted": "unsorted may be in any order",
    "ConvTranspose.kernel_shape": "the weights have it", "DeformConv.kernel_shape": "the weights have it",
    "Constant.value_string": "strings are refused", "Constant.value_strings": "strings are refused",
    "Constant.sparse_value": "refused",
    "MatMulNBits.accuracy_level": "products are as exact as they can be",
    "GroupQueryAttention.q_norm_epsilon": "norms of query and key are refused",
    "GroupQueryAttention.k_norm_epsilon": "likewise", "GroupQueryAttention.qk_norm_epsilon": "likewise",
    "Attention.rotary_embedding_dim": "rotation is refused",
    "EmbedLayerNormalization.mask_index_type": "onnxruntime's result does not depend on it",
}  # fmt: skip


@lru_cache(maxsize=1)
def _declared() -> dict[tuple[str, str], dict[int, dict[str, tuple[bool, Any]]]]:
    """(domain, operator) -> version -> attribute -> (required, default); ONNX's own, onnxruntime's for other operators."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    found: dict[tuple[str, str], dict[int, dict[str, tuple[bool, Any]]]] = {}
    for s in defs.get_all_schemas_with_history():
        attributes = {k: (a.required, _value(a.default_value)) for k, a in s.attributes.items()}
        found.setdefault((s.domain, s.name), {})[s.since_version] = attributes
    for s in get_all_operator_schema():
        if (s.domain, s.name) in found and s.domain != MICROSOFT:
            continue
        attributes = {
            k: (a.required, _value(onnx.AttributeProto.FromString(a._default_value))) for k, a in s.attributes.items()
        }
        found.setdefault((s.domain, s.name), {})[s.since_version] = attributes
    return found


def _value(proto: onnx.AttributeProto) -> Any:
    if not proto.type:
        return MISSING
    value = helper.get_attribute_value(proto)
    if isinstance(value, list):
        return [v.decode() if isinstance(v, bytes) else v for v in value]
    return value.decode() if isinstance(value, bytes) else value


def _wrong(read: Read, opset: int, required: bool, declared: Any, in_words: Any) -> str | None:
    """What is wrong with one read of an attribute, or None."""
    taken = read.taken(opset)
    if taken is PRESENT or required and taken in (REQUIRED, None):
        return None
    if declared is MISSING:
        if required or taken in (None, COMPUTED) or taken == in_words:
            return None
        return f"takes {taken!r}, which is declared nowhere"
    if taken is REQUIRED or taken is COMPUTED or taken is None:
        return f"is declared {declared!r}, the handler has no constant for it"
    same = np.float32(taken) == np.float32(declared) if isinstance(declared, float) else taken == declared
    return None if same else f"takes {taken!r}, is declared {declared!r}"


def _problems(key: tuple[str, str]) -> tuple[list[str], set[str]]:
    """Everything wrong with the attributes of an operator, and the entries of the tables above that were needed."""
    problems, used = [], set()
    versions = _declared()[key]

    def entry(table: dict[str, Any], name: str) -> Any:
        for word in (f"{key[1]}.{name}", name):
            if word in table:
                used.add(word)
                return table[word]
        return None

    for handler in _handlers()[key]:
        read = reads(handler.run)
        for since, attributes in versions.items():
            until = min((v for v in versions if v > since), default=NEWEST)
            if handler.high < since or handler.low >= until:
                continue
            for name, (required, declared) in attributes.items():
                if name not in read:
                    if entry(UNREAD, name) is None:
                        problems.append(f"{key[1]}-{since}: nothing reads '{name}'")
                    continue
                for r in read[name]:
                    in_words = entry(IN_WORDS, name) if declared is MISSING else None
                    wrong = _wrong(r, max(since, handler.low), required, declared, in_words)
                    if wrong and entry(OTHERWISE, name) is None:
                        problems.append(f"{key[1]}-{since}: '{name}' {wrong}")
    return problems, used


@pytest.mark.parametrize("domain", [STANDARD, MICROSOFT])
def test_defaults_are_the_declared_ones(domain):
    keys = sorted(k for k in _handlers() if k[0] == domain and k in _declared())
    assert len(keys) >= {STANDARD: 150, MICROSOFT: 14}[domain]
    problems = [p for k in keys for p in _problems(k)[0]]
    assert not problems, "\n".join(problems)


def test_tables_hold_nothing_that_is_not_needed():
    used = set().union(*(_problems(k)[1] for k in _handlers() if k in _declared()))
    assert {*IN_WORDS, *OTHERWISE, *UNREAD} - used == set()


def test_operators_without_declaration():
    """onnxruntime takes these two in the domain com.microsoft by their names in the standard one."""
    assert {k for k in _handlers() if k not in _declared()} == {
        (MICROSOFT, "LayerNormalization"), (MICROSOFT, "SimplifiedLayerNormalization"),
    }  # fmt: skip


def test_a_read_is_seen_through_calls_closures_and_computed_names():
    by_name = {h.op_type: reads(h.run) for handlers in _handlers().values() for h in handlers if h.domain == MICROSOFT}
    assert [r.taken(1) for r in by_name["SkipLayerNormalization"]["epsilon"]] == [1e-12]
    assert {"transA", "transBatchB", "alpha"} <= set(by_name["FusedMatMul"])
    assert {"local_window_size", "softcap"} <= set(by_name["GroupQueryAttention"])
