"""No false alarm on the corpus: exported models and small checkpoints of every family, one seed each."""

from __future__ import annotations

import os

import pytest

from tests.support.corpus import DATA, MODELS
from tests.support.family_checkpoints import CONFIGS, make_family
from tests.support.proofs import check, proving
from tx8fast import api
from tx8fast.options import CompileOptions

LEVELS = (1, 2, 3) if os.environ.get("TX8FAST_PROVE") == "1" else (2,)
FAMILIES = tuple(CONFIGS) if os.environ.get("TX8FAST_PROVE") == "1" else ("gemma2", "mixtral", "deepseek_v3", "vit")


@pytest.mark.parametrize("opt", LEVELS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow(but_every=5)
def test_exported_models(name, opt):
    path = DATA / "onnx" / f"{name}.onnx"
    check(api.compile(path, opt=opt).program, path, CompileOptions(opt=opt))


@pytest.mark.parametrize("opt", LEVELS)
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.slow
def test_families(tmp_path, name, opt):
    make_family(tmp_path / name, name)
    for given in ({"seq": 6}, {"phase": "decode", "past": 8}):
        if "phase" in given and name in ("bert", "vit"):
            continue
        options = CompileOptions(opt=opt, **given)
        check(api.compile(tmp_path / name, options).program, tmp_path / name, options)


def test_what_tests_compile_can_be_proved(monkeypatch):
    proved = []
    monkeypatch.setattr("tests.support.proofs.check", lambda program, model, options: proved.append(model))
    path = DATA / "onnx" / "llama-prefill-op20.onnx"
    with proving():
        api.compile(path)
    api.compile(path)
    everywhere = os.environ.get("TX8FAST_PROVE") == "1"  # then both are proved, and the first one twice
    assert proved == [path] * (3 if everywhere else 1)
