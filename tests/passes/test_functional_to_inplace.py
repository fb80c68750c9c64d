"""Which updates write over their operand: decided on the graph, by who else needs the bytes and under which name."""

from __future__ import annotations

import numpy as np
import pytest
from support.alias_machine import run_aliased
from support.small_graph import SmallGraph

from tx8fast.ir.program import IRProgram
from tx8fast.ir.storage import REUSE
from tx8fast.passes.pipeline import run_pipeline

CACHE = {"cache": ((4, 8), "f32"), "new": ((1, 8), "f32"), "at": ((1,), "i64")}


class Graph(SmallGraph):
    """Functions over a cache of four rows, new rows and a position."""

    def __init__(self) -> None:
        super().__init__(**CACHE)

    def update(self, cache, new=None):
        return self("kv_update", cache, self.args["new"] if new is None else new, self.args["at"], axis=0)

    def view(self, v):
        return self("reshape", v, shape=(2, 2, 8))

    def call(self, callee, *operands, n=1):
        return self.op("call", *operands, callee=callee, result_types=[self.args["cache"].type] * n).results

    def layer(self):
        """Begin a subgraph `layer`; `main` must be begun after it."""
        self.top.first.erase()
        self.begin("subgraph", "layer", **CACHE)

    def main(self):
        self.begin("func", "main", **CACHE)


def marks(program: IRProgram) -> str:
    """One letter per update, in order: i in place, c copied."""
    run_pipeline(program, "dce,functional-to-inplace")
    kinds = ("kv_update", "scatter", "scatter_nd")
    return "".join("i" if REUSE in op.attrs else "c" for op in program.module.walk() if op.kind in kinds)


def test_state_and_inputs() -> None:
    g = Graph()
    assert marks(g.done(y=g.update(g.args["cache"]))) == "i"  # it returns updated
    g = Graph()
    assert marks(g.done(y=g.view(g.update(g.update(g.args["cache"]))))) == "ii"
    g = Graph()
    assert marks(g.done(y=g("neg", g.update(g.args["cache"])))) == "c"  # an input that the caller may look at again
    g = Graph()
    g.func.attrs["donated"] = (0, 0)
    assert marks(g.done(y=g("neg", g.update(g.args["cache"])))) == "i"
    g = Graph()
    assert marks(g.done(y=g.update(g.args["cache"]), x=g.args["cache"])) == "c"  # returned as it came, too
    g = Graph()
    assert marks(g.done(y=g.update(g.args["cache"]), x=g.view(g.args["cache"]))) == "c"


def test_parameters_and_constants_are_copied() -> None:
    g = Graph()
    assert marks(g.done(y=g.update(g.param("w", (4, 8))))) == "c"
    g = Graph()
    assert marks(g.done(y=g.update(g("reshape", g.param("w", (32,)), shape=(4, 8))))) == "c"


@pytest.mark.parametrize(("why", "results", "expected"), [
    ("nobody else", lambda g, y: {"a": g.update(y)}, "i"),
    ("a view made before, read after", lambda g, y: (lambda v: {"a": g.update(y), "b": g("neg", v)})(g.view(y)), "c"),
    ("a view made after", lambda g, y: {"a": g.update(y), "b": g("neg", g.view(y))}, "c"),
    ("a view of a view", lambda g, y: {"a": g.update(y), "b": g("neg", g("reshape", g.view(y), shape=(32,)))}, "c"),
    ("a view is returned", lambda g, y: {"a": g.update(y), "b": g.view(y)}, "c"),
    ("it is returned itself", lambda g, y: {"b": y, "a": g.update(y)}, "c"),
    ("the view is updated, the value returned", lambda g, y: {"a": g.update(back(g, g.view(y))), "b": y}, "c"),
    ("the result is returned twice, and as a view", lambda g, y: (lambda u: {"a": u, "b": u, "c": g.view(u)})(g.update(y)), "i"),
    ("read before, and needed for the update", lambda g, y: {"a": g.update(y, row(g, y))}, "i"),
    ("read before under another shape, and needed", lambda g, y: {"a": g.update(y, row(g, back(g, g.view(y))))}, "i"),
    ("read before, but not needed", lambda g, y: (lambda n: {"a": g.update(y), "b": n})(g("neg", y)), "c"),
    ("two updates of one value", lambda g, y: {"a": g.update(y), "b": g.update(y)}, "cc"),
    ("the second needs the first", lambda g, y: {"a": g.update(y, row(g, g.update(y)))}, "ci"),
    ("one after the other", lambda g, y: {"a": g.update(g.update(y))}, "ii"),
    ("the first result is read later", lambda g, y: (lambda u: {"a": g.update(u), "b": g("neg", u)})(g.update(y)), "ic"),
    ("what is written is a view of it", lambda g, y: {"a": g.update(y, back(g, g.view(y)))}, "c"),
    ("scattered", lambda g, y: {"a": g("scatter", y, g.args["at2"], y2(g)), "b": g("scatter", g.update(y), g.args["at2"], y2(g))}, "cci"),
])  # fmt: skip
def test_readers_of_a_value_that_is_made_here(why, results, expected) -> None:
    g = Graph()
    g.args["at2"] = g("constant", value=dense(np.zeros((1, 8), np.int64)))
    y = g("exp", g.args["cache"])
    assert marks(g.done(**results(g, y))) == expected, why


def back(g, v):
    return g("reshape", v, shape=(4, 8))


def row(g, v):
    return g("slice", v, start=(0, 0), size=(1, 8), step=(1, 1))


