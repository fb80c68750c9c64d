"""Small fused ops, put together op by op from factor rules."""

from __future__ import annotations

from tx8fast.graph_table import GroupRecord, OpRecord, Rule, TensorSpec
from tx8fast.ir import factors

Shape = tuple[int, ...]
WINDOW = {"stride": (1, 1), "dilation": (1, 1), "pad_lo": (1, 1), "pad_hi": (1, 1), "groups": 1}


class Group:
    """Collects ops; a value is ("in", k) or ("op", i)."""

    def __init__(self) -> None:
        self.ops: list[OpRecord] = []
        self.wires: list[tuple[tuple[str, int] | None, ...]] = []
        self.operands: list[TensorSpec] = []

    def operand(self, *shape: int) -> tuple[str, int]:
        self.operands.append(self.spec(shape))
        return "in", len(self.operands) - 1

    @staticmethod
    def spec(shape: Shape) -> TensorSpec:
        return TensorSpec(shape, "bf16", "blocked" if len(shape) > 1 else "dense")

    def shape(self, value: tuple[str, int]) -> Shape:
        kind, n = value
        return self.operands[n].shape if kind == "in" else self.ops[n].results[0].shape

    def op(self, kind: str, rule: Rule, out: Shape, *values: tuple[str, int], **attrs) -> tuple[str, int]:
        specs = tuple(self.spec(self.shape(v)) for v in values)
        self.ops.append(OpRecord(kind, tuple(attrs.items()), specs, (self.spec(out),), rule))
        self.wires.append(values)
        return "op", len(self.ops) - 1

    def unary(self, x):
        s = self.shape(x)
        return self.op("relu", factors.elementwise((s,), (s,)), s, x)

    def add(self, x, y):
        s = self.shape(x)
        return self.op("add", factors.elementwise((s, self.shape(y)), (s,)), s, x, y)

    def gemm(self, x, columns: int, trans_b: bool = False):
        *batch, m, k = self.shape(x)
        w = self.operand(*((columns, k) if trans_b else (k, columns)))
        out = (*batch, m, columns)
        rule = factors.gemm((self.shape(x), self.shape(w)), (out,), {"trans_a": False, "trans_b": trans_b})
        return self.op("gemm", rule, out, x, w, act="none")

    def conv(self, x, channels: int):
        n, h, w, c = self.shape(x)
        k = self.operand(3, 3, channels, c)
        out = (n, h, w, channels)
        return self.op(
            "conv", factors.conv((self.shape(x), self.shape(k)), (out,), WINDOW), out, x, k, act="none", **WINDOW
        )

    def pool(self, x):
        n, h, w, c = self.shape(x)
        out = (n, (h + 1) // 2, (w + 1) // 2, c)
        attrs = {"stride": (2, 2), "dilation": (1, 1), "pad_lo": (1, 1), "pad_hi": (1, 1), "kernel": (3, 3)}
        return self.op("max_pool", factors.pool_max((self.shape(x),), (out,), attrs), out, x, **attrs)

    def softmax(self, x):
        s = self.shape(x)
        return self.op("softmax", factors.softmax((s,), (s,), {"axis": -1}), s, x, axis=-1, scale=1.0, log=False)

    def norm(self, x):
        s = self.shape(x)
        gamma = self.operand(s[-1])
        rule = factors.normalise((s, (s[-1],)), (s,), {"axes": (-1,), "heads": 1})
        return self.op("rmsnorm", rule, s, x, gamma, axes=(-1,), eps=1e-5, heads=1)

    def transpose(self, x, *perm: int):
        s = self.shape(x)
        out = tuple(s[p] for p in perm)
        return self.op("transpose", factors.transpose((s,), (out,), {"perm": perm}), out, x)

    def reshape(self, x, *shape: int):
        return self.op("reshape", factors.reshape((self.shape(x),), (shape,), {}), shape, x)

    def record(self, *outputs: tuple[str, int]) -> GroupRecord:
        return GroupRecord(tuple(self.ops), tuple(self.wires), tuple(self.operands), tuple(n for _, n in outputs))
