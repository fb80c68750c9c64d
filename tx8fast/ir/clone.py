"""Copies of ops, and comparison of graphs by structure.

May import: ir.core, ir.printer. Must not: know particular ops.
"""

from __future__ import annotations

import hashlib

from tx8fast.ir.core import Op, Region, Value
from tx8fast.ir.printer import format_attr

#: attributes that name things or point at weights; two layers that differ only here are equal
NOT_STRUCTURE = frozenset(
    {
        "key",
        "keys",
        "sym_name",
        "repeat_key",
        "group_id",
        "template_id",
        "arg_names",
        "result_names",
        "const_map_id",
    }
)


def clone_op(op: Op, mapping: dict[Value, Value] | None = None) -> Op:
    """Return a detached deep copy of `op`.

    Operands are translated through `mapping` (values not in it stay); results and block arguments
    of the copy are entered into it. Attribute values are immutable and shared, dictionaries copied.
    """
    return _clone(op, {} if mapping is None else mapping)


def _clone(op: Op, mapping: dict[Value, Value]) -> Op:
    get = mapping.get
    results = op.results
    copy = Op(op.info, [get(v, v) for v in op.operands], [r.type for r in results], op.attrs.copy())
    copy.loc = op.loc
    for old, new in zip(results, copy.results):
        new.name = old.name
        mapping[old] = new
    if op.regions:
        for region in op.regions:
            new_region = Region(copy)
            copy.regions.append(new_region)
            for block in region.blocks:
                new_block = new_region.add_block([a.type for a in block.args])
                for a, b in zip(block.args, new_block.args):
                    b.name = a.name
                    mapping[a] = b
                append = new_block.append
                inner = block.first
                while inner is not None:
                    append(_clone(inner, mapping))
                    inner = inner.next
    return copy


def equal(a: Op, b: Op) -> bool:
    """True if two ops have the same kinds, attributes (run-time ones too), types, wiring and regions.

    The ops may belong to different contexts. Values defined outside both must be the same objects.
    """
    return _equal(a, b, {})


def _equal(a: Op, b: Op, mapping: dict[Value, Value]) -> bool:
    if (
        a.name != b.name
        or len(a.operands) != len(b.operands)
        or len(a.results) != len(b.results)
        or len(a.regions) != len(b.regions)
        or a.attrs.keys() != b.attrs.keys()
    ):
        return False
    for name, x in a.attrs.items():
        y = b.attrs[name]
        if type(x) is not type(y) or (x is not y and format_attr(x) != format_attr(y)):
            return False
    if any(mapping.get(x, x) is not y for x, y in zip(a.operands, b.operands)):
        return False
    for x, y in zip(a.results, b.results):
        if x.type.text != y.type.text:
            return False
        mapping[x] = y
    for p, q in zip(a.regions, b.regions):
        if len(p.blocks) != len(q.blocks):
            return False
        for s, t in zip(p.blocks, q.blocks):
            if len(s) != len(t) or [v.type.text for v in s.args] != [v.type.text for v in t.args]:
                return False
            mapping.update(zip(s.args, t.args))
            if not all(_equal(x, y, mapping) for x, y in zip(s, t)):
                return False
    return True


def structural_key(op: Op) -> str:
    """Return a hexadecimal key of the op's kind, attributes, types, wiring and regions.

    Names, weight keys and run-time attributes do not count, so equal layers have one key.
    """
    digest = hashlib.sha256()
    numbers: dict[Value, int] = {}
    for at in op.walk():
        listed = [(n, format_attr(at.attrs.get(n))) for n in at.info.attrs if n not in NOT_STRUCTURE]
        wiring = [numbers.setdefault(v, len(numbers)) for v in at.operands] if at is not op else []
        ins = [v.type.text for v in at.operands]
        outs = [v.type.text for v in at.results]
        shape = [[[a.type.text for a in b.args] + [str(len(b))] for b in r.blocks] for r in at.regions]
        if at is not op:
            for v in at.results:
                numbers[v] = len(numbers)
        for r in at.regions:
            for b in r.blocks:
                for a in b.args:
                    numbers[a] = len(numbers)
        digest.update(repr((at.name, listed, wiring, ins, outs, shape)).encode())
    return digest.hexdigest()
