"""Versions of the text form: which one a file states, and how an older one becomes the present one.

May import: ir.core, ir.attr_reader, ir.parser, errors. Must not: verify the result; an upgrade function knows the
kinds of its old version by name only.

`module` states `ir_version = [major, minor]`. A new minor version adds kinds or optional attributes; any other
change is a new major version and brings entries in `UPGRADES`. An older file is read as a *generic* tree, in which
any kind with any attributes is legal; the upgrades of its major version and of all later ones edit that tree, which
is then built anew with the present definitions.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tx8fast.errors import VerifyError
from tx8fast.ir.attr_reader import AttrReader
from tx8fast.ir.core import ISOLATED, Block, Context, Op, OpInfo, Value
from tx8fast.ir.parser import parse_op

CURRENT: tuple[int, int] = (2, 0)
#: changes one op of the generic tree; it may insert, replace and erase ops of the tree
Upgrade = Callable[["GenericContext", Op], None]

_VERSION = re.compile(r'\s*"tx8be\.module"\(\) <\{[^}]*?\bir_version = ([^<>{}]*?(?:<[^>]*>)?)(?:, \w+ = |\}>)')
_ANY_NAMES = ("x*",)


def _pair_version(ctx: GenericContext, op: Op) -> None:
    """Version 1 stated one number."""
    op.attrs["ir_version"] = (2, 0)


#: major version -> what leads from it to the next one: (op name, function), applied in this order
UPGRADES: dict[int, tuple[tuple[str, Upgrade], ...]] = {1: (("tx8be.module", _pair_version),)}


class _AnyAttrs(dict):
    """Lists no attribute and accepts every name."""

    def __contains__(self, name: object) -> bool:
        return True


class _AnyInfos(dict):
    """Makes a permissive record of every kind asked for."""

    def get(self, name: str, default: Any = None) -> OpInfo:
        found = dict.get(self, name)
        if found is None:
            found = self[name] = OpInfo(name, len(self), _ANY_NAMES, _ANY_NAMES, _AnyAttrs(), ISOLATED)
        return found


class GenericContext(Context):
    """A context in which every kind exists, with any operands, results, attributes and regions.

    It shares the types and readers of `target`, the context that the tree will be built in.
    """

    def __init__(self, target: Context) -> None:
        super().__init__()
        self.types, self.attr_classes, self.type_readers = target.types, target.attr_classes, target.type_readers
        self.infos = _AnyInfos()

    def info(self, name: str) -> OpInfo:
        return self.infos.get(name if "." in name else "tx8be." + name)  # type: ignore[return-value]

    def create(
        self,
        name: str,
        operands: Sequence[Value] = (),
        result_types: Sequence[Any] | None = None,
        loc: str | None = None,
        n_regions: int = 0,
        **given: Any,
    ) -> Op:
        op = Op(self.info(name), operands, result_types or (), given, n_regions)
        op.loc = loc
        return op


def stated_version(ctx: Context, text: str) -> tuple[int, int]:
    """Return the version a text states; text without a module, or a module without a version, is of the present one."""
    head = text.lstrip()
    while head.startswith("//"):
        head = head.partition("\n")[2].lstrip()
    m = _VERSION.match(head.partition("\n")[0])
    if m is None:
        return CURRENT
    reader = AttrReader(ctx, f"v = {m[1]}")
    value = reader.entries("")["v"]
    if type(value) is int:  # version 1
        return value, 0
    if type(value) is tuple and len(value) == 2 and all(type(n) is int for n in value):
        return value  # type: ignore[return-value]
    raise VerifyError(f"ir_version: expected [major, minor], found {m[1]}")


def read_text(
    ctx: Context,
    text: str,
    filename: str = "<text>",
    current: tuple[int, int] = CURRENT,
    upgrades: Mapping[int, Sequence[tuple[str, Upgrade]]] | None = None,
) -> Op:
    """Read a module of this or an older version; the result states the present one.

    A newer minor version warns and is read as far as its kinds are known. Raises VerifyError for a newer major
    version, for one without upgrades, and for malformed text.
    """
    upgrades = UPGRADES if upgrades is None else upgrades
    try:
        found = stated_version(ctx, text)
    except VerifyError as error:
        raise VerifyError(f"{filename}: {error}") from None
    if found[0] > current[0]:
        raise VerifyError(
            f"{filename}: the text is of version {_dotted(found)}, this compiler reads up to {current[0]}.x; "
            "a newer compiler reads it"
        )
    if found[0] == current[0]:
        if found > current:
            warnings.warn(
                f"{filename}: the text is of version {_dotted(found)}, newer than {_dotted(current)}; kinds it adds "
                "are not known",
                stacklevel=2,
            )
        root = parse_op(ctx, text, filename)
        _check_age(ctx, root, found, filename)
        return root
    # only to the first that is missing: what the text says may lie far below all versions
    missing = next((v for v in range(found[0], current[0]) if v not in upgrades), None)
    if missing is not None:
        raise VerifyError(f"{filename}: the text is of version {_dotted(found)}; nothing upgrades version {missing}")
    generic = GenericContext(ctx)
    root = parse_op(generic, text, filename)
    _check_age(ctx, root, found, filename)
    for version in range(found[0], current[0]):
        for name, upgrade in upgrades[version]:
            for op in list(root.walk()):
                if op.name == name and (op is root or op.block is not None):
                    upgrade(generic, op)
    return _build(ctx, root, {}, filename)


def _check_age(ctx: Context, root: Op, stated: tuple[int, int], filename: str) -> None:
    """Raise VerifyError naming the kinds that came later than the version the text states."""
    late = {op.name: ctx.infos[op.name].since for op in root.walk() if op.name in ctx.infos}
    late = {name: since for name, since in late.items() if since > stated}
    if late:
        listed = ", ".join(f"{name} (since {_dotted(since)})" for name, since in late.items())
        raise VerifyError(f"{filename}: the text is of version {_dotted(stated)} and has later kinds: {listed}")


def _build(ctx: Context, old: Op, mapping: dict[Value, Value], filename: str) -> Op:
    """Build an op of the generic tree with the definitions of `ctx`, which check and default its attributes."""
    operands = [mapping[v] for v in old.operands]
    try:
        op = ctx.create(old.name, operands, [r.type for r in old.results], old.loc, 0, **old.attrs)
    except VerifyError as error:
        raise VerifyError(f"{filename}: after its upgrade: {error}") from None
    op.attrs.update((n, None) for n, value in old.attrs.items() if value is None)  # stated to be absent
    for a, b in zip(old.results, op.results):
        mapping[a] = b
    for region in old.regions:
        made = type(region)(op)
        op.regions.append(made)
        for block in region.blocks:
            _build_block(ctx, block, made.add_block([a.type for a in block.args]), mapping, filename)
    return op


def _build_block(ctx: Context, old: Block, new: Block, mapping: dict[Value, Value], filename: str) -> None:
    mapping.update(zip(old.args, new.args))
    for op in old:
        new.append(_build(ctx, op, mapping, filename))


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
