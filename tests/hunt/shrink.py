"""The smallest model that still fails in the same way: fewer outputs, fewer nodes, smaller dimensions.

Works on any ONNX model with its inputs. Every step is tried on a copy; one that keeps the failure is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from hunt.checks import Case, Check, judge
from hunt.execute import Failure, Refused
from hunt.formats import NARROW, array_of, subgraphs, tensor
from hunt.oracle import Oracle
from hunt.reference import Arrays, NoReference
from onnx import ModelProto, helper

Candidate = tuple[ModelProto, Arrays]
SMALLER = (1, 2, 3, 4, 5, 8, 16, 32, 63, 64, 65, 127, 128)


def fails(case: Case, bucket: str, excess: float, checks: Sequence[Check] | None = None) -> bool:
    """True if a case fails in the way `bucket`; a wrong value must stay as clearly wrong."""
    try:
        failure = judge(case, checks)
    except (Refused, NoReference):
        return False
    return failure is not None and failure.bucket == bucket and case.excess >= min(excess / 4, 8.0)


def shrink(case: Case, failure: Failure, seconds: float = 30.0, beat: Callable[[], None] = lambda: None) -> Case:
    """Return a case that fails in the same bucket and of which no step leaves less; the best found in `seconds`."""
    end = time.monotonic() + seconds
    best, checks = _narrowed(case, failure)
    again = True
    while again and time.monotonic() < end:
        again = False
        for step in (_fewer_outputs, _cut_nodes, _bypassed, _smaller_dims, _simpler_weights):
            progress = True
            while progress and time.monotonic() < end:
                progress = False
                for model, feeds in step(best):
                    if time.monotonic() > end:
                        break
                    beat()
                    trial = Case(model, feeds, best.setting, case.seed, case.slack)
                    if _size(trial) < _size(best) and _holds(trial, failure.bucket, case.excess, checks):
                        best = trial
                        again = progress = True
                        break
    return best


def _narrowed(case: Case, failure: Failure) -> tuple[Case, Sequence[Check] | None]:
    """Return the case at the setting where it failed, and the one judge that sees it; the case as it is if that is not enough."""
    if case.failed is not None:
        check, setting = case.failed
        trial = Case(case.model, case.feeds, setting, case.seed, case.slack)
        if _holds(trial, failure.bucket, case.excess, [check]):
            return trial, [check]
    return case, None


def _holds(trial: Case, bucket: str, excess: float, checks: Sequence[Check] | None) -> bool:
    try:
        return fails(trial, bucket, excess, checks)
    except Exception:  # a candidate that is no model at all; onnx and the reference have many words for it
        return False


def _size(case: Case) -> tuple[int, int, int, int]:
    g = case.model.graph
    elements = sum(a.size for a in case.feeds.values()) + sum(int(np.prod(t.dims)) for t in g.initializer)
    return len(g.node), len(g.output), elements, _spread(case)


def _spread(case: Case) -> int:
    """How many stored numbers are not a plain 1."""
    return sum(int((array_of(t) != 1).sum()) for t in case.model.graph.initializer)


def _copy(model: ModelProto) -> ModelProto:
    new = ModelProto()
    new.CopyFrom(model)
    return new


def _fewer_outputs(case: Case) -> Iterator[Candidate]:
    outputs = list(case.model.graph.output)
    if len(outputs) == 1:
        return
    for keep in ([o] for o in outputs):
        yield pruned(case.model, keep, case.feeds)
    for k in range(len(outputs)):
        yield pruned(case.model, outputs[:k] + outputs[k + 1 :], case.feeds)


def _cut_nodes(case: Case) -> Iterator[Candidate]:
    """A value becomes an input, or an output; what is then unread goes."""
    try:
        oracle = case.oracle
    except NoReference:
        return
    g = case.model.graph
    for node in reversed(g.node):
        for name in node.output:
            if name in oracle.values and not any(o.name == name for o in g.output):
                yield pruned(case.model, [info_of(oracle, name)], case.feeds)
    for node in g.node:
        new, feeds = _copy(case.model), dict(case.feeds)
        for name in [o for o in node.output if o in oracle.values]:
            if any(o.name == name for o in g.output):
                break
            new.graph.input.append(info_of(oracle, name))
            code = oracle.codes.get(name, 0)
            narrow = (
                code in NARROW
            )  # an input has the numbers of its format, which the reference's wide ones need not be
            feeds[name] = array_of(tensor(name, oracle.values[name], code)) if narrow else oracle.values[name]
        else:
            kept = [n for n in new.graph.node if n.output[0] != node.output[0]]
            del new.graph.node[:]
            new.graph.node.extend(kept)
            yield pruned(new, list(new.graph.output), feeds)


def info_of(oracle: Oracle, name: str):
    array = oracle.values[name]
    code = oracle.codes.get(name) or helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, code, array.shape)


def _bypassed(case: Case) -> Iterator[Candidate]:
    """A node's readers read one of its operands of the same shape."""
    try:
        oracle = case.oracle
    except NoReference:
        return
    g = case.model.graph
    shapes = {n: (a.shape, a.dtype) for n, a in oracle.values.items()}
    shapes |= {t.name: (tuple(t.dims), array_of(t).dtype) for t in g.initializer}
    for node in g.node:
        out = node.output[0]
        for name in dict.fromkeys(node.input):
            if shapes.get(name) is None or shapes.get(name) != shapes.get(out):
                continue
            new = _copy(case.model)
            for n in new.graph.node:
                n.input[:] = [name if i == out else i for i in n.input]
            outs = [o for o in new.graph.output if o.name != out]
            if outs:
                yield pruned(new, outs, case.feeds)


