"""Configs of well-known models at real size (tests/data/configs): all are read, imported without weights, and compiled."""

import os

import pytest

from tests.support.published_models import CONFIGS, jobs_of, parts_of
from tx8fast.batch.work import run_job
from tx8fast.frontend.hf import HfOptions, import_hf
from tx8fast.frontend.hf.families import FAMILIES
from tx8fast.frontend.hf.importer import read_config

#: what more than a hundredth of the time may go to on kernel cores: the routing of experts
ROUTING = {"topk", "scatter", "gather_elements"}
#: models of more memory than as many chips have as can share their layers, and why: slopes are added to the scores of all heads, queries are
#: normalised over all heads, 40 heads are shared by eight chips at most
TOO_LARGE = ("bloom", "minimax-m2", "llama-4-maverick")
#: million parameters, of the published descriptions, for one model of several kinds
MILLIONS = {"llama-3.1-8b": 8030, "gpt2": 124, "mixtral-8x7b": 46703, "falcon-7b": 6922, "gpt-oss-20b": 20915, "dbrx": 131597,
            "command-r": 34981, "phi-2": 2780, "olmoe-1b-7b": 6919, "qwen1.5-moe-a2.7b": 14316, "bloom-7b1": 7069,
            "glm-4-9b-hf": 9400, "starcoder2-7b": 7174, "persimmon-8b": 9398, "gpt-j-6b": 6051,
            "roberta-large": 355, "electra-large": 335, "mpnet-base": 109, "dinov2-giant": 1136, "detr-resnet-50": 41.6, "biogpt": 347,
            "xglm-564m": 564, "minicpm3-4b": 4074,
            "hunyuan-a13b": 80400, "trinity-mini": 26124, "k-exaone-236b-a23b": 236571}  # fmt: skip


def test_every_config_is_read():
    found = [read_config(path, part=part) for path in CONFIGS for part in parts_of(path)]
    assert len(CONFIGS) >= 100 and {c.model_type for c in found} == set(FAMILIES)


@pytest.mark.parametrize("name", MILLIONS)
def test_number_of_parameters(name):
    """Tied tables count once; derived entries are not parameters."""
    program = import_hf(next(p for p in CONFIGS if p.stem == name), HfOptions(seq=32))
    stored = {k: w for k, w in program.weights.items() if not k.startswith("%")}
    total = 0
    for w in stored.values():
        size = 1
        for n in w.shape:
            size *= n
        total += size
    assert abs(total / 1e6 - MILLIONS[name]) <= 0.01 * MILLIONS[name], total


@pytest.mark.skipif(not os.environ.get("TX8FAST_ALL_MODELS"), reason="set TX8FAST_ALL_MODELS to run")
@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_prefill_and_decode_are_imported(path):
    for _, job in jobs_of(path):
        options = job.options
        taken = {k: getattr(options, k) for k in ("phase", "seq", "past", "part", "source")}
        import_hf(path, HfOptions(**{k: v for k, v in taken.items() if v is not None})).verify()


@pytest.mark.skipif(not os.environ.get("TX8FAST_CONFIGS"), reason="set TX8FAST_CONFIGS to run")
@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_prefill_and_decode_compile_and_stay_off_the_kernel_cores(path, tmp_path):
    """512 tokens, on as many chips as the model needs."""
    for _, job in jobs_of(path):
        row = run_job(job, tmp_path, None).row
        if path.stem in TOO_LARGE:
            assert "placing the model in DDR" in row["error"]
            assert "more chips" not in row["error"]  # they would not help
            continue
        assert row["status"] == "done", row["error"]
        assert row["kernel_core_share"] <= 0.01 or ROUTING.issuperset(row["kernel_core"]), row["kernel_core"]
