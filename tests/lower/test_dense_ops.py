"""Element-wise ops on dense tensors share a loop nest: the bits of single ops, each tensor moved once."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from frontend.onnx.onnx_build import info, model, node
from hypothesis import given, settings
from hypothesis import strategies as st

import tx8fast
from tx8fast import api
from tx8fast.graph_table import Dim, GroupRecord, OpRecord, Rule, TensorSpec
from tx8fast.lower.dense_ops import as_rows

SHAPES = [(64,), (128,), (4096,), (3, 64), (5, 7, 64), (16, 12), (33, 128), (2, 3, 4, 5), (1, 640), (70, 70)]


def graph(
    rng: np.random.Generator, shape: tuple[int, ...], steps: int
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Some ops on two inputs of a shape and single numbers, with some results read again and some given out."""
    values, nodes, constants, truths = ["a", "b"], [], {}, []
    for i in range(steps):
        x, y = (values[int(rng.integers(0, len(values)))] for _ in range(2))
        way = int(rng.integers(0, 6))
        if way == 0:
            nodes.append(node(str(rng.choice(["Mul", "Add", "Sub", "Max"])), f"{x} {y}", f"v{i}"))
        elif way == 1:
            nodes.append(node(str(rng.choice(["Abs", "Relu", "Tanh", "Sigmoid", "Neg"])), x, f"v{i}"))
        elif way == 2:
            constants[f"c{i}"] = rng.standard_normal((1,) * int(rng.integers(0, len(shape) + 1))).astype(np.float32)
            nodes.append(node("Mul", f"{x} c{i}", f"v{i}"))
        else:
            nodes += [
                node(str(rng.choice(["Greater", "Less"])), f"{x} {y}", f"t{i}"),
                node("Where", f"t{i} {x} {y}", f"v{i}"),
            ]
            truths.append(f"t{i}")
        values.append(f"v{i}")
    outs = [values[-1], *(v for v in values[2:-1] if rng.random() < 0.2)]
    if truths and rng.random() < 0.5:
        nodes.append(node("Cast", truths[-1], "truth", to=1))
        outs.append("truth")
    ins = [info(n, shape) for n in "ab"]
    feeds = {n: rng.standard_normal(shape).astype(np.float32) for n in "ab"}
    return model(nodes, ins, [info(n, shape) for n in dict.fromkeys(outs)], constants), feeds


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 30), shape=st.sampled_from(SHAPES), dtype=st.sampled_from(["fp32", "bf16", "fp16"]))
@pytest.mark.slow
def test_groups_have_the_bits_of_their_ops(tmp_path_factory, seed, shape, dtype):
    rng = np.random.default_rng(seed)
    proto, feeds = graph(rng, shape, int(rng.integers(2, 7)))
    path = tmp_path_factory.mktemp("dense") / "m.onnx"
    onnx.save(proto, path)
    alone, together = (tx8fast.compile(path, opt=opt, dtype=dtype) for opt in (1, 2))
    want, found = (c.run(feeds, sanitize=True) for c in (alone, together))
    assert all(np.array_equal(found[k], want[k]) for k in want)
    report = api.prove(together.program, path, quick=True)
    assert report.proved, "\n".join(report.lines())


def test_every_tensor_is_moved_once(tmp_path):
    steps = [node("Mul", "a b", "s"), node("Abs", "s", "t"), node("Greater", "t a", "m"), node("Where", "m t b", "u")]
    steps.append(node("Exp", "u", "y"))
    shape = (256, 512)
    onnx.save(model(steps, [info(n, shape) for n in "ab"], [info("y", shape)], {}), tmp_path / "m.onnx")
    result = tx8fast.compile(tmp_path / "m.onnx", dtype="fp32").simulate()
    assert result.ddr_bytes <= 1.02 * 3 * 4 * 256 * 512


def group(*specs: TensorSpec) -> GroupRecord:
    """A negation of the first spec, then its product with every other one."""
    out = specs[0]
    dims = tuple(Dim(n, ((f, 1),)) for f, n in enumerate(out.shape))
    rule = Rule(out.shape, "P" * len(out.shape), (dims,), (dims,))
    ops = [OpRecord("neg", (), (out,), (out,), rule), *(OpRecord("mul", (), (out, s), (out,), rule) for s in specs[1:])]
    wires = [(("in", 0),), *((("op", i), ("in", i + 1)) for i in range(len(specs) - 1))]
    return GroupRecord(tuple(ops), tuple(wires), specs, (len(specs) - 1,))


def test_only_equal_dense_tensors_and_single_elements_become_rows():
    whole, row = TensorSpec((2, 96), "bf16", "dense"), TensorSpec((96,), "bf16", "dense")
    one = TensorSpec((1, 1), "bf16", "dense")
    made = as_rows(group(whole, whole, one))
    assert made.operands == (TensorSpec((3, 64), "bf16", "blocked"),) * 2 + (TensorSpec((), "bf16"),)
    assert [op.results[0].shape for op in made.ops] == [(3, 64)] * 3
    for others in ((row,), (TensorSpec((2, 96), "bf16", "blocked"),)):
        same = group(whole, *others)
        assert as_rows(same) is same
    odd = group(TensorSpec((2, 95), "bf16", "dense"))
    assert as_rows(odd) is odd
