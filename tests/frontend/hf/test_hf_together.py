"""Rows that see each other: those of an image, and those of a prompt in front of what is generated."""

import json
import warnings

import numpy as np
import pytest

import tx8fast
from tests.support.checkpoints import write_weights
from tests.support.family_checkpoints import VOCAB, family_config, family_weights
from tests.support.family_reference import FamilyReference
from tests.support.recorded_families import config_of
from tx8fast.errors import CausalRowsWarning, Tx8Error, UnsupportedError
from tx8fast.frontend.hf import HfOptions, import_hf
from tx8fast.options import CompileOptions

SEQ = 12
IDS = np.random.default_rng(1).integers(0, VOCAB, (2, SEQ))


class SeesAll(FamilyReference):
    """A model whose prompt is seen from all of its rows."""

    def seen(self, n, window=0):
        return np.ones((n, n), bool)


def write(tmp_path, kind, case, **changes):
    config = {**family_config(case), **changes}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, "text_config": config}))
    weights = family_weights(config)
    write_weights(tmp_path, weights)
    return config, weights


@pytest.mark.parametrize(("case", "fits"), [("gemma", {}), ("gemma2", {"sliding_window": SEQ})])
def test_all_rows_of_a_prompt_of_paligemma_see_each_other(tmp_path, case, fits):
    config, weights = write(tmp_path, "paligemma", case, **fits)
    wanted = SeesAll(config, weights).prefill(IDS)
    rows = weights["model.embed_tokens.weight"][IDS] * np.float32(config["hidden_size"] ** 0.5)
    for feed in ({"input_ids": IDS}, {"inputs_embeds": rows}):
        kind = "ids" if "input_ids" in feed else "embeds"
        found = tx8fast.compile(tmp_path, seq=SEQ, batch=2, dtype="fp32", input=kind).run(feed)
        error = np.abs(found["logits"] - wanted["logits"]).max() / np.abs(wanted["logits"]).max()
        assert error < 1e-5
    # a step comes after all of them
    causal = import_hf(tmp_path, HfOptions(phase="decode", past=16))
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert causal.text() == import_hf(tmp_path, HfOptions(phase="decode", past=16)).text()


def test_a_prompt_behind_the_window_of_such_a_model_is_refused(tmp_path):
    write(tmp_path, "paligemma", "gemma2")
    with pytest.raises(UnsupportedError, match="more than the window"):
        import_hf(tmp_path, HfOptions(seq=SEQ))


def test_no_such_prompt_is_padded(tmp_path):
    from tx8fast.lengths import compile_lengths

    write(tmp_path, "paligemma", "gemma")
    with pytest.raises(Tx8Error, match="padd"):
        compile_lengths(tmp_path, "seq", (4, 8), CompileOptions())


GEMMA4 = config_of("gemma4_text-experts")


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"model_type": "gemma3", "text_config": family_config("gemma3_text")}, True),
        (family_config("gemma3_text"), False),
        ({**GEMMA4, "use_bidirectional_attention": "vision"}, True),
        ({"model_type": "gemma4", "text_config": {**GEMMA4, "use_bidirectional_attention": "vision"}}, True),
        ({**GEMMA4, "use_bidirectional_attention": None}, False),
        (family_config("llama"), False),
    ],
)
def test_rows_of_images_that_would_see_each_other_are_told(tmp_path, config, told):
    (tmp_path / "config.json").write_text(json.dumps(config))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        import_hf(tmp_path, HfOptions(seq=4, input="embeds"))
        assert any(w.category is CausalRowsWarning for w in said) == told
        said.clear()
        import_hf(tmp_path, HfOptions(seq=4))
        import_hf(tmp_path, HfOptions(phase="decode", past=4, input="embeds"))
        assert not [w for w in said if w.category is CausalRowsWarning]
