"""Recurrent nets over time: RNN, GRU and LSTM.

May import: frontend.onnx.node. Must not: create regions.

A net whose steps are few is unrolled like a loop: the products with the input of all steps are one product, each step multiplies its state
alone. Others, of sequences with lengths of their own, with peepholes or bounds of their gates, are one routine.
"""

from __future__ import annotations

import numpy as np

from tx8fast.frontend.common import Tensor
from tx8fast.frontend.onnx.node import Handler, Node

_ACTIVATIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
#: steps of all directions; more keep the routine
MOST_STEPS = 1024


class _Cell:
    """One direction: `advance` goes from a state to the next; the first state may be none, which is 0.

    wide: inputs times weights and all vectors of bias that no gate changes, [T * B, gates * H]; r: [gates * H, H].
    """

    def __init__(self, n: Node, wide: Tensor, r: Tensor, inner: Tensor | None, names: list[str]) -> None:
        self.n, self.wide, self.r, self.inner = n, wide, r, inner
        self.hidden = r.shape[1]
        self.acts = [a.lower() for a in names]

    def _part(self, t: Tensor, first: int, count: int = 1) -> Tensor:
        """Return gates of [B, gates * H]."""
        return self.n.slice(t, 1, first * self.hidden, count * self.hidden)

    def _times(self, h: Tensor, first: int, count: int) -> Tensor:
        """Return a state times the weights of gates."""
        return self.n.op("gemm", h, self.n.slice(self.r, 0, first * self.hidden, count * self.hidden), trans_b=True)

    def rnn(self, x: Tensor, h: Tensor | None, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
        n = self.n
        return n.op(self.acts[0], x if h is None else n.op("add", self._times(h, 0, 1), x)), None

    def gru(self, x: Tensor, h: Tensor | None, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
        n, last, before = self.n, self._part(x, 2), bool(self.n.attr("linear_before_reset", 0))
        both = self._part(x, 0, 2)
        gates = n.op(self.acts[0], both if h is None else n.op("add", self._times(h, 0, 2), both))
        update, reset = self._part(gates, 0), self._part(gates, 1)
        if before:
            product = None if h is None else self._times(h, 2, 1)
            inner = (
                self.inner if product is None else product if self.inner is None else n.op("add", product, self.inner)
            )
            last = last if inner is None else n.op("add", last, n.op("mul", reset, inner))
        elif h is not None:
            last = n.op("add", self._times(n.op("mul", reset, h), 2, 1), last)
        new = n.op(self.acts[1], last)
        kept = n.op("mul", n.op("sub", n.const(1.0, x.dtype), update), new)
        return kept if h is None else n.op("add", kept, n.op("mul", update, h)), None

    def lstm(self, x: Tensor, h: Tensor | None, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Gates in the order input, output, forget, cell."""
        n = self.n
        total = x if h is None else n.op("add", self._times(h, 0, 4), x)
        gates = n.op(self.acts[0], self._part(total, 0, 3))
        i, o, f = (self._part(gates, k) for k in range(3))
        new = n.op("mul", i, n.op(self.acts[1], self._part(total, 3)))
        if c is not None:
            f = n.op("sub", n.const(1.0, x.dtype), i) if n.attr("input_forget", 0) else f
            new = n.op("add", n.op("mul", f, c), new)
        return n.op("mul", o, n.op(self.acts[2], new)), new


def _unrolled(n: Node, names: list[str], x: Tensor, starts: list[Tensor | None]) -> list[Tensor]:
    """Return all hidden states [T, D, B, H], the last ones [D, B, H] and the last cell states, as the routine does."""
    kind = n.op_type
    steps, batch, inputs = x.shape
    directions, rows, hidden = n[2].shape
    flat = n.reshape(x, (steps * batch, inputs))
    wholes, lasts, cells = [], [], []
    for d in range(directions):
        w, r = (n.reshape(n.slice(t, 0, d, 1), t.shape[1:]) for t in (n[1], n[2]))
        wide, inner = n.op("gemm", flat, w, trans_b=True), None
        if n.has(3):
            bias = n.reshape(n.slice(n[3], 0, d, 1), (2 * rows,))
            own, recurrent = n.slice(bias, 0, 0, rows), n.slice(bias, 0, rows, rows)
            if kind == "GRU" and n.attr("linear_before_reset", 0):
                inner = n.slice(recurrent, 0, 2 * hidden, hidden)
                recurrent = n.concat([n.slice(recurrent, 0, 0, 2 * hidden), n.const(np.zeros(hidden), x.dtype)], 0)
            wide = n.op("add", wide, n.op("add", own, recurrent))
        per = len(names) // directions
        cell = _Cell(n, wide, r, inner, names[d * per : (d + 1) * per])
        h, c = (None if t is None else n.reshape(n.slice(t, 0, d, 1), (batch, hidden)) for t in starts)
        backward = d == 1 or n.attr("direction", "forward") == "reverse"
        times = list(reversed(range(steps)) if backward else range(steps))
        # before the steps, which without them are alike and become one body that is called
        given = [n.slice(wide, 0, t * batch, batch) for t in times]
        states = {}
        for t, own in zip(times, given, strict=True):
            h, c = getattr(cell, kind.lower())(own, h, c)
            states[t] = h
        wholes.append(n.concat([n.reshape(states[t], (1, 1, batch, hidden)) for t in range(steps)], 0))
        last = states[times[-1]]
        lasts.append(n.reshape(last, (1, batch, hidden)))
        cells.append(n.reshape(last if c is None else c, (1, batch, hidden)))
    return [n.concat(wholes, 1), n.concat(lasts, 0), n.concat(cells, 0)]


def _recurrent(n: Node):
    """RNN, GRU and LSTM by steps or as one routine; `layout` 1 puts the batch first."""
    kind = n.op_type
    x, r = n[0], n[2]
    batch_first = bool(n.attr("layout", 0))
    if batch_first:
        x = n.transpose(x, (1, 0, 2))
    steps, batch, _ = x.shape
    directions = r.shape[0]
    names = list(n.attr("activations", _ACTIVATIONS[kind] * directions))
    names = [a.decode() if isinstance(a, bytes) else a for a in names]
    known = ("Sigmoid", "Tanh", "Relu")
    odd = [a for a in names if a.capitalize() not in known]
    if odd:
        raise n.unsupported(f"activations {', '.join(odd)} are not supported, only {', '.join(known)}")
    if len(names) < len(_ACTIVATIONS[kind]) * directions:
        raise n.bad(
            f"{len(names)} activations for {directions} directions, {len(_ACTIVATIONS[kind])} each are required"
        )
    starts = [n[i] if n.has(i) else None for i in (5, 6)]
    if batch_first:
        starts = [None if t is None else n.transpose(t, (1, 0, 2)) for t in starts]
    whole = not n.has(4) or (n[4].array is not None and bool(np.all(n[4].array == steps)))
    plain = whole and not n.has(7) and not n.attr("clip", 0.0)
    if plain and x.is_float and 0 < steps * directions <= MOST_STEPS and batch > 0:
        y, y_h, y_c = _unrolled(n, names, x, starts)
    else:
        y, y_h, y_c = _routine(n, names, x, starts)
    if batch_first:
        y = n.transpose(y, (2, 0, 1, 3))
        y_h, y_c = (n.transpose(t, (1, 0, 2)) for t in (y_h, y_c))
    return [y, y_h, y_c] if kind == "LSTM" else [y, y_h]


def _routine(n: Node, names: list[str], x: Tensor, starts: list[Tensor | None]) -> list[Tensor]:
    steps, batch, _ = x.shape
    directions, rows, hidden = n[2].shape
    zeros = lambda *shape: n.const(np.zeros(shape), x.dtype)  # noqa: E731
    return n.ops(
        "recurrent",
        x,
        n[1],
        n[2],
        n[3] if n.has(3) else zeros(directions, 2 * rows),
        n[4] if n.has(4) else n.const(np.full(batch, steps, np.int32)),
        *(zeros(directions, batch, hidden) if t is None else t for t in starts),
        n[7] if n.has(7) else zeros(directions, 3 * hidden),
        net=n.op_type.lower(),
        direction=n.attr("direction", "forward"),
        activations=tuple(a.capitalize() for a in names),
        clip=float(n.attr("clip", 0.0)),
        linear_before_reset=bool(n.attr("linear_before_reset", 0)),
        input_forget=bool(n.attr("input_forget", 0)),
    )


HANDLERS: tuple[Handler, ...] = (
    Handler("RNN", _recurrent),
    Handler("GRU", _recurrent),
    Handler("LSTM", _recurrent),
)
