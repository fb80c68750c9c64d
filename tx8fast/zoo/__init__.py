"""The models that the benchmark suite compiles, as data: configurations, graphs without weights, and manifests of what to make of them.

May import: files, errors. Must not: open a model.

NAME.json is a model's config.json, NAME.onnx a graph whose weights lie in NAME.weights, a file that nobody has: a compilation reads no
weights, so that a file of the right length, made of a hole, serves.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from tx8fast.errors import ConfigError
from tx8fast.files import replacing

#: name of a suite -> what it is for
SUITES = {
    "zoo": "every model once: a prefill of 512 tokens and a decode step behind 512, images in small and large batches",
    "lengths": "a few models at many lengths and batches",
}
#: weights that a graph refers to, and their bytes
WEIGHTS = {"resnet-50.weights": 102_121_888}


def write_zoo(folder: Path) -> list[str]:
    """Write manifests and models to a directory; return the names of the manifests. Raises ConfigError if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for entry in resources.files(__name__).iterdir():
            if entry.name.endswith((".json", ".onnx", ".toml")):
                with replacing(folder / entry.name) as f:
                    f.write(entry.read_bytes())
        for name, size in WEIGHTS.items():
            with replacing(folder / name) as f:
                f.truncate(size)
    except OSError as e:
        raise ConfigError(f"writing the model zoo to {folder}: {e.strerror or e}") from e
    return [f"{suite}.toml" for suite in SUITES]
