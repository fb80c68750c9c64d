"""What the caller chooses about an imported transformer: phase, sizes, element format.

May import: ir.chips, errors. Must not: know config files or graphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tx8fast.errors import ConfigError, raise_all
from tx8fast.ir.chips import MAX_CHIPS
from tx8fast.records import dataclass

#: names accepted on the command line -> our format names
DTYPES = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "f16",
    "f16": "f16",
    "float16": "f16",
    "fp32": "f32",
    "f32": "f32",
    "float32": "f32",
}
LOGITS = ("all", "last", "none")
INPUTS = ("ids", "embeds")


@dataclass(frozen=True, slots=True)
class HfOptions:
    """`seq`: prompt tokens of a prefill. `past`: KV cache slots of a decode step. `dtype` None: the model's own."""

    phase: str = "prefill"
    batch: int = 1
    seq: int | None = None
    past: int | None = None
    longest: int = 0  # make the graph that so many tokens or slots need, where that is more: windows and factors beyond the first ones
    dtype: str | None = None
    logits: str = "all"  # prefill: of all positions, of the "last" one, or "none"; decode: "none" leaves them away
    input: str = "ids"  # of a decoder: token ids, or "embeds", what stands for them in the model's width
    source: int | None = None  # rows of an encoder's result that a decoder attends to
    attention_mask: bool = False  # an input says which tokens of an encoder's text are there
    part: str | None = None  # of a model of several: the one to compile
    tp: int = 1  # chips that share every layer
    chips: int = 1  # that run the program
    dims: Mapping[str, int] = field(
        default_factory=dict
    )  # height and width of an image, for encoders of images of any size
    as_family: str | None = None  # the family to take the config for, whatever it says

    def check(self, encoder: str = "", fixed: bool = False, source: int = -1) -> None:
        """Raise ConfigError that lists every contradiction. `encoder`: the model type if it keeps no cache; `fixed`: its input has one
        length; `source`: the rows of an encoder's result that the model attends to, 0 = any number, -1 = it attends to none."""
        problems = []
        if self.phase not in ("prefill", "decode"):
            problems.append(f"phase '{self.phase}' is not one of prefill, decode")
        if self.logits not in LOGITS:
            problems.append(f"logits '{self.logits}' is not one of {', '.join(LOGITS)}")
        if self.input not in INPUTS:
            problems.append(f"input '{self.input}' is not one of {', '.join(INPUTS)}")
        if self.dtype is not None and self.dtype not in DTYPES:
            problems.append(f"dtype '{self.dtype}' is not one of bf16, fp16, fp32")
        if type(self.tp) is int and self.tp > 0 and self.chips > 1 and self.chips % self.tp:
            problems.append(f"chips is {self.chips}, required a multiple of tp, {self.tp}")
        for name, value in (
            ("batch", self.batch),
            ("seq", self.seq),
            ("past", self.past),
            ("tp", self.tp),
            ("source", self.source),
        ):
            if value is not None and (type(value) is not int or value < 1):
                problems.append(f"{name} is {value!r}, required a whole number >= 1")
        if encoder:
            if self.phase == "decode" or self.past is not None:
                problems.append(
                    f"{encoder} is an encoder: it sees its whole input at once; drop --phase decode and --past"
                )
            if self.logits != "all":
                problems.append(f"{encoder} is an encoder and gives no logits per token; drop --logits")
            if self.input != "ids":
                problems.append(f"{encoder} is an encoder, and --input is for decoders; drop it")
            if self.seq is None and not fixed:
                problems.append("the number of input tokens is needed, give --seq")
        elif self.phase == "prefill":
            if self.past is not None:
                problems.append("past is given but phase is prefill; a prefill starts with an empty cache, drop --past")
            if self.seq is None:
                problems.append("prefill needs the number of prompt tokens, give --seq")
        elif self.phase == "decode":
            if self.past is None:
                problems.append("decode needs the number of KV cache slots, give --past")
            if self.seq not in (None, 1):
                problems.append(f"seq is {self.seq} but decode handles one token per step; drop --seq or use prefill")
        if source < 0 and self.source is not None:
            problems.append("source is given, and the model attends to no encoder's result; drop --source")
        elif source == 0 and self.source is None:
            problems.append("the number of rows of the encoder's result is needed, give --source")
        elif source > 0 and self.source not in (None, source):
            problems.append(f"source is {self.source}, and the model's encoder gives {source} rows; drop --source")
        if type(self.tp) is int and max(self.tp, self.chips) > MAX_CHIPS:
            problems.append(
                f"tp is {self.tp} of {max(self.tp, self.chips)} chips, at most {MAX_CHIPS} run one program together"
            )
        raise_all(ConfigError, "import options", problems)
