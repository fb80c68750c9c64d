"""The demonstration's model and arithmetic agree with the independent reference of the tests."""

import json

import numpy as np

from tests.support.llama_reference import LlamaReference
from tx8fast.demo_model import SMALL, decoder, write_checkpoint
from tx8fast.frontend.hf import HfOptions, import_hf


def test_demo_arithmetic(tmp_path):
    weights = write_checkpoint(tmp_path, SMALL)
    assert json.loads((tmp_path / "config.json").read_text()) == SMALL
    reference = LlamaReference(SMALL, weights)
    ids = np.random.default_rng(0).integers(0, 1024, (2, 9))
    wanted, found = reference.prefill(ids), decoder(SMALL, weights, ids)
    assert list(found) == list(wanted)
    past = {k.replace("present", "past"): v for k, v in wanted.items() if k != "logits"}
    found |= {"step " + k: v for k, v in decoder(SMALL, weights, ids[:, 4:5], past, 4).items()}
    wanted |= {"step " + k: v for k, v in reference.decode(ids[:, 4:5], 4, past).items()}
    for name, w in wanted.items():
        np.testing.assert_allclose(found[name], w, rtol=0, atol=2e-5 * np.abs(w).max(), err_msg=name)


def test_demo_checkpoint_is_importable(tmp_path):
    weights = write_checkpoint(tmp_path, SMALL)
    table = import_hf(tmp_path, HfOptions(seq=4)).weights
    assert not table.missing()
    for name, w in weights.items():
        np.testing.assert_array_equal(table.view(name).astype(np.float32), w)
