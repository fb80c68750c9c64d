"""The weight table of a model: every slot bound to stored tensors, or missing.

May import: weights, errors, frontend.hf. Must not: know the IR; read tensor bytes.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tx8fast.errors import ImportModelError, UnreadTensorWarning, raise_all
from tx8fast.frontend.hf.layer_slots import all_slots, optional_slots
from tx8fast.frontend.hf.quantization import FLOATS, add_float
from tx8fast.frontend.hf.slots import WRAPPED, Slot, names_of, outer_key
from tx8fast.frontend.hf.spec import ModelConfig
from tx8fast.frontend.hf.unconverted import refuse_unconverted
from tx8fast.frontend.hf.unread import check_unread
from tx8fast.records import dataclass
from tx8fast.weights import CheckpointEntry, WeightTable, find_checkpoint, open_checkpoint
from tx8fast.weights.gguf import GgufEntry

DEFAULT_DTYPE = "bf16"
Entries = Mapping[str, CheckpointEntry | GgufEntry]


@dataclass(frozen=True, slots=True)
class Bound:
    """A slot's entry in the weight table. `flipped`: a matrix stored [in, out]."""

    key: str
    flipped: bool


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """`slots`: graph name -> entry. `dtype`: the format of the embedding, in which activations flow."""

    table: WeightTable
    slots: dict[str, Bound]
    dtype: str


def find_entries(directory: Path | None) -> tuple[Path | None, Entries | None]:
    """Return a directory's checkpoint and its tensors; None where there is none. Raises ImportModelError if it has another format."""
    path = None if directory is None else find_checkpoint(directory)
    if path is None and directory is not None:
        refuse_unconverted(directory)
    return path, None if path is None else _modern(open_checkpoint(path))


def are_of(directory: Path | None, c: ModelConfig) -> bool:
    """Return whether the tensors of a directory are those of a model, all of them; True where there are none."""
    path, entries = find_entries(directory)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnreadTensorWarning)
        try:
            load_weights(c, None, path, entries, None)
        except (ImportModelError, UnreadTensorWarning):
            return False
    return True


def load_weights(
    c: ModelConfig, root: Path | None, path: Path | None, entries: Entries | None, dtype: str | None
) -> ModelWeights:
    """Bind all slots to `entries`, which `path` holds. Stored tensors keep their names there, computed ones start with "%".

    `root`: what file names are relative to. `entries` None: all are missing (compile-only), of the config's type,
    `dtype` or bfloat16. Raises ImportModelError that lists every absent or misfitting tensor.
    """
    table = WeightTable(root)
    entries = entries if entries is None else _renamed(names_of(c).written, entries)
    prefix = _prefix(c, entries)
    stored = c.dtype or dtype or DEFAULT_DTYPE
    slots = list(all_slots(c, prefix))
    if entries is not None:
        first = entries.get(slots[0].keys[0])
        stored = first.dtype if first is not None and first.dtype in FLOATS else stored
        slots = [_as_stored(s, entries) for s in slots if not s.optional or s.keys[0] in entries] + _present(
            c, prefix, entries
        )
    binder = _Binder(c, table, entries, stored)
    bound = {s.name: binder.bind(s) for s in slots}
    if entries is not None:
        config = "its metadata" if c.gguf else "config.json"
        doing = f"matching checkpoint {os.path.basename(str(path))} ({len(entries)} tensors) with {config}"
        problems = _headless(c, prefix, binder.problems) or check_unread(
            c, prefix, entries, lambda key: key in table or "%" + key in table
        )
        raise_all(ImportModelError, doing, problems)
    return ModelWeights(table, bound, stored)


def _headless(c: ModelConfig, prefix: str, problems: list[str]) -> list[str]:
    """Say of a model that lacks a head of words alone what it may be."""
    key = f"'{outer_key(names_of(c), 'lm_head', prefix)}." if "lm_head" in names_of(c).outer else "'"
    if c.encoder or not problems or not all(p.startswith(key) for p in problems):
        return problems
    return [
        *problems[:-1],
        f"{problems[-1]}: these are layers alone, or those of another task, and a program of a {c.model_type} gives logits of words; export "
        "the model to ONNX and compile that",
    ]


def _modern(entries: dict[str, CheckpointEntry]) -> dict[str, CheckpointEntry]:
    """Old conversions of TensorFlow checkpoints call the parameters of a norm gamma and beta."""
    names = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
    renamed = {}
    for key, entry in entries.items():
        old = next((n for n in names if key.endswith(n)), None)
        renamed[key if old is None else key.removesuffix(old) + names[old]] = entry
    return renamed


