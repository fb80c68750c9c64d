"""Numbers that ops jump at: disturbances come near one on both sides and never meet it, or pass it by, though what lies between may be
another thing than what lies on either side.

- A number just below 3 is above its floor, and so is one just above; 3 itself, which it may round to, is not.
- Of two numbers near each other either may be the greater one; they may be equal too.
- What rounds to 7 here and to -3 there may be any whole number between; an answer that depends on one of them is seen by chance alone.

A disturbed model has two inputs more for every rounded float that an op with steps reads, and for every whole number that is made of
floats: where it is another one, and which. All readers of the value see the same. It has one more for every comparison: where it is to
give what it gives of equal numbers. How far rounding may take a value is measured in front of these choices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from hunt.formats import F32, F64, I64, code_of
from hunt.reference import NoReference
from onnx import GraphProto, NodeProto, ValueInfoProto, helper

#: numbers nearest to some that ops jump at
NEAREST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "whole": np.round,
    "half": lambda x: np.round(x - 0.5) + 0.5,
    "one": np.sign,
    "pole": lambda x: (np.round(x / np.pi - 0.5) + 0.5) * np.pi,
}
#: where an op jumps, or is equal to its operand. A cast to whole numbers does so at these
STEPS = {"Ceil": ("whole",), "Floor": ("whole",), "Round": ("whole", "half"), "Tan": ("pole",),
         **dict.fromkeys(("Asin", "Acos", "Acosh", "Atanh"), ("one",))}  # fmt: skip
#: what comparisons give of equal numbers. A cast to bool compares with nothing
OF_EQUALS = {"Equal": True, "GreaterOrEqual": True, "LessOrEqual": True, "Greater": False, "Less": False}
#: ops whose whole numbers are places of numbers: none lies between two of them
PLACES = frozenset("ArgMax ArgMin MaxPool NonZero TopK Unique".split())
#: as many whole numbers of a range are tried
MOST = 32

Arrays = Mapping[str, np.ndarray]


class Steps:
    """Where the ops of a graph jump, and what to do about it. rounded: values that roundings have a part in; values: all that are
    known, narrow floats in f32."""

    def __init__(self, graph: GraphProto, rounded: set[str], values: Arrays) -> None:
        self.values = values
        self.floats: dict[str, frozenset[str]] = {}  # values -> the keys of `NEAREST` that a reader jumps at
        self.whole: list[str] = []  # whole numbers made of floats
        self.compared: dict[str, tuple[str, str, bool]] = {}  # result -> operands ("": nothing), what equal ones give
        numbers: set[str] = set()  # those, and what is made of them
        for node in graph.node:
            floats = [n for n in node.input if n in values and values[n].dtype == np.float32]
            whole = [n for n in node.output if n in rounded and n in values and values[n].dtype.kind in "iu"]
            cast, x = node.op_type in ("Cast", "CastLike"), node.input[0] if node.input else ""
            steps = ("whole",) if cast and whole else STEPS.get(node.op_type, ())
            if steps and x in rounded and x in floats:
                self.floats[x] = self.floats.get(x, frozenset()).union(steps)
            if floats and node.op_type not in PLACES:
                self.whole += whole
            if (floats and node.op_type not in PLACES) or not numbers.isdisjoint(node.input):
                numbers.update(whole)
            operands = [n for n in node.input if n in floats or n in numbers]
            if rounded.isdisjoint(operands):
                continue
            if cast and values[node.output[0]].dtype == bool:
                self.compared[node.output[0]] = x, "", False
            elif node.op_type in OF_EQUALS:
                self.compared[node.output[0]] = x, node.input[1], OF_EQUALS[node.op_type]

    def inputs(self) -> Iterator[ValueInfoProto]:
        """Yield the inputs of the choices."""
        for name, a in self.none().items():
            yield helper.make_tensor_value_info(name, code_of(a), None)

    def measured(self) -> Iterator[ValueInfoProto]:
        """Yield the results that `met` reads: values in front of their choices, and what compared numbers are apart."""
        for name in (*self.floats, *self.whole):
            code = F32 if name in self.floats else I64
            yield helper.make_tensor_value_info(_raw(name), code, None)
        for name in self.compared:
            yield helper.make_tensor_value_info(_apart(name), F64, None)

    def none(self) -> dict[str, np.ndarray]:
        """Return the inputs that choose nothing: scalars, as some values have shapes that roundings decide."""
        found: dict[str, np.ndarray] = {}
        for names, dtype in ((self.floats, np.float32), (self.whole, np.int64)):
            for name in names:
                found |= {_is(name): np.zeros((), bool), _as(name): np.zeros((), dtype)}
        return found | {_as(name): np.asarray(not given) for name, (_, _, given) in self.compared.items()}

    def met(self, small: Sequence[Arrays], large: Sequence[Arrays], slack: float) -> Iterator[dict[str, np.ndarray]]:
        """Yield inputs that take values to where runs with small and with large disturbances say that rounding may take them. Raises
        NoReference where that is any number at all."""
        if self._on_steps("pole", small, large, slack):
            raise NoReference("roundings decide on which side of a pole a number is")
        for kind in NEAREST:
            yield self._on_steps(kind, small, large, slack)
        yield self._equals(small, large, slack)
        yield from self._between([*small, *large])

    def _on_steps(
        self, kind: str, small: Sequence[Arrays], large: Sequence[Arrays], slack: float
    ) -> dict[str, np.ndarray]:
        found = {}
        for name in (n for n, kinds in self.floats.items() if kind in kinds):
            plain = self.values[name].astype(np.float64)
            with np.errstate(all="ignore"):
                step = np.asarray(NEAREST[kind](plain))
            # a remainder goes half of the way to nothing in half of the runs
            meets = _reaches(_raw(name), plain, step, small, large, slack, 1 + (step == 0))
            if meets.any():
                found |= {_is(name): meets, _as(name): step.astype(np.float32)}
        return found

    def _equals(self, small: Sequence[Arrays], large: Sequence[Arrays], slack: float) -> dict[str, np.ndarray]:
        found = {}
        for name, (a, b, given) in self.compared.items():
            with np.errstate(all="ignore"):
                apart = self.values[a].astype(np.float64) - (self.values[b].astype(np.float64) if b else 0)
            # no whole numbers but those between some runs'
            meets = _reaches(_apart(name), apart, 0.0, small, large, slack if self.values[a].dtype.kind == "f" else 1.0)
            if meets.any():
                found[_as(name)] = np.asarray(meets == given)
        return found

    def _between(self, runs: Sequence[Arrays]) -> Iterator[dict[str, np.ndarray]]:
        """Yield one after the other all whole numbers between the least and the largest of the runs; `MOST` of them if there are more."""
        ends = {}
        for name in self.whole:
            plain = self.values[name]
            if any(run[_raw(name)].shape != plain.shape for run in runs):
                continue  # a shape that roundings decide: whoever has it as a result says so
            seen = [run[_raw(name)] for run in runs]
            low, high = np.min(seen, axis=0), np.max(seen, axis=0)
            if (low < high).any():
                ends[name] = low, high
        widest = max((float((high - low).max()) for low, high in ends.values()), default=0.0)
        count = int(min(widest + 1, MOST))
        for k in range(count if widest else 0):
            found: dict[str, np.ndarray] = {}
            for name, (low, high) in ends.items():
                found[_is(name)] = np.asarray(low < high)
                found[_as(name)] = np.asarray(low + np.round((high - low) * (k / (count - 1))), np.int64)
            yield found

    def chosen(self, nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
        """Yield the nodes, and behind each that makes such a value the choice between it and another."""
        make = helper.make_node
        for node in nodes:
            made = [name for name in node.output if name in self.floats or name in self.whole or name in self.compared]
            node.output[:] = [f"{name} found" if name in made else name for name in node.output]
            yield node
            for name in made:
                if name in self.floats:
                    yield make("Identity", [f"{name} found"], [_raw(name)])
                    yield make("Where", [_is(name), _as(name), _raw(name)], [name])
                elif name in self.whole:
                    yield make("Cast", [f"{name} found"], [_raw(name)], to=I64)
                    yield make("Where", [_is(name), _as(name), _raw(name)], [f"{name} chosen"])
                    yield make("Cast", [f"{name} chosen"], [name], to=code_of(self.values[name]))
                else:
                    yield from self._comparison(node, name)

    def _comparison(self, node: NodeProto, name: str) -> Iterator[NodeProto]:
        make, (_, other, given) = helper.make_node, self.compared[name]
        wide = [f"{name} wide {k}" for k in range(2 if other else 1)]
        for k, n in enumerate(wide):
            yield make("Cast", [node.input[k]], [n], to=F64)
        yield make("Sub" if other else "Identity", wide, [_apart(name)])
        yield make("Or" if given else "And", [f"{name} found", _as(name)], [name])


def farthest(runs: Sequence[Arrays], name: str, plain: np.ndarray) -> np.ndarray:
    """Return how far a value of some runs is from the undisturbed one at most. Raises NoReference where its shapes differ."""
    if any(run[name].shape != plain.shape for run in runs):
        raise NoReference("roundings decide the shape of a value")
    with np.errstate(all="ignore"):
        return np.max([np.abs(run[name] - plain) for run in runs] or [np.zeros(plain.shape)], axis=0)


def _reaches(name: str, plain: np.ndarray, step: np.ndarray | float, small: Sequence[Arrays], large: Sequence[Arrays],
             slack: float, times: np.ndarray | int = 1) -> np.ndarray:  # fmt: skip
    """Return where rounding may take a value to a step: `slack` times as far as small disturbances do, `times` as far as large ones."""
    near, far = (farthest(runs, name, plain) for runs in (small, large))
    with np.errstate(all="ignore"):
        return np.asarray(np.maximum(slack * near, far * times) >= np.abs(plain - step))


def same(a: Arrays, b: Arrays) -> bool:
    """True for equal bytes of equal names."""
    return a.keys() == b.keys() and all(a[k].tobytes() == b[k].tobytes() for k in a)


def _is(name: str) -> str:
    return f"{name} is a step"


def _as(name: str) -> str:
    return f"{name} as a step"


def _raw(name: str) -> str:
    return f"{name} or a step"


def _apart(name: str) -> str:
    return f"{name} apart"
