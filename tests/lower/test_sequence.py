"""Transformer layers whose sequences stay in scratchpad while the weights stream by, against the reference and under the
sanitizer."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from support.checkpoints import write_weights
from support.encoder_reference import EncoderReference
from support.family_checkpoints import family_config, family_weights
from support.one_op import MACHINES, Arg, Case, compare, tables

from tx8fast import api
from tx8fast.api import CompiledProgram
from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import GraphTable, GroupRecord
from tx8fast.lower import NotLowerable, rounds
from tx8fast.lower.base import round_up
from tx8fast.lower.sequence import SequenceStream
from tx8fast.machine import Machine
from tx8fast.numerics.formats import np_dtype
from tx8fast.program.verify import verify
from tx8fast.schedule.assemble import assemble
from tx8fast.search.grouping import join, uses
from tx8fast.search.stream_trial import stream_plan
from tx8fast.tile.tiling import Planned, Tiling

NO_SHRINK = (Phase.explicit, Phase.generate)
LOOSE = {"bf16": 6e-2, "f16": 1e-2, "f32": 1e-4}


def layer(dtype: str, n: int, rows: int, kv: int, group: int, depth: int, hidden: int, act: str = "gelu", pre: bool = False,
          mask: str = "", window: int = 0, bias: bool = True, machine: str = "test_2x2", bare: bool = False) -> Layer:  # fmt: skip
    """One layer of an encoder, norms behind the sums or (`pre`) before the products. act: of the hidden values, or "swiglu";
    mask: "" none, "own" one per sequence, "causal" (of `window` keys) one for all; bare: what comes in are the queries."""
    width, narrow = kv * group * depth, kv * depth
    small = {"lo": -2 / math.sqrt(width), "hi": 2 / math.sqrt(width)}
    args = [Arg((n, rows, width), dtype, "blocked")]
    params: list[Arg] = []

    def param(*shape: int, layout: str = "blocked", lo: float = small["lo"], hi: float = small["hi"]) -> int:
        params.append(Arg(shape, dtype, layout, lo, hi))
        return len(params) - 1

    def product(k: int, m: int) -> list[int]:
        return [param(k, m), *([param(m, layout="dense")] if bias else [])]

    names = {
        "q": product(width, width),
        "k": product(width, narrow),
        "v": product(width, narrow),
        "o": product(width, width),
    }
    names |= {"up": product(width, hidden), "down": product(hidden, width)}
    if act == "swiglu":
        names["gate"] = product(width, hidden)
    names |= {
        t: [param(width, layout="dense", lo=0.5, hi=1.5), param(width, layout="dense")] for t in ("norm1", "norm2")
    }
    if mask:
        low = {"bf16": -3e38, "f16": -65504.0, "f32": -3e38}[dtype]
        shape = (n, 1, 1, rows) if mask == "own" else (rows, rows)
        names["mask"] = [param(*shape, lo=low, hi=low)]
    sizes = ("h", kv, "g", group, "d", depth)
    visible = (0, window) if mask == "causal" else ()

    def body(b, x, *values):
        op = lambda kind, *v, **a: b.op(kind, *v, mem_layout="blocked", **a).result  # noqa: E731
        of = {name: [values[i] for i in which] for name, which in names.items()}
        norm = lambda v, name: op("layernorm", v, *of[name], axes=(-1,), eps=1e-5)  # noqa: E731
        y = norm(x, "norm1") if pre else x
        q, k, v = (y if name == "q" and bare else op("gemm", y, *of[name]) for name in "qkv")
        s = op("contract", q, k, equation="b s (h g d), b t (h d) -> b (h g) s t", sizes=sizes)
        p = op("softmax", s, *of.get("mask", []), axis=-1, scale=1 / math.sqrt(depth), visible=visible)
        y = op("contract", p, v, equation="b (h g) s t, b t (h d) -> b s (h g d)", sizes=sizes)
        x = op("add", x, op("gemm", y, *of["o"]))
        x = x if pre else norm(x, "norm1")
        y = norm(x, "norm2") if pre else x
        up = op("gemm", y, *of["up"])
        up = op("swiglu", op("gemm", y, *of["gate"]), up, act="silu") if act == "swiglu" else op(act, up)
        x = op("add", x, op("gemm", up, *of["down"]))
        return x if pre else norm(x, "norm2")

    table, fn, ops = tables([*args, *params], body)
    main = table.functions["main"]
    step = join(main, main.steps, set(range(len(main.steps))), uses(main, main.steps))
    main.steps = [step]
    return Layer(table, step.record, [*args, *params], MACHINES[machine], fn, ops)


@dataclass
class Layer:
    table: GraphTable
    record: GroupRecord
    args: list[Arg]
    machine: Machine
    fn: Any
    ops: list[Any]


class Fixed(SequenceStream):
    """A stream with given bands and rounds."""

    bands, round_bytes = 1, 1 << 20

    def lay_out(self, name, cycles) -> None:
        self.band_rows = round_up(-(-self.positions // self.bands), 8)
        if not self._cut(self.round_bytes) or not (reach := self._boldest(self.round_bytes)):
            raise InfeasibleError(f"{name}: does not fit")
        self._placed(self.round_bytes, reach)


def streamed(layer: Layer, bands: int, round_bytes: int, sharing: bool = True) -> tuple[Case, Fixed]:
    """Return the layer as a program of one stream; tiles load weights of any size together."""
    old = rounds.SHARE_MIN_BYTES
    rounds.SHARE_MIN_BYTES = 1
    try:
        low = Fixed(layer.record, layer.machine)
        low.sharing, low.bands, low.round_bytes = sharing, bands, round_bytes
        plan = stream_plan(low, layer.machine, "layer")
    finally:
        rounds.SHARE_MIN_BYTES = old
    program = assemble(layer.table, layer.machine, {layer.record: Planned(Tiling(low, plan), "")}, lambda key: {}, {})
    return Case(program, layer.args, layer.ops, layer.machine, [layer.record], layer.fn), low


def agrees(case: Case, seed: int, window: int = 0) -> None:
    verify(case.program)
    rng = np.random.default_rng(seed)
    feed = [a.values(rng) for a in case.args]
    for i, a in enumerate(case.args):
        if a.lo == a.hi:
            feed[i] = hidden(a, rng, window)
    got = CompiledProgram(case.program).run({f"x{i}": a for i, a in enumerate(feed)}, sanitize=True)
    (want,) = case.expected(feed)
    compare(got["y0"], want, LOOSE[case.args[0].dtype])


def hidden(mask: Arg, rng: np.random.Generator, window: int) -> np.ndarray:
    """Values of a mask: a causal one of the last `window` keys (0: all), or for every sequence some keys that nobody sees."""
    keys = mask.shape[-1]
    if len(mask.shape) == 2:
        back = np.arange(keys)[:, None] - np.arange(keys)[None]
        seen = (back >= 0) & (back < (window or keys))
    else:
        seen = rng.random(mask.shape) < 0.7
        seen[..., 0] = True
    return np.where(seen, 0.0, mask.lo).astype(np_dtype(mask.dtype))


@settings(max_examples=12, phases=NO_SHRINK)
@given(
    st.sampled_from(["bf16", "f16", "f32"]), st.integers(2, 9), st.integers(1, 70),
    st.sampled_from([(2, 1, 64), (1, 2, 64), (1, 1, 128), (3, 1, 32)]), st.sampled_from([64, 192, 200]),
    st.sampled_from(["gelu", "relu", "swiglu"]), st.booleans(), st.sampled_from(["", "own", "causal"]), st.sampled_from([0, 0, 5, 40]),
    st.booleans(), st.sampled_from([1, 2, 3]), st.sampled_from([1 << 20, 30_000]), st.booleans(), st.integers(0, 1 << 20),
)  # fmt: skip
@pytest.mark.slow
def test_any_layer(
    dtype, n, rows, heads, hidden, act, pre, mask, window, bias, bands, round_bytes, sharing, seed
) -> None:
    """Norms before and behind, heads of one and two blocks, grouped ones, gated layers, masks; several sequences per tile, the
    last tile one short; one band and several; large rounds and small."""
    try:
        case, _ = streamed(
            layer(dtype, n, rows, *heads, hidden, act, pre, mask, window, bias), bands, round_bytes, sharing
        )
    except (NotLowerable, InfeasibleError) as err:
        assume(err is None)
    agrees(case, seed, window)


@pytest.mark.parametrize(("batch", "seq", "dtype"), [(16, 24, "bf16"), (40, 64, "fp32")])
@pytest.mark.slow
def test_encoder_runs_a_layer_at_a_time(tmp_path, batch, seq, dtype) -> None:
    """A whole model: every layer is one launch, and nothing else of it crosses the DDR than its input and its result. 40:
    three sequences on some tiles, two on the others."""
    config = {**family_config("bert"), "hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 320,
              "num_hidden_layers": 3, "max_position_embeddings": 64}  # fmt: skip
    weights = family_weights(config)
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    write_weights(tmp_path, weights)
    rng = np.random.default_rng(0)
    ids, types = rng.integers(0, config["vocab_size"], (batch, seq)), rng.integers(0, 2, (batch, seq))
    compiled = api.compile(tmp_path, batch=batch, seq=seq, dtype=dtype)
    streams = {i for i, s in enumerate(compiled.program.segments) if s.info["engine"] == "sequence stream"}
    assert len(streams) == 1 and sum(launch.segment in streams for launch in compiled.program.launches) == 3
    found = compiled.run({"input_ids": ids, "token_type_ids": types}, sanitize=batch == 16)
    for name, want in EncoderReference(config, weights).text(ids, types).items():
        error = np.abs(found[name].astype(np.float64) - want).max() / np.abs(want).max()
        assert error < LOOSE["f32" if dtype == "fp32" else dtype]


def normed_by_heads() -> GroupRecord:
    """A group whose input has an axis of heads: as many sequences and positions as the result, and one axis more."""

    def body(b, x, gain, w):
        y = b.op("rmsnorm", x, gain, axes=(-1,), eps=1e-5, mem_layout="blocked").result
        return b.op(
            "contract", y, w, equation="b s h d, (h d) e -> b s e", sizes=("d", 64), mem_layout="blocked"
        ).result

    args = [Arg((4, 8, 3, 64), "f32", "blocked"), Arg((64,)), Arg((192, 64), "f32", "blocked")]
    main = tables(args, body)[0].functions["main"]
    return join(main, main.steps, set(range(len(main.steps))), uses(main, main.steps)).record


def test_what_cannot_be_a_stream_says_why() -> None:
    with pytest.raises(NotLowerable, match="heads are whole blocks of channels"):
        SequenceStream(layer("f32", 4, 8, 2, 1, 32, 64).record, MACHINES["test_2x2"])
    with pytest.raises(NotLowerable, match="more than half of the tiles would have no sequence"):
        SequenceStream(layer("f32", 1, 8, 1, 1, 64, 64).record, MACHINES["test_2x2"])
    with pytest.raises(NotLowerable, match="queries have no other reader than their attention"):
        SequenceStream(layer("f32", 4, 8, 1, 1, 64, 64, bare=True).record, MACHINES["test_2x2"])
    with pytest.raises(NotLowerable, match=r"what comes in is blocked \[sequences, positions, channels\]"):
        SequenceStream(normed_by_heads(), MACHINES["test_2x2"])
    low = SequenceStream(layer("f32", 4, 2048, 2, 1, 64, 64).record, MACHINES["test_2x2"])
    with pytest.raises(InfeasibleError, match="layer: a sequence and its weights do not fit"):
        low.lay_out("layer", lambda: 0)
