"""How a value is put through each operator that the importer has a handler for.

A recipe is `recipe(draft, x, op) -> Value`: it adds the operator with `x` as one of its inputs, inventing the others,
or raises Unfit. Operators without a recipe are called as their ONNX declaration says, so a new one joins by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np
from hunt.draft import Draft, Unfit, Value, schema, type_text
from onnx import defs

from tx8fast.frontend.onnx import supported_ops

Recipe = Callable[[Draft, Value, str], Value]
Kind = tuple[str, str]  # domain, operator
RECIPES: dict[Kind, list[Recipe]] = {}
#: operators that take no tensor, or only numbers that a model knows
SOURCES = ("Constant", "MelWeightMatrix")
#: names that the reference does not know: it has these operators under ONNX's own domain, where they are hunted; and what makes and reads
#: sequences, which are no values of a draft: `idioms_exports.py` has some in a branch
ELSEWHERE = (
    ("com.microsoft", "LayerNormalization"),
    ("com.microsoft", "SimplifiedLayerNormalization"),
    *(("", f"Sequence{what}") for what in ("At", "Construct", "Empty", "Erase", "Insert", "Length")),
    ("", "SplitToSequence"),
    ("", "ConcatFromSequence"),
)
#: operators whose result has a shape, or whose choice is one, that must be known when the program is made
STATIC = ("BlackmanWindow", "HammingWindow", "HannWindow", "NonZero", "Unique", "Range", "ConstantOfShape")
#: of these, those that count numbers by what they are
SIZED = ("NonZero", "Unique")
#: float numbers below this may be roundings of nothing: the end of a window in f32, 3e-8, after a fourth root
NEARLY_NOTHING = 2e-2
Optional, Variadic = defs.OpSchema.FormalParameterOption.Optional, defs.OpSchema.FormalParameterOption.Variadic


def recipe(*ops: str, domain: str = "") -> Callable[[Recipe], Recipe]:
    def register(function: Recipe) -> Recipe:
        for op in ops:
            RECIPES.setdefault((domain, op), []).append(function)
        return function

    return register


def name_of(kind: Kind) -> str:
    return kind[1] if not kind[0] else f"{kind[0]}.{kind[1]}"


@lru_cache(maxsize=1)
def recipes() -> dict[Kind, list[Recipe]]:
    """Return the recipes of all modules, which import this one."""
    from hunt import recipes_index, recipes_misc, recipes_network, recipes_shape  # noqa: F401  they register themselves

    return RECIPES


@lru_cache(maxsize=1)
def kinds() -> tuple[Kind, ...]:
    """Return every operator to hunt: those of the importer, less what newer operator sets withdrew."""
    found = []
    for kind in supported_ops():
        declared = schema(kind[1]) if not kind[0] else None
        if declared is not None and declared.deprecated:
            continue
        if declared is None and kind not in recipes():
            continue  # a former name of a contributed operator
        if kind[1] not in SOURCES and kind not in ELSEWHERE:
            found.append(kind)
    return tuple(sorted(found))


def apply(d: Draft, x: Value, kind: Kind) -> Value:
    """Put `x` through an operator. Raises Unfit, and the draft may then hold values that nothing reads."""
    if not accepts(kind, x):
        raise Unfit(f"{kind[1]} does not take this element type")
    if kind[1] in STATIC and not x.static:
        raise Unfit(f"{kind[1]} needs a value that is known")
    if kind[1] in SIZED and x.kind == "node" and x.is_float and not (np.abs(x.array) > NEARLY_NOTHING).all():
        raise Unfit(f"how many results {kind[1]} has depends on how what is nearly nothing was rounded")
    if kind[1].endswith("Window") and x.rank:
        raise Unfit(f"{kind[1]} needs one number")
    known = recipes().get(kind)
    return d.pick(known)(d, x, kind[1]) if known else declared_call(d, x, kind[1])


@cache
def admitted(kind: Kind) -> frozenset[str] | None:
    """Return the ONNX type texts that any input admits (None: unknown)."""
    s = schema(kind[1]) if not kind[0] else None
    if s is None:
        return None
    table = {c.type_param_str: c.allowed_type_strs for c in s.type_constraints}
    return frozenset(t for i in s.inputs for t in table.get(i.type_str, [i.type_str]))


@cache
def produced(kind: Kind) -> frozenset[str] | None:
    """Return the ONNX type texts of an operator's first result (None: unknown)."""
    s = schema(kind[1]) if not kind[0] else None
    if s is None:
        return None
    table = {c.type_param_str: c.allowed_type_strs for c in s.type_constraints}
    return frozenset(table.get(s.outputs[0].type_str, [s.outputs[0].type_str]))


def accepts(kind: Kind, x: Value) -> bool:
    types = admitted(kind)
    return types is None or type_text(x.code) in types


def possible(producer: Kind, consumer: Kind) -> bool:
    """True unless the element types rule out that one reads the other."""
    made, taken = produced(producer), admitted(consumer)
    return made is None or taken is None or bool(made & taken)


def declared_call(d: Draft, x: Value, op: str) -> Value:
    """Call an operator as declared: required inputs of x's type variable have its shape, or one that broadcasts."""
    s = schema(op)
    if s is None or not s.inputs:
        raise Unfit(f"{op} needs a recipe")
    table = {c.type_param_str: c.allowed_type_strs for c in s.type_constraints}
    inputs: list[Value | None] = []
    formals = [i for i in s.inputs if i.option != Optional]
    text = type_text(x.code)
    places = [k for k, i in enumerate(formals) if text in table.get(i.type_str, [i.type_str])]
    if not places:
        raise Unfit(f"{op} does not take this element type")
    at = d.pick(places)
    for k, formal in enumerate(formals):
        if k == at:
            inputs.append(x)
        elif formal.type_str == formals[at].type_str:
            inputs.append(broadcastable(d, x))
        else:
            raise Unfit(f"{op} needs a recipe for its input {formal.name}")
    if s.inputs[-1].option == Variadic:
        inputs += [broadcastable(d, x) for _ in range(d.int(0, 3))]
        d.rng.shuffle(inputs)  # type: ignore[arg-type]
    return d.op(op, *inputs)


def broadcastable(d: Draft, x: Value, profile: str = "normal") -> Value:
    """Return a second operand: of x's shape, x itself, a row, a column, a scalar, or with broadcast dimensions."""
    way = d.int(0, 9)
    if way < 4 or not x.rank:
        return d.like(x, profile=profile)
    if way == 4:
        return x
    if way == 5:
        return d.like(x, x.shape[-1:], profile)
    if way == 6:
        return d.like(x, (*x.shape[:-1], 1), profile)
    if way == 7:
        return d.like(x, (), profile)
    shape = tuple(s if d.chance(0.5) else 1 for s in x.shape)
    return d.like(x, shape[d.int(0, x.rank - 1) :] if way == 8 else shape, profile)