def y2(g):
    return g.args["new"]


def dense(array):
    from tx8fast.ir.attrs import DenseAttr

    return DenseAttr(array)


def test_other_forms_are_copied() -> None:
    g = Graph()
    y = g("exp", g.args["cache"], mem_layout="blocked")
    u = g("kv_update", y, g.args["new"], g.args["at"], axis=0, mem_layout="dense")
    assert marks(g.done(y=u)) == "c"


@pytest.mark.parametrize(("why", "results", "expected"), [
    ("nobody needs it", lambda g, y: {"a": call(g, y)}, "i"),
    ("an input that is state", lambda g, y: {"a": call(g, g.args["cache"])}, "i"),
    ("an input that is none", lambda g, y: {"a": g("neg", call(g, g.args["cache"]))}, "c"),
    ("a parameter", lambda g, y: {"a": call(g, g.param("w", (4, 8)))}, "c"),
    ("read after the call", lambda g, y: (lambda c: {"a": g("add", c, y)})(call(g, y)), "c"),
    ("another shape read after the call", lambda g, y: (lambda v, c: {"a": c, "b": g("neg", v)})(g.view(y), call(g, y)), "c"),
    ("one of two calls needs it", lambda g, y: {"a": call(g, call(g, y)), "b": g("neg", y)}, "c"),
    ("a second call of the same", lambda g, y: {"a": call(g, y), "b": call(g, y)}, "c"),
    ("one after the other", lambda g, y: {"a": call(g, call(g, y))}, "i"),
    ("a part of it is passed too", lambda g, y: {"a": g.call("layer", y, row(g, y), g.args["at"])[0]}, "i"),
    ("returned as it is", lambda g, y: {"a": call(g, y), "b": y}, "c"),
])  # fmt: skip
def test_a_function_writes_over_arguments_that_all_callers_can_spare(why, results, expected) -> None:
    g = Graph()
    g.layer()
    g.end(y=g.update(g.args["cache"]))
    g.main()
    y = g("exp", g.args["cache"])
    assert marks(g.done(**results(g, y))) == expected, why


@pytest.mark.parametrize("twice", [False, True])
def test_a_value_passed_under_two_names_is_kept(twice: bool) -> None:
    g = Graph()
    g.top.first.erase()
    g.begin("subgraph", "layer", **CACHE, other=((4, 8), "f32"))
    g.end(y=g("add", g.update(g.args["cache"]), g.args["other"]))
    g.main()
    y = g("exp", g.args["cache"])
    other = back(g, g.view(y)) if twice else g("neg", y)
    result = g.call("layer", y, g.args["new"], g.args["at"], other)[0]
    assert marks(g.done(y=result)) == ("c" if twice else "i")


def call(g, v):
    return g.call("layer", v, g.args["new"], g.args["at"])[0]


@pytest.mark.parametrize(("why", "returned", "expected"), [
    ("the argument handed back", lambda g: [g.args["cache"], g("neg", g.args["cache"])], "c"),
    ("a view of it", lambda g: [back(g, g.view(g.args["cache"])), g("neg", g.args["cache"])], "c"),
    ("two results that are one", lambda g: (lambda n: [n, back(g, g.view(n))])(g("neg", g.args["cache"])), "c"),
    ("a parameter", lambda g: [g.param("w", (4, 8)), g("neg", g.args["cache"])], "c"),
    ("values of its own", lambda g: [g("abs", g.args["cache"]), g("neg", g.args["cache"])], "i"),
])  # fmt: skip
def test_updates_of_results_of_a_call(why, returned, expected) -> None:
    """The first result is updated; the argument and the second result are read afterwards."""
    g = Graph()
    g.layer()
    first, second = returned(g)
    g.end(a=first, b=second)
    g.main()
    y = g("exp", g.args["cache"])
    a, b = g.call("layer", y, g.args["new"], g.args["at"], n=2)
    assert marks(g.done(u=g.update(a), v=g("abs", b), w=g("abs", y))) == expected, why


@pytest.mark.parametrize("seed", range(20))
def test_replay_in_shared_memory(seed: int) -> None:
    """Reshapes are views, marked updates write through: the numbers stay."""
    rng = np.random.default_rng(seed)
    g = SmallGraph(a=((2, 4), "f32"), b=((2, 4), "f32"))
    values = list(g.args.values())
    for _ in range(20):
        kind = str(rng.choice(["scatter", "scatter", "add", "neg", "reshape"]))
        x = values[int(rng.integers(max(0, len(values) - 5), len(values)))]
        other = values[int(rng.integers(len(values)))]
        if kind == "reshape":
            values.append(g("reshape", g("reshape", x, shape=(4, 2)), shape=(2, 4)))
        elif kind == "scatter":
            index = g("constant", value=dense(rng.integers(0, 2, (1, 4))))
            new = g("slice", other, start=(0, 0), size=(1, 4), step=(1, 1))
            values.append(g("scatter", x, index, new, axis=0))
        else:
            values.append(g(kind, x, other) if kind == "add" else g(kind, x))
    program = g.done(**{f"r{i}": v for i, v in enumerate(values[-2:])})
    given = [rng.uniform(-1, 1, (2, 4)).astype(np.float32) for _ in range(2)]
    stats = run_pipeline(program, "dce,functional-to-inplace")[1].result.stats
    assert stats["reused"] + stats["copied"] > 0
    expected = run_aliased(program, given)[:2]
    for found, right in zip(run_aliased(program, given, reuse=REUSE), expected):
        np.testing.assert_array_equal(found, right)
