"""One checkpoint by two ways: torch's export is right and takes no more cycles than the builder's graph. Skipped without torch."""

import numpy as np
import pytest

import tx8fast
from tests.support.exports import SAME_COST
from tests.support.family_checkpoints import CONFIGS as MADE
from tests.support.family_checkpoints import VOCAB, make_family
from tests.support.record_families import known
from tests.support.recorded_families import make_recorded

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("onnxscript")
ort = pytest.importorskip("onnxruntime")
#: the shortest table of positions has 32 rows
SEQ = 32
#: cycles of an export over those of its config.json; with slopes the factor of the scores stays beside them, as what they are divided by it is
#: no multiple of a power of two; keys that come before queries join other groups
LIMIT = {"mpt": 1.12, "gptj": 1.04}


@pytest.mark.parametrize(
    "case, opset",
    [*((case, 20) for case in SAME_COST), *((case, 23) for case in ("cohere", "cohere2", "gemma2", "llama"))],
)
def test_an_export_costs_what_its_config_does(case, opset, tmp_path):
    directory = tmp_path / "hf"
    if case in MADE:
        make_family(directory, case)
    else:
        make_recorded(directory, case)
    auto = transformers.AutoModelForCausalLM
    model = auto.from_pretrained(known(directory), dtype=torch.float32).eval()
    seq = min(SEQ, getattr(model.config, "max_position_embeddings", SEQ))

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(ids, use_cache=False).logits

    ids, path = torch.randint(3, min(VOCAB, 30), (1, seq)), tmp_path / "m.onnx"
    with torch.no_grad():
        torch.onnx.export(Logits(), (ids,), str(path), dynamo=True, opset_version=opset, external_data=False, verbose=False,
                          input_names=["input_ids"], output_names=["logits"])  # fmt: skip
    feed = {"input_ids": ids.numpy()}
    (want,) = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed)
    found = tx8fast.compile(path, dtype="fp32").run(feed)["logits"]
    assert np.abs(found - want).max() <= 2e-6 * np.abs(want).max()
    exported, built = tx8fast.compile(path, dtype="bf16"), tx8fast.compile(directory, seq=seq, batch=1, dtype="bf16")
    assert exported.simulate().cycles <= LIMIT.get(case, 1.03) * built.simulate().cycles
