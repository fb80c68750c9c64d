"""Configs of well-known models at real size (tests/data/configs): all are read, and imported without weights."""

import json
import os
from pathlib import Path

import pytest

from tx8fast.frontend.hf import HfOptions, import_hf
from tx8fast.frontend.hf.families import FAMILIES
from tx8fast.frontend.hf.importer import read_config
from tx8fast.frontend.hf.parts import COMPOSITES

CONFIGS = sorted((Path(__file__).parents[2] / "data" / "configs").glob("*.json"))
#: million parameters, of the published descriptions, for one model of several kinds
MILLIONS = {"llama-3.1-8b": 8030, "gpt2": 124, "mixtral-8x7b": 46703, "falcon-7b": 6922, "gpt-oss-20b": 20915, "dbrx": 131597,
            "command-r": 34981, "phi-2": 2780, "olmoe-1b-7b": 6919, "qwen1.5-moe-a2.7b": 14316, "bloom-7b1": 7069,
            "glm-4-9b-hf": 9400, "starcoder2-7b": 7174, "persimmon-8b": 9398, "gpt-j-6b": 6051,
            "roberta-large": 355, "dinov2-giant": 1136}  # fmt: skip


def parts_of(path):
    """Return the names under which the parts of a model are compiled."""
    kind = json.loads(path.read_text())["model_type"]
    return tuple(COMPOSITES[kind].pieces) if kind in COMPOSITES else (None,)


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
    for part in parts_of(path):
        config = read_config(path, part=part)
        seq = min(512, config.positions or 512)
        if config.encoder:
            import_hf(path, HfOptions(seq=None if config.image or config.frames else seq, part=part)).verify()
            continue
        source = (config.source or 512) if config.cross else None
        import_hf(path, HfOptions(seq=seq, part=part, source=source)).verify()
        import_hf(path, HfOptions(phase="decode", past=seq, part=part, source=source)).verify()
