"""The references themselves against the real implementations, where those are installed."""

import numpy as np
import pytest

from tests.support.encoder_reference import EncoderReference
from tests.support.family_checkpoints import CONFIGS, VOCAB, make_family
from tests.support.family_reference import FamilyReference

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.feature("B11")
AUTO = {"bert": "AutoModel", "vit": "AutoModelForImageClassification"}


@pytest.mark.parametrize("case", CONFIGS)
def test_reference_agrees_with_transformers(tmp_path, case):
    config, weights = make_family(tmp_path, case)
    kind = config["model_type"]
    auto = getattr(transformers, AUTO.get(kind, "AutoModelForCausalLM"))
    model, info = auto.from_pretrained(tmp_path, output_loading_info=True, attn_implementation="eager", dtype=torch.float32)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    ids = np.random.default_rng(1).integers(0, VOCAB, (2, 12))
    with torch.no_grad():
        if kind == "bert":
            types = np.random.default_rng(2).integers(0, 2, (2, 12))
            found = model.eval()(input_ids=torch.tensor(ids), token_type_ids=torch.tensor(types))
            wanted = EncoderReference(config, weights).text(ids, types)
        elif kind == "vit":
            pixels = np.random.default_rng(2).standard_normal((2, 3, 16, 16)).astype(np.float32)
            found = model.eval()(pixel_values=torch.tensor(pixels))
            wanted = {"logits": EncoderReference(config, weights).image(pixels)["logits"]}
        else:
            found = model.eval()(torch.tensor(ids))
            wanted = {"logits": FamilyReference(config, weights).prefill(ids)["logits"]}
    for name, w in wanted.items():
        assert np.abs(found[name].numpy() - w).max() <= 5e-6 * np.abs(w).max()
