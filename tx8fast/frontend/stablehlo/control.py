"""Handlers of calls and regions: call, composite, custom_call, while with known trips, if, case, tuples of results.

May import: frontend.stablehlo.node, frontend.stablehlo.elementwise. Must not: unroll what is decided at run time.
"""

from __future__ import annotations

from tx8fast.frontend.stablehlo.node import Handler, Node
from tx8fast.frontend.stablehlo.view import Val

#: a loop is unrolled if it has at most so many rounds, and ops in all of them together
MAX_TRIPS, MAX_UNROLLED_OPS = 10_000, 40_000
_IDENTITIES = (
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "annotate_device_placement",
    "xla.sdy.FuncResultSharding",
)


def _call(n: Node) -> list[Val]:
    return n.importer.call(n.attr("callee").value, n.vals, n.where)


def _composite(n: Node):
    """A composite named like a function of CHLO, of one operand, is that function; any other is its decomposition."""
    name = n.text("name")
    handler = n.importer.handlers.get(name) if name.startswith("chlo.") else None
    if handler is not None and not n.attr("composite_attributes") and len(n) == 1 and n.shape == n[0].shape:
        return handler(n)
    return n.importer.call(n.attr("decomposition").value, n.vals, n.where)


def _custom_call(n: Node):
    target = n.text("call_target_name")
    if target in _IDENTITIES and len(n) == len(n.op.results):
        return list(n.vals)
    if target == "shape_assertion" and not n.op.results:
        return []
    hint = "; export the model for the platform 'cpu' without custom kernels"
    raise n.unsupported(f"custom call '{target}' has no meaning that this compiler knows{hint}")


def _while(n: Node) -> list[Val]:
    """Unroll: the condition must be known at import in every round."""
    cond, body = n.body(0), n.body(1)
    carried = list(n.vals)
    n_ops = sum(len(block.operations) for block in (cond, body))
    rounds = min(MAX_TRIPS, MAX_UNROLLED_OPS // max(n_ops, 1))
    for _ in range(rounds):
        go = n.importer.needed(n.importer.run_block(cond, list(carried)))[0].splat
        if go is None:
            raise n.unsupported(
                "the number of rounds of a loop depends on data; only loops with a known count are unrolled"
            )
        if not go:
            return carried
        carried = n.importer.needed(n.importer.run_block(body, list(carried)))
    raise n.unsupported(f"a loop of more than {rounds} rounds of {n_ops} ops is not unrolled")


def _case(n: Node) -> list[Val]:
    """A known branch alone; of unknown ones all are computed and one is chosen."""
    branches = len(n.op.regions)
    chosen = n[0].splat
    if n.name == "stablehlo.if":
        if chosen is not None:
            return _branch(n, 0 if chosen else 1)
        return _choose(n, n[0], _branch(n, 0), _branch(n, 1))
    if chosen is not None:
        return _branch(n, int(chosen) if 0 <= int(chosen) < branches else branches - 1)
    found = _branch(n, branches - 1)  # also the default
    for i in range(branches - 1):
        hit = n.v.elementwise("eq", n[0], n.v.splat(i, n[0]))
        found = _choose(n, hit, _branch(n, i), found)
    return found


def _branch(n: Node, i: int) -> list[Val]:
    return n.importer.needed(n.importer.run_block(n.body(i), []))


def _choose(n: Node, pred: Val, yes: list[Val], no: list[Val]) -> list[Val]:
    out = []
    for a, b in zip(yes, no, strict=True):
        if a is b:
            out.append(a)
            continue
        p = n.v.spread(pred, [], a.shape) if pred.rank == 0 else pred
        if a.dtype == "pred":
            wide = n.v.elementwise("select", p, n.v.converted(a, "u8"), n.v.converted(b, "u8"))
            out.append(n.v.converted(wide, "pred"))
        else:
            out.append(n.v.elementwise("select", p, a, b))
    return out


HANDLERS: dict[str, Handler] = {
    "func.call": _call,
    "stablehlo.composite": _composite,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.while": _while,
    "stablehlo.case": _case,
    "stablehlo.if": _case,
}
