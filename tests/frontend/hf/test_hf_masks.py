"""What softmax says of its mask (a band of visible keys, which programs skip the others by) is what the mask hides."""

import json

import numpy as np
import pytest

import tx8fast
from tests.support.family_checkpoints import CONFIGS as FAMILIES
from tests.support.family_checkpoints import ENCODERS, family_config
from tests.support.recorded_configs import CONFIGS
from tests.support.recorded_families import BATCH, config_of, make_recorded, token_ids
from tests.support.run_graph import run_graph
from tx8fast.frontend.hf import HfOptions, import_hf

CASES = [*CONFIGS, *(c for c in FAMILIES if c not in ENCODERS)]


def masks_of(program):
    """Yield (visible, mask) of every softmax that has both; masks that are stored or formulas."""
    for op in program.module.walk():
        if op.kind == "softmax" and len(op.operands) > 1 and op.attrs["visible"]:
            mask = op.operands[1].op
            while mask is not None and mask.kind in ("convert", "reshape"):
                mask = mask.operands[0].op
            assert mask is not None and mask.kind == "get_param"
            yield op.attrs["visible"], program.weights.view(mask.attrs["key"]).astype(np.float32)


@pytest.mark.parametrize("case", CASES)
def test_a_band_is_what_the_mask_leaves(tmp_path, case):
    config = config_of(case) if case in CONFIGS else family_config(case)
    (tmp_path / "config.json").write_text(json.dumps(config))
    # longer than all windows and chunks
    for (offset, window), mask in masks_of(import_hf(tmp_path / "config.json", HfOptions(seq=9))):
        row, key = np.arange(mask.shape[-2])[:, None] + offset, np.arange(mask.shape[-1])
        seen = (key <= row) & (key > row - (window or 1 << 30))
        assert np.array_equal(mask.reshape(seen.shape) == 0, seen)


@pytest.mark.parametrize("seq", [5, 8, 10])
@pytest.mark.slow
def test_prefills_longer_than_a_chunk(tmp_path, seq):
    make_recorded(tmp_path, "llama4_text")
    ids = {"input_ids": token_ids("llama4_text")[:, :seq]}
    wanted = run_graph(import_hf(tmp_path, HfOptions(batch=BATCH, seq=seq)), ids)
    for opt in (2, 3):
        found = tx8fast.compile(tmp_path, batch=BATCH, seq=seq, dtype="fp32", opt=opt).run(ids)
        for name, array in wanted.items():
            assert np.abs(found[name] - array).max() <= 3e-6 * np.abs(array).max(), (opt, name)
