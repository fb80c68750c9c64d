"""What elements appended at the end of some dimensions can reach: may a program for 512 tokens serve 300 of them?

May import: ir, errors, numerics.formats, passes.{effects, padding_numbers, padding_places, same_lengths}. Must not: change the graph, or know which model it is.

Inputs are padded with zeros from index n on, 1 <= n. A walk over `main` keeps for every value
- `padded`: its axes of which only the indices below n mean anything, and
- `tail`: what is known of the elements from n on, by (axis, row). With a row axis it is known only where the row's
  index is below n: of a causal mask the columns behind the row are hidden, whatever n is.
A sum over a padded axis is right if one factor is zero there; a softmax is, if its mask hides what is there.
Everything else that mixes elements along a padded axis is refused. Values are taken to be finite, and every row of a
softmax to have an element that is not hidden: of a row that sees nothing no length gives a meaningful result. A mask of
`HIDDEN` or less is taken to hide: exporters write -1e4 for formats that hold no more, and scores of models are nowhere near.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any

import numpy as np

from tx8fast.errors import ConfigError, raise_all
from tx8fast.graph_table import Dim, Rule
from tx8fast.ir.attrs import DENSE_DTYPES
from tx8fast.ir.core import ELEMENTWISE, Op, Value
from tx8fast.ir.ops.base import reference, where
from tx8fast.ir.program import IRProgram
from tx8fast.ir.types import TensorType
from tx8fast.numerics.formats import INTS
from tx8fast.passes.effects import is_parameter
from tx8fast.passes.padding_numbers import HIDDEN, Most, Signs, at_most, endless, hidden
from tx8fast.passes.padding_places import LATE, ORDER, Key, looked_up, lowest, shown, tails_of, written
from tx8fast.passes.same_lengths import Varying
from tx8fast.records import dataclass
from tx8fast.weights.derived import evaluate
from tx8fast.weights.dtypes import np_dtype

#: constants above this are taken for weights
TABLE_BYTES = 1 << 20
#: stands for an element below n, as the position of a new token in a cache of n
BELOW = "below"
#: kinds whose results are elements of their operand
_MOVED = ("broadcast", "transpose", "reshape", "slice")
#: kinds of which it is followed where they spread what is not finite
_FOLLOWED = (*_MOVED, "gemm", "contract", "reduce", "softmax")
#: kinds that take rows of their first operand
_LOOKUPS = ("embedding", "gather", "gather_nd")


@dataclass
class _State:
    padded: frozenset[int] = frozenset()
    tail: dict[Key, Any] = field(default_factory=dict)
    below: bool = False  # one integer, which a caller can promise to be less than n
    why: str = ""  # not empty: every element may depend on the padding


@dataclass(frozen=True)
class Padding:
    """Axes of the results, by name, whose first n elements mean something; inputs that must hold numbers below n."""

    outputs: dict[str, tuple[int, ...]]
    positions: tuple[str, ...]


def analyse_padding(program: IRProgram, axes: dict[str, tuple[int, ...]], varying: Varying | None = None) -> Padding:
    """Follow zeros appended to the inputs at `axes`. The program must have no calls and no groups. varying: what else follows the length;
    of that more elements are there than mean anything, too.

    Raises ConfigError naming every result that they can reach, and the op through which.
    """
    main = program.main
    walk = _Walk(program, varying or Varying())
    names = main.attrs["arg_names"]
    for name, v in zip(names, main.body.args, strict=True):
        at = axes.get(name, ())
        number = not at and isinstance(v.type, TensorType) and v.dtype in ("i32", "i64") and v.type.size_bytes <= 8
        walk.states[v] = _State(frozenset(at), {(a, None): 0.0 for a in at}, number)
    for op in main.body:
        if op.kind == "return":
            break
        walk.op(op)
    problems, outputs = [], {}
    for name, v in zip(main.attrs["result_names"], main.body.last.operands, strict=True):  # type: ignore[union-attr]
        state = walk.states[v]
        if state.why:
            problems.append(f"output '{name}' would change: {state.why}")
        outputs[name] = tuple(sorted(state.padded))
    raise_all(ConfigError, "serving shorter inputs with a longer program", problems)
    return Padding(outputs, tuple(n for n, v in zip(names, main.body.args, strict=True) if v in walk.promised))


class _Walk:
    def __init__(self, program: IRProgram, varying: Varying) -> None:
        self.program, self.varying = program, varying
        self.states: dict[Value, _State] = {}
        self.promised: set[Value] = set()
        self.constants: set[Value] = set()  # and what is converted from them
        self.arrays: dict[Value, np.ndarray | None] = dict(varying.tables)
        self.signs = Signs(self._array)

    def op(self, op: Op) -> None:
        ins = [self.states[v] for v in op.operands]
        dirty = next((s for s in ins if s.why), None)
        if dirty is not None:
            made = [_State(why=dirty.why)] * len(op.results)
        elif not any(s.padded or s.tail or s.below for s in ins):
            made = [_State(tail=tails_of(self._array(r))) for r in op.results]
        else:
            try:
                made = [self._endings(op, ins, state) for state in self._transfer(op, ins)]
            except _Mixed as e:
                made = [_State(why=f"{where(op)} {e}")] * len(op.results)
        self.signs.follow(op)
        if not op.operands or (op.kind == "convert" and op.operands[0] in self.constants):
            self.constants.update(op.results)
        for v, state in zip(op.results, made, strict=True):
            # what is cut or repeated to the length has no zeros behind it
            grown = self.varying.axes.get(v, frozenset()) - state.padded
            self.states[v] = replace(state, padded=state.padded | grown) if grown else state

    def _transfer(self, op: Op, ins: list[_State]) -> list[_State]:
        if op.kind == "kv_update":
            return [self._cache(op, ins)]
        rule: Rule | None = op.info.decl.rule(op)
        if rule is None:
            raise _Mixed("has no rule that says what it mixes")
        if op.kind.startswith("scatter") and written(op) & ins[0].padded:
            raise _Mixed("writes to places that may be counted from the end of a padded dimension")
        if op.kind == "slice":
            ins = [_first_only(op, ins[0])]
        if op.kind in _LOOKUPS and op.operands[0] in self.constants:
            at = looked_up(op)
            if at & ins[0].padded:
                self._from_the_start(op, at <= ins[0].padded)
            ins = [_State(), *ins[1:]]  # the rows of a table are the same in a longer one, which begins with it
        if op.kind == "softmax":
            return [self._softmax(op, ins, rule)]
        padded = self._padded_factors(op, ins, rule)
        lost = [f for f in padded if rule.kinds[f] != "P"]
        for f in lost:
            row = self._summed(op, ins, rule, f)
            if row in lost:
                raise _Mixed("sums over two padded dimensions")
            padded |= set() if row is None else {row}
        kept = padded - set(lost)
        out = []
        for dims in rule.outs:
            axes = {d.identity: a for a, d in enumerate(dims) if d.identity is not None}
            if not kept <= axes.keys() or any(f in kept for d in dims if d.identity is None for f, _ in d.terms):
                raise _Mixed(
                    "puts padded and other elements into one dimension; give batch 1 if the others are the batch, or compile each length by itself"
                )
            out.append(_State(frozenset(axes[f] for f in kept)))
        if op.has(ELEMENTWISE) or op.kind in _MOVED:
            out[0].tail = self._tails(op, ins, rule)
            out[0].below = op.kind in ("convert", "reshape", "broadcast") and ins[0].below
        elif op.kind in ("gemm", "contract", "reduce") and len(out) == 1:
            out[0].tail = self._zeros(op, ins, rule)
        return out

    def _endings(self, op: Op, ins: list[_State], state: _State) -> _State:
        """Note the padded axes of a result on which the tail may be infinite, or no number."""
        unknown = state.padded - {axis for axis, _ in state.tail}
        if not unknown:
            return state
        followed = op.has(ELEMENTWISE) or op.kind in _FOLLOWED
        spread = not followed and any(endless(value) for s in ins for value in s.tail.values())
        if spread or (any(s.padded for s in ins) and self.signs.may_end(op)):
            state.tail = state.tail | {(axis, None): np.nan for axis in unknown}
        return state

    def _padded_factors(self, op: Op, ins: list[_State], rule: Rule) -> set[int]:
        found: set[int] = set()
        for state, dims in zip(ins, rule.ins):
            for a in state.padded:
                dim: Dim = dims[a]  # type: ignore[index]
                f = dim.identity
                if f is None or dim.size != rule.sizes[f]:
                    raise _Mixed(f"moves or merges elements along a padded dimension of size {dim.size}")
                if rule.kinds[f] not in "PR":
                    raise _Mixed(f"mixes elements along a padded dimension of size {dim.size}")
                found.add(f)
        return found

    def _summed(self, op: Op, ins: list[_State], rule: Rule, f: int) -> int | None:
        """A sum over padded factor `f`: some operand must be zero there. Return the factor of the row this holds for."""
        if op.kind == "reduce" and op.attrs["op"] == "max":
            return self._largest(op, ins[0], rule, f)
        if rule.combine == "add" and op.kind in ("gemm", "contract", "reduce"):
            if op.kind == "reduce" and op.attrs["op"] != "add":
                raise _Mixed("reduces over a padded dimension")
            found: list[int | None] = []
            for state, dims in zip(ins, rule.ins):
                for a, d in enumerate(dims or ()):
                    if d.identity != f:
                        continue
                    for (axis, row), value in state.tail.items():
                        if axis == a and endless(value):
                            raise _Mixed("sums over a padded dimension whose tail is not finite")
                        if axis == a and value == 0.0:
                            found.append(None if row is None else dims[row].identity)  # type: ignore[index]
            if found:
                return found[0]
        raise _Mixed("sums over a padded dimension whose tail is not known to be zero")

    def _largest(self, op: Op, state: _State, rule: Rule, f: int) -> int | None:
        """A maximum over padded factor `f`: no element of the tail may be the largest, as below a mask or among probabilities."""
        dims = rule.ins[0]
        for (axis, row), value in state.tail.items():
            if dims[axis].identity == f and at_most(value, lowest(op.operands[0])):  # type: ignore[index]
                return None if row is None else dims[row].identity  # type: ignore[index]
        raise _Mixed("takes the largest over a padded dimension whose tail is not known to be below the others")

    def _softmax(self, op: Op, ins: list[_State], rule: Rule) -> _State:
        rank = len(op.result.shape)
        axis = op.attrs["axis"] % rank
        others = frozenset(a for s, v in zip(ins, op.operands) for a in (p + rank - len(v.shape) for p in s.padded))
        ends = {
            (a + rank - len(v.shape), value)
            for v, state in zip(op.operands, ins)
            for (a, _), value in state.tail.items()
            if endless(value)
        }
        spread: dict[Key, Any] = {(a, None): np.nan for a, _ in ends if a in others - {axis}}
        if axis not in others:
            return _State(others, spread)
        if any(a == axis and value != -np.inf for a, value in ends):
            raise _Mixed("spreads over a padded dimension whose tail is not finite")
        for v, state, factor in zip(op.operands, ins, (op.attrs["scale"], 1.0)):
            shift = rank - len(v.shape)
            for (a, row), value in state.tail.items():
                hides = factor > 0 and at_most(value, HIDDEN / factor)
                if a + shift == axis and hides and not op.attrs["log"]:
                    row = None if row is None else row + shift
                    return _State(others | ({row} if row is not None else frozenset()), {**spread, (axis, row): 0.0})
        raise _Mixed(f"spreads over a padded dimension of size {op.result.shape[axis]}, and no mask hides its tail")

    def _cache(self, op: Op, ins: list[_State]) -> _State:
        cache, new, position = ins
        axis = op.attrs["axis"] % len(op.result.shape)
        if axis in new.padded or new.padded - cache.padded:
            raise _Mixed("writes padded rows into a cache")
        if axis in cache.padded:
            if op.operands[1].shape[axis] != 1:
                raise _Mixed("writes several rows at once into a padded cache")
            self._promise(op, position, 2)
        return _State(cache.padded)

    def _promise(self, op: Op, state: _State, i: int) -> None:
        source = op.operands[i]
        while source.op is not None and source.op.operands:
            source = source.op.operands[0]
        if not state.below or source.op is not None:
            raise _Mixed("needs a position that is known to lie before the padding")
        self.promised.add(source)

    def _from_the_start(self, op: Op, alone: bool) -> None:
        """Indices into a table that is cut to the length: a negative one counts from its end, which is elsewhere in a longer one.
        alone: all of them are, and none into another dimension, whose size they may reach."""
        source = op.operands[1]
        known = self._array(source)
        if known is not None and known.size and known.min() >= 0:
            return
        while source.op is not None and source.op.kind in ("convert", "reshape", "broadcast", "transpose", "slice"):
            # what is an integer of 32 bits or more keeps every number below the length
            if source.dtype not in ("i32", "i64"):
                break
            source = source.op.operands[0]
        if source.op is not None or source.dtype not in INTS - {"i4", "u4"} or not alone:
            raise _Mixed(
                "looks up rows of a table that is cut to the length, by indices that may be negative: these count from its end"
            )
        self.promised.add(source)

    # ------------------------------------------------------------ tails

    def _tails(self, op: Op, ins: list[_State], rule: Rule) -> dict[Key, Any]:
        """What is known of the result's tails: its operands' through the op, on one element each."""
        dims = rule.outs[0]
        axes = {d.identity: a for a, d in enumerate(dims) if d.identity is not None}
        per_input: list[dict[Key, Any]] = []
        for v, state, own in zip(op.operands, ins, rule.ins):
            found: dict[Key, Any] = {}
            for (a, row), value in state.tail.items():
                out = axes.get(own[a].identity)  # type: ignore[index]
                out_row = None if row is None else axes.get(own[row].identity)  # type: ignore[index]
                if out is not None and (row is None or out_row is not None or endless(value)):
                    found[out, out_row] = value
            per_input.append(found)
        result: dict[Key, Any] = {}
        for key in sorted({k for f in per_input for k in f}, key=str):
            values = [self._at(v, s, f, key) for v, s, f in zip(op.operands, ins, per_input)]
            value = self._evaluate(op, ins, values)
            if value is not None:
                result[key] = value
        return result

    def _zeros(self, op: Op, ins: list[_State], rule: Rule) -> dict[Key, Any]:
        """Rows of zeros have sums of zeros, if nothing is added to them; where a factor is not finite, neither is the sum."""
        plain = len(op.operands) == 2 and op.attrs.get("act", "none") in ("none", "relu")
        whole = plain if op.kind != "reduce" else not op.attrs["op"].startswith("log")
        found: dict[Key, Any] = {}
        for axis, d in enumerate(rule.outs[0]):
            tails = [
                value
                for state, dims in zip(ins, rule.ins)
                for (a, row), value in state.tail.items()
                if (row is None or endless(value))
                and dims is not None
                and d.identity is not None
                and dims[a].identity == d.identity
            ]
            if any(map(endless, tails)) or (0.0 in tails and op.attrs.get("op") == "logsum"):
                found[axis, None] = np.nan
            elif 0.0 in tails and whole:
                found[axis, None] = 0.0
        return found

    def _at(self, v: Value, state: _State, found: dict[Key, Any], key: Key) -> Any:
        """The operand's element in the tail: known on all rows, on those below n, or one value for all places."""
        for k in (key, (key[0], None)):
            if k in found:
                return found[k]
        if state.below:
            return BELOW
        array = self._array(v)
        if array is not None and array.size and (array == array.reshape(-1)[0]).all():
            return float(array.reshape(-1)[0])
        return None

    def _evaluate(self, op: Op, ins: list[_State], values: list[Any]) -> Any:
        kind = op.kind
        if kind in _MOVED:
            return values[0]
        if kind == "convert" and values[0] == LATE:
            return LATE if op.attrs["dtype"][0] in "iu" else None
        if {LATE, BELOW} == set(map(str, values)) and (kind, 0) in ORDER:
            self._promise(op, ins[values.index(BELOW)], values.index(BELOW))
            return ORDER[kind, 0 if values[0] == LATE else 1]
        if kind == "select" and type(values[0]) is float:
            return values[1] if values[0] else values[2]
        if any(map(endless, values)) and not all(type(v) is float for v in values):
            return np.nan  # with what is not known it may be anything
        if kind == "mul" and any(map(endless, values)) and 0.0 in values:
            return np.nan
        if (kind == "and" and 0.0 in values) or (kind == "mul" and 0.0 in values):
            return 0.0
        if kind == "or" and op.result.dtype == "pred" and any(type(v) is float and v for v in values):
            return 1.0
        if kind == "add" and None in values and any(type(v) is float and v <= HIDDEN for v in values):
            return Most(next(v for v in values if type(v) is float and v <= HIDDEN))
        if len([v for v in values if isinstance(v, Most)]) == 1:
            return hidden(kind, values)
        if any(type(v) is not float for v in values):
            return None
        with np.errstate(all="ignore"):
            arrays = [np.full((1,) * len(v.shape), x, DENSE_DTYPES[v.dtype][1]) for v, x in zip(op.operands, values)]
            (made,) = reference(op, arrays)
        return float(np.asarray(made, np.float64).reshape(-1)[0])

    def _array(self, v: Value) -> np.ndarray | None:
        """The value's elements if it is a constant or a computed table of up to `TABLE_BYTES`; weights stay unread."""
        if v not in self.arrays:
            self.arrays[v] = self._read(v)
        return self.arrays[v]

    def _read(self, v: Value) -> np.ndarray | None:
        op = v.op
        if op is None or not isinstance(v.type, TensorType) or v.type.size_bytes > TABLE_BYTES:
            return None
        if op.kind == "constant":
            return op.attrs["value"].array
        if op.kind == "iota":
            return reference(op, [])[0]
        if not is_parameter(op) or self.program.weights is None:
            return None
        key = op.attrs["key"]
        place = self.program.weights.describe(key)
        made = place["kind"] == "array" or (place["kind"] == "derived" and not place["inputs"])
        if place["kind"] == "derived" and made:
            place = shown(place)
            return evaluate(place["expr"], place["attrs"], (), tuple(place["shape"]), np_dtype(place["dtype"]))
        return self.program.weights.view(key) if made else None


class _Mixed(Exception):
    """An op through which the padding reaches what must stay."""


def _first_only(op: Op, state: _State) -> _State:
    """A slice that keeps nothing but element 0 of a padded dimension is not padded there."""
    first = {a for a in state.padded if op.attrs["start"][a] == 0 and op.attrs["size"][a] == 1}
    left = {(a, row): value for (a, row), value in state.tail.items() if a not in first and row not in first}
    return _State(state.padded - first, left, False)
