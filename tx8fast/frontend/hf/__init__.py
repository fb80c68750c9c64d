"""Hugging Face front end: a model directory or a `config.json` becomes a graph and a weight table.

May import: ir, weights, errors. Must not: import torch or transformers; read tensor bytes.
"""

from tx8fast.frontend.hf.config import ModelConfig, parse_config
from tx8fast.frontend.hf.importer import import_hf, is_hf
from tx8fast.frontend.hf.options import HfOptions

__all__ = ["HfOptions", "ModelConfig", "import_hf", "is_hf", "parse_config"]
