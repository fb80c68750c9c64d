"""Record what the transformers library computes for the tiny models of `recorded_families`; needs torch.

python -m tests.support.record_families [CASE ...]
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.recorded_configs import CONFIGS
from tests.support.recorded_families import RECORDS, config_of, make_recorded, token_ids

warnings.filterwarnings("ignore")
os.environ["TQDM_DISABLE"] = "1"


def _library() -> Any:
    return import_module("transformers")


#: tensors that the library stores although it has formulas for them
FORMULAS = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")


def stored_shapes(directory: Path) -> list[tuple[str, list[int]]]:
    """Return names and shapes of the tensors in a directory's safetensors file."""
    data = (directory / "model.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    stored = {k: v["shape"] for k, v in header.items() if k != "__metadata__"}
    # dense parts of a model with experts are saved under the experts' name, and published under their own
    return sorted((re.sub(r"block_sparse_moe\.(gate|up|down)_proj", r"mlp.\1_proj", k), shape)
                  for k, shape in stored.items() if not k.endswith(FORMULAS))  # fmt: skip


#: configs that the library knows under another `model_type`
LIBRARY = {"kimi_k2": "deepseek_v3"}
#: the library adds the slopes of these twice in its plain implementation
ATTENTION = {"falcon-rw": "sdpa"}
#: its steps leave out the limits of the time step (mamba2, zamba2), take other positions (bamba), return no cache (recurrent_gemma) or mix the
#: sequences of a batch (rwkv): the last row of the prompt is theirs too
STEPLESS = ("mamba2-limits", "bamba", "recurrent_gemma", "rwkv", "zamba2")


def known(directory: Path) -> Path:
    """Rename the family in a directory's config to what the library calls it."""
    path = directory / "config.json"
    config = json.loads(path.read_text())
    config["model_type"] = LIBRARY.get(config["model_type"], config["model_type"])
    path.write_text(json.dumps(config))
    return directory


def _auto(directory: Path) -> Any:
    """The whole model of an image-text one, of which text passes the text half alone."""
    whole = "vision_config" in json.loads((directory / "config.json").read_text())
    return _library().AutoModelForImageTextToText if whole else _library().AutoModelForCausalLM


def load(directory: Path, dtype: Any, attention: str = "eager"):
    model, info = _auto(known(directory)).from_pretrained(
        directory, output_loading_info=True, attn_implementation=attention, dtype=dtype
    )
    info["missing_keys"] = [k for k in info["missing_keys"] if not k.endswith(FORMULAS)]
    bad = {k: v for k, v in info.items() if v and k != "error_msgs"}
    assert not bad, bad
    return model.eval()


def outputs(model: Any, ids: np.ndarray, steps: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits of a prefill, and those of its last token computed as a step with a cache, if the model `steps`."""
    torch = import_module("torch")
    with torch.no_grad():
        prefill = model(torch.tensor(ids)).logits
        if not steps:
            return prefill.float().numpy(), prefill[:, -1].float().numpy()
        before = model(torch.tensor(ids[:, :-1]), use_cache=True)
        names = [n for n in ("past_key_values", "cache_params", "cache", "state") if n in before]
        step = model(torch.tensor(ids[:, -1:]), use_cache=True, **{n: before[n] for n in names}).logits
    return prefill.float().numpy(), step[:, -1].float().numpy()


def shapes_of(case: str, directory: Path) -> list[tuple[str, list[int]]]:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config_of(case)))
    config = _library().AutoConfig.from_pretrained(known(directory))
    model = _auto(directory).from_config(config, attn_implementation="eager")
    model.save_pretrained(directory / "saved")
    return stored_shapes(directory / "saved")


def record(case: str) -> dict[str, np.ndarray]:
    torch = import_module("torch")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        shapes = shapes_of(case, directory / "first")
        make_recorded(directory, case, shapes)
        ids = token_ids(case)
        attention = ATTENTION.get(case, "eager")
        prefill, step = outputs(load(directory, torch.float32, attention), ids, case not in STEPLESS)
        make_recorded(directory / "half", case, shapes, "bfloat16")
        rounded = outputs(load(directory / "half", torch.float32, attention), ids, False)[0]
        half = outputs(load(directory / "half", torch.bfloat16, attention), ids, False)[0]
    # the root of the mean square: the largest of a few hundred errors is chance
    error = np.sqrt(np.mean((half - rounded) ** 2)) / np.abs(rounded).max()
    return {"shapes": np.array(json.dumps(shapes)), "prefill": prefill.astype(np.float32),
            "step": step.astype(np.float32), "half": rounded.astype(np.float32), "half_error": np.array(error)}  # fmt: skip


def main(cases: list[str]) -> None:
    RECORDS.mkdir(parents=True, exist_ok=True)
    for case in cases or CONFIGS:
        try:
            found = record(case)
        except Exception as e:
            print(f"{case}: {type(e).__name__}: {str(e)[:600]}")
            continue
        arrays: dict[str, Any] = found
        np.savez_compressed(RECORDS / f"{case}.npz", **arrays)
        print(f"{case}: bf16 {float(found['half_error']):.2e}, largest {np.abs(found['prefill']).max():.2f}, "
              f"{(RECORDS / f'{case}.npz').stat().st_size} bytes")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
