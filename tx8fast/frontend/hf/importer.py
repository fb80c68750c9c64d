"""`import_hf`: from a path to an IR program.

May import: ir, weights, errors, frontend.hf. Must not: read tensor bytes.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tx8fast.errors import (
    CausalRowsWarning,
    ConfigError,
    ImportModelError,
    UnsupportedError,
    UnusedOptionWarning,
)
from tx8fast.files import read_input, refer
from tx8fast.frontend.hf.checkpoint import are_of, find_entries, load_weights
from tx8fast.frontend.hf.config import ModelConfig, parse_config
from tx8fast.frontend.hf.gguf import read_gguf
from tx8fast.frontend.hf.graph import build
from tx8fast.frontend.hf.options import DTYPES, HfOptions
from tx8fast.frontend.hf.parallel import Parallel, share, split
from tx8fast.ir import new_context
from tx8fast.ir.builder import Builder
from tx8fast.ir.core import Context
from tx8fast.ir.program import IRProgram
from tx8fast.ir.types import TensorType
from tx8fast.weights.gguf import is_gguf

CONFIG_NAME = "config.json"
#: of a checkpoint that modelopt wrote: what config.json may leave out
QUANTIZATION_NAME = "hf_quant_config.json"
MAX_CONFIG_BYTES = 1 << 26


def is_hf(path: str | os.PathLike[str]) -> bool:
    """Return True if `path` looks like a model directory or a config file."""
    path = Path(path)
    return path.is_dir() or path.suffix == ".json"


def import_hf(path: str | os.PathLike[str], options: HfOptions) -> IRProgram:
    """Return the graph of a transformer with its weight table.

    Parameters
    ----------
    path : a directory with `config.json` and, optionally, `*.safetensors`; a `config.json` alone, whose weights are
        then missing: the program can be compiled and timed, not run; or a GGUF file.
    options : phase, sizes and element format.

    The function `main` of a decoder takes `input_ids` [batch, seq] i64 and for decode also `position` [1] i64
    (0 <= position < past) and the caches `past.{i}.key`, `past.{i}.value` [batch, past, kv_heads * head_dim], which
    the results `present.{i}.key`, `present.{i}.value` overwrite in place; latent attention caches `latent`
    and `rope_key` instead. First result: `logits` [batch, seq or 1, vocab]. Encoders take `input_ids` and
    `token_type_ids`, or `pixel_values` [batch, channels, height, width]; first result: `last_hidden_state`. With input "embeds"
    a decoder takes `inputs_embeds` [batch, seq, hidden] in the model's float format instead of `input_ids`. With attention_mask encoders of
    text take `attention_mask` [batch, seq], and decoders that attend to one `encoder_attention_mask` [batch, source], i64, 0 where a token
    is padding.

    Raises ConfigError (options), ImportModelError (files), UnsupportedError (model family or feature).
    """
    path = Path(path)
    directory = path if path.is_dir() else None
    if is_gguf(path):
        if options.as_family is not None:
            raise ConfigError(f"importing {path}: a GGUF file names its architecture; drop --as")
        root = path.resolve().parent
        checkpoint = path
        if options.part is not None:
            raise ConfigError(f"importing {path}: a GGUF file holds one model; drop --part")
        if options.dims:
            raise ConfigError(
                f"importing {path}: dims ({', '.join(options.dims)}) cannot be bound, a GGUF file has no symbolic dimensions; give "
                "batch, seq and past instead"
            )
        config, entries = read_gguf(path)
    else:
        root = directory
        file, fits = path / CONFIG_NAME if directory else path, partial(are_of, directory)
        config = read_config(file, options.as_family, options.part, options.dims, fits)
        checkpoint, entries = find_entries(directory)
        for stored in path.parent.glob("*.safetensors*") if directory is None else ():
            refer(stored)  # what a program that is made of the config alone will be run with
    fixed = config.image is not None or config.frames is not None
    options.check(config.model_type if config.encoder else "", fixed, config.source if config.cross else -1)
    if fixed and options.seq is not None:
        warnings.warn(
            "seq has no effect, the size of an image or sound makes the positions", UnusedOptionWarning, stacklevel=2
        )
    if options.attention_mask and not _pads(config):
        raise ConfigError(
            f"importing {path}: attention_mask is for encoders of text whose tokens see each other, and for decoders that attend to an encoder's "
            f"result; {config.model_type} is neither: rows in front of padding do not see it, or there is none; drop --attention-mask"
        )
    if options.input == "embeds" and config.side is not None:
        raise UnsupportedError(
            f"importing {path}: every layer of {config.model_type} looks tokens up in a second embedding; drop --input embeds"
        )
    if options.input == "embeds" and any(rope.images for rope in config.ropes):
        raise UnsupportedError(
            f"importing {path}: rows of images have places in time, height and width in a {config.model_type}, which --input embeds does "
            "not take yet; give token ids"
        )
    if options.input == "embeds" and options.phase == "prefill" and config.together == "image":
        warnings.warn(
            f"rows of an image see each other in this {config.model_type}, here each row sees those in front of it alone: --input embeds gives the "
            "model's results for rows of text, not for those of images",
            CausalRowsWarning,
            stacklevel=2,
        )
    if (
        options.phase == "prefill"
        and config.together == "prompt"
        and any(0 < w < (options.seq or 1) for w in config.windows)
    ):
        raise UnsupportedError(
            f"importing {path}: all rows of a prompt see each other in this model, and --seq {options.seq} is more than the window of its layers; "
            "give a shorter one"
        )
    wanted = None if options.dtype is None else DTYPES[options.dtype]
    weights = load_weights(config, root, checkpoint, entries, wanted)
    parallel = Parallel(options.tp, max(options.tp, options.chips))
    shares = partial(share, config, weights)
    config, weights = split(config, weights, parallel, f"cutting {config.model_type}")
    past = options.past if options.phase == "decode" else None
    seq = 1 if past is not None else options.seq or 1

    ctx = new_context()
    # programs name files, where their weights are, and no directory: one that is renamed holds the same model
    name = path.stem if config.gguf else config.model_type
    types = _arguments(ctx, config, options, seq, past, weights.dtype)
    module = ctx.create("module", n_regions=1, chip_x=parallel.chips)
    func = ctx.create("func", n_regions=1, sym_name="main", arg_names=tuple(types), loc=name)
    module.regions[0].add_block().append(func)
    block = func.regions[0].add_block()
    args = {n: block.add_arg(t, n) for n, t in types.items()}
    b = Builder(ctx, block)
    named = build(
        ctx,
        b,
        config,
        weights,
        args,
        compute_dtype=wanted or weights.dtype,
        past=past,
        logits=options.logits,
        parallel=parallel,
        longest=options.longest,
    )
    func.attrs["result_names"] = tuple(named)
    func.attrs["donated"] = _donated(list(types), list(named))
    b.op("return", *named.values())
    program = IRProgram(ctx, module, weights.table, name)
    program.phase, program.config_dtype, program.family = options.phase, weights.dtype, config.model_type
    program.shares = None if config.encoder else shares
    return program


def _pads(c: ModelConfig) -> bool:
    """Say whether padding of the encoder's text changes what is made of the other tokens."""
    if c.cross:
        return not c.source  # an encoder of sound has one length
    return bool(c.encoder) and c.image is None and c.frames is None and not c.causal


