"""Weights beside a config.json in formats that are not read, and the command that converts them.

May import: errors. Must not: open the files.
"""

from __future__ import annotations

import glob
import json
import shlex
from pathlib import Path

from tx8fast.errors import ImportModelError

_TORCH = (
    "import glob, torch; from safetensors.torch import save_file; "
    "save_file({{k: v.clone().contiguous() for f in sorted(glob.glob({files})) "
    'for k, v in torch.load(f, map_location="cpu", weights_only=True).items()}}, {out})'
)
_LIBRARY = (
    'import json, transformers as t; d = {folder}; c = json.load(open(d + "/config.json")); '
    'getattr(t, (c.get("architectures") or ["AutoModel"])[0]).from_pretrained(d, {source}=True).save_pretrained(d)'
)
#: files of weights by their usual names -> code that turns all of them into safetensors beside them; needs: packages
_FORMATS = {
    "pytorch_model*.bin": (_TORCH, "", "torch and safetensors"),
    "consolidated*.pth": ("", "", ""),
    "*.pth": (_TORCH, "", "torch and safetensors"),
    "tf_model*.h5": (_LIBRARY, "from_tf", "tensorflow, torch and 'transformers<5'"),
    "flax_model*.msgpack": (_LIBRARY, "from_flax", "flax, torch and 'transformers<5'"),
}


def refuse_unconverted(folder: Path) -> None:
    """Raise ImportModelError if a directory without safetensors has weights in another format; without any it has none yet."""
    for pattern, (code, source, needs) in _FORMATS.items():
        found = sorted(p.name for p in folder.glob(pattern))
        if not found:
            continue
        whole = folder.resolve()
        if code:
            # the folder's name may have what shells and patterns take for special
            paths = {
                "files": Path(glob.escape(str(whole))) / pattern,
                "out": whole / "model.safetensors",
                "folder": whole,
            }
            text = code.format(**{k: json.dumps(str(v)) for k, v in paths.items()}, source=source)
            help_ = f"with {needs} installed this converts it:\npython -c {shlex.quote(text)}\n"
        else:
            help_ = (
                "its tensors have the names of the original code: the converter of its family in the transformers library turns it into "
                "safetensors, for example\n"
                f"python -m transformers.models.llama.convert_llama_weights_to_hf --input_dir {shlex.quote(str(whole))} --output_dir OUT\n"
            )
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise ImportModelError(
            f"opening the checkpoint in {folder}: {found[0]}{more} is not safetensors, which alone is read; {help_}"
            "to compile without weights give config.json itself"
        )
