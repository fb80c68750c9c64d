"""Models as torch exports them today: tiny transformers of random weights, against onnxruntime. Skipped without torch."""

from __future__ import annotations

import numpy as np
import pytest

import tx8fast

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("onnxscript")
ort = pytest.importorskip("onnxruntime")

SIZES = {
    "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
FAMILIES = {
    "llama": ("Llama", {}), "gemma2": ("Gemma2", {"head_dim": 16, "sliding_window": 8}), "gpt_neox": ("GPTNeoX", {}),
    "phi3": ("Phi3", {}), "olmo2": ("Olmo2", {}),
}  # fmt: skip
#: at most this many launches: idioms that are not recognised show up here
LAUNCHES = {"llama": 40, "gemma2": 60, "gpt_neox": 60, "phi3": 65, "olmo2": 55}


@pytest.mark.parametrize("opset", [18, 20, 23])
@pytest.mark.parametrize("family", FAMILIES)
def test_prefill(family, opset, tmp_path):
    name, extra = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, name + "Config")(**SIZES, **extra)
    model = getattr(transformers, name + "ForCausalLM")(config).eval()

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(ids, use_cache=False).logits

    path = tmp_path / "model.onnx"
    ids = torch.randint(3, 200, (1, 16))
    with torch.no_grad():
        torch.onnx.export(Logits(), (ids,), str(path), dynamo=True, opset_version=opset, external_data=False,
                          verbose=False, input_names=["ids"], output_names=["logits"])  # fmt: skip
    feed = {"ids": ids.numpy()}
    (want,) = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed)
    for dtype, limit in (("fp32", 1e-4), ("bf16", 2e-2)):
        program = tx8fast.compile(path, dtype=dtype)
        got = program.run(feed)["logits"]
        assert np.abs(got - want).max() <= limit * np.abs(want).max()
        assert len(program.program.launches) <= LAUNCHES[family]