def _smaller_dims(case: Case) -> Iterator[Candidate]:
    """All dimensions of one size become smaller, in inputs, stored tensors and the numbers of shapes."""
    g = case.model.graph
    sizes = {d for a in case.feeds.values() for d in a.shape} | {d for t in g.initializer for d in t.dims}
    for size in sorted(sizes, reverse=True):
        for small in SMALLER:
            if small < size:
                yield _resized(case, size, small)


def _resized(case: Case, size: int, small: int) -> Candidate:
    new = _copy(case.model)

    def cut(a: np.ndarray) -> np.ndarray:
        a = a[tuple(slice(0, small if d == size else d) for d in a.shape)]
        if a.dtype == np.int64 and a.ndim <= 1 and a.size <= 8:
            a = np.where(a == size, small, a)
        return np.ascontiguousarray(a).reshape(a.shape)

    for t in new.graph.initializer:
        t.CopyFrom(tensor(t.name, cut(array_of(t)), t.data_type))
    feeds = {k: cut(a) for k, a in case.feeds.items()}
    for info in new.graph.input:
        if info.name in feeds:
            dims = feeds[info.name].shape
            info.CopyFrom(helper.make_tensor_value_info(info.name, info.type.tensor_type.elem_type, dims))
    values = Oracle(_shapeless(new), feeds).plain if _can(new, feeds) else {}
    for info in new.graph.output:
        if info.name in values:
            dims = values[info.name].shape
            info.CopyFrom(helper.make_tensor_value_info(info.name, info.type.tensor_type.elem_type, dims))
    return new, feeds


def _can(model: ModelProto, feeds: Arrays) -> bool:
    try:
        Oracle(_shapeless(model), feeds)
    except Exception:  # as in `_holds`
        return False
    return True


def _shapeless(model: ModelProto) -> ModelProto:
    new = _copy(model)
    for info in new.graph.output:
        info.type.tensor_type.ClearField("shape")
    return new


def _simpler_weights(case: Case) -> Iterator[Candidate]:
    for k, t in enumerate(case.model.graph.initializer):
        a = array_of(t)
        if a.dtype.kind == "f" and (a != 1).any():
            new = _copy(case.model)
            new.graph.initializer[k].CopyFrom(tensor(t.name, np.ones_like(a), t.data_type))
            yield new, case.feeds


def pruned(model: ModelProto, outputs: list, feeds: Arrays) -> Candidate:
    """Return the model with these outputs and nothing that they do not need."""
    new = _copy(model)
    g = new.graph
    need = {o.name for o in outputs}
    kept = []
    for node in reversed(list(g.node)):
        if any(o in need for o in node.output):
            kept.append(node)
            need.update(i for i in node.input if i)
            need.update(i for inner in subgraphs(node) for n in inner.node for i in n.input)
    stored = [t for t in g.initializer if t.name in need]
    ins = [i for i in g.input if i.name in need]
    for part, items in ((g.node, kept[::-1]), (g.initializer, stored), (g.input, ins), (g.output, outputs)):
        copies: list[Any] = []
        for item in list[Any](items):
            copy = type(item)()
            copy.CopyFrom(item)
            copies.append(copy)
        del part[:]
        part.extend(copies)
    del g.value_info[:]
    return new, {k: a for k, a in feeds.items() if k in need}
