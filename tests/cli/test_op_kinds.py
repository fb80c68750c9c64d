"""`tx8fast ops`: the kinds of ops as a table, and as data from which another program can read a graph."""

from __future__ import annotations

import functools
import json
import operator
from typing import Any

from tests.support.cli_case import Caller, refused
from tests.support.every_kind import every_kind
from tx8fast.ir import Context, new_context
from tx8fast.ir.attrs import DenseAttr, RegionAttr
from tx8fast.ir.core import REQUIRED, OpInfo
from tx8fast.ir.definitions import TRAITS
from tx8fast.ir.parser import parse_op
from tx8fast.ir.printer import print_op
from tx8fast.ir.versions import CURRENT


def registry(records: list[dict[str, Any]]) -> Context:
    """Return a context with the kinds that `tx8fast ops --json` lists; they have no meaning."""
    types = {t.__name__: t for t in (str, int, float, bool, tuple, DenseAttr, RegionAttr)}
    ctx = Context()
    for r in records:
        attrs = {}
        for a in r["attributes"]:
            kinds = tuple(types[t] for t in a["types"])
            default = a.get("default", REQUIRED)
            if type(default) is list:
                default = tuple(default)
            elif kinds == (float,) and default in ("inf", "-inf"):
                default = float(default)
            attrs[a["name"]] = kinds if len(kinds) > 1 else kinds[0], default
        traits = functools.reduce(operator.or_, [TRAITS[t] for t in r["traits"]], 0)
        names = tuple(r["operands"]), tuple(r["results"])
        ctx.register(OpInfo(r["name"], r["code"], *names, attrs, traits, since=tuple(r["since"])))
    return ctx


def test_the_listed_kinds_are_the_whole_registry_and_can_parse_a_graph(tx8: Caller) -> None:
    listed = tx8("ops", "--json")
    assert listed.code == 0, listed.err
    found = json.loads(listed.out)
    ctx, other = new_context(), registry(found["ops"])
    assert list(other.infos) == list(ctx.infos) and found["ir_version"] == list(CURRENT)
    for a, b in zip(other.infos.values(), ctx.infos.values(), strict=True):
        assert (a.code, a.ins, a.outs, a.attrs, a.since) == (b.code, b.ins, b.outs, b.attrs, b.since)
        assert a.traits == b.traits, f"{a.name}: a trait has no name in `definitions.TRAITS`"
    text = print_op(every_kind(ctx).module)
    assert print_op(parse_op(other, text)) == text


def test_the_table_of_kinds(tx8: Caller, tmp_path) -> None:
    lines = tx8("ops").out.splitlines()
    (gemm,) = [line for line in lines if line.startswith("tx8be.gemm ")]
    assert "lhs, rhs, bias?" in gemm and "trans_a=false" in gemm
    assert len(lines) == 2 + len(new_context().infos)
    assert 'tx8be.relu_,"' in tx8("ops", "--csv", "--columns", "op,traits").out
    refused(tx8, tmp_path, "ops", "--columns", "cycles", says=("cycles", "operands"))
    refused(tx8, tmp_path, "ops", "--csv", "--json", says=("two outputs",))
