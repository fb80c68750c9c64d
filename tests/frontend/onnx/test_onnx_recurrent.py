"""Recurrent nets by steps give what onnxruntime gives and take no kernel core; what has no such form is one routine."""

import numpy as np
import onnx
import onnxruntime
import pytest
from frontend.onnx.onnx_build import info, model, node

import tx8fast
from tx8fast.frontend.onnx import recurrent

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
RNG = np.random.default_rng(3)


def net(path, kind: str, steps=4, batch=2, inputs=20, hidden=24, bias=True, start=True, lengths=None, **attrs):
    """Write a model of one net; return its inputs and what onnxruntime gives."""
    directions = 2 if attrs.get("direction") == "bidirectional" else 1
    rows = GATES[kind] * hidden
    weights = {"w": (directions, rows, inputs), "r": (directions, rows, hidden), "b": (directions, 2 * rows)}
    arrays = {k: (RNG.standard_normal(s) * 0.3).astype(np.float32) for k, s in weights.items()}
    shapes = {"x": (steps, batch, inputs)}
    if start:
        shapes |= {n: (directions, batch, hidden) for n in ("h", "c")[: 1 + (kind == "LSTM")]}
    names = ["x", "w", "r", "b" if bias else "", "", *[n for n in shapes if n != "x"]]
    if lengths is not None:
        arrays["lengths"], names[4] = np.array(lengths, np.int32), "lengths"
    results = ["y", "yh", "yc"][: 2 + (kind == "LSTM")]
    built = model(
        [node(kind, " ".join(n or "_" for n in names), " ".join(results), hidden_size=hidden, **attrs)],
        [info(k, s) for k, s in shapes.items()],
        [info(k, None) for k in results],
        {k: v for k, v in arrays.items() if k in names},
    )
    onnx.save(built, path)
    feed = {k: RNG.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    return feed, onnxruntime.InferenceSession(built.SerializeToString()).run(results, feed)


def check(path, feed, wanted) -> bool:
    """Compare; return whether the kernel core has a part in it."""
    program = tx8fast.compile(path, dtype="fp32")
    for got, w in zip(program.run(feed).values(), wanted, strict=True):
        assert got.shape == w.shape
        np.testing.assert_allclose(got, w, rtol=0, atol=3e-6 * np.abs(w).max())
    return bool(program.program.meta["kernel_core"])


@pytest.mark.parametrize(
    "kind,attrs",
    [("LSTM", {}), ("LSTM", {"direction": "bidirectional"}), ("LSTM", {"input_forget": 1}), 
     ("LSTM", {"direction": "reverse", "bias": False, "start": False}), ("LSTM", {"activations": ["Tanh", "Sigmoid", "Relu"]}),
     ("LSTM", {"steps": 1, "start": False}), ("LSTM", {"lengths": (4, 4)}), ("GRU", {}), ("GRU", {"linear_before_reset": 1}),
     ("GRU", {"linear_before_reset": 1, "start": False, "direction": "bidirectional"}), ("GRU", {"bias": False, "linear_before_reset": 1}),
     ("GRU", {"start": False}), ("RNN", {}), ("RNN", {"direction": "bidirectional", "activations": ["Relu", "Tanh"]})],
)  # fmt: skip
@pytest.mark.slow(but_every=5)
def test_by_steps(tmp_path, kind: str, attrs: dict) -> None:
    feed, wanted = net(tmp_path / "m.onnx", kind, **attrs)
    assert not check(tmp_path / "m.onnx", feed, wanted)


@pytest.mark.parametrize(
    "kind,attrs", [("LSTM", {"lengths": (4, 2)}), ("GRU", {"clip": 0.5}), ("RNN", {"lengths": (1, 3)})]
)
def test_as_a_routine(tmp_path, kind: str, attrs: dict) -> None:
    feed, wanted = net(tmp_path / "m.onnx", kind, **attrs)
    assert check(tmp_path / "m.onnx", feed, wanted)


def test_more_steps_than_are_unrolled(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(recurrent, "MOST_STEPS", 7)
    feed, wanted = net(tmp_path / "m.onnx", "LSTM", direction="bidirectional")
    assert check(tmp_path / "m.onnx", feed, wanted)


def test_steps_are_one_body(tmp_path) -> None:
    """Planned once, however many there are."""
    net(tmp_path / "m.onnx", "LSTM", steps=12)
    program = tx8fast.compile(tmp_path / "m.onnx")
    assert len({s.name for s in program.program.segments if "/" in s.name}) <= 4
