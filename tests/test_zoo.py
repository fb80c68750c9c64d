"""Deterministic figures of the model zoo: a change that helps one model and hurts the others shows here.

A few small models in every run, all with TX8FAST_ZOO=1 (`make test-zoo`).
pytest tests/test_zoo.py --update-golden writes those that have run.
"""

from __future__ import annotations

import json
import os
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tx8fast.batch.manifest import read_manifest
from tx8fast.batch.work import run_job
from tx8fast.zoo import SUITES, write_zoo

GOLDEN = Path(__file__).parent / "golden" / "zoo.json"
KNOWN = json.loads(GOLDEN.read_text())
#: figures that a change of the compiler may move
FIGURES = ("cycles", "roofline_ratio", "chips", "segments", "launches", "spm_peak_bytes", "ddr_bytes", "useful_macs", "unique_ddr_bytes")  # fmt: skip
#: one of every kind: dense, biased, tied, normed heads, soft caps, latent attention, experts, encoders, images
SLICE = ("gpt2/*", "qwen2.5-0.5b/prefill", "qwen3-0.6b/decode", "gemma-2-9b/decode", "deepseek-v2-lite/decode", "mixtral-8x7b/decode",
         "bert-base/b1", "vit-base/b1")  # fmt: skip
WANTED = ("*",) if os.environ.get("TX8FAST_ZOO") == "1" else SLICE


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zoo")
    write_zoo(folder)
    return folder


@pytest.mark.parametrize("name", [n for n in KNOWN if any(fnmatchcase(n, p) for p in WANTED)])
@pytest.mark.slow(but_every=5)
def test_figures(zoo, name, tmp_path, request):
    job = next(j for j in read_manifest(zoo / "zoo.toml") if j.name == name)
    outcome = run_job(job, tmp_path, None)
    assert outcome.status == "done", outcome.row
    found = {k: round(outcome.row[k], 4) if k == "roofline_ratio" else outcome.row[k] for k in FIGURES}
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(json.dumps({**json.loads(GOLDEN.read_text()), name: found}, indent=1, sort_keys=True) + "\n")
        return
    assert found == KNOWN[name]
    if WANTED == ("*",):  # else other tests have run in this process before
        assert outcome.peak_bytes < 1.5 * 2**30, "of one worker of a batch"


def test_every_model_of_the_zoo_is_golden_and_every_suite_is_a_manifest(zoo):
    assert {j.name for j in read_manifest(zoo / "zoo.toml")} == set(KNOWN)
    assert all(len(read_manifest(zoo / f"{suite}.toml")) > 20 for suite in SUITES)


def test_models_that_need_several_chips_get_them():
    """70B, 405B and V3 do not fit one chip's DDR; the zoo says `chips = "auto"`."""
    assert [KNOWN[f"{m}/{p}"]["chips"] for m in ("llama-3.1-70b", "llama-3.1-405b", "deepseek-v3") for p in ("prefill", "decode")] == [
        4, 4, 16, 16, 32, 32]  # fmt: skip
