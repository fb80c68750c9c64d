"""Layers cut over chips: every family against an independent reference of the whole model; what one chip holds; what is refused."""

from __future__ import annotations

import json
import math
import os

import numpy as np
import pytest

import tx8fast
from tests.support import recorded_families as recorded
from tests.support import recorded_parts
from tests.support.checkpoints import make_checkpoint, model_config
from tests.support.encoder_reference import EncoderReference
from tests.support.family_checkpoints import CONFIGS, ENCODERS, VOCAB, make_family
from tests.support.family_reference import FamilyReference
from tests.support.recorded_families import make_recorded, token_ids
from tx8fast.errors import ConfigError, InfeasibleError, UnsupportedError
from tx8fast.frontend.hf import HfOptions, import_hf
from tx8fast.machine import load_machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.program.verify import verify

BATCH, SEQ, PAST = 2, 12, 16
IDS = np.random.default_rng(1).integers(0, VOCAB, (BATCH, SEQ))
ALL = bool(os.environ.get("TX8FAST_ALL_MODELS"))
CUT = [case for case in CONFIGS if case not in ENCODERS and not case.startswith("olmo2")]
#: recorded models with layers that keep a state
STATEFUL = (
    "jamba",
    "rwkv",
    "lfm2",
    "mamba",
    "granitemoehybrid",
    "falcon_h1",
    "nemotron_h",
    "qwen3_next",
    "recurrent_gemma",
    "minimax",
    "kimi_linear",
)
SOME = ("gpt2", "gemma2", "deepseek_v3")


def compiled(path, **options):
    made = tx8fast.compile(path, **options)
    verify(made.program)
    return made


