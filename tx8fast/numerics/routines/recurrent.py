"""Recurrent layers over time: plain, GRU and LSTM, one or two directions.

May import: numpy, the routine helpers. Must not: know layouts or instructions.
Shapes: x [T, B, I], w [D, gates * H, I], r [D, gates * H, H], bias [D, 2 * gates * H], states [D, B, H].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.numerics.routines.special import sigmoid
from tx8fast.numerics.routines.support import (
    Arrays,
    Attrs,
    OutTypes,
    Routine,
    done,
    double,
    maximum,
    operand,
    product,
)

Fn = Callable[[np.ndarray], np.ndarray]
_ACTIVATIONS: dict[str, Fn] = {"Sigmoid": sigmoid, "Tanh": np.tanh, "Relu": lambda v: maximum(v, 0.0)}


class _Cell:
    """One direction's weights; `step` advances hidden and cell state [B, H]."""

    def __init__(self, w, r, bias, peephole, attrs: Attrs, acts: list[Fn]) -> None:
        self.w, self.r, self.attrs, self.acts = w, r, attrs, acts
        self.hidden = r.shape[1]
        half = w.shape[0]
        self.wb, self.rb = bias[:half], bias[half:]
        self.peephole = peephole
        self.clip = float(attrs.get("clip", 0.0))

    def _act(self, index: int, v: np.ndarray) -> np.ndarray:
        return self.acts[index](np.clip(v, -self.clip, self.clip) if self.clip > 0 else v)

    def rnn(self, x, h, c):
        y = self._act(0, product(x, self.w.T) + product(h, self.r.T) + self.wb + self.rb)
        return y, c

    def gru(self, x, h, c):
        n = self.hidden
        gx = product(x, self.w.T) + self.wb
        gh = product(h, self.r[: 2 * n].T) + self.rb[: 2 * n]
        z = self._act(0, gx[:, :n] + gh[:, :n])
        reset = self._act(0, gx[:, n : 2 * n] + gh[:, n:])
        r, b = self.r[2 * n :].T, self.rb[2 * n :]
        inner = reset * (product(h, r) + b) if self.attrs.get("linear_before_reset") else product(reset * h, r) + b
        return (1 - z) * self._act(1, gx[:, 2 * n :] + inner) + z * h, c

    def lstm(self, x, h, c):
        n = self.hidden
        gates = product(x, self.w.T) + product(h, self.r.T) + self.wb + self.rb
        i, o, f, g = (gates[:, k * n : (k + 1) * n] for k in range(4))
        pi, po, pf = (self.peephole[k * n : (k + 1) * n] for k in range(3))
        i = self._act(0, i + pi * c)
        f = 1 - i if self.attrs.get("input_forget") else self._act(0, f + pf * c)
        c = f * c + i * self._act(1, g)
        o = self._act(0, o + po * c)
        return o * self.acts[2](c), c


def recurrent(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Return all hidden states [T, D, B, H], the last ones [D, B, H] and the last cell states.

    Rows past a sequence's length give 0 and leave its state alone; a reversed direction starts at its end.
    """
    x, w, r, bias = (double(operand(arrays, i)) for i in range(4))
    lengths = operand(arrays, 4).astype(np.int64)
    h0, c0, peephole = (double(operand(arrays, i)) for i in (5, 6, 7))
    net, direction = str(attrs["net"]), str(attrs.get("direction", "forward"))
    steps, batch = x.shape[:2]
    names = list(attrs["activations"])
    per = {"rnn": 1, "gru": 2, "lstm": 3}.get(net)
    if per is None or len(names) < per * w.shape[0]:
        raise SimulationError(f"recurrent: net '{net}' with {len(names)} activations for {w.shape[0]} directions")
    y = np.zeros((steps, w.shape[0], batch, r.shape[2]))
    last_h, last_c = h0.copy(), c0.copy()
    for d in range(w.shape[0]):
        acts = [_ACTIVATIONS[a] for a in names[d * per : (d + 1) * per]]
        cell = _Cell(w[d], r[d], bias[d], peephole[d], attrs, acts)
        backward = direction == "reverse" or d == 1
        h, c = h0[d], c0[d]
        for k in range(steps):
            t = lengths - 1 - k if backward else np.full(batch, k)  # each row's own time
            live = ((t >= 0) & (t < lengths))[:, None]
            t = np.clip(t, 0, steps - 1)
            rows = np.arange(batch)
            new_h, new_c = getattr(cell, net)(x[t, rows], h, c)
            h, c = np.where(live, new_h, h), np.where(live, new_c, c)
            y[t, d, rows] = np.where(live, h, y[t, d, rows])
        last_h[d], last_c[d] = h, c
    return [done(v, out_types, i) for i, v in enumerate((y, last_h, last_c))]


ROUTINES: dict[str, Routine] = {"recurrent": recurrent}
