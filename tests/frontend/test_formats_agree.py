"""One Llama as a configuration, GGUF, ONNX and StableHLO gives programs of nearly the same cycles."""

import pytest

import tx8fast
from tests.support.llama_formats import TOKENS, write_config, write_gguf, write_onnx, write_stablehlo

#: of the cycles of the quickest
WITHIN = 0.03


def cycles(path, **options):
    return tx8fast.compile(path, embed_limit_bytes=0, **options).simulate().cycles


@pytest.mark.parametrize("tp", [None, 4])
@pytest.mark.parametrize("phase, sizes", [("prefill", {"seq": TOKENS}), ("decode", {"past": TOKENS})])
@pytest.mark.slow(but_every=5)
def test_every_format_takes_as_long(tmp_path, phase, sizes, tp):
    pytest.importorskip("gguf")
    pytest.importorskip("jax")
    found = {
        "config": cycles(write_config(tmp_path), phase=phase, tp=tp, **sizes),
        "gguf": cycles(write_gguf(tmp_path), phase=phase, tp=tp, **sizes),
        "onnx": cycles(write_onnx(tmp_path, phase), tp=tp),
        "stablehlo": cycles(write_stablehlo(tmp_path, phase), tp=tp),
    }
    assert max(found.values()) <= (1 + WITHIN) * min(found.values()), found
