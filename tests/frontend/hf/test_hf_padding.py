"""Texts of other lengths in one batch: what is made of a padded text is what is made of it alone."""

import numpy as np
import pytest

import tx8fast
from tests.support.recorded_families import SEQ
from tests.support.recorded_parts import CASES, PAIRS, SOURCE, inputs_of, make_part, pair_inputs
from tx8fast.errors import ConfigError

TEXTS = [c for c in CASES if "input_ids" in inputs_of(c) and c not in ("clip-text",)]
SIDES = [c for c in PAIRS if c != "whisper"]
LENGTHS = (SEQ, 5)


def there(lengths, seq):
    return (np.arange(seq) < np.array(lengths)[:, None]).astype(np.int64)


def error(found, wanted):
    return np.abs(found - wanted).max() / np.abs(wanted).max()


@pytest.mark.parametrize("opt", [1, 2])
@pytest.mark.parametrize("case", TEXTS)
@pytest.mark.slow(but_every=5)
def test_padding_of_an_encoder_s_text_is_hidden(tmp_path, case, opt):
    make_part(tmp_path, case)
    part = CASES[case][1] or None
    given = inputs_of(case)
    padded = tx8fast.compile(tmp_path, batch=2, seq=SEQ, part=part, opt=opt, attention_mask=True)
    found = padded.run({**given, "attention_mask": there(LENGTHS, SEQ)})
    for i, length in enumerate(LENGTHS):
        alone = tx8fast.compile(tmp_path, batch=1, seq=length, part=part, opt=opt).run(
            {name: rows[i : i + 1, :length] for name, rows in given.items()}
        )
        wanted = alone["last_hidden_state"][0]
        assert error(found["last_hidden_state"][i, :length], wanted) < 3e-6
    # what stands in the place of padding does not matter
    other = np.where(there(LENGTHS, SEQ), given["input_ids"], 9)
    again = padded.run({**given, "input_ids": other, "attention_mask": there(LENGTHS, SEQ)})
    assert np.array_equal(again["last_hidden_state"][1, : LENGTHS[1]], found["last_hidden_state"][1, : LENGTHS[1]])


@pytest.mark.parametrize("case", SIDES)
@pytest.mark.slow(but_every=5)
def test_padding_of_a_source_is_hidden(tmp_path, case):
    make_part(tmp_path, case)
    source, ids = pair_inputs(case)
    lengths = (4, SOURCE)
    mask = there(lengths, SOURCE)
    heard = tx8fast.compile(tmp_path, batch=2, seq=SOURCE, part="encoder", attention_mask=True).run(
        {**source, "attention_mask": mask}
    )
    rows = heard["last_hidden_state"]
    first = tx8fast.compile(tmp_path, batch=2, seq=SEQ, part="decoder", source=SOURCE, attention_mask=True)
    made = first.run({"input_ids": ids, "encoder_hidden_states": rows, "encoder_attention_mask": mask})
    step = tx8fast.compile(
        tmp_path, phase="decode", batch=2, past=SEQ + 1, part="decoder", source=SOURCE, attention_mask=True
    )
    token = {"input_ids": ids[:, :1], "position": np.array([SEQ])}
    caches = {
        n.replace("present", "past"): np.pad(a, ((0, 0), (0, 1), (0, 0)))
        for n, a in made.items()
        if n.startswith("present")
    }
    crossed = {n: a for n, a in made.items() if n.startswith("cross")}
    later = step.run({**token, **caches, **crossed, "encoder_attention_mask": mask})
    for i, length in enumerate(lengths):
        one = slice(i, i + 1)
        alone = tx8fast.compile(tmp_path, seq=length, part="encoder").run(
            {"input_ids": source["input_ids"][one, :length]}
        )
        assert error(rows[i, :length], alone["last_hidden_state"][0]) < 3e-6
        decoder = {"part": "decoder", "source": length}
        wanted = tx8fast.compile(tmp_path, seq=SEQ, **decoder).run(
            {"input_ids": ids[one], "encoder_hidden_states": alone["last_hidden_state"]}
        )
        assert error(made["logits"][one], wanted["logits"]) < 3e-6
        feed = {n: a[one] for n, a in (token | caches).items() if n != "position"} | {"position": token["position"]}
        feed |= {n: a[one, :length] for n, a in crossed.items()}
        wanted = tx8fast.compile(tmp_path, phase="decode", past=SEQ + 1, **decoder).run(feed)
        assert error(later["logits"][one], wanted["logits"]) < 3e-6


@pytest.mark.parametrize(
    ("case", "options"), [("clip-text", {"part": "text"}), ("dinov2", {}), ("whisper", {"part": "decoder"})]
)
def test_a_mask_that_could_change_nothing_is_refused(tmp_path, case, options):
    make_part(tmp_path, case)
    with pytest.raises(ConfigError, match="drop --attention-mask"):
        tx8fast.compile(tmp_path, seq=8, attention_mask=True, **options)
