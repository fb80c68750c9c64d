"""The shape of attention: two products, of which the second one sums over the scores that the first one makes.

May import: graph_table, lower.{base, contraction, links}. Must not: emit instructions.
"""

from __future__ import annotations

from tx8fast.graph_table import GroupRecord
from tx8fast.lower.base import NotLowerable
from tx8fast.lower.contraction import Contraction
from tx8fast.lower.links import Link, through


def check_shape(record: GroupRecord, first: Contraction, second: Contraction, dtype: str) -> None:
    """Raise NotLowerable with what is not as attention has it. dtype: of the scores."""
    scores, *_, softmax, mix = record.ops
    at = len(record.ops) - 1
    wired = record.wires[-2][0] == ("op", at - 2) and record.wires[-1][second.arguments()[0]] == ("op", at - 1)
    if not wired or record.outputs != (at,) or second.bias or first.bias or softmax.attr("log"):
        raise NotLowerable("not the shape of attention")
    if any(dict(p.attrs).get("act", "none") != "none" for p in (scores, mix)):
        raise NotLowerable("attention's products apply no activation")
    if softmax.attr("axis") not in (-1, len(scores.results[0].shape) - 1):
        raise NotLowerable("attention normalises the last dimension")
    if {softmax.results[0].dtype, mix.results[0].dtype} != {dtype} or first.l_trs or second.l_trs:
        raise NotLowerable("attention needs one float format and row-major queries")
    if first.swapped or second.swapped:
        raise NotLowerable("operands are in the wrong order")


def through_scores(first: Contraction, second: Contraction, index: dict[int, Link]) -> list[Link]:
    """Return the links of the second product's factors, found through the probabilities' dimensions. index: of the first one's."""
    links = [Link(-1, n) for n in second.sizes]
    for g, f in through(first.rule, second.rule, "the probabilities").items():
        if f in index:
            links[g] = index[f]
    rows = [index[f].factor for f in first.m]
    if [links[g].factor for g in second.m] != rows:
        raise NotLowerable("the two products order rows differently")
    if [links[g].factor for g in second.k] != [index[f].factor for f in first.n]:
        raise NotLowerable("the mix does not sum over the scores' columns")
    if {links[g].factor for g in second.batch} != {index[f].factor for f in first.batch}:
        raise NotLowerable("the two products have different batches")
    return links
