"""Encoders, towers and sides of models whose outputs were recorded from the transformers library, compiled and executed."""

import json
import os

import numpy as np
import pytest

import tx8fast
from tests.support.recorded_parts import BATCH, CASES, PAIRS, SEQ, SOURCE, inputs_of, make_part, pair_inputs
from tests.support.run_graph import run_graph
from tx8fast import api
from tx8fast.errors import ConfigError, ImportModelError
from tx8fast.frontend.hf import HfOptions, import_hf

#: of the largest value, against f32 outputs of the library
TOLERANCE = 2e-6
EVERY = bool(os.environ.get("TX8FAST_ALL_MODELS"))


def error(found, wanted):
    return float(np.abs(np.asarray(found).astype(np.float64) - wanted).max() / np.abs(wanted).max())


def run(directory, case, dtype):
    inputs = inputs_of(case)
    sizes = {"seq": SEQ} if "input_ids" in inputs else {}
    program = tx8fast.compile(directory, batch=BATCH, dtype=dtype, part=CASES[case][1] or None, **sizes)
    return program.run(inputs)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow(but_every=5)
def test_parts_equal_the_recorded_outputs(tmp_path, case):
    record = make_part(tmp_path, case)
    found = run(tmp_path, case, "fp32")
    for name in CASES[case][2]:
        assert error(found[name], record[name]) <= TOLERANCE, name


@pytest.mark.skipif(not EVERY, reason="set TX8FAST_ALL_MODELS to run")
@pytest.mark.parametrize("case", CASES)
def test_bf16_is_as_near_as_the_library_s_own(tmp_path, case):
    """Both computed in bf16 from weights rounded to it, against f32 from the same weights."""
    record = make_part(tmp_path, case, dtype="bfloat16")
    found = np.asarray(run(tmp_path, case, "bf16")[CASES[case][2][0]]).astype(np.float64) - record["half"]
    ours = np.sqrt(np.mean(found**2)) / np.abs(record["half"]).max()
    assert ours <= 1.5 * float(record["half_error"])


def run_pair(directory, case, dtype, heard=None):
    """Return the encoder's result and those of a prefill, on `heard` if given."""
    given, ids = pair_inputs(case)
    sizes = {"seq": SOURCE} if "input_ids" in given else {}
    own = tx8fast.compile(directory, batch=BATCH, dtype=dtype, part="encoder", **sizes).run(given)["last_hidden_state"]
    decoder = tx8fast.compile(
        directory, phase="prefill", batch=BATCH, dtype=dtype, part="decoder", seq=SEQ, source=SOURCE
    )
    return own, decoder.run({"input_ids": ids, "encoder_hidden_states": own if heard is None else heard})


@pytest.mark.parametrize("case", PAIRS)
@pytest.mark.slow(but_every=5)
def test_encoder_and_decoder_equal_the_recorded_outputs(tmp_path, case):
    record = make_part(tmp_path, case)
    heard, found = run_pair(tmp_path, case, "fp32", record["encoder"])
    assert error(heard, record["encoder"]) <= TOLERANCE
    assert error(found["logits"], record["prefill"]) <= TOLERANCE
    step = {"input_ids": pair_inputs(case)[1][:, -1:], "position": np.array([SEQ - 1])}
    for name, rows in found.items():
        if name.startswith("cross."):
            step[name] = rows
        elif name != "logits":  # slots that nobody wrote yet hold a value that would show if it were seen
            cache = np.full((BATCH, SEQ + 2, rows.shape[-1]), 9.0, rows.dtype)
            cache[:, : SEQ - 1] = rows[:, : SEQ - 1]
            step[name.replace("present", "past")] = cache
    options = HfOptions(phase="decode", batch=BATCH, past=SEQ + 2, part="decoder", source=SOURCE)
    after = run_graph(import_hf(tmp_path, options), step)
    assert error(after["logits"][:, 0], record["step"]) <= TOLERANCE
    if EVERY:
        decode = tx8fast.compile(
            tmp_path, phase="decode", batch=BATCH, past=SEQ + 2, dtype="fp32", part="decoder", source=SOURCE
        )
        assert error(decode.run(step)["logits"][:, 0], record["step"]) <= TOLERANCE


@pytest.mark.skipif(not EVERY, reason="set TX8FAST_ALL_MODELS to run")
@pytest.mark.parametrize("case", PAIRS)
def test_bf16_of_both_sides_is_as_near_as_the_library_s_own(tmp_path, case):
    record = make_part(tmp_path, case, dtype="bfloat16")
    found = np.asarray(run_pair(tmp_path, case, "bf16")[1]["logits"]).astype(np.float64) - record["half"]
    assert np.sqrt(np.mean(found**2)) / np.abs(record["half"]).max() <= 1.5 * float(record["half_error"])


