"""Families whose reference was recorded from the transformers library: prefill and a decode step, compiled and executed."""

import os

import numpy as np
import pytest

import tx8fast
from tests.support.recorded_configs import CONFIGS
from tests.support.recorded_families import BATCH, PAST, SEQ, make_recorded, token_ids

#: of the largest value, against f32 outputs of the library
TOLERANCE = 2e-6


def error(found, wanted):
    return float(np.abs(np.asarray(found).astype(np.float64) - wanted).max() / np.abs(wanted).max())


def run_both(directory, case, dtype):
    """Return the logits of a prefill, and of its last token as a decode step on that prefill's caches.

    Slots that nobody wrote yet hold a value that would show if it were seen."""
    ids = token_ids(case)
    found = tx8fast.compile(directory, phase="prefill", batch=BATCH, seq=SEQ, dtype=dtype).run({"input_ids": ids})
    step = {"input_ids": ids[:, -1:], "position": np.array([SEQ - 1])}
    for name, rows in found.items():
        if name != "logits":
            cache = np.full((BATCH, PAST, rows.shape[-1]), 9.0, rows.dtype)
            cache[:, : SEQ - 1] = rows[:, : SEQ - 1]
            step[name.replace("present", "past")] = cache
    after = tx8fast.compile(directory, phase="decode", batch=BATCH, past=PAST, dtype=dtype).run(step)
    return found["logits"], after["logits"][:, 0]


@pytest.mark.feature("B11", "IR-25")
@pytest.mark.parametrize("case", CONFIGS)
def test_prefill_and_decode_equal_the_recorded_outputs(tmp_path, case):
    record = make_recorded(tmp_path, case)
    prefill, step = run_both(tmp_path, case, "fp32")
    assert error(prefill, record["prefill"]) <= TOLERANCE and error(step, record["step"]) <= TOLERANCE


@pytest.mark.skipif(not os.environ.get("TX8FAST_ALL_MODELS"), reason="set TX8FAST_ALL_MODELS to run")
@pytest.mark.feature("B11", "IR-25")
@pytest.mark.parametrize("case", CONFIGS)
def test_bf16_is_as_near_as_the_library_s_own(tmp_path, case):
    """Both computed in bf16 from weights rounded to it, against f32 from the same weights."""
    record = make_recorded(tmp_path, case, dtype="bfloat16")
    prefill, _ = run_both(tmp_path, case, "bf16")
    found = np.asarray(prefill).astype(np.float64) - record["half"]
    ours = np.sqrt(np.mean(found**2)) / np.abs(record["half"]).max()
    assert ours <= 1.5 * float(record["half_error"])
