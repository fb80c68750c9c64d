"""What a config of an unknown model_type is said to look like: the family that it is, or none."""

import json
from pathlib import Path

import pytest

from tests.support.checkpoints import write_weights
from tests.support.family_checkpoints import family_config, family_weights
from tests.support.published_models import CONFIGS, parts_of
from tx8fast.errors import UnsupportedError
from tx8fast.frontend.hf import HfOptions, import_hf
from tx8fast.frontend.hf.config import parse_config
from tx8fast.frontend.hf.parts import piece_of

PUBLISHED = [(path, part) for path in CONFIGS for part in parts_of(path)]
TELLING = ("bloom", "cohere2", "gemma3_text", "gpt_neox", "nemotron", "opt", "seed_oss", "stablelm")


def advised(read) -> str:
    with pytest.raises(UnsupportedError, match="model_type 'renamed' is not") as refusal:
        read()
    text = str(refusal.value)
    return text.partition("give --as ")[2].split()[0] if "give --as" in text and "keys are those of" in text else ""


@pytest.mark.parametrize("named", [True, False], ids=["class-named", "class-unknown"])
@pytest.mark.slow
def test_no_published_model_is_taken_for_another(named):
    found = set()
    for path, part in PUBLISHED:
        raw = json.loads(path.read_text())
        kind, raw = piece_of(raw["model_type"], raw, part, "")
        raw = {k: v for k, v in raw.items() if named or k != "architectures"}
        like = advised(lambda raw=raw: parse_config({**raw, "model_type": "renamed"}, "c"))
        assert like in ("", kind), (path.name, part, like)
        found.add(like)
    assert found >= set(TELLING)


@pytest.mark.parametrize(("case", "wanted"), [("qwen3", "qwen3"), ("olmo2", ""), ("gemma", ""), ("llama", "")])
def test_tensors_tell_families_of_the_same_keys(tmp_path, case, wanted):
    config = {
        k: v for k, v in family_config(case).items() if k not in ("attention_bias", "mlp_bias") or case == "llama"
    }
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "renamed"}))
    without = advised(lambda: import_hf(Path(tmp_path), HfOptions(seq=4)))
    assert without in ("", case)
    write_weights(tmp_path, family_weights(family_config(case)))
    assert advised(lambda: import_hf(Path(tmp_path), HfOptions(seq=4))) == wanted
