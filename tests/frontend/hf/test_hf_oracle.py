"""The references themselves, and files as today's tools write them, against the real implementations.

Runs only where torch and transformers are installed; they are no dependencies of the project.
"""

import numpy as np
import pytest

from tests.support.encoder_reference import EncoderReference
from tests.support.family_checkpoints import CONFIGS, VOCAB, make_family
from tests.support.family_reference import FamilyReference
from tests.support.recorded_configs import CONFIGS as RECORDED
from tests.support.recorded_families import RECORDS
from tests.support.run_graph import run_graph
from tx8fast.frontend.hf import HfOptions, import_hf

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
AUTO = {"bert": "AutoModel", "vit": "AutoModelForImageClassification"}


def load(directory, kind):
    auto = getattr(transformers, AUTO.get(kind, "AutoModelForCausalLM"))
    return auto.from_pretrained(directory, output_loading_info=True, attn_implementation="eager", dtype=torch.float32)


@pytest.mark.parametrize("case", [c for c in CONFIGS if c not in AUTO])
def test_files_written_by_transformers_are_read(tmp_path, case):
    """Newer versions spell config keys and tensor names in other ways."""
    config, _ = make_family(tmp_path / "old", case)
    model, _ = load(tmp_path / "old", config["model_type"])
    model.save_pretrained(tmp_path / "new")
    ids = np.random.default_rng(1).integers(0, VOCAB, (2, 12))
    found = run_graph(import_hf(tmp_path / "new", HfOptions(batch=2, seq=12)), {"input_ids": ids})
    with torch.no_grad():
        wanted = model.eval()(torch.tensor(ids)).logits.numpy()
    assert np.abs(found["logits"] - wanted).max() <= 5e-6 * np.abs(wanted).max()


@pytest.mark.parametrize("case", RECORDED)
def test_records_are_what_the_library_computes(case):
    from tests.support.record_families import record

    stored, found = dict(np.load(RECORDS / f"{case}.npz")), record(case)
    assert str(found["shapes"]) == str(stored["shapes"])
    for name in ("prefill", "step"):
        assert np.abs(found[name] - stored[name]).max() <= 2e-6 * np.abs(stored[name]).max()


@pytest.mark.parametrize("case", CONFIGS)
def test_reference_agrees_with_transformers(tmp_path, case):
    config, weights = make_family(tmp_path, case)
    kind = config["model_type"]
    model, info = load(tmp_path, kind)
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
