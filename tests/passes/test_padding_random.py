"""Random graphs of any length: where the analysis of padding says yes, padded inputs give the numbers of the short graph."""

from __future__ import annotations

import numpy as np
import pytest
from support.run_graph import run_graph
from support.small_graph import SmallGraph

from tx8fast.errors import ConfigError
from tx8fast.ir.attrs import DenseAttr
from tx8fast.passes.padding import HIDDEN, analyse_padding

D, LONG, LOW = 4, 6, -1e9
SCORES, MIX, TURNED = "s d, t d -> s t", "s t, t d -> s d", "t s, t d -> s d"


class Graph:
    """The same random choices for any length s: rows [s, D], squares [s, s], single rows [1, D]."""

    def __init__(self, seed: int, s: int) -> None:
        self.rng, self.s = np.random.default_rng(seed), s
        self.g = SmallGraph(x=((s, D), "f32"), m=((s,), "f32"), at=((1,), "i64"))
        x = self.g.args["x"]
        self.rows, self.single = [x], [self.constant(np.ones((1, D)))]
        self.squares = [self.contract(SCORES, x, x)]
        self.scores: list = []
        moves = [self.activation, self.product, self.shift, self.square, *[self.softmax] * 4, *[self.mix] * 2, self.turned,
                 self.reduce, self.transpose, self.masked, self.squared, self.weighted, self.columns, self.slice]  # fmt: skip
        for _ in range(int(self.rng.integers(3, 10))):
            moves[int(self.rng.integers(len(moves)))]()
        pool = (self.rows, self.rows, self.squares, self.single)[int(self.rng.integers(4))]
        self.program = self.g.done(y=pool[-1], **{f"z{i}": z for i, z in enumerate(self.scores)})

    def constant(self, array, dtype=np.float32):
        return self.g("constant", value=DenseAttr(np.asarray(array, dtype)))

    def contract(self, equation, a, b):
        return self.g("contract", a, b, equation=equation, sizes=())

    def pick(self, pool):
        return pool[int(self.rng.integers(len(pool)))]

    def mask(self):
        """One of ten masks: most hide the tail, some the front, some nothing."""
        g, s, c, k = self.g, self.s, self.constant, int(self.rng.integers(10))
        index, at, m = c(np.arange(s), np.int64), g.args["at"], g.args["m"]
        if k < 5:
            far = np.abs(np.subtract.outer(np.arange(s), np.arange(s))) > 1
            full = np.full((s, s), LOW)
            return c((np.triu(full, 1), np.tril(full, -1), np.zeros((s, s)), far * LOW, LOW * (np.arange(s) > 0))[k])
        if k < 7:
            return g("mul", g("sub", c(1.0), m) if k == 5 else m, c(LOW))
        kind, ins = (("le", (index, at)), ("gt", (index, at)), ("ge", (at, index)))[k - 7]
        seen, hidden = c(0.0), c(LOW)
        return g("select", g(kind, *ins), *((seen, hidden) if k == 7 else (hidden, seen)))

    def activation(self):
        self.rows.append(self.g(str(self.rng.choice(["exp", "tanh"])), self.pick(self.rows)))

    def product(self):
        self.rows.append(self.g("mul", self.pick(self.rows), self.pick(self.rows)))

    def shift(self):
        self.rows.append(self.g("add", self.pick(self.rows), self.pick(self.single)))

    def square(self):
        self.squares.append(self.contract(SCORES, self.pick(self.rows), self.pick(self.rows)))

    def softmax(self):
        x, mask = self.pick(self.squares), self.mask()
        self.squares.append(self.g("softmax", x, mask, axis=-1))
        self.scores.append(self.g("add", x, mask))

    def mix(self):
        self.rows.append(self.contract(MIX, self.pick(self.squares), self.pick(self.rows)))

    def turned(self):
        self.rows.append(self.contract(TURNED, self.pick(self.squares), self.pick(self.rows)))

    def reduce(self):
        kind = str(self.rng.choice(["add", "max"]))
        self.single.append(self.g("reduce", self.pick(self.rows), op=kind, axes=(0,), keepdims=True))

    def transpose(self):
        self.squares.append(self.g("transpose", self.pick(self.squares), perm=(1, 0)))

    def masked(self):
        self.squares.append(self.g("add", self.pick(self.squares), self.mask()))

    def squared(self):
        self.squares.append(self.g("mul", self.pick(self.squares), self.pick(self.squares)))

    def weighted(self):
        self.rows.append(self.g("mul", self.pick(self.rows), self.g("reshape", self.g.args["m"], shape=(self.s, 1))))

    def columns(self):
        self.squares.append(self.g("mul", self.pick(self.squares), self.g.args["m"]))

    def slice(self):
        start = 0 if self.rng.random() < 0.5 else self.s - 1
        self.single.append(self.g("slice", self.pick(self.rows), start=(start, 0), size=(1, D), step=(1, 1)))


def accepted(seed: int) -> bool:
    """Check one graph at four lengths; False if the analysis refuses it."""
    long = Graph(seed, LONG).program
    try:
        found = analyse_padding(long, {"x": (0,), "m": (0,)})
    except ConfigError:
        return False
    rng = np.random.default_rng(seed)
    for n in (1, 2, 4, 5):
        m = (rng.random(n) < 0.7).astype(np.float32)
        m[0] = 1
        inputs = {"x": rng.standard_normal((n, D)).astype(np.float32), "m": m, "at": rng.integers(0, n, 1)}
        short = run_graph(Graph(seed, n).program, inputs)
        if any((z.max(-1) < HIDDEN / 10).any() for name, z in short.items() if name != "y"):
            continue  # a row that sees nothing
        padded = {
            k: np.pad(v, [(0, LONG - n)] + [(0, 0)] * (v.ndim - 1)) if k != "at" else v for k, v in inputs.items()
        }
        y = run_graph(long, padded)["y"]
        y = y[tuple(slice(0, n) if a in found.outputs["y"] else slice(None) for a in range(y.ndim))]
        assert y.shape == short["y"].shape, (seed, n)
        np.testing.assert_allclose(y, short["y"], rtol=1e-3, atol=1e-4, err_msg=f"seed {seed}, length {n}")
    return True


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_accepted_is_right():
    n = sum(map(accepted, range(100)))
    assert 25 <= n <= 95, "the analysis must both accept and refuse"