def test_learned_distances_are_added_where_nothing_hides(tmp_path):
    """The last of five rows is a slice of its own, which sees every key: its mask is no zeros."""
    make_part(tmp_path, "t5")
    found = api.compile(tmp_path, phase="prefill", part="decoder", seq=5, source=11)
    report = api.prove(found.program, tmp_path, quick=True)
    assert report.complete, report.lines()


def test_a_t5_decoder_may_have_more_layers_than_the_encoder(tmp_path):
    record = make_part(tmp_path, "t5")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_layers": 1}))
    options = HfOptions(phase="prefill", batch=BATCH, seq=SEQ, part="decoder", source=SOURCE)
    given = {"input_ids": pair_inputs("t5")[1], "encoder_hidden_states": record["encoder"]}
    assert error(run_graph(import_hf(tmp_path, options), given)["logits"], record["prefill"]) <= TOLERANCE


def test_rows_of_the_encoder_s_result_are_asked_for(tmp_path):
    make_part(tmp_path, "t5")
    with pytest.raises(ConfigError, match="rows of the encoder's result is needed, give --source"):
        import_hf(tmp_path, HfOptions(seq=SEQ, part="decoder"))
    with pytest.raises(ConfigError, match="attends to no encoder's result; drop --source"):
        import_hf(tmp_path, HfOptions(seq=SEQ, part="encoder", source=4))
    make_part(tmp_path, "whisper")
    with pytest.raises(ConfigError, match="source is 4, and the model's encoder gives 9 rows"):
        import_hf(tmp_path, HfOptions(seq=SEQ, part="decoder", source=4))


def test_parts_are_asked_for_by_name(tmp_path):
    make_part(tmp_path, "clip-text")
    with pytest.raises(ConfigError, match="has the parts text, vision; give one of them by --part"):
        import_hf(tmp_path, HfOptions(seq=SEQ))
    with pytest.raises(
        ConfigError, match="part 'audio' is asked for, a model of type 'clip' has the parts text, vision"
    ):
        import_hf(tmp_path, HfOptions(seq=SEQ, part="audio"))
    make_part(tmp_path, "roberta")
    with pytest.raises(ConfigError, match="has no parts; drop --part"):
        import_hf(tmp_path, HfOptions(seq=SEQ, part="text"))


def test_the_caller_chooses_the_size_of_an_image_that_may_have_any(tmp_path):
    """A size that --dim gives is as good as one of the config; other towers have their own."""
    case = "qwen2_5_vl-vision-edges"
    record = make_part(tmp_path, case)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["vision_config"]["image_size"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    sizes = {"height": 12, "width": 20}
    found = tx8fast.compile(tmp_path, batch=BATCH, dtype="fp32", part="vision", dims=sizes).run(inputs_of(case))
    assert error(found["pooler_output"], record["pooler_output"]) <= TOLERANCE
    with pytest.raises(ImportModelError, match="an image of 10x448 is not a multiple of cells of 4x4"):
        import_hf(tmp_path, HfOptions(part="vision", dims={"height": 10}))
    with pytest.raises(ConfigError, match=r"dims \(depth\) cannot be bound, .* has height and width"):
        import_hf(tmp_path, HfOptions(part="vision", dims={"depth": 10}))
    make_part(tmp_path, "siglip-vision")
    with pytest.raises(ConfigError, match=r"dims \(height\) cannot be bound, .* has no symbolic dimensions"):
        import_hf(tmp_path, HfOptions(part="vision", dims={"height": 10}))


def test_a_section_may_be_called_as_the_whole(tmp_path):
    """Published files name the model in the section of its eye, and its tensors without an outer name."""
    record = make_part(tmp_path, "qwen3_vl-vision")
    config = json.loads((tmp_path / "config.json").read_text())
    config["vision_config"]["model_type"] = "qwen3_vl"
    (tmp_path / "config.json").write_text(json.dumps(config))
    program = import_hf(tmp_path, HfOptions(batch=BATCH, part="vision"))
    assert program.family == "qwen3_vl_vision" and not program.weights.missing()
    assert any("visual" in name for name, _ in json.loads(str(record["shapes"])))


def test_a_language_model_s_eye_is_that_of_its_tower(tmp_path):
    """The vision tower of an image-text model is found under the names such checkpoints use."""
    from tests.support.checkpoints import write_weights
    from tests.support.recorded_families import weights_of

    record = make_part(tmp_path, "siglip-vision")
    shapes = [(k.replace("vision_model.", "vision_tower.vision_model."), s)
              for k, s in json.loads(str(record["shapes"])) if k.startswith("vision_model.")]  # fmt: skip
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "gemma3"}))
    write_weights(tmp_path, weights_of("siglip-vision", shapes))
    program = import_hf(tmp_path, HfOptions(batch=BATCH, part="vision"))
    assert program.family == "siglip_vision_model" and not program.weights.missing()
