"""Compile options, typed and checked once at the edge.

May import: errors. Must not: import anything heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from tx8fast.errors import ConfigError, raise_all
from tx8fast.records import dataclass

DTYPES = {"bf16": "bf16", "fp16": "f16", "fp32": "f32"}
PHASES = ("prefill", "decode")
ORDERS = ("nest", "free", "stepped", "best")  # `tile.schedule` says what they mean
LOGITS = ("all", "last", "none")
INPUTS = ("ids", "embeds")
MAX_DIM = 2**31 - 1
MAX_SIDE = 128  # of a chip grid


@dataclass(frozen=True)
class CompileOptions:
    """What a user may ask for. Sizes are tokens, sequences and bytes.

    dtype: the format to compute in, io_dtype: that of float inputs, outputs and caches; None keeps the model's own. sharing lets tiles load common operands together;
    search_seconds bounds opt 3: the search for chains by an amount of work that goes with it; the integer program ends then as
    a last resort, and the outcome depends on the machine.
    only: patterns of op names; the search groups no other ops. load_plans: a file of search results that takes the place of
    the search; opt and sharing are those of the file then, and what `only` selects is searched again.
    order: how tiles order their instructions, one of `ORDERS`.
    dims binds symbolic dimensions; constants binds model inputs to
    values. group_table names a pattern table (a built-in one by number, or a file) whose matches become groups. Parameters whose images total at most `embed_limit_bytes` are stored in the program file. as_family: the family to take a model
    directory for whose `model_type` is not known. chips: the
    grid (x, y) of chips that run the program together, None = as many in a row as the model was made for. tp: chips
    that share the layers of a model. part: of a model directory that holds several models, the one to compile ("text", "vision",
    "encoder", "decoder"). logits: of a decoder's prefill, "all" (None), those of the "last" token, or "none". input: "ids" (None) or
    "embeds", rows of the model's width in place of token ids. source: rows of an encoder's result that a decoder attends to.
    attention_mask: an input says which tokens of an encoder's text are there, and which are padding.
    kernels: a Python file with functions marked by `vector_kernel`, for ONNX nodes of kinds of one's own; it is executed.
    """

    phase: str | None = None
    seq: int | None = None
    past: int | None = None
    batch: int | None = None
    dtype: str | None = None
    io_dtype: str | None = None
    opt: int = 2
    search_seconds: float = 5.0
    sharing: bool = True
    only: tuple[str, ...] = ()
    load_plans: str = ""
    order: str = "best"
    group_table: str = ""
    machine: str = "tx8"
    dims: Mapping[str, int] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    embed_limit_bytes: int = 64 << 20
    chips: tuple[int, int] | None = None
    tp: int | None = None
    as_family: str | None = None
    part: str | None = None
    logits: str | None = None
    input: str | None = None
    source: int | None = None
    attention_mask: bool = False
    kernels: str = ""

    def __post_init__(self) -> None:
        problems = []
        if self.phase is not None and self.phase not in PHASES:
            problems.append(f"phase '{self.phase}' is unknown, expected one of {', '.join(PHASES)}")
        if self.dtype is not None and self.dtype not in DTYPES:
            hint = " (int8 needs a quantised model; not supported yet)" if self.dtype == "int8" else ""
            problems.append(f"dtype '{self.dtype}' is not supported, expected one of {', '.join(DTYPES)}{hint}")
        if self.io_dtype is not None and self.io_dtype not in DTYPES:
            problems.append(f"io_dtype '{self.io_dtype}' is not supported, expected one of {', '.join(DTYPES)}")
        if self.opt not in (1, 2, 3):
            problems.append(f"opt {self.opt} is unknown, expected 1, 2 or 3")
        if self.order not in ORDERS:
            problems.append(f"order '{self.order}' is unknown, expected one of {', '.join(ORDERS)}")
        if not 0 < self.search_seconds < float("inf"):
            problems.append(f"search_seconds is {self.search_seconds!r}, expected a positive number of seconds")
        if not isinstance(self.group_table, str):
            problems.append(f"group_table is {self.group_table!r}, expected the name of a file or a number as text")
        for name in ("load_plans", "kernels"):
            if not isinstance(getattr(self, name), str):
                problems.append(f"{name} is {getattr(self, name)!r}, expected the name of a file")
        if not isinstance(self.only, tuple) or not all(isinstance(p, str) for p in self.only):
            problems.append(f"only is {self.only!r}, expected a tuple of patterns")
        for name in ("seq", "past", "batch", "tp", "source"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                problems.append(f"{name} is {value!r}, expected a whole number of at least 1")
            elif value is not None and value > MAX_DIM:
                problems.append(f"{name} is {value}, expected at most {MAX_DIM}")
        for name, known in (("logits", LOGITS), ("input", INPUTS)):
            if getattr(self, name) not in (None, *known):
                problems.append(f"{name} '{getattr(self, name)}' is unknown, expected one of {', '.join(known)}")
        if self.chips is not None and (
            len(self.chips) != 2 or any(type(c) is not int or not 1 <= c <= MAX_SIDE for c in self.chips)
        ):
            problems.append(f"chips is {self.chips!r}, expected two whole numbers from 1 to {MAX_SIDE}")
        for name, value in self.dims.items():
            if type(value) is not int or value < 0:
                problems.append(f"dimension {name} is {value!r}, expected a whole number of at least 0")
        if self.phase == "prefill" and self.past is not None:
            problems.append(
                "past is for decode: a prefill starts with an empty cache; drop --past or use --phase decode"
            )
        raise_all(ConfigError, "reading options", problems)

    @property
    def ir_dtype(self) -> str:
        """The compute dtype in IR terms, "keep" for the model's own."""
        return self.compute_dtype or "keep"

    @property
    def compute_dtype(self) -> str | None:
        """The compute dtype in IR terms, None for the model's own."""
        return DTYPES[self.dtype] if self.dtype is not None else None

    @property
    def ir_io_dtype(self) -> str:
        """The format of the interface in IR terms, "keep" for the model's own."""
        return DTYPES[self.io_dtype] if self.io_dtype is not None else "keep"

    def import_options(self) -> dict[str, Any]:
        """The part that model readers take, absent values left out."""
        given = {
            "phase": self.phase,
            "seq": self.seq,
            "past": self.past,
            "batch": self.batch,
            "dims": dict(self.dims),
            "constants": dict(self.constants),
            "chips": None if self.chips is None else self.chips[0] * self.chips[1],
            "tp": self.tp,
            "as_family": self.as_family,
            "part": self.part,
            "logits": self.logits,
            "input": self.input,
            "source": self.source,
            "attention_mask": self.attention_mask or None,
            "kernels": self.kernels or None,
        }
        return {k: v for k, v in given.items() if v not in (None, {})}