def _renamed(written: Mapping[str, str], entries: Entries) -> Entries:
    """Return the tensors by the names of the published files, whatever the library's newer versions call them."""
    if not written:
        return entries
    found = {}
    for key, entry in entries.items():
        ours = key
        for pattern, name in written.items():
            ours = re.sub(pattern, name, ours)
        found[key if ours in entries else ours] = entry
    return found


def _prefix(c: ModelConfig, entries: Entries | None) -> str:
    """Checkpoints of the bare model leave the outer name away."""
    names = names_of(c)
    module = next(iter(names.outer))
    for prefix in (*names.prefixes, *WRAPPED) if entries is not None else ():
        if outer_key(names, module, prefix) + ".weight" in (entries or ()):
            return prefix
    return names.prefixes[0]


def _as_stored(slot: Slot, entries: Entries) -> Slot:
    """Return the slot in the shape that the checkpoint has, if it has one of those known."""
    entry = entries.get(slot.keys[0])
    if slot.other is None or entry is None or entry.shape == slot.stored:
        return slot
    entry = entries.get(slot.other.keys[0])
    return slot.other if entry is not None and entry.shape == slot.other.shapes()[0] else slot


def _present(c: ModelConfig, prefix: str, entries: Entries) -> list[Slot]:
    """Return the optional slots that the checkpoint has, free sizes filled in."""
    found = []
    for slot in optional_slots(c, prefix):
        entry = entries.get(slot.keys[0])
        if entry is not None and len(entry.shape) == len(slot.stored):
            found.append(
                replace(
                    slot,
                    stored=tuple(b if a < 0 else a for a, b in zip(slot.stored, entry.shape, strict=True)),
                )
            )
    return found


class _Binder:
    def __init__(self, c: ModelConfig, table: WeightTable, entries: Entries | None, dtype: str) -> None:
        self.scheme, self.table, self.entries, self.dtype = c.quantization, table, entries, dtype
        self.problems: list[str] = []

    def bind(self, slot: Slot) -> Bound:
        shapes = slot.shapes()
        keys = [self.stored(key, shape) for key, shape in zip(slot.keys, shapes, strict=True)]
        if any(k not in self.table for k in keys):
            return Bound(keys[0], slot.flipped)  # reported as a problem
        key = keys[0]
        dtype = self.table[key].dtype
        if slot.expert:
            shape = list(slot.stored)
            shape[slot.axis] = sum(s[slot.axis] for s in shapes)
            joined = replace(slot, name=slot.name + ".joined") if slot.steps else slot
            key = self._derived(joined, "concat", {"axis": slot.axis}, keys, tuple(shape), dtype)
        if slot.steps:
            steps = [list(s) for s in slot.steps]
            key = self._derived(slot, "view", {"steps": steps}, [key], _shape_after(slot), dtype)
        if slot.shift:
            # in f32: the sum has more digits than the stored gain, and a half format would drop them
            key = self._derived(slot, "shift", {"value": slot.shift}, [key], self.table[key].shape, "f32")
        return Bound(key, slot.flipped)

    def _derived(
        self,
        slot: Slot,
        expr: str,
        attrs: dict,
        inputs: list[str],
        shape: tuple[int, ...],
        dtype: str,
    ) -> str:
        return self.table.add_derived("%" + slot.name, expr, attrs, inputs, shape, dtype).key

    def stored(self, key: str, shape: tuple[int, ...]) -> str:
        """Put a stored tensor into the table once, dequantised if need be; return the entry's key."""
        if key in self.table and "%" + key not in self.table:
            return key
        if "%" + key in self.table:
            return "%" + key
        if self.entries is None:
            return self.table.add_missing(key, shape, self.dtype).key
        if self.scheme is not None:
            problems = add_float(self.table, self.entries, self.scheme, key, shape, self.dtype)
            if problems is not None:
                self.problems += problems
                return "%" + key
        entry = self.entries.get(key)
        if entry is None:
            self.problems.append(f"'{key}' is absent, required shape {list(shape)}")
        elif entry.shape != shape:
            self.problems.append(f"'{key}' has shape {list(entry.shape)}, required {list(shape)}")
        elif entry.dtype not in FLOATS:
            self.problems.append(f"'{key}' has dtype {entry.dtype}, required one of {', '.join(FLOATS)}")
        else:
            self.table.add_file(key, entry)
        return key


def _shape_after(slot: Slot) -> tuple[int, ...]:
    shape = slot.stored
    for kind, *args in slot.steps:
        if kind == "reshape":
            shape = tuple(args[0])
        elif kind == "slice":
            shape = tuple(args[1])
        elif kind == "sum":
            shape = tuple(n for axis, n in enumerate(shape) if axis != args[0])
        else:
            shape = tuple(shape[a] for a in args[0])
    return shape
