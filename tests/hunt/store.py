"""Found graphs as files: `NAME.onnx`, and beside it `NAME.npz` with the inputs that show the fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from hunt.checks import Case
from hunt.execute import Setting
from hunt.reference import Arrays
from onnx import ModelProto


def save(case: Case, path: Path) -> Path:
    """Write a case; its setting goes into the model's description."""
    path.parent.mkdir(parents=True, exist_ok=True)
    model = ModelProto()
    model.CopyFrom(case.model)
    model.doc_string = str(case.setting)
    onnx.save(model, path)
    np.savez_compressed(path.with_suffix(".npz"), **case.feeds)  # type: ignore[arg-type]
    return path


def load(path: Path) -> tuple[ModelProto, Arrays]:
    model = onnx.load(path)
    beside = path.with_suffix(".npz")
    if beside.exists():
        with np.load(beside) as stored:
            return model, {k: stored[k] for k in stored.files}
    rng = np.random.default_rng(0)
    feeds = {}
    for info in model.graph.input:
        if info.name in {t.name for t in model.graph.initializer}:
            continue
        t = info.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
        shape = [d.dim_value for d in t.shape.dim]
        a = rng.standard_normal(shape) if np.dtype(dtype).kind not in "iub" else rng.integers(0, 2, shape)
        feeds[info.name] = a.astype(np.float32 if np.dtype(dtype).kind not in "iub" else dtype)
    return model, feeds


def setting_of(model: ModelProto) -> Setting:
    """Return the setting that a stored model's description names."""
    words = model.doc_string.split()
    dtype = words[words.index("--dtype") + 1] if "--dtype" in words else ""
    level = int(words[words.index("--opt") + 1]) if "--opt" in words else 2
    machine = words[words.index("(machine") + 1].rstrip(")") if "(machine" in words else ""
    chips = int(words[words.index("--tp") + 1]) if "--tp" in words else 1
    return Setting(level, "--no-sharing" not in words, dtype, machine, "(eager)" in words, chips)