def joined(parts, wanted, held):
    """Return what all chips of a group hold of a cache: parts side by side, of `held` different ones; or the same everywhere."""
    if parts.shape[-1] == wanted.shape[-1]:
        assert all(np.array_equal(parts[0], p) for p in parts[1:])
        return parts[0]
    step = len(parts) // held
    assert all(np.array_equal(parts[i], parts[i // step * step]) for i in range(len(parts)))
    return np.concatenate(list(parts[::step]), axis=-1)


def check(found, wanted, tolerance=1e-4):
    for name, want in wanted.items():
        parts = found[name]
        held = want.shape[-1] // parts.shape[-1] if name != "logits" else 1
        got = joined(parts, want, held).astype(np.float64)
        error = np.abs(got - want).max() / np.abs(want).max()
        assert error <= tolerance, (name, error)


@pytest.mark.parametrize("case", CUT if ALL else SOME)
@pytest.mark.slow(but_every=4)
def test_every_family_over_two_chips(tmp_path, case):
    config, weights = make_family(tmp_path, case)
    wanted = FamilyReference(config, weights).prefill(IDS)
    check(compiled(tmp_path, seq=SEQ, batch=BATCH, tp=2).run({"input_ids": IDS}), wanted)


@pytest.mark.parametrize("case", [c for c in ENCODERS if ALL or c == "bert"])
def test_encoders_over_two_chips(tmp_path, case):
    config, weights = make_family(tmp_path, case)
    reference = EncoderReference(config, weights)
    if case == "vit":
        pixels = np.random.default_rng(2).standard_normal((BATCH, 3, 16, 16)).astype(np.float32)
        feed, wanted = {"pixel_values": pixels}, reference.image(pixels)
    else:
        types = np.random.default_rng(2).integers(0, 2, (BATCH, SEQ))
        feed, wanted = {"input_ids": IDS, "token_type_ids": types}, reference.text(IDS, types)
    options = {"batch": BATCH, "tp": 2, **({} if case == "vit" else {"seq": SEQ})}
    found = compiled(tmp_path, **options).run(feed)
    check({k: found[k] for k in wanted}, wanted)


@pytest.mark.parametrize(
    "case", recorded_parts.CASES if ALL else ("sam", "mpnet", "qwen2_5_vl-vision", "deberta-v2", "detr")
)
@pytest.mark.slow
def test_recorded_encoders_over_two_chips(tmp_path, case):
    """Every chip has the whole result, that of one chip."""
    record, (_, part, names) = recorded_parts.make_part(tmp_path, case), recorded_parts.CASES[case]
    feed = recorded_parts.inputs_of(case)
    sizes = {"seq": recorded_parts.SEQ} if "input_ids" in feed else {}
    found = compiled(tmp_path, batch=BATCH, dtype="fp32", part=part or None, tp=2, **sizes).run(feed)
    check(found, {name: record[name] for name in names}, 2e-6)


@pytest.mark.parametrize("case", recorded_parts.PAIRS if ALL else ("t5",))
def test_encoder_and_decoder_over_two_chips(tmp_path, case):
    """Every chip has the heads of both attentions that are its own, with their summands of scores by distance."""
    record, (given, ids) = recorded_parts.make_part(tmp_path, case), recorded_parts.pair_inputs(case)
    common = {"batch": BATCH, "dtype": "fp32", "tp": 2}
    sizes = {"seq": recorded_parts.SOURCE} if "input_ids" in given else {}
    heard = compiled(tmp_path, part="encoder", **common, **sizes).run(given)
    check(heard, {"last_hidden_state": record["encoder"]}, 2e-6)
    common |= {"part": "decoder", "source": recorded_parts.SOURCE}
    feed = {"input_ids": ids, "encoder_hidden_states": record["encoder"]}
    found = compiled(tmp_path, phase="prefill", seq=recorded_parts.SEQ, **common).run(feed)
    check(found, {"logits": record["prefill"]}, 2e-6)
    step = {"input_ids": ids[:, -1:], "position": np.array([recorded_parts.SEQ - 1])}
    for name, rows in found.items():
        if name.startswith("cross."):
            step[name] = rows
        elif name != "logits":  # slots that nobody wrote yet hold a value that would show if it were seen
            step[name.replace("present", "past")] = cache = np.full_like(rows, 9.0)
            cache[..., :-1, :] = rows[..., :-1, :]
    after = compiled(tmp_path, phase="decode", past=recorded_parts.SEQ, **common).run(step)
    check(after, {"logits": record["step"][:, None]}, 2e-6)


@pytest.mark.parametrize(("tp", "chips"), [(4, None), (2, (2, 2))])
@pytest.mark.slow
def test_prefill_and_decode_agree_with_one_chip(tmp_path, tp, chips):
    """Four chips and two key heads: two chips each hold the same one. Two groups of two chips: other inputs for each."""
    make_checkpoint(tmp_path, dtype="bfloat16")
    rng = np.random.default_rng(3)
    ids = rng.integers(0, 128, (1, 9))
    one, many = (compiled(tmp_path, seq=9, **o) for o in ({}, {"tp": tp, "chips": chips}))
    assert many.program.n_chips == (4 if chips else tp)
    alone, together = one.run({"input_ids": ids}), many.run({"input_ids": ids})
    assert all(np.array_equal(together["logits"][0], x) for x in together["logits"][1:])
    a, b = alone["logits"].astype(np.float32), together["logits"][0].astype(np.float32)
    assert np.abs(a - b).max() <= 0.03 * np.abs(a).max()
    step = {"input_ids": rng.integers(0, 128, (1, 1)), "position": np.array([9])}
    decode = [compiled(tmp_path, phase="decode", past=12, **o) for o in ({}, {"tp": tp, "chips": chips})]
    for t in decode[0].inputs[2:]:
        step[t.name] = rng.standard_normal(t.shape).astype(np.float32)
    cut = dict(step)
    for t in decode[1].inputs[2:]:
        per_head = np.split(step[t.name], step[t.name].shape[-1] // t.shape[-1], axis=-1)
        cut[t.name] = np.stack([per_head[(c % tp) * len(per_head) // tp] for c in range(many.program.n_chips)])
    a, b = (d.run(feed)["logits"].astype(np.float32) for d, feed in zip(decode, (step, cut)))
    assert np.abs(a - b).max() <= 0.03 * np.abs(a).max()


def test_what_one_chip_holds(tmp_path):
    make_checkpoint(tmp_path, dtype="bfloat16")
    shapes = {t.name.rpartition("%part/")[2]: t for t in compiled(tmp_path, seq=8, tp=2).program.params}
    at = "layers.1."
    assert shapes[at + "self_attn.q_proj.weight"].shape in ((32, 64), (64, 32))
    assert shapes[at + "mlp.down_proj.weight"].shape in ((64, 48), (48, 64))
    assert shapes[at + "mlp.down_proj.weight"].per_chip
    whole = [t for t in shapes.values() if not t.per_chip]
    assert {t.source["key"].rpartition("/")[2].split(".")[-2] for t in whole if t.source["kind"] != "derived"} >= {
        "embed_tokens",
        "norm",
    }


def test_a_model_that_one_chip_cannot_hold(tmp_path):
    """Weights of 4.3 MiB, 2 MiB of DDR on a chip: four chips hold them."""
    config = model_config(hidden=256, intermediate=1024, layers=3, heads=8, kv_heads=4, dtype="bfloat16", vocab=256)
    (tmp_path / "config.json").write_text(json.dumps(config))
    machine = tmp_path / "small.toml"
    text = tx8fast.machine.__path__[0] + "/configs/tx8.toml"
    with open(text) as f:
        machine.write_text(f.read().replace("ddr_bytes = 68719476736", "ddr_bytes = 2621440"))
    with pytest.raises(InfeasibleError, match="more chips: --tp 2, 4, 8$"):
        tx8fast.compile(tmp_path / "config.json", phase="decode", past=16, machine=str(machine))
    made = compiled(tmp_path / "config.json", phase="decode", past=16, machine=str(machine), tp=4)
    assert made.program.ddr_bytes <= load_machine(str(machine)).chip.ddr_bytes
    assert made.simulate().c2c_bytes > 0


def test_what_is_refused(tmp_path):
    make_checkpoint(tmp_path, dtype="bfloat16")
    with pytest.raises(
        ConfigError,
        match="over 3 chips.*\n.*4 heads do not divide by 3.*\n.*2 key heads neither divide by 3 nor divide it",
    ):
        tx8fast.compile(tmp_path, seq=8, tp=3)
    with pytest.raises(ConfigError, match="96 hidden units do not divide by 64"):
        tx8fast.compile(tmp_path, seq=8, tp=64)
    with pytest.raises(ConfigError, match="chips is 6, required a multiple of tp, 4"):
        tx8fast.compile(tmp_path, seq=8, tp=4, chips=(6, 1))
    with pytest.raises(ConfigError, match="tp is 0"):
        tx8fast.compile(tmp_path, seq=8, tp=0)
    other = tmp_path / "olmo"
    other.mkdir()
    make_family(other, "olmo2")
    with pytest.raises(UnsupportedError, match="olmo2 normalises all heads together"):
        tx8fast.compile(other, seq=8, tp=2)


@pytest.mark.parametrize("case", STATEFUL if ALL else ("jamba", "rwkv"))
@pytest.mark.slow
def test_layers_that_keep_a_state_are_whole_on_every_chip(tmp_path, case):
    """The library's outputs; states come out the same everywhere."""
    record = make_recorded(tmp_path, case)
    found = compiled(tmp_path, seq=recorded.SEQ, batch=recorded.BATCH, tp=2).run({"input_ids": token_ids(case)})
    check(found, {"logits": record["prefill"]}, 2e-6)
    states = [name for name in found if name.endswith(("conv", "state", "row", "numerator"))]
    assert states and all(np.array_equal(found[name][0], found[name][1]) for name in states)


@pytest.mark.parametrize("tied", [True, False])
def test_biases_of_logits_are_cut_as_the_head_is(tmp_path, tied):
    """The embedding is whole on every chip; a head of its own is cut where the vocabulary divides, and its biases with it."""
    vocab = recorded.config_of("phi")["vocab_size"]
    even = vocab + vocab % 2
    shapes = json.loads(str(make_recorded(tmp_path, "phi")["shapes"]))
    make_recorded(tmp_path, "phi", [(key, [even if n == vocab else n for n in shape]) for key, shape in shapes])
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**recorded.config_of("phi"), "vocab_size": even, "tie_word_embeddings": tied}))
    program = import_hf(tmp_path, HfOptions(seq=recorded.SEQ, tp=2))
    assert ("%part/lm_head.bias" in program.weights) != tied
    one, two = (compiled(tmp_path, seq=recorded.SEQ, batch=recorded.BATCH, **cut) for cut in ({}, {"tp": 2}))
    ids = {"input_ids": token_ids("phi")}
    check(two.run(ids), one.run(ids), 2e-6)


@pytest.mark.parametrize("case", recorded.CONFIGS)
def test_a_model_that_is_not_cut_is_held_whole(tmp_path, case):
    """What `check` counts for one chip, for every kind of weight that a family has: all that belongs to a place of the model, once."""
    (tmp_path / "config.json").write_text(json.dumps(recorded.config_of(case)))
    program = import_hf(tmp_path / "config.json", HfOptions(seq=6))
    assert program.shares is not None
    held, cut = program.shares(1)
    stored = sum(math.prod(w.shape) * ITEM_BYTES[w.dtype] for k, w in program.weights.items() if not k.startswith("%"))
    assert 0.5 * stored <= held <= 1.5 * stored and cut == 1