def _donated(args: list[str], results: list[str]) -> tuple[int, ...]:
    """Return flat (argument, result) index pairs: each cache argument's bytes become the matching result."""
    kept = {"past." + r.removeprefix("present."): i for i, r in enumerate(results) if r.startswith("present.")}
    return tuple(n for i, a in enumerate(args) if a in kept for n in (i, kept[a]))


def read_config(
    path: Path,
    as_family: str | None = None,
    part: str | None = None,
    dims: Mapping[str, int] | None = None,
    fits: Callable[[ModelConfig], bool] = lambda config: True,
) -> ModelConfig:
    """Return the checked config file, or that of a `part` of the model, read as one of `as_family`; `dims`: of its image, where that has any size; `fits`: see `parse_config`. Raises ImportModelError if it is not readable JSON."""
    raw = _read_json(path, f"; a model directory holds a '{CONFIG_NAME}'")
    beside = path.parent / QUANTIZATION_NAME
    told = isinstance(raw, dict) and (raw.get("quantization_config") or raw.get("compression_config"))
    if isinstance(raw, dict) and not told and beside.is_file():
        said = _read_json(beside)
        scheme = said.get("quantization") if isinstance(said, dict) else None
        if not isinstance(scheme, dict):
            raise ImportModelError(f"reading {beside}: required: an object with an object 'quantization'")
        if scheme.get("quant_algo") is not None:  # else caches alone are quantised
            raw["quantization_config"] = {"quant_method": "modelopt", **scheme}
    return parse_config(raw, str(path), as_family, part, dims, fits)


def _read_json(path: Path, help_: str = "") -> Any:
    try:
        return json.loads(read_input(path, MAX_CONFIG_BYTES))
    except OSError as e:
        raise ImportModelError(f"reading model config {path}: {e.strerror or e}{help_}") from e
    except (ValueError, RecursionError) as e:
        raise ImportModelError(f"reading model config {path}: not valid JSON: {e}") from e


def _arguments(
    ctx: Context, c: ModelConfig, o: HfOptions, seq: int, past: int | None, dtype: str
) -> dict[str, TensorType]:
    batch = o.batch
    if c.image is not None:
        return {"pixel_values": ctx.tensor((batch, c.image.channels, c.image.height, c.image.width), dtype)}
    if c.frames is not None:
        return {"input_features": ctx.tensor((batch, *c.frames), dtype)}
    if o.input == "embeds":
        args = {"inputs_embeds": ctx.tensor((batch, seq, c.hidden), dtype)}
    else:
        args = {"input_ids": ctx.tensor((batch, seq), "i64")}
    if c.token_types > 1:
        args["token_type_ids"] = ctx.tensor((batch, seq), "i64")
    if past is not None:
        args["position"] = ctx.tensor((1,), "i64")
        for i in range(c.layers):
            for k in c.caches(i):
                shape = (batch, *((past,) if k.rows else ()), *k.shape)
                args[f"past.{i}.{k.name}"] = ctx.tensor(shape, k.dtype or dtype)
    source = o.source or c.source
    if o.attention_mask:
        args["encoder_attention_mask" if c.cross else "attention_mask"] = ctx.tensor(
            (batch, source if c.cross else seq), "i64"
        )
    if c.cross and past is None:
        args["encoder_hidden_states"] = ctx.tensor((batch, source, c.hidden), dtype)
    elif c.cross:
        crossed = ctx.tensor((batch, source, c.kv_heads * c.head_dim), dtype)
        args |= {f"cross.{i}.{name}": crossed for i in range(c.layers) for name in ("key", "value")}
    return args
