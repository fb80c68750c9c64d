"""Record what the transformers library computes for the tiny models of `recorded_parts`; needs torch.

python -m tests.support.record_parts [CASE ...]
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.record_families import RECORDS, stored_shapes
from tests.support.recorded_parts import CASES, PAIRS, config_of, inputs_of, make_part, pair_inputs

#: by part: the class that computes it alone, and what it calls the results
_PROJECTED = {"embeds": {"vision": "get_image_features", "text": "get_text_features"}}


def _library() -> Any:
    return import_module("transformers")


def _auto(case: str) -> Any:
    if case not in PAIRS:
        return _library().AutoModelForObjectDetection if "logits" in CASES[case][2] else _library().AutoModel
    return _library().AutoModelForSpeechSeq2Seq if case == "whisper" else _library().AutoModelForSeq2SeqLM


def shapes_of(case: str, directory: Path) -> list[tuple[str, list[int]]]:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config_of(case)))
    config = _library().AutoConfig.from_pretrained(directory)
    model = _auto(case).from_config(config, attn_implementation="eager")
    model.save_pretrained(directory / "saved")
    return stored_shapes(directory / "saved")


def _pair_outputs(model: Any, case: str, dtype: Any) -> dict[str, np.ndarray]:
    """The encoder's result, the logits of a prefill, and those of its last token computed as a step with caches."""
    torch = import_module("torch")
    given, ids = pair_inputs(case)
    given = {k: torch.tensor(v).to(dtype) if v.dtype == np.float32 else torch.tensor(v) for k, v in given.items()}
    ids = torch.tensor(ids)
    with torch.no_grad():
        heard = model.get_encoder()(**given)
        prefill = model(encoder_outputs=heard, decoder_input_ids=ids).logits
        before = model(encoder_outputs=heard, decoder_input_ids=ids[:, :-1], use_cache=True)
        step = model(
            encoder_outputs=heard, decoder_input_ids=ids[:, -1:], past_key_values=before.past_key_values, use_cache=True
        ).logits
    found = {"encoder": heard[0], "prefill": prefill, "step": step[:, -1]}
    return {n: v.float().numpy() for n, v in found.items()}


def _cell_outputs(tower: Any, pixels: Any, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """What a tower makes of images [batch, channels, height, width] whose patches it wants cell by cell, and twice for a still image."""
    torch, c = import_module("torch"), tower.config
    patch, merge, (batch, channels, height, width) = c.patch_size, c.spatial_merge_size, pixels.shape
    rows, columns = height // patch, width // patch
    x = pixels.reshape(batch, channels, rows // merge, merge, patch, columns // merge, merge, patch).permute(
        0, 2, 5, 3, 6, 1, 4, 7
    )
    x = x.unsqueeze(6).expand(*x.shape[:6], c.temporal_patch_size, patch, patch).reshape(batch * rows * columns, -1)
    grid = torch.tensor([[1, rows, columns]] * batch)
    with torch.no_grad():
        found = tower(x, grid_thw=grid)
    last = found["last_hidden_state"]
    if hasattr(c, "window_size"):  # in the order of the windows
        order, _ = import_module("transformers.vision_utils").get_vision_window_index(grid, merge, c.window_size, patch)
        last = last.reshape(len(order), merge**2, -1)[torch.argsort(order)]
    every = {"last_hidden_state": last.reshape(batch, rows * columns, -1), "pooler_output": found["pooler_output"]}
    every |= {f"deepstack.{n}": y for n, y in enumerate(found.get("deepstack_features") or ())}
    return {n: every[n].reshape(batch, -1, every[n].shape[-1]).float().numpy() for n in names}


def outputs(directory: Path, case: str, dtype: Any) -> dict[str, np.ndarray]:
    torch = import_module("torch")
    model, info = _auto(case).from_pretrained(
        directory, output_loading_info=True, attn_implementation="eager", dtype=dtype
    )
    bad = {k: v for k, v in info.items() if v and k != "error_msgs"}
    assert not bad, bad
    model.eval()
    if case in PAIRS:
        return _pair_outputs(model, case, dtype)
    _, part, names = CASES[case]
    if hasattr(model, "visual"):
        return _cell_outputs(model.visual, torch.tensor(inputs_of(case)["pixel_values"]).to(dtype), names)
    tower = model.vision_encoder if case == "sam" else getattr(model, f"{part}_model") if part else model
    given = {
        k: torch.tensor(v).to(dtype) if v.dtype == np.float32 else torch.tensor(v) for k, v in inputs_of(case).items()
    }
    with torch.no_grad():
        found = tower(**given)
        results = {n: found[n] for n in names if n != "embeds"}
        if "embeds" in names:
            results["embeds"] = (model.visual_projection if part == "vision" else model.text_projection)(
                found["pooler_output"]
            )
    return {n: v.float().numpy() for n, v in results.items()}


def record(case: str) -> dict[str, Any]:
    torch = import_module("torch")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        shapes = shapes_of(case, directory / "first")
        make_part(directory, case, shapes)
        found = outputs(directory, case, torch.float32)
        make_part(directory / "half", case, shapes, "bfloat16")
        first = "prefill" if case in PAIRS else CASES[case][2][0]
        rounded = outputs(directory / "half", case, torch.float32)[first]
        half = outputs(directory / "half", case, torch.bfloat16)[first]
    error = np.sqrt(np.mean((half - rounded) ** 2)) / np.abs(rounded).max()
    return {"shapes": np.array(json.dumps(shapes)), **found, "half": rounded, "half_error": np.array(error)}


def main(cases: list[str]) -> None:
    for case in cases or (*CASES, *PAIRS):
        try:
            found = record(case)
        except Exception as e:
            print(f"{case}: {type(e).__name__}: {str(e)[:600]}")
            continue
        np.savez_compressed(RECORDS / f"{case}.npz", **found)
        print(f"{case}: bf16 {float(found['half_error']):.2e}, {(RECORDS / f'{case}.npz').stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
