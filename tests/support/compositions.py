"""Random small ONNX models: a few operators of many kinds on top of each other, as neighbours in one group would be.

Most begin with a matrix product or a convolution, because these lead groups. Every model is deterministic by its seed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper

F, B, INT = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
UNARY = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Exp", "Softplus", "Erf", "Gelu", "LeakyRelu", "Elu", "HardSigmoid",
         "HardSwish", "Mish", "Softsign", "Sign", "Sqrt", "Log", "Floor", "Selu", "ThresholdedRelu", "Shrink")  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", "Pow")
COMPARE = ("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal")
LOGIC = ("And", "Or", "Xor")
REDUCE = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")
CHANNELS = (8, 40, 63, 64, 65, 96, 128, 130, 200, 256)


class Composition:
    """Values so far with shapes and element types; every method adds one operator, or does nothing if it does not fit."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.values: list[tuple[str, tuple[int, ...], int]] = []
        self.read: set[str] = set()

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def outside(self, shape: tuple[int, ...], kind: int = F, weight: bool | None = None) -> str:
        """Return a new input or weight."""
        name = f"x{len(self.inputs) + len(self.weights)}"
        if weight or weight is None and self.chance(0.5):
            data = self.rng.standard_normal(shape) * (0.3 if len(shape) > 1 else 1.0)
            array = {F: data.astype(np.float32), B: data > 0, INT: (data * 4).astype(np.int64)}[kind]
            self.weights.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        else:
            self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def add(self, op: str, ins: list[str], shape: tuple[int, ...], kind: int = F, **attrs) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, ins, [name], f"n{len(self.nodes)}_{op}", **attrs))
        self.read.update(ins)
        self.values.append((name, shape, kind))
        return name

    def last(self, kind: int = F, rank: int = 0) -> tuple[str, tuple[int, ...]] | None:
        """Return a value of an element type, most often the latest."""
        found = [(n, s) for n, s, k in self.values if k == kind and len(s) >= rank]
        if not found:
            return None
        return found[-1] if self.chance(0.75) else self.pick(found)

    def beside(self, shape: tuple[int, ...], kind: int = F) -> tuple[str, tuple[int, ...]]:
        """Return something that can stand beside a value of that shape: another value, or an operand that may broadcast."""
        fits = [(n, s) for n, s, k in self.values if k == kind and _broadcasts(s, shape)]
        if fits and self.chance(0.5):
            return self.pick(fits)
        how = self.pick(("full", "vector", "vector", "scalar", "rows", "some"))
        other = {"full": shape, "vector": shape[-1:], "scalar": (), "rows": (*shape[:-1], 1) if shape else (),
                 "some": tuple(n if self.chance(0.5) else 1 for n in shape)}[how]  # fmt: skip
        return self.outside(other, kind), other

    # -- operators -------------------------------------------------------------------------------------------------

    def matmul(self) -> None:
        found = self.last(rank=2)
        if found is None:
            return
        x, shape = found
        n = self.pick(CHANNELS)
        if self.chance(0.3):  # scores of something like attention, from the right or the left
            twin = [(v, s) for v, s, k in self.values if k == F and len(s) >= 2 and s[:-2] == shape[:-2]]
            y, other = self.pick(twin)
            if shape[-1] == other[-2]:
                self.add("MatMul", [x, y], (*shape[:-1], other[-1]))
                return
            if shape[-1] == other[-1]:
                perm = [*range(len(other) - 2), len(other) - 1, len(other) - 2]
                y = self.add("Transpose", [y], tuple(other[p] for p in perm), perm=perm)
                self.add("MatMul", [x, y], (*shape[:-1], other[-2]))
                return
        lead = shape[:-2] if self.chance(0.3) else ()
        self.add("MatMul", [x, self.outside((*lead, shape[-1], n))], (*shape[:-1], n))

    def gemm(self) -> None:
        found = self.last(rank=2)
        if found is None or len(found[1]) != 2:
            return
        x, (m, k) = found
        n, t = self.pick(CHANNELS), int(self.chance(0.5))
        w = self.outside((n, k) if t else (k, n))
        c = [self.outside(self.pick(((n,), (1, n), (m, n), (m, 1), ())))] if self.chance(0.6) else []
        self.add("Gemm", [x, w, *c], (m, n), transB=t)

    def conv(self) -> None:
        found = self.last(rank=4)
        if found is None or len(found[1]) != 4:
            return
        x, (n, c, h, w) = found
        k = self.pick((1, 1, 3)) if min(h, w) >= 3 else 1
        groups = c if self.chance(0.2) else 1
        out = c if groups > 1 else self.pick((8, 40, 64, 96, 130))
        pad = k // 2
        stride = self.pick((1, 1, 2))
        size = tuple((s + 2 * pad - k) // stride + 1 for s in (h, w))
        ins = [x, self.outside((out, c // groups, k, k), weight=True)]
        ins += [self.outside((out,), weight=True)] if self.chance(0.5) else []
        self.add("Conv", ins, (n, out, *size), kernel_shape=[k, k], pads=[pad] * 4, strides=[stride] * 2, group=groups)

    def pool(self) -> None:
        found = self.last(rank=4)
        if found is None or len(found[1]) != 4 or min(found[1][2:]) < 2:
            return
        x, (n, c, h, w) = found
        op = self.pick(("MaxPool", "AveragePool", "GlobalAveragePool"))
        if op == "GlobalAveragePool":
            self.add(op, [x], (n, c, 1, 1))
        else:
            self.add(op, [x], (n, c, h // 2, w // 2), kernel_shape=[2, 2], strides=[2, 2])

    def unary(self) -> None:
        found = self.last()
        if found is None:
            return
        x, shape = found
        op = self.pick(UNARY)
        if op in ("Sqrt", "Log"):
            x = self.add("Abs", [x], shape)
            x = self.add("Add", [x, self.outside((), weight=True)], shape) if op == "Log" else x
            x = self.add("Abs", [x], shape) if op == "Log" else x
        if op == "Exp":
            x = self.add("Tanh", [x], shape)
        attrs = {"approximate": "tanh"} if op == "Gelu" and self.chance(0.5) else {}
        self.add(op, [x], shape, **attrs)

    def clip(self) -> None:
        found = self.last()
        if found is not None:
            lo = onnx.numpy_helper.from_array(np.array(-0.5, np.float32), f"x{len(self.inputs) + len(self.weights)}")
            self.weights.append(lo)
            self.add("Clip", [found[0], lo.name], found[1])

    def binary(self) -> None:
        found = self.last()
        if found is None:
            return
        x, shape = found
        op = self.pick(BINARY)
        y, other = self.beside(shape)
        if op == "Pow":
            x, y, other = self.add("Abs", [x], shape), self.outside((), weight=True), ()
        if op == "Div":
            y = self.add("Exp", [self.add("Tanh", [y], other)], other)
        swap = op not in ("PRelu", "Pow", "Div") and self.chance(0.4)
        self.add(op, [y, x] if swap else [x, y], shape)

    def compare(self) -> None:
        found = self.last()
        if found is not None:
            x, shape = found
            y, _ = self.beside(shape)
            self.add(self.pick(COMPARE[:4]), [y, x] if self.chance(0.4) else [x, y], shape, B)

    def logic(self) -> None:
        found = self.last(B)
        if found is None:
            return self.compare()
        x, shape = found
        if self.chance(0.4):
            self.add("Not", [x], shape, B)
        else:
            self.add(self.pick(LOGIC), [x, self.beside(shape, B)[0]], shape, B)

    def where(self) -> None:
        found = self.last()
        if found is None:
            return
        x, shape = found
        cond, _ = self.beside(shape, B)
        y, _ = self.beside(shape)
        self.add("Where", [cond, y, x] if self.chance(0.5) else [cond, x, y], shape)

    def cast(self) -> None:
        kind = self.pick((F, F, B, INT))
        found = self.last(kind)
        if found is not None:
            to = self.pick([k for k in (F, B, INT, TensorProto.INT32) if k != kind])
            x, shape = found
            name = self.add("Cast", [x], shape, to, to=to)
            if to not in (F, B, INT):
                self.add("Cast", [name], shape, F, to=F)

    def integer(self) -> None:
        found = self.last(INT)
        if found is None:
            return self.cast()
        x, shape = found
        y, _ = self.beside(shape, INT)
        if self.chance(0.4):
            self.add(self.pick(COMPARE), [x, y], shape, B)
        else:
            self.add(self.pick(("Add", "Sub", "Mul", "Max")), [x, y], shape, INT)

    def softmax(self) -> None:
        found = self.last(rank=1)
        if found is not None:
            x, shape = found
            axis = -1 if self.chance(0.7) else int(self.rng.integers(len(shape)))
            self.add("Softmax" if self.chance(0.8) else "LogSoftmax", [x], shape, axis=axis)

    def norm(self) -> None:
        found = self.last(rank=1)
        if found is None or not found[1]:
            return
        x, shape = found
        ins = [x, self.outside(shape[-1:])] + ([self.outside(shape[-1:])] if self.chance(0.5) else [])
        if self.chance(0.5):
            self.add("LayerNormalization", ins, shape, axis=-1)
        else:
            self.add("RMSNormalization", ins[:2], shape, axis=-1) if self.chance(0.0) else self._rms(x, shape, ins[1])

    def _rms(self, x: str, shape: tuple[int, ...], gamma: str) -> None:
        one = (*shape[:-1], 1)
        eps = onnx.numpy_helper.from_array(np.array(1e-5, np.float32), f"x{len(self.inputs) + len(self.weights)}")
        self.weights.append(eps)
        axes = onnx.numpy_helper.from_array(np.array([-1]), f"x{len(self.inputs) + len(self.weights)}")
        self.weights.append(axes)
        mean = self.add("ReduceMean", [self.add("Mul", [x, x], shape), axes.name], one)
        root = self.add("Sqrt", [self.add("Add", [mean, eps.name], one)], one)
        self.add("Mul", [self.add("Div", [x, root], shape), gamma], shape)

    def reduce(self) -> None:
        found = self.last(rank=1)
        if found is None or not found[1]:
            return
        x, shape = found
        axis = len(shape) - 1 if self.chance(0.6) else int(self.rng.integers(len(shape)))
        keep = self.chance(0.6)
        name = f"x{len(self.inputs) + len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(np.array([axis]), name))
        out = tuple(1 if d == axis else n for d, n in enumerate(shape) if keep or d != axis)
        self.add(self.pick(REDUCE), [x, name], out, keepdims=int(keep))

    def gate(self) -> None:
        """Two halves of the channels, one through an activation."""
        found = self.last(rank=1)
        if found is None or not found[1] or found[1][-1] % 2:
            return
        x, shape = found
        half = (*shape[:-1], shape[-1] // 2)
        names = [f"s{len(self.nodes)}_{i}" for i in (0, 1)]
        self.nodes.append(helper.make_node("Split", [x], names, f"n{len(self.nodes)}_Split", axis=-1, num_outputs=2))
        self.read.add(x)
        act = self.add(self.pick(("Gelu", "Sigmoid", "Relu")), [names[0]], half)
        self.add("Mul", [act, names[1]], half)

    def view(self) -> None:
        kind = self.pick((F, F, F, B))
        found = self.last(kind, rank=2)
        if found is None:
            return
        x, shape = found
        if self.chance(0.5):
            perm = [int(p) for p in self.rng.permutation(len(shape))]
            self.add("Transpose", [x], tuple(shape[p] for p in perm), kind, perm=perm)
        elif self.chance(0.5):
            new = (shape[0] * shape[1], *shape[2:]) if len(shape) > 2 else (1, *shape)
            name = f"x{len(self.inputs) + len(self.weights)}"
            self.weights.append(onnx.numpy_helper.from_array(np.array(new), name))
            self.add("Reshape", [x, name], new, kind)
        else:
            y, _ = self.pick([(n, s) for n, s, k in self.values if k == kind and s == shape])
            axis = int(self.rng.integers(len(shape)))
            self.add("Concat", [x, y], tuple(n * (1 + (d == axis)) for d, n in enumerate(shape)), kind, axis=axis)

    def gather(self) -> None:
        n, c, rows = self.pick((10, 50)), self.pick(CHANNELS), self.pick((1, 5, 30))
        index = f"x{len(self.inputs) + len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(self.rng.integers(0, n, (1, rows)), index))
        self.add("Gather", [self.outside((n, c)), index], (1, rows, c))

    # -- models ----------------------------------------------------------------------------------------------------

    def steps(self) -> list[Callable[[], None]]:
        return [self.matmul, self.matmul, self.gemm, self.conv, self.pool, self.unary, self.unary, self.binary, self.binary,
                self.compare, self.compare, self.logic, self.where, self.where, self.cast, self.integer, self.softmax, self.softmax,
                self.norm, self.reduce, self.gate, self.view, self.clip, self.gather]  # fmt: skip

    def build(self, ops: int) -> onnx.ModelProto:
        """Return a model of about so many operators; every value that none of them reads is a result, and some others."""
        start = self.pick(("matmul", "matmul", "conv", "conv1", "rows", "gather"))
        if start in ("conv", "conv1"):
            shape = (self.pick((1, 2, 12, 16)), self.pick((3, 8, 64)), *self.pick(((7, 9), (6, 6), (1, 12))))
        else:
            shape = (*self.pick(((), (1,), (2,), (2, 3), (16,))), self.pick((1, 5, 16, 19, 64)), self.pick(CHANNELS))
        self.values.append((self.outside(shape, weight=False), shape, F))
        first = {"matmul": self.matmul, "conv": self.conv, "conv1": self.conv, "gather": self.gather}
        first.get(start, lambda: None)()
        while len(self.nodes) < ops:
            self.pick(self.steps())()
        made = [(n, s, k) for n, s, k in self.values if any(n in node.output for node in self.nodes)]
        out = [v for v in made if v[0] not in self.read or self.chance(0.1)]
        infos = [helper.make_tensor_value_info(n, k, s) for n, s, k in out]
        graph = helper.make_graph(self.nodes, "composition", self.inputs, infos, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
        model.ir_version = 9
        onnx.checker.check_model(model, full_check=True)
        return model


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    pad = len(to) - len(shape)
    return pad >= 0 and all(a in (1, b) for a, b in zip(shape, to[pad:], strict=True))


def composition(seed: int, ops: int = 4) -> onnx.ModelProto:
    """Return the model of a seed."""
    return Composition(seed).build(ops)
